"""`jaxrbd train`: train a policy, with checkpoints and metrics in a folder."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import math
import os
import shlex
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from ..errors import ArgumentError, require_package
from ..io._sealed import replace_file
from ..learning import (
    Evaluations,
    Record,
    Training,
    algorithm_for,
    load_task,
    read_description,
    task_names,
    tensorboard_writer,
)
from ..learning.tasks import with_whole_episodes
from . import parsing
from .outputs import make_folder, naming
from .rollout_command import first_devices

EVERY = 25  # updates per checkpoint, by default
LINE_EVERY = 25  # updates per progress line, if standard error is no terminal
CHECKPOINT, METRICS, CURVE = "checkpoint.jaxrbd", "metrics.jsonl", "curve.png"
LOCK = "training.lock"


class _Interrupted(KeyboardInterrupt):
    """The process received the signal with this number."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


def add_parser(commands) -> None:
    """Add the command `train` and its options to the commands."""
    command = commands.add_parser(
        "train",
        help="train a policy for a task",
        description=(
            "Train a policy. The folder gets a checkpoint, the metrics of each update (one line of "
            "JSON each), and a picture of the learning curve. Ctrl-C and SIGTERM write a "
            "checkpoint of the last complete update, so that --resume continues after it."
        ),
        epilog="example: jaxrbd train cart-pole --seed 3 --out trained",
    )
    add = command.add_argument
    add("task", metavar="TASK", help=f"one of {', '.join(task_names())}")
    add("--algorithm", default="shac", metavar="NAME", help="shac (default), apg or ppo")
    add("--seed", type=parsing.seed, default=0, metavar="N", help="seed of the random numbers")
    add(
        "--seeds",
        type=parsing.count,
        metavar="N",
        help="train with N seeds from --seed on, one after another, each in a folder seed-K",
    )
    add(
        "--steps",
        type=parsing.whole_number,
        metavar="N",
        help="total number of steps, summed over all environments (default: depends on the task)",
    )
    add(
        "--block",
        type=parsing.count,
        metavar="N",
        help="simulate N environments at a time: the results are then the same for every number of "
        "devices (default: as in the checkpoint of --resume, else all environments of a device)",
    )
    add("--devices", type=parsing.count, default=1, metavar="N", help="use N devices")
    add(
        "--every",
        type=parsing.count,
        default=EVERY,
        metavar="N",
        help=f"updates per checkpoint ({EVERY})",
    )
    add(
        "--evaluate-every",
        type=parsing.count,
        metavar="N",
        help="evaluate the policy without noise after every N updates, and after the last one",
    )
    add(
        "--evaluation-episodes",
        type=parsing.count,
        metavar="N",
        help="number of episodes of an evaluation (64)",
    )
    add(
        "--stop-at",
        type=parsing.number,
        metavar="RETURN",
        help="end the training when the mean return of an evaluation is at least RETURN",
    )
    add("--resume", action="store_true", help="continue from the checkpoint in the output folder")
    add(
        "--start-from",
        metavar="FILE",
        help="start with the networks of a checkpoint, of this or of another task with the same "
        "sizes of observations and actions; with --resume --seeds, for seeds without a checkpoint",
    )
    add("--no-plot", action="store_true", help="draw no curve (matplotlib is not needed)")
    add(
        "--tensorboard",
        metavar="DIR",
        help="write the metrics as event files of TensorBoard too (needs tensorboardX)",
    )
    add(
        "--report",
        metavar="MODULE:FUNCTION",
        help="call a function with the record of each update; MODULE is installed, or a file of "
        "the current folder",
    )
    add("--out", metavar="DIR", help="output folder (default: train-TASK-NAME)")
    parsing.add_no_cache(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write a checkpoint, the metrics and a picture of the learning curve, for each seed.

    After Ctrl-C or SIGTERM, write a checkpoint of the last complete update. Return the exit status.
    """
    if not options.no_plot:
        require_package("matplotlib", "cli", "the curve", ", or --no-plot")
    if options.tensorboard:
        require_package("tensorboardX", "tensorboard", "--tensorboard")
    report = _report_function(options.report) if options.report else None
    if options.start_from and options.resume and options.seeds is None:
        raise ArgumentError("--start-from begins a training, and --resume continues one")
    if options.start_from:
        read_description(options.start_from)  # an error before the long compilation
    if options.evaluation_episodes is not None and options.evaluate_every is None:
        raise ArgumentError("--evaluation-episodes is for --evaluate-every")
    if options.stop_at is not None and options.evaluate_every is None:
        raise ArgumentError("--stop-at is the return of an evaluation, and needs --evaluate-every")
    top = Path(options.out or f"train-{options.task}-{options.algorithm}")
    folders = {options.seed: top}
    if options.seeds is not None:
        if options.seed + options.seeds > 2**63:
            raise ArgumentError(f"--seeds {options.seeds}: the last seed has more than 64 bits")
        seeds = range(options.seed, options.seed + options.seeds)
        folders = {seed: top / f"seed-{seed}" for seed in seeds}
    checkpoints = [folder / CHECKPOINT for folder in folders.values()]
    found = [path for path in checkpoints if path.exists()]
    if found and not options.resume:
        raise ArgumentError(
            f"{found[0]} exists: continue it with --resume, or choose another folder with --out"
        )
    if options.resume and not found:
        raise ArgumentError(f"--resume: no checkpoint {checkpoints[0]}")
    devices, mesh = first_devices(options.devices), None
    if len(devices) > 1:
        mesh = Mesh(np.array(devices), ("environments",))
    runs: dict[int, list[Record]] = {}
    for seed, folder in folders.items():
        status, runs[seed] = _run_seed(options, seed, folder, top, mesh, report)
        if status:
            return status
    if options.seeds is not None:
        if not options.no_plot:
            title = f"{options.task}: {options.algorithm}, {options.seeds} seeds"
            _plot(top / CURVE, title, [*runs.values()])
        print(f"ok: {top}: {_summary(runs)}")
    return 0


def _run_seed(
    options: argparse.Namespace,
    seed: int,
    folder: Path,
    top: Path,
    mesh: Mesh | None,
    report: Callable[[Record], object] | None,
) -> tuple[int, list[Record]]:
    """Train with one seed; return the exit status and the records.

    `top`: the folder of all seeds, for the command that continues; `mesh`: as in `Training`;
    `report`: the function of the option `--report`.
    """
    checkpoint = folder / CHECKPOINT
    algorithm = algorithm_for(options.task, options.algorithm, options.steps)
    make_folder(folder)
    training: Training | None = None
    with _locked(folder), _signals_as_exceptions() as received:
        try:
            _show("compiling")
            env = load_task(options.task, options.algorithm)
            about = read_description(checkpoint) if checkpoint.exists() else None
            planned = None if about is None else _planned_updates(about, algorithm.updates)
            block = options.block
            if about is not None and block is None:
                block = about.get("block")
            if planned is not None and options.steps is None:
                algorithm = dataclasses.replace(algorithm, updates=planned)
            training = Training(algorithm, env, seed, task=options.task, mesh=mesh, block=block)
            if options.start_from and about is None:
                training.start_from(options.start_from)
            evaluation = _evaluation(options, training)
            events = _event_folder(options, folder, top)
            _train(training, folder, received, options.every, planned, evaluation, events, report)
        except _Interrupted as interruption:
            saved = _save_interrupted(training, checkpoint)
            if sys.stderr.isatty():
                print(file=sys.stderr)
            can_continue = checkpoint.exists() or seed > options.seed  # earlier seeds are complete
            more = f"; continue with: {_resumption(options, top)}" if can_continue else ""
            print(f"interrupted{saved}{more}", file=sys.stderr)
            return 128 + interruption.number, []
    if not options.no_plot:
        title = f"{options.task}: {options.algorithm}, seed {seed}"
        _plot(folder / CURVE, title, [training.records])
    last = training.records[-1]
    end = _evaluation_text(training, evaluation)
    print(f"ok: {folder}: {last.steps} steps, return {last.metrics['return']:.4g}{end}")
    return 0, training.records


def _evaluation(options: argparse.Namespace, training: Training) -> Evaluations | None:
    """The evaluations that the options ask for, or None. Their episodes are as in `jaxrbd play`."""
    if options.evaluate_every is None:
        return None
    return Evaluations(
        options.evaluate_every,
        64 if options.evaluation_episodes is None else options.evaluation_episodes,
        options.stop_at,
        with_whole_episodes(training),
    )


def _evaluation_text(training: Training, evaluation: Evaluations | None) -> str:
    """Words for the last line of output: the last evaluation, and whether it ended the training."""
    found = training.records[-1].metrics.get("evaluation_return")
    if evaluation is None or found is None:
        return ""
    updates = f"update {len(training.records)} of {training.algorithm.updates}"
    reached = training.reached(evaluation)
    why = f", which reaches --stop-at {evaluation.stop_at:g}, at {updates}" if reached else ""
    return f"; without noise {found:.4g}{why}"


def _plot(path: Path, title: str, runs: list[list[Record]]) -> None:
    from .curve_plot import plot_curves  # matplotlib is in the extra cli

    with naming(path):
        plot_curves(path, title, runs)


def _summary(runs: Mapping[int, list[Record]]) -> str:
    """The mean and the spread of the last returns of several seeds."""
    returns = {seed: records[-1].metrics["return"] for seed, records in runs.items()}
    without = [str(seed) for seed, x in returns.items() if not math.isfinite(x)]
    if without:
        return f"{len(returns)} seeds, no episode has ended with the seeds {', '.join(without)}"
    values = returns.values()
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return (
        f"{len(values)} seeds, return {statistics.fmean(values):.4g} on average, standard "
        f"deviation {spread:.3g}, from {min(values):.4g} to {max(values):.4g}"
    )


def _report_function(text: str) -> Callable[[Record], object]:
    """The function that the option `--report` names as MODULE:FUNCTION.

    Python searches the current folder last for the module. Raises ArgumentError if there is no such
    function.
    """
    module, _, name = text.partition(":")
    if not (module and name) or module.startswith("."):
        raise ArgumentError(f"--report {text}: expected MODULE:FUNCTION")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # whatever the module raises
        message = f"--report {text}: {type(error).__name__}: {error}"
        raise ArgumentError(message) from error
    if not callable(found):
        raise ArgumentError(f"--report {text}: the module {module!r} has no function {name!r}")
    return found


def _event_folder(options: argparse.Namespace, folder: Path, top: Path) -> Path | None:
    """The folder of the event files of one seed; None without the option `--tensorboard`.

    It has the same place in the folder of the option as `folder` has in `top`.
    """
    return Path(options.tensorboard) / folder.relative_to(top) if options.tensorboard else None


def _train(
    training: Training,
    folder: Path,
    received: list[int],
    every: int,
    planned: int | None,
    evaluation: Evaluations | None = None,
    events: Path | None = None,
    report: Callable[[Record], object] | None = None,
) -> None:
    """Run all remaining updates of a training, with checkpoints, metrics and progress.

    - `received`: the list of `_signals_as_exceptions`;
    - `every`: updates per checkpoint;
    - `planned`: the total number of updates of the training that wrote the checkpoint; None if
      there is no checkpoint;
    - `evaluation`: as in `Training.run`;
    - `events`: the folder of event files of TensorBoard;
    - `report`: a function of each record.
    """
    updates = training.algorithm.updates
    if planned is not None:
        training.load(folder / CHECKPOINT)
        changed = (
            f" (the checkpoint was made for {planned} updates; the schedules now end at update "
            f"{updates})"
        )
        print(
            f"continuing after update {len(training.records)} of {updates}"
            f"{changed if planned != updates else ''}"
        )
    # `metrics.jsonl` keeps the records up to the checkpoint. Later records of an interrupted run
    # are removed.
    lines = "".join(map(_line, training.records))
    replace_file(folder / METRICS, lines.encode("ascii"))
    begin, completed = time.perf_counter(), len(training.records)
    reports = [] if report is None else [report]
    with contextlib.ExitStack() as files:
        if events is not None:
            last_step = training.records[-1].steps if training.records else 0
            reports.append(files.enter_context(tensorboard_writer(events, last_step)))
        records = training.run(folder / CHECKPOINT, every, evaluation)
        for record in _written(records, folder / METRICS):
            for function in reports:
                function(record)
            _progress(record, updates, completed, time.perf_counter() - begin)
            # If the signal arrived in a Python callback of JAX, its exception was discarded: raise
            # it again.
            if received:
                raise _Interrupted(received[0])
    if sys.stderr.isatty():
        print(file=sys.stderr)


def _written(records: Iterator[Record], metrics: Path) -> Iterator[Record]:
    """The records, each after its line has been added to the file of the metrics."""
    with naming(metrics), metrics.open("a", encoding="ascii") as stream:
        for record in records:
            stream.write(_line(record))
            stream.flush()
            yield record


def _planned_updates(about: Mapping[str, Any], usual: int) -> int:
    """The total number of updates that a checkpoint states, or `usual` if it states none.

    `about`: the description of the checkpoint.
    """
    settings = about.get("settings")
    updates = settings.get("updates") if isinstance(settings, dict) else None
    return updates if isinstance(updates, int) else usual


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other trainings out of a folder.

    The operating system releases the lock when the process ends, also if it is killed. The empty
    file stays. Raises ArgumentError if another process has the lock.
    """
    with (folder / LOCK).open("ab") as stream:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ArgumentError(
                f"{folder}: another training writes into this folder; choose another one with --out"
            ) from error
        yield


@contextlib.contextmanager
def _signals_as_exceptions() -> Iterator[list[int]]:
    """Raise `_Interrupted` for the first SIGINT or SIGTERM in the block, and ignore later ones.

    The value of the `with` statement is the list of the received signals. A signal that the process
    ignores stays ignored.
    """
    received: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        received.append(number)
        if len(received) == 1:
            raise _Interrupted(number)

    handlers = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                handlers[number] = signal.signal(number, interrupt)
        yield received
    finally:
        for number, handler in handlers.items():
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
    """The command that continues a training, with the options of its first command.

    A training of one seed does not need `--start-from` any more: its checkpoint has the networks.
    """
    words = ["jaxrbd", "train", options.task]
    if options.algorithm != "shac":
        words += ["--algorithm", options.algorithm]
    if options.seed:
        words += ["--seed", str(options.seed)]
    if options.seeds is not None:
        words += ["--seeds", str(options.seeds)]
        if options.start_from:
            words += ["--start-from", options.start_from]
    if options.steps is not None:
        words += ["--steps", str(options.steps)]
    if options.block is not None:
        words += ["--block", str(options.block)]
    if options.devices != 1:
        words += ["--devices", str(options.devices)]
    if options.every != EVERY:
        words += ["--every", str(options.every)]
    for name in ("no_plot", "no_cache"):
        if getattr(options, name):
            words += ["--" + name.replace("_", "-")]
    if options.evaluate_every is not None:
        words += ["--evaluate-every", str(options.evaluate_every)]
    if options.evaluation_episodes is not None:
        words += ["--evaluation-episodes", str(options.evaluation_episodes)]
    if options.stop_at is not None:
        words += [f"--stop-at={options.stop_at}"]  # it may begin with a minus
    for name in ("tensorboard", "report"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name}", value]
    return shlex.join([*words, "--out", str(folder), "--resume"])


def _line(record: Record) -> str:
    """A record as one line of JSON, with null for the return before the first episode ends."""
    metrics = {name: x if math.isfinite(x) else None for name, x in record.metrics.items()}
    return json.dumps({"update": record.update, "steps": record.steps, **metrics}) + "\n"


def _progress(record: Record, updates: int, completed: int, seconds: float) -> None:
    """Show the progress after an update.

    Without a terminal, show it only after every `LINE_EVERY` updates, after evaluations, and after
    the last update. `completed`: the number of updates before this run; `seconds`: the time of this
    run.
    """
    evaluation = record.metrics.get("evaluation_return")
    shown = record.update % LINE_EVERY == 0 or record.update == updates or evaluation is not None
    if not (sys.stderr.isatty() or shown):
        return
    left = seconds / (record.update - completed) * (updates - record.update)
    without_noise = "" if evaluation is None else f"  without noise {evaluation:.4g}"
    _show(
        f"update {record.update}/{updates}  steps {record.steps}  "
        f"return {record.metrics['return']:.4g}{without_noise}  "
        f"{seconds:.0f} s, {left:.0f} s left"
    )


def _show(text: str) -> None:
    """Replace the progress line on standard error; without a terminal, print a line."""
    if sys.stderr.isatty():
        print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)
