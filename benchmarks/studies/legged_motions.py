"""Motions of robots with legs that find their contacts: from cold guesses, with random starts.

    python -m benchmarks.studies.legged_motions
    python -m benchmarks.studies.legged_motions --motions catch --starts 5 --save docs/motions

- stand_up: the bundled quadruped lies, its trunk at most 1 cm above the ground, and stands up;
- turn: it turns by 45 degrees in 1 s;
- trot: it moves 0.4 m forward in 1 s;
- catch: the bundled humanoid gets a velocity in a random horizontal direction, 1.0 m/s within 45
  degrees of forward or backward and 0.7 m/s else. The cost asks for rest, with its weight between
  its soles, after 1 s.

No problem states a contact, a foothold or a phase. The quadruped has contacts on its feet and on
the lower corners of its trunk, the humanoid on the corners of its soles. A servo holds the standing
posture, and the controls are added to its forces. The sum is at most the effort limit of a joint,
and 0.9 times this limit for the quadruped. A control is at most this value, and twice this value
for turn and trot. The guess is the constant force that carries the weight, plus noise. The posture
of the quadruped at the start, and the direction of the velocity of the humanoid, are random.
`contact_motions` explains the rows.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.studies import common, contact_motions, contact_mpc
from benchmarks.studies.contact_motions import Motion
from jaxrbd import contact, envs, optimal_control as oc

DT, STAGES = 0.025, 40
PART = 0.9  # the part of the limits of the quadruped in a plan
SMOOTHING = (*(0.02 * 0.75**i for i in range(12)), 0.0)
TRUNK = 0.19, 0.06, -0.055  # the half length and half width of the trunk, and its underside, in m
LYING = 2.55, -2.65  # the angles of the thighs and the knees of the lying quadruped


def low(height: jax.Array, clearance: float) -> jax.Array:
    """1 for a foot on the ground, and 0 above the clearance."""
    return jax.nn.sigmoid(3 * (clearance - height) / clearance)


# ------------------------------------------------------------------------------ the quadruped


class Goal(NamedTuple):
    """The last configuration, the velocity (6,) of the trunk, and weights of the cost."""

    q: jax.Array
    velocity: jax.Array
    velocity_weight: jax.Array
    height_weight: jax.Array


def pose_goal(x, y, yaw, velocity, velocity_weight, height_weight) -> Goal:
    q = contact_mpc.robot().home.at[:2].set(jnp.array([x, y]))
    q = q.at[3:7].set(jnp.array([0, 0, np.sin(yaw / 2), np.cos(yaw / 2)]))
    return Goal(q, *map(jnp.asarray, (velocity, velocity_weight, height_weight)))


@functools.cache
def quadruped(dt: float, reach: float) -> oc.Problem:
    """The problem of a motion; a control is at most `reach` times the effort of the servo."""
    model, feet, home, hold = contact_mpc.robot()
    effort = PART * np.asarray(model.effort_limit)[6:]
    x, y, z = TRUNK
    corners = [[i, j, z] for i in (-x, x) for j in (-y, y)]
    scene = contact.Scene(
        [*feet, *["trunk"] * 4],
        [contact_mpc.RADIUS] * 4 + [0.0] * 4,
        np.array([[0.0] * 3] * 4 + corners),
        material=contact.Material(friction=contact_mpc.FRICTION),
    )
    dynamics = oc.contact_shooting(
        model,
        scene,
        dt,
        range(6, model.nv),
        servo=contact_mpc.servo(model, home, 20.0, 2.0, effort),
        load=jaxrbd.total_mass(model) / len(feet),
    )

    def cost(t, x, u, goal):
        q, v = x
        kinematics = jaxrbd.forward_kinematics(model, q)
        up = kinematics.X_PB.R[0, 2]  # of the world, in the axes of the trunk
        weights = low(contact_mpc.heights(kinematics), contact_mpc.CLEARANCE)
        slips = contact_mpc.foot_velocities(kinematics, v)
        return dt**0.5 * jnp.concatenate(
            [
                goal.velocity_weight * (v[:6] - goal.velocity),
                goal.height_weight * (q[2:3] - goal.q[2]),
                4 * up[:2],
                0.5 * (q[7:] - goal.q[7:]),
                0.02 * v[6:],
                (weights[:, None] * slips).ravel(),
                0.01 * (u - hold),
                0.05 * contact_mpc.diagonal_differences(u),
            ]
        )

    def last(x, goal):
        off = jaxrbd.difference(model, goal.q, x[0])
        return jnp.concatenate([20 * off[:6], 3 * off[6:], x[1][:6], 0.1 * x[1][6:]])

    space = oc.state_space(model)
    bounds = reach * effort
    return oc.Problem(space, dynamics, cost, last, control_bounds=(-bounds, bounds))


def quadruped_start(goal: Goal, lying: bool, random) -> tuple[Any, Goal, jax.Array]:
    model, _, q, hold = contact_mpc.robot()
    if lying:
        q = q.at[7:].set(jnp.tile(jnp.array([0.0, *LYING]), 4)).at[2].set(-TRUNK[2])
    q = q.at[7:].add(0.02 * random.normal(size=12))
    lowest = jnp.min(contact_mpc.heights(jaxrbd.forward_kinematics(model, q)))
    q = q.at[2].add(jnp.maximum(-lowest, 0) if lying else -lowest)
    guess = hold + 0.3 * random.normal(size=(STAGES, 12))
    return (q, jnp.zeros(model.nv)), goal, guess


def quadruped_error(x, goal: Goal):
    """The displacement (6,) of the trunk from its goal in m and rad."""
    return jaxrbd.difference(contact_mpc.robot().model, goal.q, x[0])[:6]


# ------------------------------------------------------------------------------- the humanoid


@functools.cache
def standing() -> tuple[envs.LeggedParams, tuple[str, ...], np.ndarray, jax.Array]:
    """The parameters of `HumanoidStand`, the soles, the effort limits and the holding forces."""
    params = envs.HumanoidStand().default_params()
    model, home = params.model, params.home
    soles = tuple(name for name in model.frame_names if name.endswith("_sole"))
    J = jnp.concatenate([jaxrbd.frame_jacobian(model, home, sole) for sole in soles])
    hold = contact_mpc.holding_forces(model, home, J)
    return params, soles, np.asarray(model.effort_limit)[6:], hold


def soles_of(kinematics: jaxrbd.Kinematics) -> jax.Array:
    """The positions (2, 3) of the soles in m."""
    params, soles, *_ = standing()
    return jnp.stack([jaxrbd.frame_placement(params.model, kinematics, x).p for x in soles])


def tilt(kinematics: jaxrbd.Kinematics) -> jax.Array:
    """The vertical direction minus the axis z of the pelvis, (3,) in the axes of the pelvis."""
    return kinematics.X_PB.R[0, 2] - jnp.array([0.0, 0.0, 1.0])


def balance(kinematics: jaxrbd.Kinematics) -> jax.Array:
    """The centre of mass, from the middle of the soles (2,) in m."""
    com = jaxrbd.center_of_mass(standing()[0].model, kinematics)
    return (com - jnp.mean(soles_of(kinematics), axis=0))[:2]


@functools.cache
def humanoid(dt: float) -> oc.Problem:
    params, soles, effort, hold = standing()
    model, home = jaxrbd.load_robot("humanoid"), params.home  # without damping of the joints
    dynamics = oc.contact_shooting(
        model,
        params.scene,
        dt,
        range(6, model.nv),
        servo=contact_mpc.servo(model, home, 3 * effort, 0.1 * 3**0.5 * effort, effort),
        load=jaxrbd.total_mass(model) / params.scene.size,
    )

    def of_state(x):
        q, v = x
        kinematics = jaxrbd.forward_kinematics(model, q)
        heights = soles_of(kinematics)[:, 2]
        velocities = [jaxrbd.frame_velocity(model, kinematics, v, sole) for sole in soles]
        slips = jnp.stack([jnp.array([V[0], V[1], 0.1 * V[5]]) for V in velocities])
        residuals = [
            20 * tilt(kinematics),
            20 * (q[2:3] - home[2]),
            0.3 * (q[7:] - home[7:]),
            0.1 * v[:6],
            0.02 * v[6:],
            (low(heights, 0.02)[:, None] * slips).ravel(),
        ]
        return jnp.concatenate(residuals), kinematics, heights

    def cost(t, x, u, p):
        return dt**0.5 * jnp.concatenate([of_state(x)[0], 0.5 * (u - hold) / effort])

    def last(x, p):
        residuals, kinematics, heights = of_state(x)
        q, v = x
        rest = [20 * balance(kinematics), 20 * heights, v[:6], 0.2 * v[6:], q[7:] - home[7:]]
        return jnp.concatenate([residuals, *rest])

    space = oc.state_space(model)
    return oc.Problem(space, dynamics, cost, last, control_bounds=(-effort, effort))


def catch_start(random) -> tuple[Any, None, jax.Array]:
    params, _, effort, hold = standing()
    angle = random.uniform(0, 2 * np.pi)
    push = np.array([np.cos(angle), np.sin(angle)]) * (1.0 if abs(np.cos(angle)) > 0.7 else 0.7)
    x0 = params.home, jnp.zeros(params.model.nv).at[:2].set(push)
    return x0, None, hold + random.normal(size=(STAGES, len(effort)))


def catch_error(x, p):
    """The balance (2,), the heights of the soles (2,) in m, and the tilt of the pelvis (3,)."""
    kinematics = jaxrbd.forward_kinematics(standing()[0].model, x[0])
    heights = soles_of(kinematics)[:, 2]
    return jnp.concatenate([balance(kinematics), heights, tilt(kinematics)])


def motions() -> dict[str, Motion]:
    turn, rest = np.pi / 4, np.zeros(6)
    goals = {
        "stand_up": (pose_goal(0.0, 0.0, 0.0, rest, 1.0, 10.0), True),
        "turn": (pose_goal(0.0, 0.0, turn, np.array([0, 0, 0, 0, 0, turn]), 1.0, 10.0), False),
        "trot": (pose_goal(0.4, 0.0, 0.0, np.array([0.4, 0, 0, 0, 0, 0]), 3.0, 10.0), False),
    }
    found = {}
    for name, given in goals.items():
        start = functools.partial(quadruped_start, *given)
        problem = functools.partial(quadruped, reach=1.0 if name == "stand_up" else 2.0)
        found[name] = Motion(problem, start, quadruped_error, DT, SMOOTHING, 15, PART)
    few = (*(0.02 * 0.6**i for i in range(7)), 0.0)
    return found | {"catch": Motion(humanoid, catch_start, catch_error, DT, few, 20)}


def main() -> None:
    names = ("stand_up", "turn", "trot", "catch")
    args = common.options(__doc__, motions=names, starts=5, save="")
    common.start()
    found = motions()
    contact_motions.report({name: found[name] for name in args.motions}, args.starts, args.save)


if __name__ == "__main__":
    main()
