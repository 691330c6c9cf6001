"""Measure the integrators: orders of convergence, energy errors in 10 s and in 100,000 steps.

    python -m benchmarks.studies.integrators [--publish]
    python -m benchmarks.studies.integrators --counts 32,64,128 --reference 512 --steps 1000

With `--publish`, the program writes docs/integrators.png, and replaces the text between the two
marks of docs/integrators.md by the new tables.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxrbd as rbd
from benchmarks import report
from benchmarks.studies import common
from jaxrbd import joints

DOCS = common.ROOT / "docs"
INTEGRATORS = (
    rbd.integrators.explicit_euler,
    rbd.integrators.semi_implicit_euler,
    rbd.integrators.variational_midpoint,
    rbd.integrators.runge_kutta_munthe_kaas,
)
DURATION = 0.25  # s, simulated for the orders of convergence


def top():
    """A body of 1 kg that spins on a ball joint in gravity: the model, q and v.

    The centre of mass is 0.2 m from the joint.
    """
    inertia = rbd.model.link_inertia(1.0, (0.05, 0.0, 0.2), np.diag([0.02, 0.03, 0.01]))
    link = rbd.model.Link("body", inertia)
    ball = rbd.model.JointSpec("ball", joints.Spherical(), None, "body")
    model = rbd.build_model([link], [ball], name="top")
    return model, rbd.neutral(model), jnp.array([0.5, 1.0, 8.0])


def thrown(name):
    """A bundled robot without gravity: the model, q and v; the entries of v are 1 or -1."""
    model = rbd.load_robot(name)
    model = dataclasses.replace(model, gravity=jnp.zeros(3))
    return model, rbd.neutral(model), (-1.0) ** jnp.arange(model.nv)


def pendulum():
    """The double pendulum, released so high that its motion is chaotic: the model, q and v."""
    model = rbd.load_robot("double_pendulum")
    return model, rbd.neutral(model) + jnp.array([2.0, 1.0]), jnp.zeros(2)


def free(model):
    return lambda q, v: rbd.forward_dynamics(model, q, v, jnp.zeros(model.nv))


def held(model, target):
    """Dynamics with springs and dampers at every joint except the free-flyer, in gravity."""

    def dynamics(q, v):
        tau = -2 * rbd.difference(model, target, q) - 0.01 * v
        return rbd.forward_dynamics(model, q, v, tau.at[:6].set(0))

    return dynamics


def energy(model, q, v):
    return rbd.kinetic_energy(model, q, v) + rbd.potential_energy(model, q)


def convergence(model, dynamics, q, v, counts, reference):
    """For each integrator, the errors of the state after `DURATION`, one per number of steps.

    The reference is Munthe-Kaas with `reference` steps.
    """

    @functools.partial(jax.jit, static_argnums=0)
    def end(step, count):
        dt = DURATION / count
        return jax.lax.fori_loop(0, count, lambda _, s: step(model, dynamics, *s, dt), (q, v))

    exact = end(rbd.integrators.runge_kutta_munthe_kaas, reference)

    def error(state):
        dq = rbd.difference(model, exact[0], state[0])
        return float(jnp.linalg.norm(jnp.concatenate([dq, state[1] - exact[1]])))

    return {step: np.array([error(end(step, n)) for n in counts]) for step in INTEGRATORS}


def order(counts, errors):
    """The slope between the two finest steps whose errors are above 1e-10, so above rounding."""
    a, b = np.flatnonzero(errors > 1e-10)[-2:]
    return np.log(errors[a] / errors[b]) / np.log(counts[b] / counts[a])


def energy_errors(step, model, q, v, dt, steps, parts):
    """The largest energy errors in each of `parts` parts of a free motion, and the last error.

    The parts have equal length. The errors are divided by the largest kinetic energy.
    """

    @jax.jit
    def run(q, v):
        start = energy(model, q, v)

        def one(_, carry):
            state, worst, _, kinetic = carry
            state = step(model, free(model), *state, dt)
            error = jnp.abs(energy(model, *state) - start)
            kinetic = jnp.maximum(kinetic, rbd.kinetic_energy(model, *state))
            return state, jnp.maximum(worst, error), error, kinetic

        def part(state, _):
            zero = jnp.zeros(())
            state, *found = jax.lax.fori_loop(0, steps // parts, one, (state, zero, zero, zero))
            return state, found

        worst, last, kinetic = jax.lax.scan(part, (q, v), length=parts)[1]
        return worst / jnp.max(kinetic), last[-1] / jnp.max(kinetic)

    worst, last = run(q, v)
    return np.asarray(worst), float(last)


def size(x):
    return f"{x:.1e}" if np.isfinite(x) else "diverges"


def table_of_orders(errors, counts):
    """`errors`: by robot, the errors of each integrator for the numbers of steps `counts`."""
    finest = f"error with steps of {DURATION / counts[-1] * 1e3:.2g} ms"
    head = ["integrator", *(f"order, {robot}" for robot in errors)]
    rows = [
        [f"`{step.__name__}`", *(f"{order(counts, of[step]):.2f}" for of in errors.values())]
        + [f"{of[step][-1]:.1e}" for of in errors.values()]
        for step in INTEGRATORS
    ]
    return report.table([*head, *(f"{robot}, {finest}" for robot in errors)], rows)


def table_of_drifts(robots, steps, dt):
    rows = []
    for step in INTEGRATORS:
        ends = [energy_errors(step, *robot, dt, steps, 1)[1] for robot in robots.values()]
        rows.append([f"`{step.__name__}`", *map(size, ends)])
    head = f"\nDrift of the energy over {steps * dt:g} s, with steps of 1 ms:\n\n"
    return head + report.table(["integrator", *robots], rows)


def table_of_energies(robots, steps):
    """The table of the largest errors of long motions, and the errors over time for the picture."""
    rows, curves = [], {}
    for (robot, dt), state in robots.items():
        for step in INTEGRATORS[1:]:
            worst, _ = energy_errors(step, *state, dt, steps, 100)
            curves[robot, step] = dt * steps * np.arange(1, 101) / 100, worst
            tenths = [size(np.max(worst[:10])), size(np.max(worst[-10:]))]
            rows.append([robot, f"{dt * 1e3:g} ms", f"`{step.__name__}`", *tenths])
    head = ["robot", "step", "integrator", "in the first tenth", "in the last tenth"]
    text = f"\nLargest error of the energy in {steps} steps:\n\n"
    return text + report.table(head, rows), curves


def main():
    counts = (32, 64, 128, 256, 512, 1024)
    given = common.options(__doc__, counts=counts, reference=4096, steps=100_000, publish=False)
    common.start()
    counts = np.array(given.counts)
    model, q, v = top()
    quadruped = rbd.load_robot("quadruped")
    stance = rbd.neutral(quadruped)
    spread = 0.2 * jnp.cos(jnp.arange(1.0, quadruped.nv + 1))
    start = rbd.integrate(quadruped, stance, spread), spread[::-1]
    dynamics, steps = held(quadruped, stance), (counts, given.reference)
    errors = {
        "top": convergence(model, free(model), q, v, *steps),
        "quadruped": convergence(quadruped, dynamics, *start, *steps),
    }
    drifts = {"top": top(), "quadruped": thrown("quadruped")}
    robots = {
        ("top", 1e-2): top(),
        ("double pendulum", 1e-2): pendulum(),
        ("quadruped", 5e-3): thrown("quadruped"),
    }
    energies, curves = table_of_energies(robots, given.steps)
    drifts = table_of_drifts(drifts, given.steps // 10, 1e-3)
    text = table_of_orders(errors, counts) + drifts + energies
    print(text)
    if given.publish:
        report.replace_measured(DOCS / "integrators.md", text)
        draw(DOCS / "integrators.png", counts, errors, curves)


def draw(path, counts, errors, curves):
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 3)
    for axis, (robot, of) in zip(axes[0], errors.items()):
        for step, found in of.items():
            axis.loglog(DURATION / counts * 1e3, found, "o-", label=step.__name__)
        axis.set(title=f"{robot}: error after {DURATION} s", xlabel="step [ms]")
        axis.set_xticks([0.25, 0.5, 1, 2, 4, 8], ["1/4", "1/2", "1", "2", "4", "8"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0, 2].axis("off")
    axes[0, 2].legend(*axes[0, 0].get_legend_handles_labels(), loc="center", frameon=False)
    for axis, robot in zip(axes[1], dict.fromkeys(robot for robot, _ in curves)):
        for step in INTEGRATORS[1:]:
            axis.loglog(*curves[robot, step], f"C{INTEGRATORS.index(step)}", label=step.__name__)
        axis.set(title=f"{robot}: error of the energy", xlabel="time [s]")
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
