"""The commands `jaxrbd train` and `jaxrbd play`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import math
import sys
import time
from pathlib import Path

import jax
import numpy as np

from ..errors import ArgumentError, SavedFileError
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
from ..view import render, save_html

SHOWN = 8  # episodes of the page, and postures of the picture
CHECKPOINT, METRICS, CURVE = "checkpoint.jaxrbd", "metrics.jsonl", "curve.png"


def train(options: argparse.Namespace) -> None:
    """Train a policy; write a checkpoint, the metrics and a picture of the learning curve."""
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
    training = Training(algorithm, load_task(options.task), options.seed, task=options.task)
    if options.resume:
        training.load(checkpoint)
        print(f"continuing after update {len(training.records)} of {algorithm.updates}")
    # The records of the checkpoint replace those that an interrupted run wrote after it.
    lines = "".join(map(_line, training.records))
    replace_file(folder / METRICS, lines.encode("ascii"))
    begin, before = time.perf_counter(), len(training.records)
    with (folder / METRICS).open("a", encoding="ascii") as stream:
        for record in training.run(checkpoint, options.every):
            stream.write(_line(record))
            stream.flush()
            _progress(record, algorithm.updates, before, time.perf_counter() - begin)
    print(file=sys.stderr)
    if not options.no_plot:
        from .curve_plot import plot_curve  # matplotlib is in the extra cli

        title = f"{options.task}: {options.algorithm}, seed {options.seed}"
        plot_curve(folder / CURVE, title, training.records)
    last = training.records[-1]
    print(f"ok: {folder}: {last.steps} steps, return {last.metrics['return']:.4g}")


def play(options: argparse.Namespace) -> None:
    """Run the policy of a checkpoint without noise, and print its returns by reward term.

    Write a page with the motion, and a picture of one episode, if the options name the files.
    """
    if options.html and importlib.util.find_spec("viser") is None:
        raise ArgumentError("--html needs viser: pip install 'jaxrbd[view]'")
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
        write_picture(Path(options.png), render(model, q[0, rows], width=960, height=240))
        print(f"wrote {options.png}")


def _line(record: Record) -> str:
    """A record as one line of JSON; null where there is no number yet."""
    metrics = {name: x if math.isfinite(x) else None for name, x in record.metrics.items()}
    return json.dumps({"update": record.update, "steps": record.steps, **metrics}) + "\n"


def _progress(record: Record, updates: int, before: int, seconds: float) -> None:
    """Replace the progress line on standard error, if it is a terminal."""
    if not sys.stderr.isatty():
        return
    left = seconds / (record.update - before) * (updates - record.update)
    text = (
        f"update {record.update}/{updates}  steps {record.steps}  "
        f"return {record.metrics['return']:.4g}  {seconds:.0f} s, {left:.0f} s left"
    )
    print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)
