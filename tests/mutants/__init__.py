"""Planted faults: small changes of the package that the tests have to notice.

A fault replaces one piece of text in one file and names the tests that are expected to fail then.
The faults of an area are in `<area>.toml` beside this file. `python -m tests.mutants` plants them
one at a time in a copy of the working tree and runs their tests there: see README.md.
"""

from __future__ import annotations

import ast
import compileall
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import py_compile
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

TIME_LIMIT = 300.0  # seconds for the tests of one fault


class MutantError(Exception):
    """A fault that cannot be planted, or tests that cannot judge it."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One planted fault.

    `area`: the name of the file that states it; `name`: what is broken; `file`: the file that is
    changed, relative to the root; `old`, `new`: the text there and the text that replaces it;
    `tests`: strings of pytest arguments; `equivalent`: why no test can notice it, or None;
    `package`: a package that the tests need and that the extra `test` does not have, or None.
    """

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str | None = None
    package: str | None = None

    def __str__(self) -> str:
        return f"{self.area}: {self.name}"

    def planted(self, root: pathlib.Path) -> str:
        """The text of the file with the fault in it. Raises MutantError where it does not apply."""
        path = root / self.file
        if not path.is_file():
            raise MutantError(f"{self}: there is no file {self.file}")
        text = path.read_text(encoding="utf-8")
        count = text.count(self.old)
        if count != 1:
            raise MutantError(f"{self}: the old text occurs {count} times in {self.file}, not once")
        if self.new == self.old:
            raise MutantError(f"{self}: the new text is the old text")
        text = text.replace(self.old, self.new)
        if path.suffix == ".py":
            try:
                ast.parse(text)
            except SyntaxError as error:
                message = f"{self}: {self.file} would not be Python: {error}"
                raise MutantError(message) from None
        return text


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a fault: `verdict` is one of the constants below, `detail` says more."""

    fault: Fault
    verdict: str
    detail: str
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether the fault was noticed, or survived and is marked equivalent."""
        return self.verdict == (NOTICED if self.fault.equivalent is None else SURVIVED)


NOTICED = "noticed"
SURVIVED = "SURVIVED"
NOT_JUDGED = "NOT JUDGED"  # it does not apply, or its tests fail without it


# --------------------------------------------------------------------------------- reading faults


def read_faults(folder: pathlib.Path = HERE) -> list[Fault]:
    """The faults of all areas. Raises MutantError where a file does not have the right entries."""
    faults = []
    for path in sorted(folder.glob("*.toml")):
        with path.open("rb") as file:
            content = tomllib.load(file)
        if set(content) != {"fault"}:
            raise MutantError(f"{path.name}: expected tables [[fault]] and nothing else")
        faults += [_fault(path.stem, table) for table in content["fault"]]
    return faults


def _fault(area: str, table: dict) -> Fault:
    required, optional = {"name", "file", "old", "new", "tests"}, {"equivalent", "package"}
    if not required <= set(table) <= required | optional:
        raise MutantError(
            f"{area}: a fault has the entries {sorted(table)}, expected {sorted(required)}"
            f" and, where they apply, {sorted(optional)}"
        )
    tests = table["tests"]
    if not isinstance(tests, list) or not tests:
        raise MutantError(
            f"{area}: {table['name']}: tests is {tests!r}, expected a list of strings"
        )
    return Fault(area, **{**table, "tests": tuple(tests)})


def select(faults: Sequence[Fault], words: Sequence[str]) -> list[Fault]:
    """The faults that a word chooses: those of an area, or else with it in their name or file.

    Without words, all of them, except those whose package is not installed.
    """
    if not words:
        return [f for f in faults if f.package is None or importlib.util.find_spec(f.package)]
    areas = {fault.area for fault in faults}

    def chosen(fault: Fault, word: str) -> bool:
        if word in areas:
            return fault.area == word
        return word.lower() in f"{fault.name}\n{fault.file}".lower()

    return [f for f in faults if any(chosen(f, word) for word in words)]


# ---------------------------------------------------------------------------- the tests in a copy


