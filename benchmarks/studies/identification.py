"""Confidence intervals of the drives of an arm: how often they contain the true values.

    python -m benchmarks.studies.identification [--experiments 200]

The seven joints of the bundled arm follow targets under PD control. The targets arrive late. An
experiment measures the joint positions, with Gaussian noise, and estimates 29 parameters: stall
torque, armature, viscous and Coulomb friction of each joint, and the delay. All estimates start
from the same wrong values. The command prints how many of the intervals of each level contain the
true value, and the time of an estimate.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

import jaxrbd
from jaxrbd import actuators, identification, integrators

DT, STEPS = 0.004, 750  # s; 3 s
NOISE = 1e-3  # rad
SIZE = np.array([3.0, 3.0, 2.0, 2.0, 1.0, 0.7, 0.7])  # of the drives
LEVELS = (0.5, 0.8, 0.95, 0.99)


class Drives(NamedTuple):
    """The unknown parameters: one value per joint, and the delay in time steps."""

    stall_torque: jax.Array  # N m
    armature: jax.Array  # kg m^2
    damping: jax.Array  # N m s
    friction: jax.Array  # N m
    lag: jax.Array


def drives(stall_torque: float, armature: float, damping: float, friction: float, lag: float):
    """The drives with these values, times the size of each joint."""
    scaled = (jnp.asarray(x * SIZE) for x in (stall_torque, armature, damping, friction))
    return Drives(*scaled, lag=jnp.asarray(lag))


def targets() -> jax.Array:
    """Target positions (STEPS, 7) in rad: random waves, and jumps that drive motors to limits."""
    random = np.random.default_rng(0)
    amplitude, rate, phase = (
        random.uniform(low, high, (7, 4)) for low, high in ((0.1, 0.3), (1, 9), (0, 6))
    )
    t = DT * np.arange(STEPS)[:, None]
    waves = np.sin(rate * t[..., None] + phase) - np.sin(phase)
    jumps = 0.5 * (np.sin(4 * t + np.arange(7)) > 0)
    return jnp.asarray(np.sum(amplitude * waves, -1) + jumps)


def prediction():
    """A function from the drives to the joint positions (STEPS, 7) in rad."""
    model, wanted = jaxrbd.load_robot("arm7"), targets()
    servo = actuators.PD(200 * SIZE, 16 * SIZE)

    def predict(drives: Drives) -> jax.Array:
        arm = dataclasses.replace(model, armature=drives.armature)
        motor = actuators.DCMotor(drives.stall_torque, np.full(7, 12.0))
        delay = actuators.Delay(drives.lag, 8)

        def step(q, v, past, target):
            past, delayed = delay.push(past, target)
            tau = motor(arm, v, servo(arm, q, v, delayed))
            tau -= drives.damping * v + drives.friction * jnp.tanh(v / 0.1)

            def dynamics(q, v):
                return jaxrbd.forward_dynamics(arm, q, v, tau)

            q, v = integrators.semi_implicit_euler(arm, dynamics, q, v, DT)
            return q, v, past

        rest = jnp.zeros(7)
        return integrators.rollout(step, (rest, rest, delay.init(rest)), wanted)[0][1:]

    return predict


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--experiments", type=int, default=200)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    true, start = drives(30, 0.08, 0.5, 0.8, 3.4), drives(40, 0.05, 0.3, 0.4, 1.5)
    predict = prediction()
    clean = np.asarray(jax.jit(predict)(true))
    known = jax.flatten_util.ravel_pytree(true)[0]
    inside: dict[float, list] = {level: [] for level in LEVELS}
    seconds, steps, converged = [], [], 0
    for seed in range(options.experiments):
        measured = clean + NOISE * np.random.default_rng(seed).normal(size=clean.shape)
        begin = time.process_time()
        fit = identification.identify_parameters(predict, start, measured, NOISE)
        seconds.append(time.process_time() - begin)
        steps.append(fit.steps)
        converged += fit.converged
        for level in LEVELS:
            low, high = (jax.flatten_util.ravel_pytree(end)[0] for end in fit.interval(level))
            inside[level].append(np.asarray((low < known) & (known < high)))
        if seed == 0:
            deviations = fit.standard_deviation
            for name, x, deviation in zip(Drives._fields, true, deviations):
                print(f"{name}: {100 * np.max(deviation / x):.2g} % of the value, at most")
    print(
        f"{options.experiments} experiments, {converged} converged, {np.median(steps):.0f} steps, "
        f"{seconds[0]:.1f} s of the CPU for the first, {np.median(seconds[1:]):.2f} s for others"
    )
    for level, rows in inside.items():
        share = np.mean(rows, axis=0)
        print(
            f"{100 * level:.0f} % intervals: {100 * np.mean(share):.1f} % contain the true value; "
            f"of one parameter {100 * np.min(share):.1f} to {100 * np.max(share):.1f} %"
        )


if __name__ == "__main__":
    main()
