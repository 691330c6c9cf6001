"""Derivatives of the solutions of optimal control and inverse kinematics, for a given robot.

The module makes two problems for the robot. In the first, a short motion has generalized forces at
their bounds, stages at a limit of the speed, and an equation for the last velocity. In the second,
a posture has a coordinate at its limit. Each problem is first solved with bounds so wide that they
are not active. The tested bounds are a fraction of the values of this solution, so some are active.

The parameters are in groups: the initial state, the targets and bounds, and the model. Each group
changes along a random line. The reference derivatives are central differences of the solutions of
the changed problems (`truth.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import optimal_control
from ..algorithms.crba import crba
from ..algorithms.kinematics import frame_placement
from ..algorithms.rnea import bias_force
from ..configuration import difference, integrate, neutral
from ..errors import ArgumentError
from ..integrators import semi_implicit_euler
from ..inverse_kinematics import FrameTask, PostureTask, inverse_kinematics
from ..model import Model, arguments
from ..se3 import exp
from ..spatial import compose
from .report import markdown
from .truth import true_derivatives

# The largest error of a derivative, relative to the largest derivative of the same quantity.
SOLUTION_TOLERANCE = 1e-6
# The direction of a line of parameters is this length times normal random values. The curve of
# `true_derivatives` has its parameter between -1 and 1, so the length limits the changes.
_LENGTH = 0.003
_STAGES = 4  # stages of optimal control
_DT = 0.1  # s, the time of a stage
# The tested bounds are this fraction of the largest values of the solution without active bounds.
_FRACTION = 0.7
_INFINITE = 1e6  # a bound that is never active

# The changes of the parameters, one vector per group, by the name of the group.
Changes = dict[str, Array]


class _Problem(NamedTuple):
    """A problem whose solutions are tested.

    - `contracted(changes, bounds)`: the pair of a vector and the solution. The vector has one entry
      per quantity of the solution, by `_contract`;
    - `sizes`: the number of parameters of each group;
    - `wide`: bounds that are not active, in the order of the bounds of the problem;
    - `bounds(solution)`: the bounds that are tested, from the solution with the bounds `wide`;
    - `active(solution, bounds)`: how many bounds of each kind are active.
    """

    contracted: Callable[[Changes, Array], tuple[Array, Any]]
    sizes: dict[str, int]
    wide: Array
    bounds: Callable[[Any], Array]
    active: Callable[[Any, Array], dict[str, int]]


class SolutionCheck(NamedTuple):
    """The derivatives of solutions of one solver with respect to one group of parameters.

    `mode`: "forward" or "reverse"; `error`: the largest error of a derivative; `uncertainty`: the
    largest uncertainty of a reference derivative. Both are relative to the largest derivative of
    the same quantity with respect to any group. In reverse mode there is one derivative, of the sum
    of all scaled quantities. The errors are NaN or infinite if a solver did not converge, if a
    derivative is not finite, or if the solution does not depend on the parameters.
    """

    solver: str
    parameters: str
    mode: str
    error: float
    uncertainty: float

    @property
    def wrong(self) -> bool:
        """Whether the derivative is wrong, or its reference too uncertain."""
        right = self.error <= SOLUTION_TOLERANCE and self.uncertainty <= SOLUTION_TOLERANCE / 3
        return not right


class SolutionReport(NamedTuple):
    """All checks of one robot, and how many bounds of each kind are active at the solutions."""

    checks: tuple[SolutionCheck, ...]
    active: dict[str, int]

    @property
    def wrong(self) -> bool:
        """Whether any derivative is wrong, or its reference too uncertain."""
        return any(check.wrong for check in self.checks)

    def table(self) -> str:
        """The errors and the active bounds, as Markdown."""
        rows = [
            [
                check.solver,
                check.parameters,
                check.mode,
                f"{check.error:.0e}",
                f"{check.uncertainty:.0e}",
                "WRONG" if check.wrong else "ok",
            ]
            for check in self.checks
        ]
        header = ["solver", "parameters", "mode", "error", "uncertainty", "verdict"]
        counts = ", ".join(f"{count} {kind}" for kind, count in self.active.items())
        return f"{markdown(header, rows)}\n\nActive at the solutions: {counts}."


def check_solutions(model: Model) -> SolutionReport:
    """The errors of the derivatives of `solve` and `inverse_kinematics` for a robot, in float64.

    The generalized forces act on all dofs, also on the dofs of a floating base. The target of the
    inverse kinematics is a pose of the last frame of the model. The function compiles three
    programs for each solver. Raises ArgumentError for another object, and for a robot without dofs.
    """
    if not arguments.robot(model).nv:
        raise ArgumentError(f"model is {model!r}, expected a robot with one dof or more")
    with jax.enable_x64(True):
        model = model.astype("float64")
        motion, motion_active = _check("optimal control", _motion(model))
        posture, posture_active = _check("inverse kinematics", _posture(model))
    return SolutionReport((*motion, *posture), {**motion_active, **posture_active})


def _check(solver: str, problem: _Problem) -> tuple[list[SolutionCheck], dict[str, int]]:
    """The checks of one solver, and how many bounds of each kind are active."""
    rng = np.random.default_rng(0)
    zero = {group: jnp.zeros(size) for group, size in problem.sizes.items()}
    contracted = jax.jit(problem.contracted)
    bounds = problem.bounds(contracted(zero, problem.wide)[1])

    def values(changes: Changes) -> Array:
        return problem.contracted(changes, bounds)[0]

    # The reference derivatives, along one line per group of parameters.
    lines = {group: _LENGTH * rng.normal(size=size) for group, size in problem.sizes.items()}
    truths, gaps = {}, {}
    for group, line in lines.items():

        def curve(t: float, group: str = group, line: np.ndarray = line) -> np.ndarray:
            return np.array(contracted({**zero, group: jnp.asarray(t * line)}, bounds)[0])

        truth, gap = true_derivatives(curve)
        truths[group], gaps[group] = truth[1], gap[1]

    # The derivatives of the solver, divided by the largest derivative of each quantity.
    scale = np.max(np.abs(list(truths.values())), axis=0)
    scale = np.maximum(scale, np.finfo(float).tiny)
    # These programs run once or a few times, so optimization takes longer than it saves.
    options = {"xla_backend_optimization_level": 0}
    forward = jax.jit(lambda d: jax.jvp(values, (zero,), (d,))[1], compiler_options=options)
    backward = jax.jit(jax.grad(lambda d: jnp.sum(values(d) / scale)), compiler_options=options)
    gradient = backward(zero)
    checks = []
    for group, line in lines.items():
        truth, uncertainty = truths[group] / scale, float(np.max(gaps[group] / scale))
        if not np.any(truth):
            truth = np.full_like(truth, np.nan)
        tangent = np.array(forward({**zero, group: jnp.asarray(line)})) / scale
        error = float(np.max(np.abs(tangent - truth)))
        checks.append(SolutionCheck(solver, group, "forward", error, uncertainty))
        error = float(np.abs(np.array(gradient[group]) @ line - np.sum(truth)))
        checks.append(SolutionCheck(solver, group, "reverse", error, uncertainty))
    return checks, problem.active(contracted(zero, bounds)[1], bounds)


def _contract(solution: Any, converged: Array) -> Array:
    """One sum for each array of a solution: the sum of its entries times random weights.

    All sums are NaN if the solver has not converged.
    """
    rng = np.random.default_rng(1)
    sums = [jnp.sum(rng.normal(size=x.shape) * x) for x in jax.tree.leaves(solution)]
    return jnp.where(converged, jnp.stack(sums), jnp.nan)


def _changed(model: Model, change: Array) -> Model:
    """The robot with scaled inertias and shifted joints.

    `change` (4 nb,): the relative change of the inertia of each body, then the shift of each joint
    in m, in the frame of the parent body.
    """
    positions = model.placement.p
    masses, shifts = jnp.split(change, [len(model.inertia)])
    return eqx.tree_at(
        lambda m: (m.inertia, m.placement.p),
        model,
        (model.inertia * (1 + masses[:, None]), positions + shifts.reshape(positions.shape)),
    )


def _size_of_change(model: Model) -> int:
    return len(model.inertia) + model.placement.p.size


def _configurations(model: Model) -> tuple[Array, Array]:
    """The start configuration, and the goal configuration nearby."""
    rng = np.random.default_rng(2)
    to_start, to_goal = rng.normal(size=(2, model.nv))
    q = integrate(model, neutral(model), jnp.asarray(0.3 * to_start))
    return q, integrate(model, q, jnp.asarray(0.4 * to_goal))


# ------------------------------------------------------------------------------ optimal control


class _Forces(eqx.Module):
    """The acceleration under the forces `hold + scale * u`."""

    model: Model
    hold: Array
    scale: Array

    def __call__(self, t: Array, q: Array, v: Array, u: Array, p: Any) -> Array:
        torques = optimal_control.joint_torques(self.model)
        return torques(t, q, v, self.hold + self.scale * u, p)


class _End(eqx.Module):
    """The residuals of the last state: errors of the last frame's position and of q, and v."""

    model: Model
    goal: Array

    def __call__(self, x: tuple[Array, Array], p: dict[str, Array]) -> Array:
        q, v = x
        tip = frame_placement(self.model, q, self.model.frame_names[-1]).p
        return jnp.concatenate(
            [3 * (tip - p["tip"]), difference(self.model, self.goal, q), 0.3 * v]
        )


