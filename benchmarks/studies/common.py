"""What the studies share: options, processes, compiled programs, times, random states, tables."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
TURN = 0.05  # s, the least time of a turn


def options(doc: str | None, *words: str, argv=None, **defaults) -> argparse.Namespace:
    """The options of a study, from their default values; `--help` prints the docstring.

    A tuple is a list `A,B`, and False is a flag. `words`: the names of positional arguments, each
    of any number.
    """
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw)
    for name in words:
        parser.add_argument(name, nargs="*")
    for name, value in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if value is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(value, tuple):
            kind = type(value[0])
            read = lambda text, kind=kind: tuple(map(kind, text.split(",")))  # noqa: E731
            text = ",".join(map(str, value))
            parser.add_argument(option, type=read, default=value, metavar="A,B", help=text)
        else:
            parser.add_argument(option, type=type(value), default=value, help=str(value))
    return parser.parse_args(argv)


def start(double: bool = True) -> None:
    """Select the precision, switch off the cache of programs, and print the machine."""
    import jax

    from benchmarks import session

    jax.config.update("jax_enable_x64", double)
    jax.config.update("jax_enable_compilation_cache", False)
    device = jax.devices()[0].device_kind
    print(f"{session.machine()['processor']}, {device}, JAX {jax.__version__}\n")


def python(*words: object, **environment: str) -> str:
    """The output of a Python process, without a cache of compiled programs.

    `environment`: more variables.
    """
    variables = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=variables | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"a process ended with status {done.returncode}: {done.args}")
    return done.stdout


class Program:
    """A compiled function with its arguments.

    - `trace_s`, `compile_s`: the processor times to trace and lower, and to compile;
    - `compiled`: the compiled program of JAX.
    """

    def __init__(self, function, *arguments, batched: bool = True):
        """`batched`: whether the arguments have a batch axis, which the function does not."""
        import jax

        self.arguments = jax.device_put(arguments)
        start = time.process_time()
        mapped = jax.vmap(function) if batched else function
        lowered = jax.jit(mapped).lower(*self.arguments)
        middle = time.process_time()
        self.compiled = lowered.compile()
        self.trace_s, self.compile_s = middle - start, time.process_time() - middle

    @property
    def compilation(self) -> str:
        """The seconds to trace and compile, as text."""
        return f"{self.trace_s + self.compile_s:.1f}"

    def call(self):
        """The result, when it is computed."""
        import jax

        return jax.block_until_ready(self.compiled(*self.arguments))


def least_seconds(calls: dict, seconds: float = 1.0) -> dict:
    """The least time of a call of each function. The functions take turns.

    On a CPU it is the processor time; on a GPU it is the wall-clock time until the result is there.
    A function has at least three turns, and more turns until it took `seconds`. A short function
    has several calls in a turn: the first one pays for memory that the system took back after a
    long function.
    """
    import jax

    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    found, spent = dict.fromkeys(calls, float("inf")), dict.fromkeys(calls, 0.0)
    turns = 0
    while turns < 3 or min(spent.values()) < seconds:
        for name, call in calls.items():
            end = spent[name] + TURN
            while spent[name] < end and (turns < 3 or spent[name] < seconds):
                start = clock()
                jax.block_until_ready(call())
                taken = clock() - start
                spent[name] += taken
                found[name] = min(found[name], taken)
        turns += 1
    return found


def in_turn_and_in_batches(function, problems, size: int):
    """The results of a function, which solves one problem after the other, and its compilation.

    Also the processor times per problem: in turn, and in batches of `size` problems at once.
    `problems`: arrays with a leading axis of problems.
    """
    import jax

    count = len(jax.tree.leaves(problems)[0])
    whole = count // size * size
    batches = jax.tree.map(lambda x: x[:whole].reshape(-1, size, *x.shape[1:]), problems)
    found = []
    for one, inputs in ((function, problems), (jax.vmap(function), batches)):
        program = Program(lambda x, one=one: jax.lax.map(one, x), inputs, batched=False)
        start = time.process_time()
        found.append((program.call(), time.process_time() - start, program.compilation))
    (results, in_turn, compilation), (_, in_batches, _) = found
    return results, compilation, in_turn / count, in_batches / whole


def in_mujoco(robot, qpos, qvel, control, steps: int):
    """The states (batch, steps, size) of a simulation by MuJoCo, with constant controls."""
    import mujoco
    import numpy as np
    from mujoco import rollout

    size = mujoco.mj_stateSize(robot, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    state = np.zeros((len(qpos), size))
    state[:, 1 : 1 + robot.nq + robot.nv] = np.concatenate([qpos, qvel], axis=1)
    controls, data = np.tile(control[:, None], (1, steps, 1)), mujoco.MjData(robot)
    return lambda: rollout.rollout(robot, data, state, controls)[0]


def train(training, folder: pathlib.Path) -> None:
    """Run a training, store its checkpoint, records and curve, and print steps and times."""
    from jaxrbd.cli.curve_plot import plot_curves

    folder.mkdir(parents=True, exist_ok=True)
    start, start_cpu = time.perf_counter(), time.process_time()
    for _ in training.run(folder / "checkpoint"):
        pass
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    (folder / "records.json").write_text(json.dumps(training.records))
    plot_curves(folder / "learning_curve.png", folder.name, [training.records])
    print(f"{training.records[-1].steps} steps, {seconds:.0f} s, CPU {cpu:.0f} s\n")


def walk(batch, params, policy, start, steps: int):
    """What robots with legs do from the states `start` (n), by a policy without noise.

    Returns q (steps, n, nq); the forward velocities, the velocities to the left and the turning
    rates of the base (steps, n, 3); and whether an episode has failed in this step or before
    (steps, n).
    """
    import jax
    import numpy as np

    def step(state, _):
        after = batch.step(params, state, policy(state.observation))
        velocity = after.physics.v[:, np.array([0, 1, 5])]
        return after, (after.physics.q, velocity, after.terminated)

    _, (q, velocity, failed) = jax.jit(lambda x: jax.lax.scan(step, x, length=steps))(start)
    return np.asarray(q), np.asarray(velocity), np.cumsum(failed, axis=0) > 0


def random_configurations(model, count: int):
    """Random configurations (count, nq), in the precision of the model."""
    import jax

    import jaxrbd

    keys = jax.random.split(jax.random.key(0), count)
    return jax.vmap(jaxrbd.random_configuration, (None, 0))(model, keys)


def head(*cells: object) -> None:
    """Print the head of a table in Markdown."""
    row(*cells)
    print("|" + "---|" * len(cells))


def row(*cells: object) -> None:
    """Print a row of a table in Markdown."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
