"""A controller that finds its contacts: the bundled quadruped follows a velocity, without schedule.

    taskset -c 0 python -m benchmarks.studies.contact_mpc
    taskset -c 0 python -m benchmarks.studies.contact_mpc --seconds 60 --pushed 30 --mujoco 10

Every 25 ms, one iteration of `optimal_control.solve` improves a plan of 0.5 s, whose dynamics are
contact steps with a smoothing of 0.01 m. Nothing in the problem states a gait or a contact. The
cost has the velocity of the trunk, its height and tilt, the posture, the feet that slip close to
the ground, the forces, and the differences between the forces of diagonal legs. The last term
prefers a trot.

The robot moves by steps of 5 ms of `contact_step`, without smoothing, or of 1 ms of MuJoCo, whose
robot has damping in its joints. The gains of the plan correct its first control in each step, and a
control is at most 15 N m. The servo of all joints holds the posture of the start, and the controls
are added to its forces. The effort limits of the robot limit the sums, also in the plan, so a plan
contains only joint forces that the robot has.

The columns are the means of the velocity after the first second, the part of the time in which a
foot is in the air, the correlations of the heights of diagonal feet and of both front feet, and the
processor time of a period. In the row "pushed", the trunk gets 0.5 m/s in a random horizontal
direction every second.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

import jaxrbd
from benchmarks.studies import common, contact as contact_study
from jaxrbd import actuators, contact, envs, io, optimal_control as oc
from jaxrbd.view import render

PERIOD, STAGES, STEPS = 0.025, 20, 5  # s, stages of a plan, steps of `contact_step` in a period
MUJOCO_STEPS = 25  # in a period
LARGEST = 15.0  # control in N m
RADIUS, FRICTION, SMOOTHING = 0.02, 0.8, 0.01
STIFFNESS, DAMPING = 60.0, 2.0  # of the servo, in N m / rad and N m s / rad
CLEARANCE, WIDTH = 0.015, 0.005  # the height in m at which a foot may move, and the transition
LOWEST, LIFTED = 0.18, 0.008  # the trunk of a robot that fell, and the height of a foot in the air
# The weights of the cost.
VELOCITY, SPIN, HEIGHT, TILT, POSTURE = 6.0, 0.5, 20.0, 4.0, 0.5
RATES, SLIP, FORCE, DIAGONAL = 0.02, 1.0, 0.01, 0.05


class Robot(NamedTuple):
    """The robot, its feet, its posture q and the joint forces that hold it there."""

    model: jaxrbd.Model
    feet: tuple[str, ...]
    home: jax.Array
    hold: jax.Array


@functools.cache
def robot() -> Robot:
    model = jaxrbd.load_robot("quadruped")
    feet = tuple(name for name in model.frame_names if name.endswith("_foot"))
    home = jnp.asarray(envs.QuadrupedTrot().default_params().home, model.dtype)
    J = jnp.concatenate([jaxrbd.frame_jacobian(model, home, foot)[:3] for foot in feet])
    return Robot(model, feet, home, holding_forces(model, home, J))


def holding_forces(model: jaxrbd.Model, q: jax.Array, J: jax.Array) -> jax.Array:
    """The joint forces (nv - 6,) at rest; the forces on contacts with the Jacobian J are least."""
    weight = jaxrbd.gravity_force(model, q)
    forces = jnp.linalg.lstsq(J[:, :6].T, weight[:6])[0]
    return (weight - J.T @ forces)[6:]


def servo(
    model: jaxrbd.Model, q: jax.Array, stiffness, damping, effort: ArrayLike = np.inf
) -> contact.Servo:
    """The servo that holds all joints at q, except the free joint."""
    effort = np.broadcast_to(effort, model.nv - 6)
    gains = actuators.PD.for_joints(model, model.joint_names[1:], stiffness, damping, effort)
    return contact.Servo(gains, np.asarray(q))


def dynamics(dt: float, smoothing: float = 0.0) -> oc.ContactShooting:
    model, feet, home, _ = robot()
    effort = np.asarray(model.effort_limit)[6:]
    scene = contact.Scene(feet, RADIUS, material=contact.Material(friction=FRICTION))
    return oc.contact_shooting(
        model,
        scene,
        dt,
        range(6, model.nv),
        smoothing,
        servo=servo(model, home, STIFFNESS, DAMPING, effort),
        load=jaxrbd.total_mass(model) / len(feet),
    )


def heights(kinematics: jaxrbd.Kinematics) -> jax.Array:
    """The heights of the feet above the ground in m."""
    model, feet, _, _ = robot()
    places = [jaxrbd.frame_placement(model, kinematics, foot).p[2] for foot in feet]
    return jnp.stack(places) - RADIUS


def foot_velocities(kinematics: jaxrbd.Kinematics, v: jax.Array) -> jax.Array:
    """The horizontal velocities (4, 2) of the feet in m/s."""
    model, feet, _, _ = robot()
    return jnp.stack([jaxrbd.frame_velocity(model, kinematics, v, foot)[:2] for foot in feet])


def of_state(x: Any, command: jax.Array) -> jax.Array:
    """The residuals of a state; `command`: forward and sideward velocity, and yaw rate."""
    model, _, home, _ = robot()
    q, v = x
    kinematics = jaxrbd.forward_kinematics(model, q)
    up = kinematics.X_PB.R[0, 2]  # of the world, in the axes of the trunk
    low = jax.nn.sigmoid((CLEARANCE - heights(kinematics)) / WIDTH)
    slips = foot_velocities(kinematics, v)
    wanted = jnp.concatenate([command[:2], jnp.zeros(3, q.dtype), command[2:]])
    velocity = jnp.array([VELOCITY] * 2 + [0.3 * VELOCITY] + [SPIN] * 3)
    return jnp.concatenate(
        [
            velocity * (v[:6] - wanted),
            HEIGHT * (q[2:3] - home[2]),
            TILT * up[:2],
            POSTURE * (q[7:] - home[7:]),
            RATES * v[6:],
            SLIP * (low[:, None] * slips).ravel(),
        ]
    )


def diagonal_differences(u: jax.Array) -> jax.Array:
    """The differences (4,) between the controls of diagonal legs, at the thighs and the knees."""
    front_left, front_right, hind_left, hind_right = u.reshape(4, 3)[:, 1:]
    return jnp.concatenate([front_left - hind_right, front_right - hind_left])


def cost(t, x, u, command):
    forces = FORCE * (u - robot().hold), DIAGONAL * diagonal_differences(u)
    return PERIOD**0.5 * jnp.concatenate([of_state(x, command), *forces])


def last(x, command):
    return 2 * PERIOD**0.5 * of_state(x, command)


@functools.cache
def problem() -> oc.Problem:
    space = oc.state_space(robot().model)
    return oc.Problem(space, dynamics(PERIOD, SMOOTHING), cost, last)


def first_plan(x, command) -> oc.Solution:
    plan = oc.first_solution(problem(), x, command, jnp.tile(robot().hold, (STAGES, 1)))
    for _ in range(20):
        plan = improved_plan(x, command, plan)
    return plan


def next_plan(x, command, plan: oc.Solution) -> oc.Solution:
    """The plan from the state x, one period later."""
    return improved_plan(x, command, oc.shift(plan))


def improved_plan(x, command, plan: oc.Solution) -> oc.Solution:
    """The plan after one more iteration, from the state x. One program serves all plans."""
    options = {"iterations": 1, "fixed_iterations": True, "rollout": "feedback"}
    return oc.solve(problem(), x, command, plan, **options)


@jax.jit
def joint_forces(plan: oc.Solution) -> jax.Array:
    """The joint forces (STAGES, 12) of a plan in N m, which are the sums of servo and control."""
    dynamics: Any = problem().dynamics

    def forces(x, u):
        tau = jnp.concatenate([jnp.zeros(6, u.dtype), u])
        return dynamics.options().joint_forces(dynamics.step(x, u), tau)[6:]

    return jax.vmap(forces)(jax.tree.map(lambda x: x[:-1], plan.xs), plan.us)


def control(plan: oc.Solution, x) -> jax.Array:
    """The first control of a plan, corrected in the state x."""
    start = jax.tree.map(lambda x: x[0], plan.xs)
    corrected = plan.us[0] + plan.gains[0] @ problem().space.difference(start, x)
    return jnp.clip(corrected, -LARGEST, LARGEST)


@jax.jit
def moved(x, plan: oc.Solution):
    """The state after a period of `contact_step`."""
    step = dynamics(PERIOD / STEPS)
    return jax.lax.scan(lambda x, _: (step(0, x, control(plan, x), None), None), x, length=STEPS)[0]


def in_mujoco(x) -> Callable:
    """The function (x, plan) -> state after a period of MuJoCo, which starts at x."""
    import mujoco

    home = robot().home
    compiled = contact_study.in_mujoco(0.0)
    compiled.opt.timestep = PERIOD / MUJOCO_STEPS
    compiled.geom_friction[:, 0] = FRICTION
    compiled.actuator_gainprm[:, 0], compiled.actuator_biasprm[:, 1] = STIFFNESS, -STIFFNESS
    compiled.actuator_biasprm[:, 2] = -DAMPING
    imported = io.from_mujoco(compiled)
    model, coordinates = imported.model, imported.coordinates
    assert model.joint_names[1:] == robot().model.joint_names[1:]
    data = mujoco.MjData(compiled)
    data.qpos[:], data.qvel[:] = coordinates.qpos(model, x[0]), coordinates.qvel(model, *x)
    posture = coordinates.qpos(model, home)[7:]

    @jax.jit
    def state(qpos, qvel):
        q = coordinates.q(model, qpos)
        return q, coordinates.v(model, q, qvel)

    corrected = jax.jit(lambda plan, qpos, qvel: control(plan, state(qpos, qvel)))

    def period(_, plan):
        for _ in range(MUJOCO_STEPS):
            # The joints of MuJoCo limit the sums of servo and control, as actuator forces.
            data.ctrl[:] = posture + corrected(plan, data.qpos, data.qvel) / STIFFNESS
            mujoco.mj_step(compiled, data)
        return state(data.qpos, data.qvel)

    return period


def walk(seconds: float, command, seed: int = 0, push: float = 0.0, mujoco: bool = False):
    """The states of each period, the seconds of each plan, and whether the robot fell."""
    random, (model, _, home, _) = np.random.default_rng(seed), robot()
    command = jnp.asarray(command, model.dtype)
    q = home.at[7:].add(0.03 * random.normal(size=12))
    lowest = jnp.min(heights(jaxrbd.forward_kinematics(model, q)))
    x = q.at[2].add(-lowest), jnp.zeros(model.nv)
    plan, states, times = first_plan(x, command), [], []
    move = in_mujoco(x) if mujoco else moved
    for i in range(round(seconds / PERIOD)):
        begin = time.process_time()
        plan = jax.block_until_ready(next_plan(x, command, plan))
        times.append(time.process_time() - begin)
        q, v = move(x, plan)
        if push and i % 40 == 39:
            angle = random.uniform(0, 2 * np.pi)
            v = v.at[:2].add(push * jnp.array([np.cos(angle), np.sin(angle)]))
        x = q, v
        states.append(x)
        if not q[2] > LOWEST:
            return states, times, True
    return states, times, False


def report(name: str, states, times, fell: bool) -> None:
    if len(states) < 80:
        common.row(name, f"{len(states) * PERIOD:.1f}", "yes", *["-"] * 4)
        return
    q, v = (np.stack(x) for x in zip(*states))
    height = jax.jit(lambda q: heights(jaxrbd.forward_kinematics(robot().model, q)))
    h = np.stack([height(x) for x in q])[40:]
    swing, together = np.mean(h > LIFTED), np.corrcoef(h.T) if h.std() > 1e-3 else np.eye(4)
    velocity = np.mean(v[40:], axis=0)[[0, 1, 5]]
    ms = 1e3 * np.median(times), 1e3 * np.percentile(times, 95)
    common.row(
        name,
        f"{len(states) * PERIOD:.0f}",
        "yes" if fell else "no",
        ", ".join(f"{x:.2f}" for x in velocity),
        f"{swing:.2f}",
        f"{together[0, 3]:.2f}, {together[1, 2]:.2f}, {together[0, 1]:.2f}",
        f"{ms[0]:.1f}, {ms[1]:.1f}",
    )


def write_picture(path: str, states) -> None:
    """Six frames of a trot, 50 ms apart, beside each other."""
    import matplotlib.pyplot as plt

    frames = []
    for q, _ in states[-12::2]:
        target = float(q[0]), float(q[1]), 0.2
        view = {"target": target, "distance": 1.2, "camera": (0.3, -1.0, 0.15)}
        frames.append(render(robot().model, np.asarray(q), width=160, height=150, **view))
    plt.imsave(path, np.concatenate(frames, axis=1))


def main() -> None:
    given = common.options(__doc__, seconds=60.0, pushed=30.0, mujoco=10.0, picture="")
    common.start()
    begin = time.perf_counter()
    walk(2 * PERIOD, (0.4, 0.0, 0.0))
    print(f"the first periods, with compilation: {time.perf_counter() - begin:.0f} s\n")
    columns = "velocity, m/s, rad/s", "in the air", "correlations", "ms a period: median, 95 %"
    common.head("command", "seconds", "fell", *columns)
    found = walk(given.seconds, (0.4, 0.0, 0.0))
    report("0.4 m/s", *found)
    if given.picture:
        write_picture(given.picture, found[0])
    report("0.4 m/s, pushed", *walk(given.pushed, (0.4, 0.0, 0.0), push=0.5))
    report("0.3 m/s, 0.5 rad/s", *walk(10.0, (0.3, 0.0, 0.5)))
    report("0.2 m/s sidewards", *walk(10.0, (0.0, 0.2, 0.0)))
    report("stand", *walk(5.0, (0.0, 0.0, 0.0)))
    if given.mujoco:
        for seed in range(3):
            states = walk(given.mujoco, (0.4, 0.0, 0.0), seed, mujoco=True)
            report(f"0.4 m/s, MuJoCo, start {seed}", *states)


if __name__ == "__main__":
    main()
