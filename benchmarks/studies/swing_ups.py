"""Swing-ups of five robots with weak motors, with many local minima, also with Crocoddyl.

    python -m venv ENV && ENV/bin/pip install -r benchmarks/studies/crocoddyl.txt
    python -m benchmarks.studies.swing_ups ENV/bin/python
    python -m benchmarks.studies.swing_ups --robots acrobot      # without Crocoddyl

Each robot has eight guesses: random controls and the states that follow from them. A motion counts
if its last positions are within 0.1 of the goal, and its states obey the dynamics. The columns of
jaxrbd are solves with the options of `WAYS`. Crocoddyl's solver is BoxFDDP, from the same guesses,
with at most 200 iterations (`crocoddyl_peer.py`). The robots reach it as URDF files. The script
compares the cost of the first guess of each robot to show that the problems are the same.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from benchmarks import robots
from benchmarks.studies import common, crocoddyl_comparison
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
ITERATIONS_OF_CROCODDYL = 200


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


def described(name, folder):
    """The problem as `crocoddyl_peer.py` reads it, with a URDF file of the robot in the folder."""
    build, dofs, bound, dt, stages, start, goal = ROBOTS[name]
    file = Path(folder) / f"{name}.urdf"
    file.write_text(robots.urdf(robots.plain(name, build())))
    facts = {"name": name, "urdf": str(file), "dofs": dofs, "bound": bound, "dt": dt}
    facts |= {"stages": stages, "start": start, "goal": goal, "weights": WEIGHTS}
    facts |= {"terminal_weights": (*TERMINAL_WEIGHTS, 0.0), "guesses": swing_up(name)[3].tolist()}
    return facts | {"iterations": ITERATIONS_OF_CROCODDYL}


def reached_by_crocoddyl(python, names):
    """The number of guesses of each robot from which Crocoddyl reaches the goal, by name.

    Raises SystemExit if Crocoddyl has another cost for a first guess.
    """
    with tempfile.TemporaryDirectory() as folder:
        problems = json.dumps([described(name, folder) for name in names])
        results = crocoddyl_comparison.peer(python, "swing-ups", text=problems)
    counts = dict.fromkeys(names, 0)
    for found in results:
        name = found["name"]
        problem, x0, goal, guesses = swing_up(name)
        if found["guess"] == 0:
            cost = crocoddyl_comparison.cost_of_controls(problem, x0, goal, guesses[0])
            if abs(found["cost_of_guess"] / cost - 1) > 1e-6:
                raise SystemExit(f"{name}: the cost of the guess is {found['cost_of_guess']}")
        error = np.max(np.abs(np.array(found["end"]) - np.array(goal)))
        counts[name] += int(error < CLOSE and found["defects"] < DEFECTS)
    return counts


def main():
    given = common.options(__doc__, "python", robots=tuple(ROBOTS))
    common.start()
    peer = reached_by_crocoddyl(*given.python, given.robots) if given.python else {}
    common.head("robot", *WAYS, "Crocoddyl, BoxFDDP")
    for name in given.robots:
        counts = [int(jnp.sum(reached(name, **options))) for options in WAYS.values()]
        common.row(name, *counts, peer.get(name, "-"))


if __name__ == "__main__":
    main()
