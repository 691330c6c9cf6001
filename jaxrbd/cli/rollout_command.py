"""`jaxrbd rollout`: simulate and differentiate a batch, measure, check and write the results."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..configuration import integrate, neutral
from ..errors import ArgumentError, JaxRBDError, require_package
from ..model import Model
from ..model.arguments import random_key
from ..view import save_html
from . import parsing
from .loading import load_in_precision
from .messages import print_warnings
from .outputs import make_folder, naming
from .reports import print_report
from .rollout import Trajectory, cost, energy_error, simulate

BLOCK = 128  # trajectories per call; a block fills the vector units and fits into the cache
SHOWN = 8  # trajectories in the page
SPREAD = 0.3  # standard deviation of the first configuration about neutral, rad or m
DIFFERENCE_STEP = 1e-5  # step of the central difference, relative to the scale of the torques


class Inputs(NamedTuple):
    """Start states and torques: `q` (batch, nq), `v` (batch, nv), `tau` (batch, n, nv)."""

    q: Array
    v: Array
    tau: Array


class Outputs(NamedTuple):
    """Trajectories of a batch with their `cost` (batch,) and `energy_error` (batch, n + 1)."""

    trajectory: Trajectory
    cost: Array
    energy_error: Array


def add_parser(commands) -> None:
    """Add the command `rollout` and its options to the commands."""
    command = commands.add_parser(
        "rollout",
        help="simulate a batch of random-torque trajectories and compute their gradients",
        description=(
            "Simulate a batch of trajectories under random joint torques, and compute the gradient "
            "of a cost of each trajectory with respect to its torques. Check the energy balance "
            "and the gradient. There is no ground: a robot with a free-flyer joint falls."
        ),
        epilog="example: jaxrbd rollout arm7 --batch 256 --dt 5e-4 --out arm",
        formatter_class=parsing.HelpFormatter,
    )
    parsing.add_robot(command, nargs="?", default="quadruped")
    add = command.add_argument
    add("--batch", type=parsing.count, default=1024, metavar="N", help="number of trajectories")
    add("--steps", type=parsing.count, default=100, metavar="N", help="time steps per trajectory")
    add(
        "--dt", type=parsing.positive, default=2e-3, metavar="S", help="length of a step in seconds"
    )
    add(
        "--torque",
        type=parsing.positive,
        default=0.1,
        metavar="F",
        help="fraction of the effort limits",
    )
    add("--undamped", action="store_true", help="set the joint damping to zero")
    add("--seed", type=parsing.seed, default=0, metavar="N", help="seed of the random numbers")
    add("--devices", type=parsing.count, default=1, metavar="N", help="use N devices")
    add("--float32", action="store_true", help="single precision instead of double")
    add("--no-plot", action="store_true", help="write no plot (matplotlib is not needed)")
    add("--html", metavar="FILE", help="write a page that plays the first eight trajectories")
    parsing.add_package(command)
    add("--out", metavar="DIR", help="output folder (default: rollout-ROBOT)")
    parsing.add_json(command)
    parsing.add_no_cache(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulate and differentiate a batch, and return the exit status."""
    # The gradient check needs double precision, also if the rollout uses single precision.
    jax.config.update("jax_enable_x64", True)
    devices = first_devices(options.devices)
    model = load_in_precision(options)
    with print_warnings():
        return print_report(options, lambda: run_batch(model, options, devices))


def first_devices(count: int) -> list[Any]:
    """The first `count` devices. Without an accelerator, JAX splits the CPU into `count` devices.

    Raises JaxRBDError if JAX has fewer devices: the machine has fewer accelerators, or JAX had
    started before this call and cannot split the CPU any more.
    """
    if count > 1:
        with contextlib.suppress(RuntimeError):  # raised if JAX has already started
            jax.config.update("jax_num_cpu_devices", count)
    found = jax.devices()
    if len(found) < count:
        raise JaxRBDError(
            f"--devices {count}: JAX has {len(found)} of platform {found[0].platform}"
        )
    return found[:count]


