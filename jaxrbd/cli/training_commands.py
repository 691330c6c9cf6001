"""The commands `jaxrbd train` and `jaxrbd play`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import math
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from ..errors import ArgumentError, SavedFileError, installation
from ..io._sealed import replace_file
from ..learning import (
    Record,
    Training,
    algorithm_for,
    evaluate,
    load_task,
    motions,
    read_description,
)
from ..model import Model
from ..view import render, save_html

SHOWN = 8  # episodes of the page, and postures of the picture
LINE_EVERY = 25  # updates per progress line, if standard error is no terminal
CHECKPOINT, METRICS, CURVE = "checkpoint.jaxrbd", "metrics.jsonl", "curve.png"


class _Interrupted(KeyboardInterrupt):
    """The process received the signal with this number."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


def train(options: argparse.Namespace) -> int:
    """Train a policy; write a checkpoint, the metrics and a picture of the learning curve.

    After Ctrl-C or SIGTERM, write a checkpoint of the last complete update. Return the exit status.
    """
    algorithm = algorithm_for(options.task, options.algorithm, options.steps)
    folder = Path(options.out or f"train-{options.task}-{options.algorithm}")
    checkpoint = folder / CHECKPOINT
    if checkpoint.exists() and not options.resume:
        raise ArgumentError(
            f"{checkpoint} exists: continue it with --resume, or choose another folder with --out"
        )
    if options.resume and not checkpoint.exists():
        raise ArgumentError(f"--resume: no checkpoint {checkpoint}")
    folder.mkdir(parents=True, exist_ok=True)
    training: Training | None = None
    with _signals_as_exceptions() as received:
        try:
            _show("compiling")
            env = load_task(options.task, options.algorithm)
            training = Training(algorithm, env, options.seed, task=options.task)
            _run(options, training, folder, received)
        except _Interrupted as interruption:
            saved = _save_interrupted(training, checkpoint)
            if sys.stderr.isatty():
                print(file=sys.stderr)
            more = f"; continue with: {_resumption(options, folder)}" if checkpoint.exists() else ""
            print(f"interrupted{saved}{more}", file=sys.stderr)
            return 128 + interruption.number
    if not options.no_plot:
        from .curve_plot import plot_curve  # matplotlib is in the extra cli

        title = f"{options.task}: {options.algorithm}, seed {options.seed}"
        plot_curve(folder / CURVE, title, training.records)
    last = training.records[-1]
    print(f"ok: {folder}: {last.steps} steps, return {last.metrics['return']:.4g}")
    return 0


def _run(
    options: argparse.Namespace, training: Training, folder: Path, received: list[int]
) -> None:
    """All remaining updates of a training, with checkpoints, metrics and progress."""
    updates = training.algorithm.updates
    if options.resume:
        training.load(folder / CHECKPOINT)
        print(f"continuing after update {len(training.records)} of {updates}")
    # The records of the checkpoint replace those that an interrupted run wrote after it.
    lines = "".join(map(_line, training.records))
    replace_file(folder / METRICS, lines.encode("ascii"))
    begin, before = time.perf_counter(), len(training.records)
    with (folder / METRICS).open("a", encoding="ascii") as stream:
        for record in training.run(folder / CHECKPOINT, options.every):
            stream.write(_line(record))
            stream.flush()
            _progress(record, updates, before, time.perf_counter() - begin)
            if received:  # the exception was raised in a callback, where Python drops exceptions
                raise _Interrupted(received[0])
    if sys.stderr.isatty():
        print(file=sys.stderr)


@contextlib.contextmanager
def _signals_as_exceptions() -> Iterator[list[int]]:
    """Raise `_Interrupted` for the first SIGINT or SIGTERM in the block, and ignore later ones.

    The value is the list of the received signals. A signal that the process ignores stays ignored.
    """
    received: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        received.append(number)
        if len(received) == 1:
            raise _Interrupted(number)

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, interrupt)
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _save_interrupted(training: Training | None, checkpoint: Path) -> str:
    """Save the last complete update of a training, and return words about this update."""
    if training is not None and training.records:
        training.save(checkpoint)
        return f" after update {len(training.records)}"
    if checkpoint.exists():
        return " before the checkpoint was read"
    return "; nothing saved before update 1"


