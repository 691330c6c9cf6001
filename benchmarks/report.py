"""What a run found, as Markdown tables and a plot: `python -m benchmarks.report results.json`."""

from __future__ import annotations

import json
import pathlib
import sys

from . import jobs

# What a cell says where a library has no such function or cannot express the robot.
NONE = "-"


def write(results: dict, out: pathlib.Path) -> None:
    """results.md and, where matplotlib is installed, results.png, beside results.json."""
    (out / "results.md").write_text(markdown(results))


def markdown(results: dict) -> str:
    """The tables: who is how fast, then what it took to compile."""
    machine = results["machine"]
    parts = [
        f"{results['date'][:10]}, `{results['command']}`\n",
        f"{machine['processor']}, core {results['core']} of {machine['cores']}, "
        f"{machine['system']}, Python {machine['python']}. {_versions(results)}\n",
    ]
    cells = results["cells"]
    for dtype in dict.fromkeys(cell["dtype"] for cell in cells):
        of = [cell for cell in cells if cell["dtype"] == dtype]
        parts += [f"## {dtype}\n", _ratios(results, of)]
        for robot, facts in results["robots"].items():
            here = [cell for cell in of if cell["robot"] == robot]
            if here:
                head = f"### {robot}, {facts['nv']} dofs, {dtype}\n"
                parts += [head, _times(results, here), _reasons(here)]
        parts += [f"### Trace and compile, seconds, {dtype}\n", _compile(results, of)]
        parts += [f"### Temporary memory, kB a sample, {dtype}\n", _memory(results, of)]
    return "\n".join(part for part in parts if part)


def table(head: list, rows: list[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def _versions(results: dict) -> str:
    found: dict[str, str] = {}
    for versions in results["versions"].values():
        found |= versions
    return ", ".join(f"{name} {version}" for name, version in found.items()) + "."


def _rows(cells: list[dict], keys: tuple[str, ...]) -> dict[tuple, dict[str, dict]]:
    """The cells of each row by library; a row is what its keys say."""
    rows: dict[tuple, dict[str, dict]] = {}
    for cell in cells:
        rows.setdefault(tuple(cell[key] for key in keys), {})[cell["peer"]] = cell
    return rows


def _ratios(results: dict, cells: list[dict]) -> str:
    """jaxrbd's time over Pinocchio's."""
    rows = _rows(cells, ("job", "robot", "batch"))
    columns = list(dict.fromkeys((robot, batch) for _, robot, batch in rows))

    def ratio(job, column):
        row = rows.get((job, *column), {})
        pair = [row.get(peer, {}).get("min_us") for peer in ("jaxrbd", "pinocchio")]
        return f"{pair[0] / pair[1]:.2f}" if all(pair) else NONE

    names = list(dict.fromkeys(job for job, _, _ in rows))
    if not any(ratio(job, column) != NONE for job in names for column in columns):
        return ""
    head = ["job", *(f"{robot}, {batch}" for robot, batch in columns)]
    body = [[jobs.JOBS[job].title, *(ratio(job, c) for c in columns)] for job in names]
    return "jaxrbd's time over Pinocchio's (robot, batch):\n\n" + table(head, body)


def _times(results: dict, cells: list[dict]) -> str:
    rows = _rows(cells, ("job", "batch"))
    body = [
        [jobs.JOBS[job].title, batch, *(_time(row.get(peer)) for peer in results["peers"])]
        for (job, batch), row in rows.items()
    ]
    head = ["job", "batch", *results["peers"]]
    return "Microseconds a sample, minimum (median):\n\n" + table(head, body)


def _time(cell: dict | None) -> str:
    if cell is None:
        return ""
    if "failed" in cell:
        return short(cell["failed"])
    note = f", {cell['note']}" if cell.get("note") else ""
    return f"{number(cell['min_us'])} ({number(cell['median_us'])}{note})"


def short(reason: str) -> str:
    """A cell that failed: wrong results and limits of time are said in it."""
    return reason if reason.startswith(("wrong", ">", "needs")) else NONE


def number(x: float) -> str:
    """Three digits, never an exponent."""
    if x >= 100:
        return f"{x:,.0f}"
    return f"{x:.3g}" if x >= 1e-3 else "0"


def _reasons(cells: list[dict]) -> str:
    """Why cells are empty."""
    why: dict[tuple[str, str], dict] = {}
    for cell in cells:
        if short(cell.get("failed", "wrong")) == NONE:
            why.setdefault((cell["peer"], cell["failed"]), {})[cell["job"]] = None
    every = len({cell["job"] for cell in cells})
    lines = [
        f"{NONE} {peer}: {reason}" + (f" ({', '.join(of)})" if len(of) < every else "")
        for (peer, reason), of in why.items()
    ]
    return "\n".join(lines) + "\n" if lines else ""


def _compile(results: dict, cells: list[dict]) -> str:
    """The longest of all batches."""
    return _extremes(results, cells, lambda c: c.get("compile_s"), lambda x: f"{x:.1f}")


def _memory(results: dict, cells: list[dict]) -> str:
    def of(cell):
        size = cell.get("temp_bytes")
        return None if size is None else size / cell["batch"] / 1e3

    return _extremes(results, cells, of, number)


def _extremes(results: dict, cells: list[dict], of, text) -> str:
    shown = [p for p in results["peers"] if any(of(c) is not None for c in cells if c["peer"] == p)]
    body = []
    for robot, job in _rows(cells, ("robot", "job")):
        row = []
        for peer in shown:
            here = [c for c in cells if (c["robot"], c["job"], c["peer"]) == (robot, job, peer)]
            found = [of(c) for c in here if of(c) is not None]
            row.append(text(max(found)) if found else short(here[0].get("failed", NONE)))
        body.append([robot, jobs.JOBS[job].title, *row])
    return table(["robot", "job", *shown], body) if shown else ""


def main() -> None:
    path = pathlib.Path(sys.argv[1])
    write(json.loads(path.read_text()), path.parent)


if __name__ == "__main__":
    main()