def run_batch(model: Model, options: argparse.Namespace, devices: Sequence[Any]) -> dict[str, Any]:
    """Simulate a batch, differentiate it, check the results, and return the object of `--json`.

    The function prints measurements, and writes `trajectories.npz`, `rollout.png` unless
    `options.no_plot` is set, and a page if `options.html` names a file.

    The function divides the batch into blocks of equal size. Block i goes to device i modulo the
    number of devices, and the devices work at the same time. So the results do not depend on the
    number of devices. Raises JaxRBDError if a package is missing or the trajectories become
    infinite or NaN, and OSError if a file cannot be written.
    """
    if not options.no_plot:
        require_package("matplotlib", "cli", "the plot", ", or --no-plot")
    if options.package and not options.html:
        raise ArgumentError("--package is for --html")
    if options.html:
        require_package("viser", "view", "--html")
    out = Path(options.out or f"rollout-{Path(options.robot).stem}")
    make_folder(out)

    model = _smooth(model, options.undamped)
    dt = jnp.asarray(options.dt, model.dtype)
    scale = options.torque * effort_scale(model)
    # If the memory is too small, the error is raised here, before the batch is divided.
    inputs = jax.block_until_ready(draw(model, scale, options))
    _report_inputs(model, scale, options, devices)
    model, inputs, dt = jax.device_put((model, inputs, dt), devices[0])

    outputs, simulation_times = _timed("simulate", simulate_batch, model, inputs, dt, devices)
    gradient, gradient_times = _timed("gradient", gradient_batch, model, inputs, dt, devices)
    if not all(np.all(np.isfinite(x)) for x in jax.tree.leaves((outputs, gradient))):
        raise JaxRBDError(
            "the trajectories become infinite or NaN: try a smaller --dt or --torque, or --undamped"
        )
    worst, median = np.max(outputs.energy_error), np.median(outputs.energy_error[:, -1])
    _say(
        "energy",
        f"relative error of the balance: largest {worst:.1e}, median at the end {median:.1e}",
    )
    error = gradient_error(model, inputs, dt, gradient, scale, options.seed)
    _say("check", f"relative difference of gradient and central difference: {error:.1e}")

    return {
        "robot": model.name,
        "batch": options.batch,
        "steps": options.steps,
        "dt": options.dt,
        "seed": options.seed,
        "nv": model.nv,
        "driven": int(np.count_nonzero(scale)),
        "dtype": model.dtype.name,
        "platform": devices[0].platform,
        "devices": len(devices),
        "simulate": simulation_times,
        "gradient": gradient_times,
        "energy_error": {"largest": float(worst), "median_at_end": float(median)},
        "gradient_error": error,
        "files": _write(out, model, options, inputs, outputs, gradient),
    }


def effort_scale(model: Model) -> np.ndarray:
    """The effort limit of each degree of freedom, (nv,); 0 without a limit."""
    effort = np.asarray(model.effort_limit, np.float64)
    return np.where(np.isfinite(effort), effort, 0.0)


def draw(model: Model, scale: np.ndarray, options: argparse.Namespace) -> Inputs:
    """A random batch: configurations near neutral, at rest; torques within +- `scale` (nv,)."""
    state_key, torque_key = jax.random.split(random_key(options.seed))
    displacement = SPREAD * jax.random.normal(state_key, (options.batch, model.nv), model.dtype)
    q = jax.vmap(integrate, (None, None, 0))(model, neutral(model), displacement)
    shape = (options.batch, options.steps, model.nv)
    tau = jax.random.uniform(torque_key, shape, model.dtype, -1, 1)
    tau = tau * jnp.asarray(scale[None, None], model.dtype)
    return Inputs(q, jnp.zeros_like(displacement), tau)


@jax.jit
def simulate_batch(model: Model, inputs: Inputs, dt: Array) -> Outputs:
    """Simulate every trajectory of a batch."""

    def single(q, v, tau):
        trajectory = simulate(model, q, v, tau, dt)
        return Outputs(
            trajectory, cost(model, trajectory, tau, dt), energy_error(model, trajectory)
        )

    return jax.vmap(single)(*inputs)


@jax.jit
def gradient_batch(model: Model, inputs: Inputs, dt: Array) -> Array:
    """The gradient of each trajectory's cost with respect to its torques, (batch, n, nv)."""

    def single_cost(tau, q, v):
        return cost(model, simulate(model, q, v, tau, dt), tau, dt)

    return jax.vmap(jax.grad(single_cost))(inputs.tau, inputs.q, inputs.v)


def gradient_error(
    model: Model, inputs: Inputs, dt: Array, gradient: np.ndarray, scale: np.ndarray, seed: int
) -> float:
    """The largest error of the slopes of the cost, relative to the largest reference slope.

    The slope of a trajectory is the derivative of its cost along a random direction of its torques,
    from `gradient`. The reference slope is a central difference in double precision. If all
    reference slopes are 0, the result is the largest absolute error. The function uses the first
    `BLOCK` trajectories. `scale` (nv,) scales the directions; the mean of the positive entries
    replaces entries of 0.
    """
    model, first, dt = jax.tree.map(
        lambda x: x.astype(jnp.float64), (model, jax.tree.map(lambda x: x[:BLOCK], inputs), dt)
    )
    fallback = np.mean(scale[scale > 0]) if np.any(scale > 0) else 1.0
    direction = jax.random.normal(
        jax.random.fold_in(random_key(seed), 1), first.tau.shape, jnp.float64
    )
    direction = direction * np.where(scale > 0, scale, fallback)[None, None]

    def costs(step):
        moved = first._replace(tau=first.tau + step * direction)
        return simulate_batch(model, moved, dt).cost

    difference = (costs(DIFFERENCE_STEP) - costs(-DIFFERENCE_STEP)) / (2 * DIFFERENCE_STEP)
    slope = np.sum(gradient[:BLOCK] * np.asarray(direction), axis=(1, 2))
    largest = np.max(np.abs(difference))
    return float(np.max(np.abs(slope - difference)) / (largest if largest > 0 else 1))


