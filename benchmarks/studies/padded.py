"""Measure batches of different robots in one program beside one program for each robot.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 python -m benchmarks.studies.padded

The robots are the URDF files of example-robot-data, on free-flyers, or the MJCF files of folders:

    python -m benchmarks.studies.padded FOLDER... --contacts 1000

`padded.alike` sorts them into batches. For each batch the study prints the time of the padded
program over the sum of the times of the programs of the robots, for the same states; the largest
difference of the results, relative to the largest entry of a result or to 1; and the seconds of
compilation. The gradients are those of a weighted sum of all accelerations. Robots of a
batch that have at most `--contacts` contacts, and grounds and friction of one kind, make contact
steps together.
"""

from __future__ import annotations

import pathlib
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.robots import FILES, file_of
from benchmarks.studies import common
from jaxrbd import padded
from jaxrbd.contact import Scene, contact_step
from jaxrbd.io import load_mjcf


def gradients(model, q, v, u):
    """The derivatives of a weighted sum of the accelerations in q, v and u."""

    def weighted_sum(q, v, u):
        return jnp.vdot(u, jaxrbd.forward_dynamics(model, q, v, u))

    return jax.grad(weighted_sum, (0, 1, 2))(q, v, u)


JOBS = {
    "rnea": lambda m, q, v, u: jaxrbd.rnea(m, q, v, u),
    "crba": lambda m, q, v, u: jaxrbd.crba(m, q),
    "fd": lambda m, q, v, u: jaxrbd.forward_dynamics(m, q, v, u),
    "d(fd)": lambda m, q, v, u: jaxrbd.forward_dynamics_derivatives(m, q, v, u),
    "gradients": gradients,
}


class Robot(NamedTuple):
    """A robot of a file, and its contact scene or None."""

    name: str
    model: jaxrbd.Model
    scene: Scene | None = None


def robots(folders: list[str]) -> list[Robot]:
    """The robots of all files that can be read; a file that cannot be read is named."""
    folder = file_of("example-robot-data", FILES["panda"][0]).parents[2]
    files = [file for x in folders for file in sorted(pathlib.Path(x).rglob("*.xml"))]
    found = []
    for file in files or sorted(folder.rglob("*.urdf")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if folders:
                    robot = load_mjcf(file)
                    found.append(Robot(file.stem, robot.model, robot.scene))
                else:
                    model = jaxrbd.load_urdf(file, root_joint="free_flyer")
                    found.append(Robot(file.stem, model))
            except jaxrbd.RobotFileError:
                print(f"left out: {file.name}")
    return [robot for robot in found if robot.model.nb]


def states(model: jaxrbd.Model, n: int) -> list[np.ndarray]:
    """n random configurations, velocities and torques."""
    q = common.random_configurations(model, n)
    return [np.asarray(q), *np.random.default_rng(0).normal(size=(2, n, model.nv))]


class Comparison(NamedTuple):
    """One job of a batch: time over the sum of the times, difference, seconds to compile."""

    ratio: float
    difference: float
    compilation: tuple[float, float]


def compare(job, together, parts, extra=None) -> Comparison:
    """The padded program of a job beside the programs of the robots.

    `parts`: the model and the states of each robot; `extra`: one more argument, padded and of each
    robot, before the states.
    """
    q = together.configurations([part[1] for part in parts])
    v, u = (together.velocities([part[k] for part in parts]) for k in (2, 3))
    padded_extra, own_extra = ((), [()] * len(parts)) if extra is None else extra
    axes = (None,) * (1 + len(padded_extra)) + (0, 0, 0)
    one = jax.vmap(job, axes)
    program = common.Program(one, together.model, *padded_extra, q, v, u)
    single = [
        common.Program(one, part[0], *mine, *part[1:], batched=False)
        for part, mine in zip(parts, own_extra)
    ]
    calls = {i: each.call for i, each in enumerate([program, *single])}
    times = common.least_seconds(calls, 0.2)
    result, difference = program.call(), 0.0
    for i, each in enumerate(single):
        for x, expected in zip(jax.tree.leaves(result), jax.tree.leaves(each.call())):
            places = {together.model.nv: together.v_index, together.model.nq: together.q_index}
            x, expected = np.asarray(x[i]), np.asarray(expected)
            for axis in range(1, x.ndim):
                x = np.take(x, places[x.shape[axis]][i], axis)
            scale = max(1.0, np.abs(expected).max(initial=0.0))
            difference = max(difference, np.abs(x - expected).max(initial=0.0) / scale)
    seconds = [sum(p.trace_s + p.compile_s for p in programs) for programs in ([program], single)]
    return Comparison(times[0] / sum(times[i] for i in calls if i), difference, tuple(seconds))


def step(model, scene, q, v, u):
    """The velocity after a contact step of 2 ms."""
    return contact_step(model, scene, q, v, u, 0.002).v


def main() -> None:
    """Print one row per batch."""
    options = common.options(__doc__, "folder", padding=0.2, states=16, batches=0, contacts=1000)
    common.start()
    given = robots(options.folder)
    batches = [b for b in padded.alike([r.model for r in given], options.padding) if len(b) > 1]
    batches = sorted(batches, key=len, reverse=True)[: options.batches or None]
    common.head("robots", "bodies", "mean", *JOBS, "difference", "compile s", "of each, s")
    for batch in batches:
        models = [given[i].model for i in batch]
        together = padded.pad(models)
        parts = [(model, *states(model, options.states)) for model in models]
        found = [compare(job, together, parts) for job in JOBS.values()]
        _print([given[i].name for i in batch] if options.folder else len(batch), together, found)
    with_contacts = [kind for batch in batches for kind in kinds(given, batch, options.contacts)]
    if not with_contacts:
        return
    print()
    common.head("robots", "bodies", "mean", "contact step", "difference", "compile s", "of each, s")
    for batch in with_contacts:
        models = [given[i].model for i in batch]
        unpadded = [given[i].scene for i in batch]
        together = padded.pad(models)
        contacts = padded.pad_scenes(together, unpadded)
        parts = [(model, *states(model, options.states)) for model in models]
        found = compare(
            step, together, parts, ((contacts.scene,), [(scene,) for scene in unpadded])
        )
        _print([given[i].name for i in batch], together, [found])


def kinds(given: list[Robot], batch, contacts: int) -> list[list[int]]:
    """The robots of a batch that make contact steps together, as lists of two or more."""
    found: dict[str, list[int]] = {}
    for i in batch:
        scene = given[i].scene
        if scene is not None and scene.size <= contacts:
            shapes = [np.shape(x) for x in jax.tree.leaves(scene.ground)]
            kind = str((jax.tree.structure((scene.ground, scene.material)), shapes))
            found.setdefault(kind, []).append(i)
    return [kind for kind in found.values() if len(kind) > 1]


def _print(name, together: padded.PaddedRobots, found: list[Comparison]) -> None:
    name = ", ".join(name) if isinstance(name, list) else name
    mean = np.mean([len(index) for index in together.body_index])
    ratios = (f"{x.ratio:.2f}" for x in found)
    difference = max(x.difference for x in found)
    seconds = (f"{sum(x.compilation[k] for x in found):.1f}" for k in range(2))
    common.row(name, together.model.nb, f"{mean:.1f}", *ratios, f"{difference:.0e}", *seconds)


if __name__ == "__main__":
    main()
