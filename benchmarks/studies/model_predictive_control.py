"""Model predictive control: milliseconds per control period on one core, and the tracking error.

    taskset -c 0 python -m benchmarks.studies.model_predictive_control [--job arm7] [--periods 100]

In each period the controller shifts its last plan by one stage, runs a fixed number of iterations
from there, and applies the first control of the plan for one stage. On a machine with other
work, the time of the processor is shorter than the time of the clock.

- arm7: the tool follows a target on a circle with a diameter of 0.2 m, 2 s per round; 20 stages of
  20 ms;
- quadruped: a trot at 0.3 m/s. Diagonal feet swing in turn for 0.2 s. The plan has 20 stages of
  20 ms. The parameters of the plan have one row per stage, with the feet that stand and the heights
  of the feet that swing, so one program serves all contact phases.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from jaxrbd import constraints, integrators, optimal_control
from jaxrbd.robots import home_posture

STAGES, DT = 20, 0.02
FEET = tuple(f"{end}_{side}_foot" for end in ("front", "hind") for side in ("left", "right"))
SWING, STEP_HEIGHT, SPEED = 10, 0.06, 0.3


def arm():
    """The problem, the start, the parameters of a period, the guess, and a report."""
    model = jaxrbd.load_robot("arm7")
    q = 0.3 * jnp.ones(model.nv)
    hold = jaxrbd.gravity_force(model, q)
    centre = jaxrbd.frame_placement(model, q, "tool").p
    step = optimal_control.shooting_step(
        model, optimal_control.joint_torques(model), integrators.semi_implicit_euler, DT
    )

    def off(q, target):
        return jaxrbd.frame_placement(model, q, "tool").p - target

    def cost(t, x, u, p):
        return jnp.concatenate([10 * off(x[0], p[t]), 0.1 * x[1], 0.02 * (u - hold)])

    def last(x, p):
        return jnp.concatenate([10 * off(x[0], p[-1]), 0.1 * x[1]])

    problem = optimal_control.Problem(optimal_control.state_space(model), step, cost, last)

    def parameters(period):
        angle = np.pi * DT * (period + np.arange(STAGES + 1))
        circle = np.stack([0 * angle, np.sin(angle), np.cos(angle) - 1], axis=1)
        return centre + 0.1 * jnp.asarray(circle)

    def report(states):
        errors = [jnp.linalg.norm(off(q, parameters(k)[0])) for k, (q, _) in enumerate(states)]
        return f"the tool is at most {1e3 * max(errors[50:]):.1f} mm off after 1 s"

    return problem, (q, jnp.zeros(model.nv)), parameters, jnp.tile(hold, (STAGES, 1)), report


def quadruped():
    """As `arm`, for a trot."""
    model = jaxrbd.load_robot("quadruped")
    home = home_posture("quadruped")
    ground = float(jaxrbd.frame_placement(model, home, FEET[0]).p[2])
    feet = [constraints.point(None, foot) for foot in FEET]
    acceleration = optimal_control.joint_torques(
        model, range(6, model.nv), feet, (0.0, 1 / DT), active=lambda t, p: p["stands"][t]
    )
    step = optimal_control.shooting_step(model, acceleration, integrators.semi_implicit_euler, DT)
    weights = jnp.array([0, 3, 10, 5, 5, 5, *[1] * 12], model.dtype)
    rates = jnp.array([3, 2, 1, 0.5, 0.5, 2, *[0.05] * 12], model.dtype)

    def tracking(x, velocity):
        q, v = x
        posture = jaxrbd.difference(model, home, q)
        return jnp.concatenate([weights * posture, rates * (v - velocity)])

    def heights(q):
        kinematics = jaxrbd.forward_kinematics(model, q)
        return jnp.stack([jaxrbd.frame_placement(model, kinematics, f).p[2] for f in FEET])

    def cost(t, x, u, p):
        off = 20 * (heights(x[0]) - ground - p["heights"][t])
        return jnp.concatenate([tracking(x, p["velocity"]), off, 0.02 * u])

    def last(x, p):
        return 3 * tracking(x, p["velocity"])

    problem = optimal_control.Problem(optimal_control.state_space(model), step, cost, last)

    def parameters(period):
        k = period + np.arange(STAGES)
        phase = (k % SWING) / SWING
        first = ((k // SWING) % 2 == 0)[:, None] == np.array([True, False, False, True])
        lift = STEP_HEIGHT * np.sin(np.pi * phase)[:, None] ** 2
        return {
            "stands": jnp.asarray(~first, model.dtype),
            "heights": jnp.asarray(np.where(first, lift, 0.0), model.dtype),
            "velocity": jnp.zeros(model.nv, model.dtype).at[0].set(SPEED),
        }

    def report(states):
        q, _ = states[-1]
        seconds = DT * (len(states) - 1)
        trunk = [float(q[2]) for q, _ in states]
        lifts = jnp.stack([heights(q) for q, _ in states]) - ground
        return (
            f"{float(q[0] - states[0][0][0]) / seconds:.3f} m/s, the trunk is from {min(trunk):.3f}"
            f" to {max(trunk):.3f} m high, the feet are lifted by up to {lifts.max():.3f} m, "
            f"and are at least {lifts.min():.3f} m above the ground"
        )

    guess = jnp.zeros((STAGES, model.nv - 6), model.dtype)
    return problem, (home, jnp.zeros(model.nv)), parameters, guess, report


JOBS = {"arm7": arm, "quadruped": quadruped}


def measure(name, periods, iterations):
    problem, x, parameters, guess, report = JOBS[name]()
    options = {"iterations": iterations, "fixed_iterations": True}

    @jax.jit
    def period(x, p, plan):
        plan = optimal_control.shift(plan, 1)
        plan = optimal_control.solve(problem, x, p, plan, **options)
        return problem.dynamics(0, x, plan.us[0], p), plan

    # The first plan has the initial state in all stages.
    shapes = jax.eval_shape(
        lambda x, p: optimal_control.solve(problem, x, p, guess, **options), x, parameters(0)
    )
    plan = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    xs = jax.tree.map(lambda x: jnp.repeat(x[None], STAGES + 1, axis=0), x)
    plan = plan._replace(xs=xs, us=guess)
    began, used = time.perf_counter(), time.process_time()
    compiled = period.lower(x, parameters(0), plan).compile()
    compilation = time.perf_counter() - began
    used_by_compilation = time.process_time() - used
    for _ in range(10):
        _, plan = compiled(x, parameters(0), plan)
    states, times, processor = [x], [], []
    for k in range(periods):
        p = parameters(k)
        began, used = time.perf_counter(), time.process_time()
        x, plan = jax.block_until_ready(compiled(x, p, plan))
        times.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
        states.append(x)
    milliseconds = 1e3 * np.array(times)
    print(
        f"{name}: {iterations} iterations per period, {np.median(milliseconds):.2f} ms per period "
        f"(smallest {milliseconds.min():.2f}, 90 % below {np.quantile(milliseconds, 0.9):.2f}; "
        f"of the processor {1e3 * np.median(processor):.2f}), "
        f"{1e3 / np.median(milliseconds):.0f} Hz; compilation {compilation:.1f} s "
        f"({used_by_compilation:.1f} s of the processor); "
        f"{report(states)}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--job", choices=JOBS, action="append")
    parser.add_argument("--periods", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=1)
    words = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in words.job or JOBS:
        measure(name, words.periods, words.iterations)


if __name__ == "__main__":
    main()