def _resumption(options: argparse.Namespace, folder: Path) -> str:
    """The command that continues a training: the same task, settings, seed and folder."""
    words = ["jaxrbd", "train", options.task]
    if options.algorithm != "shac":
        words += ["--algorithm", options.algorithm]
    if options.seed:
        words += ["--seed", str(options.seed)]
    if options.steps is not None:
        words += ["--steps", str(options.steps)]
    return shlex.join([*words, "--out", str(folder), "--resume"])


def play(options: argparse.Namespace) -> None:
    """Run the policy of a checkpoint without noise, and print its returns by reward term.

    Write a page with the motion, and a picture of one episode, if the options name the files.
    """
    if options.html and importlib.util.find_spec("viser") is None:
        raise ArgumentError(f"--html needs viser: {installation('view')}")
    about = read_description(options.checkpoint)
    try:
        task, seed = str(about["task"]), int(about["seed"])
        updates = int(about["settings"]["updates"])
        algorithm = algorithm_for(task, str(about["algorithm"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SavedFileError(
            f"it has no valid task, algorithm, settings and seed: {error}", file=options.checkpoint
        ) from error
    algorithm = dataclasses.replace(algorithm, updates=updates)
    env = load_task(task)
    training = Training(algorithm, env, seed, task=task)
    training.load(options.checkpoint)
    key = jax.random.key(options.seed)
    found = evaluate(env, training.params, training.policy(), key, options.episodes)
    progress = f"update {len(training.records)} of {updates}"
    print(f"{task}: {about['algorithm']}, {progress}, {options.episodes} episodes without noise")
    returns = np.asarray(found.returns)
    print(f"  return    mean {returns.mean():.4g}, from {returns.min():.4g} to {returns.max():.4g}")
    seconds = env.time_step * float(np.mean(found.lengths))
    print(f"  duration  mean {seconds:.3g} s; failed: {int(np.sum(found.terminated))}")
    for name, x in found.terms.items():
        print(f"  {name:<18} {float(np.mean(x)):.4g}")
    if not options.html and not options.png:
        return
    model = training.params.model
    q = np.asarray(motions(env, training.params, training.policy(), key, SHOWN))
    if options.html:
        save_html(options.html, model, q, dt=env.time_step)
        print(f"wrote {options.html}")
    if options.png:
        from .curve_plot import write_picture

        moved = np.any(q[0, 1:] != q[0, :-1], axis=1)  # false after the end of the episode
        rows = np.linspace(0, np.max(np.nonzero(moved)), SHOWN).round().astype(int)
        write_picture(Path(options.png), _tiles(model, q[0, rows]))
        print(f"wrote {options.png}")


def _tiles(model: Model, q: np.ndarray) -> np.ndarray:
    """A picture of the configurations (SHOWN, nq), one tile each, in two rows from the left.

    The camera looks from the side, because most robots move in the x-z plane.
    """
    camera = (0.5, -1.0, 0.3)
    tiles = np.stack([render(model, x, width=320, height=240, camera=camera) for x in q])
    rows = tiles.reshape(2, SHOWN // 2, *tiles.shape[1:])
    return rows.swapaxes(1, 2).reshape(2 * tiles.shape[1], -1, 3)


def _line(record: Record) -> str:
    """A record as one line of JSON; null where there is no number yet."""
    metrics = {name: x if math.isfinite(x) else None for name, x in record.metrics.items()}
    return json.dumps({"update": record.update, "steps": record.steps, **metrics}) + "\n"


def _progress(record: Record, updates: int, before: int, seconds: float) -> None:
    """Show the progress after an update; without a terminal, after every 25 updates."""
    if not (sys.stderr.isatty() or record.update % LINE_EVERY == 0 or record.update == updates):
        return
    left = seconds / (record.update - before) * (updates - record.update)
    _show(
        f"update {record.update}/{updates}  steps {record.steps}  "
        f"return {record.metrics['return']:.4g}  {seconds:.0f} s, {left:.0f} s left"
    )


def _show(text: str) -> None:
    """Replace the progress line on standard error; without a terminal, print a line."""
    if sys.stderr.isatty():
        print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)