def _smooth(model: Model, undamped: bool) -> Model:
    """The model without dry friction, and if `undamped` without damping.

    Dry friction is not continuous in the velocity, and Runge-Kutta steps need continuous forces.
    Dissipation is off in the result, because `rollout.step` adds the damping itself.
    """
    if np.any(np.asarray(model.friction) > 0):
        _say("note", "dry friction is set to zero")
    model = model.with_dissipation(False)
    damping = jnp.zeros_like(model.damping) if undamped else model.damping
    return dataclasses.replace(model, friction=jnp.zeros_like(model.friction), damping=damping)


def _timed(
    label: str, function, model: Model, inputs: Inputs, dt: Array, devices: Sequence[Any]
) -> tuple[Any, dict[str, Any]]:
    """The results of `function` for the whole batch, as NumPy arrays, and the times in s.

    `_timed` also prints the times, and divides the batch into blocks, as `run_batch` describes.
    Every program is compiled for one device: a program that splits its batch over devices would
    have other rounding errors.
    """
    batch, steps = inputs.tau.shape[:2]
    blocks = _blocks(inputs)
    started = time.perf_counter()
    _progress(label, "compiling")
    used = devices[: len(blocks)]
    constants = [jax.device_put((model, dt), device) for device in used]

    def arguments(i: int) -> tuple[Model, Inputs, Array]:
        model, dt = constants[i % len(used)]
        return model, jax.device_put(blocks[i], used[i % len(used)]), dt

    programs = [function.lower(*arguments(i)) for i in range(len(used))]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda program: program.compile(), programs))
    compiled = time.perf_counter()
    done, running = [], deque()
    for i in range(len(blocks)):
        running.append(function(*arguments(i)))
        limit = 2 * len(used) if i + 1 < len(blocks) else 0
        while len(running) > limit:
            done.append(jax.device_get(running.popleft()))
            _progress(label, f"{len(done) / len(blocks):4.0%}")
    seconds = time.perf_counter() - compiled
    _say(
        label,
        f"{batch * steps} samples in {seconds:.2f} s, {batch * steps / seconds:.0f} samples/s "
        f"(after {compiled - started:.1f} s of compilation)",
    )
    results = jax.tree.map(lambda *parts: np.concatenate(parts)[:batch], *done)
    times = {"samples": batch * steps, "seconds": seconds, "compile_seconds": compiled - started}
    return results, times


def _blocks(inputs: Inputs) -> list[Inputs]:
    """The batch in blocks of equal size.

    If the last block is not full, the first trajectories of the batch are repeated to fill it.
    """
    batch = len(inputs.tau)
    size = min(BLOCK, batch)
    starts = range(0, batch, size)
    return [jax.tree.map(lambda x, i=i: x[jnp.arange(i, i + size) % batch], inputs) for i in starts]


def _write(
    out: Path,
    model: Model,
    options: argparse.Namespace,
    inputs: Inputs,
    outputs: Outputs,
    gradient: np.ndarray,
) -> list[str]:
    """Write the files of a rollout, and return their paths."""
    path = out / "trajectories.npz"
    grid = options.dt * np.arange(options.steps + 1)
    q, v, _ = outputs.trajectory
    with naming(path):
        np.savez(path, time=grid, q=q, v=v, tau=np.asarray(inputs.tau), cost=outputs.cost)
    files = [str(path)]
    if not options.no_plot:
        from .rollout_plot import plot_rollout

        path = out / "rollout.png"
        errors = np.asarray(outputs.energy_error)
        with naming(path):
            plot_rollout(path, model, grid, outputs.trajectory, errors, gradient)
        files.append(str(path))
    if options.html:
        packages = dict(options.package)
        save_html(options.html, model, q[:SHOWN], dt=options.dt, packages=packages)
        files.append(options.html)
    for file in files:
        _say("wrote", file)
    return files


def _report_inputs(
    model: Model, scale: np.ndarray, options: argparse.Namespace, devices: Sequence[Any]
) -> None:
    hardware = devices[0].platform
    if len(devices) > 1:
        hardware = f"{len(devices)} {hardware} devices"
    _say(
        model.name,
        f"{options.batch} trajectories of {options.steps} steps of {options.dt:g} s, "
        f"{model.nv} dofs ({np.count_nonzero(scale)} driven), {model.dtype.name}, on {hardware}",
    )
    if model.nv and not np.any(scale):
        _say("note", "no joint has an effort limit, so all torques are zero")


def _say(label: str, text: str) -> None:
    print(f"{label:<10} {text}", flush=True)


def _progress(label: str, state: str) -> None:
    """Print the progress on standard error; on a terminal, overwrite one line."""
    end = "\r" if sys.stderr.isatty() and state != "100%" else "\n"
    print(f"{label:<10} {state:<10}", end=end, file=sys.stderr, flush=True)