@contextlib.contextmanager
def copied(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary copy of the files that git tracks, or would track if they were added."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        raise MutantError(f"{root} is not a git working tree: {listed.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = root / name, pathlib.Path(folder) / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        # Python compares the hash of each source with its bytecode, so it compiles a file with a
        # fault again.
        for part in ("jaxrbd", "tests", "benchmarks"):
            compileall.compile_dir(
                pathlib.Path(folder) / part,
                quiet=1,
                invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
            )
        yield pathlib.Path(folder)


def environment(root: pathlib.Path, copy: pathlib.Path) -> dict[str, str]:
    """The environment of the tests in a copy: its own modules, and the tree's compile cache.

    Sharing the cache is safe: its keys are made from the programs, so that a faulty program never
    stands in for a right one. No bytecode is written, because a fault that is planted and removed
    within a second may leave the time and the size of a file as they were.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    path = [str(copy), *filter(None, [os.environ.get("PYTHONPATH")])]
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(root / ".cache" / "jax"))
    return kept | {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_COMPILATION_CACHE_DIR": cache,
    }


def run(command: Sequence[str], root, copy, limit: float) -> tuple[int | None, str]:
    """Exit status, None where it ran beyond the time limit, and output of a command in a copy."""
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment(root, copy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:  # with whatever processes a test has started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def pytest_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-rap", "-p", "no:cacheprovider", *arguments]


def check_copy(root: pathlib.Path, copy: pathlib.Path) -> None:
    """Raises MutantError unless the copy's own package is what Python imports there."""
    package = "jaxrbd"
    if not (copy / package).is_dir():
        return
    command = [sys.executable, "-c", f"import {package}; print({package}.__file__)"]
    status, output = run(command, root, copy, TIME_LIMIT)
    if status or not output.strip().splitlines()[-1].startswith(str(copy.resolve())):
        raise MutantError(f"the tests would not import the copy of {package}: {output.strip()}")


def results(output: str) -> dict[str, str]:
    """The summary lines of pytest: by test, "PASSED", "FAILED" or "ERROR"."""
    found = re.findall(r"^(PASSED|FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
    return {test: verdict for verdict, test in found}


def only_argument(tests: str) -> str | None:
    """The file or the test, if the pytest arguments are nothing else."""
    arguments = shlex.split(tests)
    return arguments[0] if len(arguments) == 1 else None


def groups(faults: Sequence[Fault]) -> list[tuple[str, ...]]:
    """All distinct selections of tests, those of one file that are nothing but tests together."""
    by_file: dict[str, set[str]] = {}
    for tests in {tests for fault in faults for tests in fault.tests}:
        argument = only_argument(tests)
        key = argument.partition("::")[0] if argument else tests
        by_file.setdefault(key, set()).add(tests)
    return [tuple(sorted(group)) for _, group in sorted(by_file.items())]


def unfit_selections(group: Sequence[str], root, copy, limit: float) -> dict[str, str]:
    """Run tests on the unchanged copy: the selections that cannot judge a fault, and why not."""
    arguments = [argument for tests in group for argument in shlex.split(tests)]
    status, output = run(pytest_command(*arguments), root, copy, limit * len(group))
    if status not in (0, 1):
        if len(group) > 1:  # one of them does not exist, say: find out which
            parts = [unfit_selections([tests], root, copy, limit) for tests in group]
            return {tests: why for part in parts for tests, why in part.items()}
        return {group[0]: _failure(status, output)}
    unfit = {}
    for tests in group:
        found = results(output)
        if argument := only_argument(tests):
            pattern = re.escape(argument) + r"($|::|\[)"
            found = {k: v for k, v in found.items() if re.match(pattern, k)}
        if failed := [test for test, verdict in found.items() if verdict != "PASSED"]:
            unfit[tests] = f"{failed[0]} fails without the fault"
        elif not found:
            unfit[tests] = "it has no test that passes without the fault"
    return unfit


def _failure(status: int | None, output: str) -> str:
    if status is None:
        return "ran beyond the time limit"
    last = output.strip().splitlines()
    return f"pytest ended with status {status}: {last[-1] if last else 'no output'}"


# ----------------------------------------------------------------------------------- one fault


def judge(fault: Fault, unfit: dict[str, str], root, copy, limit: float = TIME_LIMIT) -> Outcome:
    """Plant a fault in a copy, run its tests until one fails, and remove it."""
    start = time.monotonic()

    def outcome(verdict: str, detail: str) -> Outcome:
        return Outcome(fault, verdict, detail, time.monotonic() - start)

    try:
        faulty = fault.planted(copy)
    except MutantError as error:
        return outcome(NOT_JUDGED, str(error).removeprefix(f"{fault}: "))
    for tests in fault.tests:
        if tests in unfit:
            return outcome(NOT_JUDGED, f"{tests}: {unfit[tests]}")
    path = copy / fault.file
    text = path.read_text(encoding="utf-8")
    path.write_text(faulty, encoding="utf-8")
    try:
        for tests in fault.tests:
            command = pytest_command("-x", *shlex.split(tests))
            status, output = run(command, root, copy, limit)
            if status is None:
                return outcome(NOTICED, f"{tests} ran beyond the time limit of {limit:g} s")
            if status < 0:
                return outcome(NOTICED, f"{tests} ended by signal {-status}")
            failed = [test for test, verdict in results(output).items() if verdict != "PASSED"]
            if status in (1, 2, 4) and failed:  # 4 where a named test cannot be collected
                return outcome(NOTICED, failed[0])
            if status:
                return outcome(NOT_JUDGED, f"{tests}: {_failure(status, output)}")
    finally:
        path.write_text(text, encoding="utf-8")
    return outcome(SURVIVED, fault.equivalent or ", ".join(fault.tests))


# ------------------------------------------------------------------------------------- all faults


def run_faults(
    faults: Sequence[Fault],
    report: Callable[[str], None],
    root: pathlib.Path = ROOT,
    jobs: int = 1,
    limit: float = TIME_LIMIT,
) -> list[Outcome]:
    """Judge the faults, so many at a time, each worker in a copy of its own; report each one."""
    with contextlib.ExitStack() as stack:
        free: queue.SimpleQueue[pathlib.Path] = queue.SimpleQueue()
        for _ in range(jobs):
            free.put(stack.enter_context(copied(root)))
        check_copy(root, copy := free.get())
        free.put(copy)

        def in_a_copy(function: Callable, *arguments):
            copy = free.get()
            try:
                return function(*arguments, root, copy, limit)
            finally:
                free.put(copy)

        pool = ThreadPoolExecutor(jobs)
        stack.callback(pool.shutdown, cancel_futures=True)
        report("the tests without a fault")
        start, unfit = time.monotonic(), {}
        for found in pool.map(lambda group: in_a_copy(unfit_selections, group), groups(faults)):
            unfit |= found
        report(f"{time.monotonic() - start:7.1f} s  {len(unfit)} selections of tests are unfit")
        outcomes = []
        for done in as_completed([pool.submit(in_a_copy, judge, f, unfit) for f in faults]):
            outcomes.append(done.result())
            report(describe(outcomes[-1]))
        return outcomes


def describe(outcome: Outcome) -> str:
    """One line about a fault."""
    verdict = outcome.verdict
    if outcome.fault.equivalent is not None:
        verdict = "equivalent" if outcome.as_expected else f"{verdict}, though marked equivalent"
    return f"{outcome.seconds:7.1f} s  {verdict:10}  {outcome.fault}  [{outcome.detail}]"


# --------------------------------------------------------------------------------- the kill rate

BEGIN, END = "<!-- the table of `--table` begins -->", "<!-- and ends -->"
_HEAD = ["| module | faults | equivalent | noticed | kill rate |", "|---|---|---|---|---|"]

Counts = tuple[int, int, int]  # faults, equivalent ones, noticed ones


def counts_by_module(outcomes: Sequence[Outcome]) -> dict[str, Counts]:
    """The counts of each changed file."""
    found: dict[str, Counts] = {}
    for outcome in outcomes:
        total, same, noticed = found.get(outcome.fault.file, (0, 0, 0))
        equivalent = outcome.fault.equivalent is not None
        noticed += outcome.verdict == NOTICED and not equivalent
        found[outcome.fault.file] = (total + 1, same + equivalent, noticed)
    return found


def table(counts: dict[str, Counts]) -> str:
    """The kill rate by module, in Markdown: noticed faults among those that are not equivalent."""

    def row(name: str, of: Counts) -> str:
        total, equivalent, noticed = of
        judged = total - equivalent
        rate = f"{100 * noticed / judged:.0f} %" if judged else "-"
        return f"| {name} | {total} | {equivalent} | {noticed} | {rate} |"

    rows = [row(f"`{name}`", of) for name, of in sorted(counts.items())]
    together = tuple(map(sum, zip((0, 0, 0), *counts.values())))
    return "\n".join([*_HEAD, *rows, row("all", together)])


def read_table(readme: str) -> dict[str, Counts]:
    """The counts in the table of a README."""
    found = re.findall(r"^\| `(.+?)` \| (\d+) \| (\d+) \| (\d+) \|", readme, re.MULTILINE)
    return {name: tuple(map(int, numbers)) for name, *numbers in found}


def write_table(outcomes: Sequence[Outcome], faults: Sequence[Fault], path: pathlib.Path) -> None:
    """Put the modules that were run in full into the README's table; keep the rows of others.

    `faults` are all there are: a module without any loses its row.
    """
    numbers = {file: sum(f.file == file for f in faults) for file in {f.file for f in faults}}
    new = counts_by_module(outcomes)
    new = {file: counts for file, counts in new.items() if counts[0] == numbers[file]}
    text = path.read_text(encoding="utf-8")
    old = {file: counts for file, counts in read_table(text).items() if file in numbers}
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    path.write_text(f"{head}{BEGIN}\n{table(old | new)}\n{END}{tail}", encoding="utf-8")
