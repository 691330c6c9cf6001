"""The results of a run as Markdown tables and a plot: `python -m benchmarks.report results.json`.

`--publish` writes the tables into benchmarks/RESULTS.md and the plot into the same folder.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib

from . import jobs
from .peers import BASELINE

# The text of a cell if the library has no such function or cannot express the robot.
NONE = "-"
PUBLISHED = pathlib.Path(__file__).with_name("RESULTS.md")
MARKS = "<!-- measured -->", "<!-- end -->"


def write(results: dict, out: pathlib.Path) -> None:
    """Write results.md into `out` and, if matplotlib is installed, results.png."""
    (out / "results.md").write_text(Tables(results).markdown())
    print(f"wrote {out / 'results.md'}")
    if importlib.util.find_spec("matplotlib"):
        plot(results, out / "results.png")


def table(head: list, rows: list[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def number(x: float) -> str:
    """Three digits, never an exponent."""
    if x >= 100:
        return f"{x:,.0f}"
    return f"{x:.3g}" if x >= 1e-3 else "0"


def short(reason: str) -> str:
    """The text of a cell that failed: the reason if it is short, else NONE.

    Short reasons are wrong results and exceeded limits of time and memory. `Tables.reasons` prints
    the other reasons below the table.
    """
    return reason if reason.startswith(("wrong", ">", "needs")) else NONE


def rows_of(cells: list[dict], *keys: str) -> dict[tuple, dict[str, dict]]:
    """The cells of each row, by library. Cells with the same values of `keys` are in one row."""
    rows: dict[tuple, dict[str, dict]] = {}
    for cell in cells:
        rows.setdefault(tuple(cell[key] for key in keys), {})[cell["peer"]] = cell
    return rows


class Tables:
    """The tables of a run."""

    def __init__(self, results: dict):
        self.results, self.peers = results, results["peers"]

    def markdown(self) -> str:
        """All tables, with the head, as one text."""
        parts = [self.head()]
        cells = self.results["cells"]
        for dtype in dict.fromkeys(cell["dtype"] for cell in cells):
            of = [cell for cell in cells if cell["dtype"] == dtype]
            parts += [f"### {dtype}\n", self.ratios(of, "pinocchio", "Pinocchio")]
            parts += [self.ratios(of, BASELINE, "the baseline")]
            for robot, facts in self.results["robots"].items():
                here = [cell for cell in of if cell["robot"] == robot]
                if here:
                    parts += [f"#### {robot}, {facts['nv']} dofs, {dtype}\n", self.times(here)]
                    parts += [self.reasons(here)]
            parts += [self.compilation(of), self.memory(of)]
        return "\n".join(part for part in parts if part)

    def head(self) -> str:
        """The date, the command, the machine, the versions, and a note if the machine was busy."""
        results, machine = self.results, self.results["machine"]
        versions: dict[str, str] = {}
        for peer, found in results["versions"].items():
            for name, version in found.items():
                if versions.setdefault(name, version) != version:
                    versions[f"{name} (of {peer})"] = version
        devices = {cell["device"] for cell in results["cells"] if cell.get("platform") == "gpu"}
        where = f"one of {machine['cores']} cores" + "".join(f"; {device}" for device in devices)
        lines = [
            f"{results['date'][:10]}, `{results['command']}`",
            f"{machine['processor']}, {where}, {machine['system']}, Python {machine['python']}. "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
            + ".",
        ]
        shares = [cell["share"] for cell in results["cells"] if cell.get("share")]
        if shares and not devices:
            own = sorted(shares)[len(shares) // 2]
            if own < 0.9:
                lines.append(
                    f"The machine was busy: the libraries had {own:.0%} of their core's time "
                    "(median)."
                )
        return "\n\n".join(lines) + "\n"

    def ratios(self, cells: list[dict], other: str, name: str) -> str:
        """The table of jaxrbd's time divided by the time of the library `other`."""
        rows = rows_of(cells, "job", "robot", "batch")
        columns = list(dict.fromkeys((robot, batch) for _, robot, batch in rows))

        def ratio(job, column):
            row = rows.get((job, *column), {})
            pair = [row.get(peer, {}).get("min_us") for peer in ("jaxrbd", other)]
            return f"{pair[0] / pair[1]:.2f}" if all(pair) else NONE

        names = list(dict.fromkeys(job for job, _, _ in rows))
        body = [[jobs.JOBS[job].title, *(ratio(job, c) for c in columns)] for job in names]
        if all(text == NONE for row in body for text in row[1:]):
            return ""
        head = ["job", *(f"{robot}, {batch}" for robot, batch in columns)]
        title = f"Time of jaxrbd, divided by the time of {name} (robot, batch):"
        return f"{title}\n\n" + table(head, body)

    def times(self, cells: list[dict]) -> str:
        body = [
            [jobs.JOBS[job].title, f"{batch:,}", *(self.time(row.get(p)) for p in self.peers)]
            for (job, batch), row in rows_of(cells, "job", "batch").items()
        ]
        head = ["job", "batch", *self.peers]
        return "Microseconds per sample, minimum (median):\n\n" + table(head, body)

    def time(self, cell: dict | None) -> str:
        if cell is None:
            return NONE
        if "failed" in cell:
            return short(cell["failed"])
        note = f", {cell['note']}" if cell.get("note") else ""
        return f"{number(cell['min_us'])} ({number(cell['median_us'])}{note})"

    def reasons(self, cells: list[dict]) -> str:
        """The list of the reasons of the empty cells."""
        why: dict[tuple[str, str], dict] = {}
        for cell in cells:
            if "failed" in cell and short(cell["failed"]) == NONE:
                why.setdefault((cell["peer"], cell["failed"]), {})[cell["job"]] = None
        every = len({cell["job"] for cell in cells})
        lines = [
            f"- {peer}: {reason}" + (f" ({', '.join(of)})" if len(of) < every else "")
            for (peer, reason), of in why.items()
        ]
        return "\n".join(lines) + "\n" if lines else ""

    def compilation(self, cells: list[dict]) -> str:
        """The table of the compilation times: the longest time of all batches."""
        body = self._largest(cells, lambda cell: cell.get("compile_s"), lambda x: f"{x:.1f}")
        return body and "#### Trace and compile, seconds\n\n" + body

    def memory(self, cells: list[dict]) -> str:
        """The table of the temporary memory per sample: the largest value of all batches."""

        def of(cell):
            size = cell.get("temp_bytes")
            return None if size is None else size / cell["batch"] / 1e3

        body = self._largest(cells, of, number)
        return body and "#### Temporary memory, kB per sample\n\n" + body

    def _largest(self, cells: list[dict], of, text) -> str:
        shown = [p for p in self.peers if any(of(c) is not None for c in cells if c["peer"] == p)]
        body = []
        for robot, job in rows_of(cells, "robot", "job"):
            row = []
            for peer in shown:
                here = [c for c in cells if (c["robot"], c["job"], c["peer"]) == (robot, job, peer)]
                found = [of(c) for c in here if of(c) is not None]
                failed = [short(c["failed"]) for c in here if "failed" in c]
                row.append(text(max(found)) if found else (failed or [NONE])[0])
            body.append([robot, jobs.JOBS[job].title, *row])
        return table(["robot", "job", *shown], body) if shown else ""


