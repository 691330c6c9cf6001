"""Swing-ups of five robots with weak motors, with many local minima.

    python -m benchmarks.studies.swing_ups --robots acrobot

Each robot has eight guesses: random controls and the states that follow from them. A motion counts
if its last positions are within 0.1 of the goal, and its states obey the dynamics. The columns are
solves with the options of `WAYS`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from benchmarks.studies import common
from jaxrbd import optimal_control as oc
from jaxrbd.joints import Revolute
from jaxrbd.model import JointSpec, Link, link_inertia, placement_matrix

Y = (0.0, 1.0, 0.0)


def acrobot():
    """Two rods that hang, with a motor at the elbow: the parameters of Spong (1995)."""
    shape = np.diag([1 / 12, 1 / 12, 1e-3])
    rods = [Link(name, link_inertia(1.0, (0, 0, -0.5), shape)) for name in ("upper", "lower")]
    joints = [
        JointSpec("shoulder", Revolute(Y), None, "upper"),
        JointSpec("elbow", Revolute(Y), "upper", "lower", placement_matrix((0, 0, -1))),
    ]
    return rbd.build_model(rods, joints)


def rotary_pendulum():
    """A rod that hangs at the end of an arm, with a motor that turns the arm about the vertical."""
    arm = Link("arm", link_inertia(0.5, (0.15, 0, 0), np.diag([1e-3, 4e-3, 4e-3])))
    rod = Link("rod", link_inertia(0.2, (0, 0, -0.25), np.diag([4e-3, 4e-3, 1e-4])))
    joints = [
        JointSpec("motor", Revolute((0.0, 0.0, 1.0)), None, "arm"),
        JointSpec("hinge", Revolute((1.0, 0.0, 0.0)), "arm", "rod", placement_matrix((0.3, 0, 0))),
    ]
    return rbd.build_model([arm, rod], joints)


# The robot, its actuated dof, the bound of the force, the time step, the number of stages, and the
# positions at the start and at the end.
ROBOTS = {
    "pendulum": (lambda: rbd.load_robot("pendulum"), [0], 2.0, 0.05, 80, [0.0], [np.pi]),
    "cart_pole": (
        lambda: rbd.load_robot("cart_pole"), [0], 6.0, 0.06, 50, [0.0, np.pi], [0.0, 0.0],
    ),
    "acrobot": (acrobot, [1], 10.0, 0.05, 100, [0.0, 0.0], [np.pi, 0.0]),
    "double_pendulum": (
        lambda: rbd.load_robot("double_pendulum"), [1], 8.0, 0.04, 100, [0.0, 0.0], [np.pi, 0.0],
    ),
    "rotary_pendulum": (rotary_pendulum, [0], 1.0, 0.04, 75, [0.0, 0.0], [0.0, np.pi]),
}  # fmt: skip
# The square roots of the costs of the error, the velocity and the control: of a stage, of the end.
WEIGHTS, TERMINAL_WEIGHTS = (0.1, 0.05, 0.05), (10.0, 3.0)
# The solves of the table, with the arguments of `oc.solve`.
WAYS = {
    "default": {},
    "default, exact": {"hessian": "exact"},
    "linear": {"rollout": "linear", "iterations": 100},
    "feedback": {"rollout": "feedback", "iterations": 100},
}
CLOSE, DEFECTS = 0.1, 1e-2


@functools.cache
def swing_up(name):
    """The problem, the initial state, the goal, and eight guesses (8, N, 1) of the controls."""
    build, dofs, bound, dt, stages, start, goal = ROBOTS[name]
    model = build()
    dynamics = oc.shooting_step(
        model, oc.joint_torques(model, dofs), rbd.integrators.semi_implicit_euler, dt
    )

    def cost(t, x, u, goal):
        position, velocity, control = WEIGHTS
        return jnp.concatenate([position * (x[0] - goal), velocity * x[1], control * u])

    def terminal_cost(x, goal):
        position, velocity = TERMINAL_WEIGHTS
        return jnp.concatenate([position * (x[0] - goal), velocity * x[1]])

    space = oc.state_space(model)
    problem = oc.Problem(space, dynamics, cost, terminal_cost, control_bounds=(-bound, bound))
    x0 = jnp.array(start), jnp.zeros(model.nv)
    noise = [np.random.default_rng(seed).normal(size=(stages, len(dofs))) for seed in range(8)]
    return problem, x0, jnp.array(goal), jnp.asarray(0.5 * bound * np.stack(noise))


def reached(name, **options):
    """Which of the eight solves of a robot reach the goal, (8,) of bool."""
    problem, x0, goal, guesses = swing_up(name)

    @jax.jit
    def ends(guesses):
        def end(us):
            found = oc.solve(problem, x0, goal, us, **options)
            return found.xs[0][-1], found.residuals.defects

        return jax.lax.map(end, guesses)

    q, defects = ends(guesses)
    return (jnp.max(jnp.abs(q - goal), axis=1) < CLOSE) & (defects < DEFECTS)


def main():
    given = common.options(__doc__, robots=tuple(ROBOTS))
    common.start()
    common.head("robot", *WAYS)
    for name in given.robots:
        common.row(name, *(int(jnp.sum(reached(name, **options))) for options in WAYS.values()))


if __name__ == "__main__":
    main()