def _motion(model: Model) -> _Problem:
    """A short motion from a start state towards a goal configuration.

    The bounds (3,): the bound of the scaled forces u; the limit of the squared speed |v|^2; and the
    mean of the last velocity, which is an equation.
    """
    q0, goal = _configurations(model)
    v0 = 0.1 * jnp.cos(jnp.arange(1.0, model.nv + 1))
    target = frame_placement(model, goal, model.frame_names[-1]).p
    space = optimal_control.state_space(model)

    def cost(t, x, u, p):
        return jnp.concatenate([0.3 * x[1], 0.1 * u])

    def path(t, x, u, p):
        return None, (jnp.sum(x[1] ** 2) - p["squared_speed"])[None]

    def terminal(x, p):
        return (jnp.mean(x[1]) - p["last"])[None], None

    def contracted(changes, bounds):
        new = _changed(model, changes["model"])
        # The forces belong to the changed robot. With the forces of the original robot, a small
        # change of a heavy link needs large accelerations of light links.
        forces = _Forces(new, bias_force(new, q0, v0), jnp.diagonal(crba(new, q0)))
        d_tip, d_speed, d_last, d_bound = jnp.split(changes["targets and bounds"], [3, 4, 5])
        problem = optimal_control.Problem(
            space,
            optimal_control.shooting_step(new, forces, semi_implicit_euler, _DT),
            cost,
            _End(new, goal),
            control_bounds=(-bounds[0] + d_bound[0], bounds[0] + d_bound[0]),
            path=path,
            terminal=terminal,
        )
        p = {
            "tip": target + d_tip,
            "squared_speed": bounds[1] + d_speed[0],
            "last": bounds[2] + d_last[0],
        }
        dq, dv = jnp.split(changes["initial state"], 2)
        x0 = integrate(model, q0, dq), v0 + dv
        guess = jnp.zeros((_STAGES, model.nv))
        # The solver goes on until rounding errors stop it; their size depends on the robot.
        found = optimal_control.solve(problem, x0, p, guess, iterations=60, tolerance=1e-11)
        converged = found.residuals.largest <= 1e-9
        fields = found.xs, found.us, found.costates, found.multipliers, found.cost
        return _contract(fields, converged), found

    def bounds(found):
        squared_speed = jnp.max(jnp.sum(found.xs[1] ** 2, axis=1))
        last = jnp.mean(found.xs[1][-1])
        limits = jnp.stack([jnp.max(jnp.abs(found.us)), squared_speed, last])
        return _FRACTION * limits

    def active(found, _):
        forces, stages = found.multipliers.bounds, found.multipliers.inequalities
        return {
            "forces at a bound": int(jnp.sum(forces != 0)),
            "stages at the limit of the speed": int(jnp.sum(stages > 0)),
        }

    sizes = {
        "initial state": 2 * model.nv,
        "targets and bounds": 6,
        "model": _size_of_change(model),
    }
    wide = jnp.array([_INFINITE, _INFINITE, 0.0])
    return _Problem(contracted, sizes, wide, bounds, active)