def plot(results: dict, path: pathlib.Path) -> None:
    """Plot the time of every library, divided by jaxrbd's time.

    There is one row of plots per precision, and one column per robot.
    """
    from matplotlib.figure import Figure

    cells = [cell for cell in results["cells"] if "failed" not in cell]
    dtypes = list(dict.fromkeys(cell["dtype"] for cell in cells))
    names = list(dict.fromkeys(cell["robot"] for cell in cells))
    if not names:
        return
    todo = list(dict.fromkeys(cell["job"] for cell in cells))
    batches = sorted({cell["batch"] for cell in cells})
    figure = Figure(figsize=(1 + 3.6 * len(names), 1 + 3.6 * len(dtypes)), layout="constrained")
    grid = figure.subplots(len(dtypes), len(names), squeeze=False, sharey=True)
    for i, dtype in enumerate(dtypes):
        for j, robot in enumerate(names):
            axes = grid[i, j]
            here = [c for c in cells if (c["dtype"], c["robot"]) == (dtype, robot)]
            ours = {(c["job"], c["batch"]): c["min_us"] for c in here if c["peer"] == "jaxrbd"}
            for k, peer in enumerate(p for p in results["peers"] if p != "jaxrbd"):
                of = [c for c in here if c["peer"] == peer and (c["job"], c["batch"]) in ours]
                x = [
                    todo.index(c["job"])
                    + 0.12 * (batches.index(c["batch"]) - (len(batches) - 1) / 2)
                    for c in of
                ]
                y = [c["min_us"] / ours[c["job"], c["batch"]] for c in of]
                axes.semilogy(x, y, ".", color=f"C{k}", label=peer)
            axes.axhline(1.0, color="black", linewidth=1)
            axes.set_title(f"{robot}, {dtype}")
            axes.set_xticks(range(len(todo)), todo, rotation=60)
            axes.set_xlim(-0.5, len(todo) - 0.5)
            axes.grid(alpha=0.3)
        grid[i, 0].set_ylabel("time over jaxrbd's")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels) or 1)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def replace_measured(page: pathlib.Path, text: str) -> None:
    """Replace the text between the two MARKS of a page."""
    before, rest = page.read_text().split(MARKS[0])
    _, after = rest.split(MARKS[1])
    page.write_text(f"{before}{MARKS[0]}\n\n{text}\n{MARKS[1]}{after}")


def publish(results: dict) -> None:
    """Replace the tables and the plot of PUBLISHED."""
    picture = "![Time of each library, divided by the time of jaxrbd](results.png)"
    replace_measured(PUBLISHED, f"{picture}\n\n{Tables(results).markdown()}")
    plot(results, PUBLISHED.with_name("results.png"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--publish", action="store_true")
    options = parser.parse_args()
    results = json.loads(options.results.read_text())
    write(results, options.results.parent)
    if options.publish:
        publish(results)


if __name__ == "__main__":
    main()
