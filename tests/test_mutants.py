"""The planted faults of tests/mutants/ apply, and the command that runs them is correct."""

import collections
import itertools
import os
import re
import shlex
import subprocess

import pytest

import mutants
from mutants.__main__ import main, part_of

FAULTS = mutants.read_faults()


def test_there_are_enough_faults():
    assert len(FAULTS) >= 277


@pytest.mark.parametrize("area", sorted({fault.area for fault in FAULTS}))
def test_every_fault_applies(area):
    for fault in FAULTS:
        if fault.area == area:
            fault.planted(mutants.ROOT)


def test_names_are_unique():
    names = collections.Counter(map(str, FAULTS))  # the area is part of the name
    assert not [name for name, count in names.items() if count > 1]


def test_the_named_tests_exist():
    for fault in FAULTS:
        for tests in fault.tests:
            selected, *options = shlex.split(tests)
            path, *names = selected.split("::")
            assert (mutants.ROOT / path).is_file(), f"{fault}: {path}"
            text = (mutants.ROOT / path).read_text(encoding="utf-8")
            for name in names:
                assert f"def {name.partition('[')[0]}(" in text, f"{fault}: {selected}"
            if "-k" in options:
                words = re.findall(r"\w+", options[options.index("-k") + 1])
                # One is enough: other words may be parts of parameters.
                assert any(w in text for w in set(words) - {"and", "or", "not"}), (
                    f"{fault}: {tests}"
                )


def test_the_list(capsys):
    assert main(["--list", FAULTS[0].area]) == 0
    assert str(FAULTS[0]) in capsys.readouterr().out
    assert main(["--list", "no such fault"]) == 2
    assert "no fault matches 'no such fault'" in capsys.readouterr().err


def test_parts_of_the_faults_are_all_faults_once(capsys):
    parts = [part_of(FAULTS, f"{k}/3") for k in (1, 2, 3)]
    assert sorted(map(str, itertools.chain(*parts))) == sorted(map(str, FAULTS))
    for wrong in ("0/3", "4/3", "2", "a/b"):
        assert main(["--list", "--part", wrong]) == 2
        assert f"--part is '{wrong}', expected K/N" in capsys.readouterr().err


def test_words_choose_an_area_or_parts_of_names_and_files():
    faults = [
        mutants.Fault("joints", "an axis turns", "a.py", "", "", ()),
        mutants.Fault("tree", "two joints are one", "b.py", "", "", ()),
    ]
    assert mutants.select(faults, []) == faults
    assert mutants.select(faults, ["joints"]) == faults[:1]
    assert mutants.select(faults, ["TWO"]) == mutants.select(faults, ["b.py"]) == faults[1:]
    assert mutants.select(faults, ["tree", "axis"]) == faults
    assert mutants.select(faults, ["neither"]) == []


# ------------------------------------------------------------------- the runner, on a tiny project

