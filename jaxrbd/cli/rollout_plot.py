"""The figure of `jaxrbd rollout`: coordinates, energy, energy errors, gradients."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..algorithms.mass import kinetic_energy, potential_energy
from ..configuration import difference, neutral
from ..model import Model
from .rollout import Trajectory


def plot_rollout(
    path: Path,
    model: Model,
    time: np.ndarray,
    trajectory: Trajectory,
    energy_error: np.ndarray,
    gradient: np.ndarray,
) -> None:
    """Write the figure of a batch to a PNG file.

    `time` (n + 1,), `trajectory` and `energy_error` (batch, n + 1, ...), `gradient` (batch, n, nv),
    all in NumPy. Raises OSError if the file cannot be written.
    """
    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    first = Trajectory(*(x[0] for x in trajectory))
    _coordinates(axes[0, 0], model, time, first)
    _energy(axes[0, 1], model, time, first)
    _quantiles(axes[1, 0], time[1:], energy_error[:, 1:], "energy balance error, relative")
    sizes = np.linalg.norm(gradient, axis=-1)
    _quantiles(axes[1, 1], time[:-1], sizes, "|d cost / d tau| of each step")
    count = len(energy_error)
    figure.suptitle(f"{model.name}: {count} trajectories; the first one in the upper row")
    figure.savefig(path, dpi=120)


def _coordinates(axes: Axes, model: Model, time: np.ndarray, trajectory: Trajectory) -> None:
    """Plot the configurations of one trajectory in the tangent space at neutral."""
    displacement = jax.vmap(difference, (None, None, 0))(model, neutral(model), trajectory.q)
    axes.plot(time, np.asarray(displacement), linewidth=1)
    axes.set(xlabel="time [s]", ylabel="distance from neutral [rad, m]", title="coordinates")


def _energy(axes: Axes, model: Model, time: np.ndarray, trajectory: Trajectory) -> None:
    """Plot the energies and the work; the work must equal the change of the sum of energies."""
    q, v = trajectory.q, trajectory.v
    kinetic = np.asarray(jax.vmap(kinetic_energy, (None, 0, 0))(model, q, v))
    potential = np.asarray(jax.vmap(potential_energy, (None, 0))(model, q))
    potential = potential - potential[0]
    axes.plot(time, kinetic, label="kinetic")
    axes.plot(time, potential, label="potential, gained")
    axes.plot(time, kinetic + potential, "k", linewidth=3, alpha=0.3, label="sum")
    axes.plot(time, trajectory.work, "k--", linewidth=1, label="work of torques and damping")
    axes.set(xlabel="time [s]", ylabel="[J]", title="energy")
    axes.legend()


def _quantiles(axes: Axes, time: np.ndarray, values: np.ndarray, title: str) -> None:
    """Plot the median over the batch and the range from 5 % to 95 %, on a logarithmic scale."""
    low, median, high = np.quantile(values, (0.05, 0.5, 0.95), axis=0)
    axes.fill_between(time, low, high, alpha=0.25, label="5 % to 95 % of the batch")
    axes.plot(time, median, label="median")
    scale = "log" if np.any(median > 0) else "linear"  # a robot without joints has only zeros
    axes.set(xlabel="time [s]", yscale=scale, title=title)
    axes.legend()
