"""Measure batches of different robots in one program beside one program for each robot.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 python -m benchmarks.studies.padded

The robots are the URDF files of example-robot-data, on free-flyers. `padded.alike` sorts them into
batches. For each batch the study prints the time of the padded program over the sum of the times of
the programs of the robots, for the same states, and the seconds of compilation.
"""

from __future__ import annotations

import warnings

import jax
import numpy as np

import jaxrbd
from benchmarks.robots import FILES, file_of
from benchmarks.studies import common
from jaxrbd import padded

JOBS = {
    "rnea": lambda m, q, v, u: jaxrbd.rnea(m, q, v, u),
    "crba": lambda m, q, v, u: jaxrbd.crba(m, q),
    "fd": lambda m, q, v, u: jaxrbd.forward_dynamics(m, q, v, u),
    "d(fd)": lambda m, q, v, u: jaxrbd.forward_dynamics_derivatives(m, q, v, u),
}


def robots() -> list[jaxrbd.Model]:
    """All robots that can be read; a file that cannot be read is named."""
    folder = file_of("example-robot-data", FILES["panda"][0]).parents[2]
    found = []
    for file in sorted(folder.rglob("*.urdf")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found.append(jaxrbd.load_urdf(file, root_joint="free_flyer"))
            except jaxrbd.RobotFileError:
                print(f"left out: {file.relative_to(folder)}")
    return found


def states(model: jaxrbd.Model, n: int) -> list[np.ndarray]:
    """n random configurations, velocities and torques."""
    q = common.random_configurations(model, n)
    return [np.asarray(q), *np.random.default_rng(0).normal(size=(2, n, model.nv))]


def main() -> None:
    """Print one row per batch."""
    options = common.options(__doc__, padding=0.5, states=16, batches=0)
    common.start()
    models = robots()
    batches = [b for b in padded.alike(models, options.padding) if len(b) > 1]
    batches = sorted(batches, key=len, reverse=True)[: options.batches or None]
    common.head("robots", "bodies", "mean", *JOBS, "compile s", "of each, s")
    for batch in batches:
        chosen = [models[i] for i in batch]
        together = padded.pad(chosen)
        parts = [states(model, options.states) for model in chosen]
        q = together.configurations([part[0] for part in parts])
        v, u = (together.velocities([part[k] for part in parts]) for k in (1, 2))
        mean = np.mean([model.nb for model in chosen])
        row = [len(batch), together.model.nb, f"{mean:.1f}"]
        seconds = [0.0, 0.0]
        for job in JOBS.values():
            one = jax.vmap(job, (None, 0, 0, 0))
            padded_program = common.Program(one, together.model, q, v, u)
            own = [
                common.Program(one, model, *part, batched=False)
                for model, part in zip(chosen, parts)
            ]
            calls = {i: program.call for i, program in enumerate([padded_program, *own])}
            times = common.least_seconds(calls, 0.2)
            row.append(f"{times[0] / sum(times[i] for i in calls if i):.2f}")
            seconds[0] += padded_program.trace_s + padded_program.compile_s
            seconds[1] += sum(program.trace_s + program.compile_s for program in own)
        common.row(*row, *(f"{x:.1f}" for x in seconds))


if __name__ == "__main__":
    main()