# ---------------------------------------------------------------------------- inverse kinematics


def _posture(model: Model) -> _Problem:
    """A posture whose last frame is near a target, with one position limit.

    The limit belongs to the joint that moves furthest, among the joints with one coordinate. The
    bounds (2, nq): the lower and the upper position limits.
    """
    q0, goal = _configurations(model)
    frame = model.frame_names[-1]
    target = frame_placement(model, goal, frame)
    places = [model.joint(name).q for name in model.joint_names]
    single = np.array([q.start for q in places if q.stop - q.start == 1], int)

    def contracted(changes, bounds):
        d_pose, d_limit = jnp.split(changes["targets and bounds"], [6])
        limited = eqx.tree_at(
            lambda m: (m.lower_position_limit, m.upper_position_limit),
            _changed(model, changes["model"]),
            tuple(bounds + d_limit),
        )
        reach = FrameTask(frame, compose(target, exp(d_pose)))
        found = inverse_kinematics(limited, [reach, PostureTask(q0, 1e-2)], q0, max_iterations=1000)
        return _contract((found.q, found.error), found.stationary), found

    def bounds(found):
        change = (found.q - q0)[single]
        if not single.size:
            return wide
        largest = int(jnp.argmax(jnp.abs(change)))
        limit = q0[single[largest]] + _FRACTION * change[largest]
        side = int(change[largest] > 0)
        return wide.at[side, single[largest]].set(limit)

    def active(found, bounds):
        return {"coordinates at a limit": int(jnp.sum(jnp.any(found.q == bounds, axis=0)))}

    sizes = {"targets and bounds": 7, "model": _size_of_change(model)}
    wide = jnp.array([[-_INFINITE], [_INFINITE]]) * jnp.ones((1, model.nq))
    return _Problem(contracted, sizes, wide, bounds, active)
