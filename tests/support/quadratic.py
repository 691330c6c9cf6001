"""A quadratic program as an optimal control problem: its minimum solves one dense linear system."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd import optimal_control as oc
from jaxrbd.optimal_control.implicit import Point
from jaxrbd.optimal_control.stages import Multipliers

PUSH = np.array([1.0, 0.5, -0.7])


def problem(upper):
    """Two stages with quadratic costs and linear constraints, which differ from stage to stage.

    One entry of the inequalities, of the terminal inequalities and of the upper bounds acts; the
    others do not act.
    """

    def in_stage(t, first, second):
        return jnp.where(t == 0, first, second)

    def dynamics(t, x, u, p):
        return in_stage(t, p["factor"], p["factor"] / 2) * x + jnp.sum(PUSH * u)

    def path(t, x, u, p):
        lift, top = in_stage(t, p["lift"], p["lift"] / 2), in_stage(t, p["top"], 3)
        return u[1:2] - lift * x, jnp.stack([u[2] - top, u[2] - 8])

    return oc.Problem(
        oc.vector_space(1),
        dynamics,
        lambda t, x, u, p: jnp.concatenate([u - in_stage(t, p["wish"], 0), x]),
        lambda x, p: x - 1,
        control_bounds=(-9 * jnp.ones(3), upper),
        path=path,
        terminal=lambda x, p: (None, jnp.concatenate([x - p["end"], x - 8])),
    )


def minimum(p):
    """The minimum, by the dense KKT system with the constraints that act. p may be complex."""
    # The unknowns are x0, x1, x2, and the controls of both stages.
    halved = np.array([1.0, 0.5])
    rows = np.zeros((8, 9), complex)
    rows[[0, 1, 2], [0, 1, 2]] = -1
    rows[[1, 2], [0, 1]] = halved * p["factor"]
    rows[1, 3:6] = rows[2, 6:] = PUSH
    rows[[3, 4], [4, 7]] = 1
    rows[[3, 4], [0, 1]] = -halved * p["lift"]
    rows[[5, 6, 7], [5, 3, 2]] = 1
    rest = np.concatenate([p["start"], [0, 0, 0, 0, -p["top"], -p["upper"][0], -p["end"]]])
    wish = np.concatenate([[0, 0, 1], p["wish"], np.zeros(3)])
    K = np.block([[np.eye(9), rows.T], [rows, np.zeros((8, 8))]])
    w, by_rows = np.split(np.linalg.solve(K, np.concatenate([wish, -rest])), [9])
    zero = np.zeros(1)
    stages = np.zeros((2, 2), complex), np.zeros((2, 3), complex)
    stages[0][0, 0], stages[1][0, 0] = by_rows[5:7]
    last = np.concatenate([by_rows[7:], zero])
    multipliers = Multipliers(by_rows[3:5, None], stages[0], zero[:0], last, stages[1])
    cost = np.sum((w - wish) ** 2) / 2
    return Point(w[:3, None], w[3:].reshape(2, 3), by_rows[:3, None], multipliers, cost)


PARAMETERS = jax.tree.map(
    jnp.asarray,
    {
        "start": np.array([0.7]),
        "upper": np.array([0.5, 9.0, 9.0]),
        "wish": np.array([4.0, 0.3, 1.0]),
        "factor": 0.8,
        "lift": 0.6,
        "top": 0.4,
        "end": 0.2,
    },
)
MINIMUM = jax.tree.map(lambda x: jnp.asarray(np.real(x)), minimum(PARAMETERS))
