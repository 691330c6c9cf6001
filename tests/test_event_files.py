"""Metrics of trainings for functions of the user and for TensorBoard."""

import math
import pathlib
import re
import struct
import sys

import numpy as np
import pytest

from jaxrbd import cli, learning
from jaxrbd.cli import train_command
from jaxrbd.errors import ArgumentError
from jaxrbd.learning import Record, tensorboard_writer
from support.disk import full_disk
from support.point import Point

RECORDS = [
    Record(1, 36, {"return": -math.inf, "reward": 0.25}),
    Record(2, 72, {"return": 1.5, "reward": -0.5}),
    Record(3, 108, {"return": 2.5, "reward": 0.75}),
]
SMALL = learning.Apg(4, 9, (6,), updates=3)


def events(folder):
    """The events of the files of a folder, read by the definition of the format TFRecord."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    found = []
    for path in sorted(pathlib.Path(folder).iterdir()):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (size,) = struct.unpack_from("<Q", data, place)
            place += 12  # the size and its checksum
            found.append(event_pb2.Event.FromString(data[place : place + size]))
            place += size + 4  # the data and their checksum
    return found


def scalars(folder):
    """The scalars of the files of a folder: (steps, name) to value."""
    return {
        (event.step, value.tag): value.simple_value
        for event in events(folder)
        for value in event.summary.value
    }


def expected(records):
    return {
        (record.steps, name): np.float32(x)
        for record in records
        for name, x in record.metrics.items()
        if math.isfinite(x)
    }


def test_event_files_have_the_finite_metrics_over_the_steps(tmp_path):
    """Each record is on the disk at once; a second file of a folder does not replace the first."""
    pytest.importorskip("tensorboardX")
    folder = tmp_path / "new" / "folder"
    for records in (RECORDS[:2], RECORDS[2:]):
        with tensorboard_writer(folder) as write:
            for record in records:
                write(record)
                found = scalars(folder)
                assert found == expected(RECORDS[: record.update])
                assert (36, "return") not in found
    assert len([*folder.iterdir()]) == 2


def test_a_continued_training_hides_the_later_records_of_earlier_files(tmp_path):
    pytest.importorskip("tensorboardX")
    with tensorboard_writer(tmp_path, after=36) as write:
        write(RECORDS[1])
    _, start, record = events(tmp_path)
    assert (start.session_log.status, start.step) == (1, 37)
    assert record.step == 72


def test_event_files_that_cannot_be_written_are_named(tmp_path):
    pytest.importorskip("tensorboardX")
    long = Record(1, 1, {f"{i:0500}": 0.0 for i in range(99)})
    named = pytest.raises(OSError, match=re.escape(str(tmp_path)))
    with tensorboard_writer(tmp_path) as write, full_disk(), named:
        write(long)


def test_without_tensorboardx_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    for name in ("tensorboardX", "tensorboardX.event_file_writer"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ArgumentError, match=r"pip install tensorboardX$"):
        tensorboard_writer(tmp_path).__enter__()


@pytest.fixture
def small_task(monkeypatch, tmp_path):
    """Every task of `jaxrbd train` is a small environment with three updates of APG."""
    monkeypatch.setattr(train_command, "load_task", lambda *_: Point(episode_steps=5))
    monkeypatch.setattr(train_command, "algorithm_for", lambda *_: SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return ["train", "cart-pole", "--no-plot", "--out", "here"]


def test_the_command_reports_to_a_function_and_to_tensorboard(small_task, tmp_path):
    """The same records for both, in the order of the updates; a module of the current folder."""
    pytest.importorskip("tensorboardX")
    (tmp_path / "own_log.py").write_text("seen = []\nfound = seen.append\nnumber = 1\n")
    words = ["--report", "own_log:found", "--tensorboard", "events", "--seeds", "2"]
    assert cli.main([*small_task, *words]) == 0
    seen = sys.modules.pop("own_log").seen
    assert [record.update for record in seen] == [1, 2, 3] * 2
    assert all(isinstance(record, Record) for record in seen)
    assert scalars("events/seed-0") == expected(seen[:3])
    assert scalars("events/seed-1") == expected(seen[3:])


def test_a_continued_training_of_the_command_adds_to_its_event_files(small_task):
    pytest.importorskip("tensorboardX")
    words = ["--tensorboard", "events"]
    steps = SMALL.update_steps
    assert cli.main([*small_task, *words]) == 0
    assert cli.main([*small_task, *words, "--resume", "--steps", str(4 * steps)]) == 0
    assert [event.step for event in events("events") if event.HasField("session_log")] == [
        3 * steps + 1
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("own_log", "expected MODULE:FUNCTION"),
        (":found", "expected MODULE:FUNCTION"),
        ("./own_log.py:found", "expected MODULE:FUNCTION"),
        ("gone:found", "No module named 'gone'"),
        ("math:found", "the module 'math' has no function 'found'"),
        ("math:pi", "the module 'math' has no function 'pi'"),
    ],
)
def test_a_report_that_is_no_function_is_refused_before_the_training(
    small_task, value, message, tmp_path, capsys
):
    assert cli.main([*small_task, "--report", value]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"jaxrbd: error: --report {value}: ")
    assert message in error
    assert not (tmp_path / "here").exists()


def test_event_files_need_tensorboardx_before_the_training(
    small_task, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(train_command.importlib.util, "find_spec", lambda name: None)
    assert cli.main([*small_task, "--tensorboard", "events"]) == 1
    assert "--tensorboard needs tensorboardX: pip install tensorboardX" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_tensorboard_reads_the_files_of_a_continued_training(tmp_path):
    """By the package tensorboard: the records after the checkpoint are those of the second run."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    changed = RECORDS[1]._replace(metrics={"return": 7.0, "reward": 8.0})
    with tensorboard_writer(tmp_path) as write:
        for record in RECORDS:
            write(record)
    with tensorboard_writer(tmp_path, after=36) as write:
        write(changed)
    found = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(x.step, x.value) for x in found.Scalars("reward")] == [(36, 0.25), (72, 8.0)]
    assert [(x.step, x.value) for x in found.Scalars("return")] == [(72, 7.0)]


def test_a_module_of_a_report_that_fails_is_named(small_task, tmp_path, monkeypatch, capsys):
    (tmp_path / "failing_log.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    assert cli.main([*small_task, "--report", "failing_log:write"]) == 1
    error = capsys.readouterr().err
    assert "jaxrbd: error: --report failing_log:write: ZeroDivisionError: division" in error
