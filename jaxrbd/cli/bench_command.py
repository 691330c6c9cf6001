"""`jaxrbd bench`: the times of the algorithms for one robot on this machine."""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..algorithms import (
    crba,
    forward_dynamics,
    forward_dynamics_derivatives,
    forward_kinematics,
    rnea,
    rnea_derivatives,
)
from ..configuration import random_configuration
from ..model import Model
from ..model.arguments import random_key
from ..tangent import gradient
from . import parsing
from .loading import load_in_precision
from .reports import print_report

CALLS = 5  # the least number of measured calls per job


def _gradient(model: Model, q: Array, v: Array, tau: Array) -> Array:
    """The gradient of `|forward_dynamics|^2` with respect to q."""
    return gradient(model, lambda q: jnp.sum(forward_dynamics(model, q, v, tau) ** 2))(q)


# Jobs by name: functions of the model, q, v, and an acceleration or joint forces.
JOBS: dict[str, Callable[[Model, Array, Array, Array], Any]] = {
    "forward_kinematics": lambda model, q, v, tau: forward_kinematics(model, q).X_WB,
    "rnea": rnea,
    "crba": lambda model, q, v, tau: crba(model, q),
    "forward_dynamics": forward_dynamics,
    "rnea_derivatives": rnea_derivatives,
    "forward_dynamics_derivatives": forward_dynamics_derivatives,
    "gradient": _gradient,
}


class Timing(NamedTuple):
    """The times of one job.

    - `compile_seconds`: the time of tracing and compilation, in s;
    - `fastest`, `median`: the time per state of the fastest call, and the median over the calls, in
      microseconds;
    - `states_per_second`: states per second in the fastest call.
    """

    job: str
    compile_seconds: float
    fastest: float
    median: float
    states_per_second: float


def add_parser(commands) -> None:
    """Add the command `bench` and its options to the commands."""
    command = commands.add_parser(
        "bench",
        help="measure the times of the algorithms for a robot on this machine",
        description=(
            "Compile each algorithm for a batch of random states, and measure the time per state. "
            "The compilation time is short if JAX finds the program in its compilation cache."
        ),
        epilog="example: jaxrbd bench arm7 --batch 256 --jobs rnea,forward_dynamics",
        formatter_class=parsing.HelpFormatter,
    )
    parsing.add_robot(command, nargs="?", default="quadruped")
    add = command.add_argument
    add("--batch", type=parsing.count, default=64, metavar="N", help="number of states")
    jobs = tuple(JOBS)
    text = f"some of {', '.join(jobs)} (default: all)"
    add("--jobs", type=parsing.some_of(jobs), metavar="A,B", help=text)
    add(
        "--seconds",
        type=parsing.positive,
        default=1.0,
        metavar="S",
        help="time of the calls of a job",
    )
    add("--seed", type=parsing.seed, default=0, metavar="N", help="seed of the random states")
    add("--float32", action="store_true", help="single precision instead of double")
    parsing.add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Time the jobs, and return the exit status."""
    jax.config.update("jax_enable_x64", True)
    model = load_in_precision(options)
    return print_report(options, lambda: time_jobs(model, options))


def time_jobs(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    """Time the jobs that the options name, print a row for each, and return the JSON object."""
    names = options.jobs or tuple(JOBS)
    device = jax.devices()[0]
    print(
        f"{model.name}: {model.nv} degrees of freedom, batch {options.batch}, {model.dtype}\n"
        f"{platform.processor() or platform.machine()}, {device.device_kind}, JAX {jax.__version__}"
    )
    print(f"{'job':30}{'compile':>10}{'fastest':>12}{'median':>12}{'states per second':>20}")
    timings = []
    for timing in measure(model, names, options.batch, options.seconds, options.seed):
        print(
            f"{timing.job:30}{timing.compile_seconds:8.2f} s{timing.fastest:9.3f} us"
            f"{timing.median:9.3f} us{timing.states_per_second:20,.0f}",
            flush=True,
        )
        timings.append(timing)
    return {
        "robot": model.name,
        "nv": model.nv,
        "batch": options.batch,
        "dtype": str(model.dtype),
        "platform": device.platform,
        "device": device.device_kind,
        "jax": jax.__version__,
        "jobs": [timing._asdict() for timing in timings],
    }


def measure(
    model: Model, names: Sequence[str], batch: int, seconds: float, seed: int
) -> Iterator[Timing]:
    """The times of each job for `batch` random states.

    The calls of a job are repeated for at least `seconds` s.
    """
    keys = jax.random.split(random_key(seed), 3)
    q = jax.vmap(random_configuration, (None, 0))(model, jax.random.split(keys[0], batch))
    v, tau = (jax.random.normal(key, (batch, model.nv), model.dtype) for key in keys[1:])
    for name in names:
        job = JOBS[name]
        batched = jax.jit(jax.vmap(lambda model, *state: job(model, *state), (None, 0, 0, 0)))
        begin = time.perf_counter()
        compiled = batched.lower(model, q, v, tau).compile()
        compile_seconds = time.perf_counter() - begin
        calls = _call_times(lambda: compiled(model, q, v, tau), seconds)
        fastest, median = (1e6 * x / batch for x in (min(calls), statistics.median(calls)))
        yield Timing(name, compile_seconds, fastest, median, 1e6 / fastest)


def _call_times(call: Callable[[], Any], seconds: float) -> list[float]:
    """The times of at least `CALLS` calls in s, whose sum is at least `seconds`.

    A first call is not measured.
    """
    jax.block_until_ready(call())
    times: list[float] = []
    while len(times) < CALLS or sum(times) < seconds:
        begin = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - begin)
    return times