SUM = """
def total(numbers):
    result = 0
    for number in numbers:
        result += number
    return result
"""
TESTS = """
import pathlib

from tiny import total

def test_total():
    assert total([1, 2]) == 3

def test_of_nothing():
    assert total([]) == 0

def test_wrong():
    assert total([1]) == 2

def test_restored():
    assert "+= number" in pathlib.Path("tiny.py").read_text()
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "tiny.py").write_text(SUM)
    (tmp_path / "test_tiny.py").write_text(TESTS)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def fault(name, old, new, *tests, **options):
    return mutants.Fault("tiny", name, "tiny.py", old, new, tests, **options)


TOTAL, NOTHING = "test_tiny.py::test_total", "test_tiny.py::test_of_nothing"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="the runner needs POSIX process groups")
def test_the_runner_tells_faults_apart(project):
    minus = "+= number", "-= number"
    faults = [
        fault("noticed", *minus, NOTHING, "test_tiny.py -k total"),
        fault("survives", *minus, NOTHING),
        fault("equivalent", "result = 0\n", "result = 1 - 1\n", TOTAL, equivalent="1 - 1 is 0"),
        fault("not equivalent", *minus, TOTAL, equivalent="it is not"),
        fault("absent", "*= number", "-= number", TOTAL),
        fault("twice", "number", "result", TOTAL),
        fault("no change", "+= number", "+= number", TOTAL),
        fault("not Python", "+= number", "+= (", TOTAL),
        fault("not importable", "def total", "def sums", TOTAL),
        fault("endless", "result += number", "while True: pass", TOTAL),
        fault("a test that fails anyway", *minus, "test_tiny.py::test_wrong"),
        fault("a test that is not there", *minus, "test_tiny.py::test_missing"),
        fault("the file is as it was", "result = 0\n", "result = 0.0\n", f"{TOTAL[:-5]}restored"),
    ]
    lines = []
    outcomes = mutants.run_faults(faults, lines.append, root=project, jobs=2, limit=8)
    by_name = {outcome.fault.name: outcome for outcome in outcomes}
    expected = {
        "noticed": (mutants.NOTICED, "test_tiny.py::test_total"),
        "survives": (mutants.SURVIVED, NOTHING),
        "equivalent": (mutants.SURVIVED, "1 - 1 is 0"),
        "not equivalent": (mutants.NOTICED, "test_tiny.py::test_total"),
        "absent": (mutants.NOT_JUDGED, "occurs 0 times in tiny.py"),
        "twice": (mutants.NOT_JUDGED, "occurs 4 times in tiny.py"),
        "no change": (mutants.NOT_JUDGED, "the new text is the old text"),
        "not Python": (mutants.NOT_JUDGED, "would not be Python"),
        "not importable": (mutants.NOTICED, "test_tiny.py"),
        "endless": (mutants.NOTICED, "ran beyond the time limit of 8 s"),
        "a test that fails anyway": (mutants.NOT_JUDGED, "test_wrong fails without the fault"),
        "a test that is not there": (mutants.NOT_JUDGED, "pytest ended with status 4"),
        "the file is as it was": (mutants.SURVIVED, "test_restored"),
    }
    for name, (verdict, detail) in expected.items():
        assert by_name[name].verdict == verdict, lines
        assert detail in by_name[name].detail, lines
    fine = {"noticed", "equivalent", "not importable", "endless"}
    assert {name for name, outcome in by_name.items() if outcome.as_expected} == fine
    assert (project / "tiny.py").read_text() == SUM
    assert any("though marked equivalent" in line for line in lines)


def outcome(name, file, verdict, equivalent=None):
    fault = mutants.Fault("area", name, file, "a", "b", ("test",), equivalent)
    return mutants.Outcome(fault, verdict, "", 0.0)


def test_the_table_of_kill_rates(tmp_path):
    """Rows of modules that ran in full are replaced. Rows of other modules with faults stay."""
    readme = tmp_path / "README.md"
    readme.write_text(
        f"before\n{mutants.BEGIN}\n| `a.py` | 9 | 9 | 9 | x |\n| `c.py` | 2 | 0 | 2 | x |\n"
        f"| `gone.py` | 1 | 0 | 1 | x |\n{mutants.END}\nafter\n"
    )
    outcomes = [
        outcome("1", "a.py", mutants.NOTICED),
        outcome("2", "a.py", mutants.SURVIVED),
        outcome("3", "a.py", mutants.SURVIVED, "why"),
        outcome("4", "b.py", mutants.NOT_JUDGED),
        outcome("5", "c.py", mutants.NOTICED),
    ]
    more = outcome("6", "c.py", mutants.NOTICED).fault
    mutants.write_table(outcomes, [*(o.fault for o in outcomes), more], readme)
    rows = readme.read_text().splitlines()
    assert rows[:2] == ["before", mutants.BEGIN]
    assert rows[-2:] == [mutants.END, "after"]
    assert rows[4:-2] == [
        "| `a.py` | 3 | 1 | 1 | 50 % |",
        "| `b.py` | 1 | 0 | 0 | 0 % |",
        "| `c.py` | 2 | 0 | 2 | 100 % |",
        "| all | 6 | 1 | 3 | 60 % |",
    ]


def test_a_fault_with_a_wrong_entry_is_refused(tmp_path):
    (tmp_path / "area.toml").write_text('[[fault]]\nname = "n"\nfile = "f"\nold = "a"\nwhy = "b"')
    with pytest.raises(mutants.MutantError, match="area: a fault has the entries"):
        mutants.read_faults(tmp_path)
    (tmp_path / "area.toml").write_text('[fault]\nname = "n"')
    with pytest.raises(mutants.MutantError):
        mutants.read_faults(tmp_path)
