"""What the studies share: options, processes, times and tables."""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

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


def least_seconds(
    calls: dict,
    repeat: int,
    turn: float = 0.0,
    most: float = float("inf"),
    clock: Callable[[], float] = time.process_time,
) -> dict:
    """The least seconds of each function. The functions take turns, at most `repeat` each.

    A turn has one call, and more until it took `turn` seconds: the first call of a short function
    pays for memory that the system took back after a long one. After its second turn, a function
    that took `most` seconds has no more turns. Default clock: the time of the processor.
    """
    import jax

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


def compiled(function, *operands) -> tuple[Callable, float]:
    """The compiled function, and the processor time of its compilation in s."""
    import jax

    lowered = jax.jit(function).lower(*operands)
    start = time.process_time()
    program = lowered.compile()
    return program, time.process_time() - start


def head(*cells: object) -> None:
    """Print the head of a table in Markdown."""
    row(*cells)
    print("|" + "---|" * len(cells))


def row(*cells: object) -> None:
    """Print a row of a table in Markdown."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
