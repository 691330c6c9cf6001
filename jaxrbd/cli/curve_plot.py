"""The figure of `jaxrbd train`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ..learning import Record


def plot_curves(path: Path, title: str, runs: Sequence[Sequence[Record]]) -> None:
    """Write the returns and the rewards over the steps of some trainings to a PNG file.

    Raises OSError if the file cannot be written.
    """
    figure = Figure(figsize=(7, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axes, name, label in (
        (upper, "return", "mean return of an episode"),
        (lower, "reward", "mean reward of a step"),
    ):
        for records in runs:
            steps = [record.steps for record in records]
            axes.plot(steps, [record.metrics[name] for record in records], linewidth=1.2)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    lower.set_xlabel("steps of all environments")
    figure.suptitle(title)
    figure.savefig(path, dpi=120, metadata={"Software": None})
