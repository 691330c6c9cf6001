"""The metrics of a training as event files of TensorBoard, by the package tensorboardX."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import ArgumentError, installation
from ..model import arguments
from .training import Record


@contextlib.contextmanager
def tensorboard_writer(
    folder: str | os.PathLike[str], after: int = 0
) -> Iterator[Callable[[Record], None]]:
    """A context manager, whose value is a function that writes a `Record` for TensorBoard.

    - `folder`: the folder of the new event file, which is made if it does not exist;
    - `after`: the steps of the last record before a continued training, `records[-1].steps`.
      TensorBoard then hides the later records of earlier files of the folder.

    Each metric is a scalar with its name, over `Record.steps`. A metric that is not finite, such as
    the return before the first end of an episode, is left out. Each call writes to the disk. Raises
    ArgumentError if the package tensorboardX is not installed (`pip install tensorboardX`), and for
    another `after` than an integer of 0 or more. Raises OSError, which names the folder, if the
    file cannot be written.
    """
    arguments.require_counts(least=0, after=after)
    try:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2
    except ImportError as error:
        raise ArgumentError(
            f"event files need the package tensorboardX: {installation('tensorboard')}"
        ) from error
    os.makedirs(folder, exist_ok=True)
    # The writer names a file by the time in seconds. The suffix makes the names different.
    file = EventsWriter(os.path.join(os.fspath(folder), "events"), f".{time.time_ns()}")

    messages: Any = event_pb2  # protobuf makes the classes when the module is imported
    summaries: Any = summary_pb2

    def write(step: int, **content: Any) -> None:
        try:
            file.write_event(messages.Event(wall_time=time.time(), step=step, **content))
            file.flush()
        except OSError as error:  # it names no file
            raise OSError(error.errno, error.strerror, os.fspath(folder)) from error

    def report(record: Record) -> None:
        metrics = [
            summaries.Summary.Value(tag=name, simple_value=x)
            for name, x in record.metrics.items()
            if math.isfinite(x)
        ]
        write(record.steps, summary=summaries.Summary(value=metrics))

    try:
        if after:
            start = messages.SessionLog(status=messages.SessionLog.START)
            write(after + 1, session_log=start)
        yield report
    finally:
        file.close()
