"""What the studies share: options, other checkouts, processes, compiled programs, times, tables."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the first line of a module's docstring."""
    return argparse.ArgumentParser(description=(doc or "").splitlines()[0])


def names(text: str) -> tuple[str, ...]:
    """The words of an option `A,B`."""
    return tuple(text.split(","))


def counts(text: str) -> tuple[int, ...]:
    """The numbers of an option `N,M`."""
    return tuple(map(int, text.split(",")))


def versions(baseline: pathlib.Path | None) -> dict:
    """The package jaxrbd and, if a folder is given, the package of this other checkout."""
    import jaxrbd

    found = {"jaxrbd": jaxrbd}
    if baseline:
        folder = baseline.resolve() / "jaxrbd"
        spec = importlib.util.spec_from_file_location(
            "jaxrbd_baseline", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise SystemExit(f"{folder} is no package")
        sys.modules[spec.name] = found["baseline"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found["baseline"])
    return found


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

    def call(self):
        """The result, when it is computed."""
        import jax

        return jax.block_until_ready(self.compiled(*self.arguments))


def least_seconds(calls: dict, repeat: int, turn: float = 0.0, most: float = float("inf")) -> dict:
    """The least time of each function. The functions take turns, at most `repeat` each.

    On a CPU it is the processor time; on a GPU it is the wall-clock time until the result is there.
    A turn has one call, and more until it took `turn` seconds: the first call of a short function
    pays for memory that the system took back after a long one. After its second turn, a function
    that took `most` seconds has no more turns.
    """
    import jax

    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    found, spent = dict.fromkeys(calls, float("inf")), dict.fromkeys(calls, 0.0)
    for k in range(repeat):
        for name, call in calls.items():
            if k > 1 and spent[name] >= most:
                continue
            end = spent[name] + turn
            while True:
                start = clock()
                jax.block_until_ready(call())
                seconds = clock() - start
                spent[name] += seconds
                found[name] = min(found[name], seconds)
                if spent[name] >= end:
                    break
    return found


def machine() -> str:
    """The processor and the version of JAX."""
    import jax

    from benchmarks import session

    return f"{session.machine()['processor']}, JAX {jax.__version__}"


def head(*cells: object) -> None:
    """Print the head of a table in Markdown."""
    row(*cells)
    print("|" + "---|" * len(cells))


def row(*cells: object) -> None:
    """Print a row of a table in Markdown."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
