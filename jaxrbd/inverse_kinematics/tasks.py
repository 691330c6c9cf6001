"""Tasks of inverse kinematics: targets of frames, gaze, centre of mass and posture, and distances.

A task, except a `Clearance`, has an error vector e, a Jacobian J of the error in the tangent space,
and weights w. Solvers minimise the sum of `w e^2 / 2` over all entries of all tasks. Four times the
weight has the effect of twice the error. An entry with the weight 0 is free. A posture task is a
preference: the solution may be far from its target. A `Clearance` is a set of inequalities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from .. import so3
from .._math.cast import cast, stacked
from .._math.components import safe_norm
from .._math.linear import einsum
from ..algorithms.centroidal import com_jacobian
from ..algorithms.kinematics import Kinematics, forward_kinematics, relative_pose
from ..algorithms.mass import center_of_mass
from ..algorithms.places import bodies_of, find_places, place_jacobians
from ..collision import DistancePairs
from ..collision.robot_shapes import checked_pairs, distances_and_jacobian
from ..configuration import difference, integrate
from ..constraints import Constraint, Nonholonomic, constraint_rows
from ..constraints.rows import number_of_equations
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import coordinates_with_rates
from ..model.names import described, require_frame_name
from ..spatial import Pose, inverse_compose, inverse_transform_point, transform_motion


class Task(eqx.Module):
    """A target or a preference, such as `FrameTask` and `PostureTask`, or a `Clearance`."""

    # The number of entries in `Rows.error`; a preference does not need it.
    _error_size: ClassVar[int]
    # The shapes of the arrays, by name, if they do not depend on the model.
    _shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {}


class Clearance(Task):
    """The shapes of a robot keep a distance from each other and from the shapes of its world.

    - `pairs`: `collision.DistancePairs`, as `collision.pairs_of` makes them;
    - `margin` () or (m,), in m: the least distance of each of the m pairs (default 0).

    The distances have priority, as constraints have: a target cannot violate them. The error is the
    largest `margin - distance` of a pair, in m, or zero if all distances are at least the margin.

    Raises ArgumentError for pairs of another type and for a margin that is not finite.
    """

    pairs: DistancePairs
    margin: arguments.Parameter
    _error_size: ClassVar[int] = 0

    def __init__(self, pairs: DistancePairs, margin: ArrayLike | Sequence[int | float] = 0.0):
        self.pairs = checked_pairs(pairs)
        count = len(pairs)
        margin = arguments.parameter(margin, "margin of the Clearance", (), (count,))
        arguments.require(margin, np.isfinite, "margin of the Clearance", "finite")
        self.margin = margin if margin.ndim else margin * np.ones(count, margin.dtype)


# Hints for the error, by the shape of the array that was passed instead of a `Pose`.
_HINTS = {
    (3,): "; for a position use FrameTask.position",
    (3, 3): "; for a rotation matrix use FrameTask.orientation",
    (4, 4): "; for a matrix T use Pose(T[:3, :3], T[:3, 3])",
}


class FrameTask(Task):
    """A frame F of the robot reaches a target pose T.

    - `frame`: the name of F, a link or a joint;
    - `target`: the `Pose` of T in the frame `relative_to`: R (3, 3) and p (3,) in m;
    - `weights`: () or (6,), 0 or more: three weights of the position in 1/m^2 and three weights of
      the rotation in 1/rad^2, for the axes of T (default 1);
    - `relative_to`: the name of a frame of the robot, which may move; None is the world.

    The error (6,) is the position of F in T, and the rotation vector of F in T. So both parts are
    in the axes of T, and the rotation vector has an angle from 0 to pi. At pi the two signs of the
    rotation vector are the same rotation, and the task uses one of them.

    Raises ArgumentError for a target with NaN or infinite entries, for a matrix R that is no
    rotation, and for weights that are negative or not finite.
    """

    frame: str = eqx.field(static=True)
    target: Pose
    weights: Float[arguments.Parameter, "6"]
    relative_to: str | None = eqx.field(static=True)
    _error_size: ClassVar[int] = 6
    _shapes: ClassVar = {"target.R": (3, 3), "target.p": (3,), "weights": (6,)}

    def __init__(
        self,
        frame: str,
        target: Pose,
        weights: ArrayLike | Sequence[int | float] = 1.0,
        relative_to: str | None = None,
    ):
        self.frame, self.relative_to = _frame_names(frame, relative_to)
        if not isinstance(target, Pose):
            length = (len(target),) if isinstance(target, (list, tuple)) else None
            shape = getattr(target, "shape", length)
            raise ArgumentError(
                f"target of frame {frame!r} is {described(target)}, expected a Pose"
                f"{_HINTS.get(shape, '')}"
            )
        place = f"of the FrameTask of {frame!r}"
        self.target = arguments.pose_parameter(target, "target", place)
        self.weights = _weights(weights, f"weights {place}", 6)

    @classmethod
    def position(
        cls,
        frame: str,
        p: ArrayLike | Sequence[int | float],
        weights: ArrayLike | Sequence[int | float] = 1.0,
        relative_to: str | None = None,
    ) -> FrameTask:
        """A task of the origin of a frame only.

        `p` (3,): the target in m, in the frame `relative_to`; `weights`: () or (3,), in 1/m^2, for
        the axes of `relative_to`.
        """
        place = f"of the FrameTask of {frame!r}"
        p = arguments.parameter(p, f"p {place}", (3,))
        weights = _weights(weights, f"weights {place}", 3)
        weights = _concatenated(weights, np.zeros(3))
        return cls(frame, _pose(_identity(p), p), weights, relative_to)

    @classmethod
    def orientation(
        cls,
        frame: str,
        R: ArrayLike | Sequence,
        weights: ArrayLike | Sequence[int | float] = 1.0,
        relative_to: str | None = None,
    ) -> FrameTask:
        """A task of the axes of a frame only.

        `R` (3, 3): the target, whose columns are the axes of T in the frame `relative_to`;
        `weights`: () or (3,), in 1/rad^2, for the axes of T.
        """
        place = f"of the FrameTask of {frame!r}"
        R = arguments.parameter(R, f"R {place}", (3, 3))
        weights = _concatenated(np.zeros(3), _weights(weights, f"weights {place}", 3))
        p = jnp.zeros(3, R.dtype) if isinstance(R, Array) else np.zeros(3)
        return cls(frame, _pose(R, p), weights, relative_to)


class GazeTask(Task):
    """An axis of a frame F of the robot points at a target point.

    - `frame`: the name of F, a link or a joint, such as the optical frame of a camera;
    - `target` (3,): the point in m, in the frame `relative_to`;
    - `axis` (3,): a direction in F, of any length above 0 (default: z). It starts at the origin of
      F;
    - `weights`: (), 0 or more, in 1/rad^2 (default 1);
    - `relative_to`: the name of a frame of the robot, which may move; None is the world.

    The error (3,) is `angle (n - u) / |n - u|` in the axes of F, with the unit vectors u of the
    axis and n from the origin of F to the target. Its norm is the angle between n and u, from 0 to
    pi. So the error is 0 only where the axis points at the target, and not where it points
    backwards. At the angle pi, the shortest rotation to the target is not unique. The task then
    uses a direction in which joints turn the axis. A target at the origin of F has no direction:
    there the norm is pi / 2. The rotation about the axis is free.

    Raises ArgumentError for a target with NaN or infinite entries, for an axis without a direction,
    and for a weight that is negative or not finite.
    """

    frame: str = eqx.field(static=True)
    target: Float[arguments.Parameter, "3"]
    axis: Float[arguments.Parameter, "3"]
    weights: Float[arguments.Parameter, ""]
    relative_to: str | None = eqx.field(static=True)
    _error_size: ClassVar[int] = 3
    _shapes: ClassVar = {"target": (3,), "axis": (3,), "weights": ()}

    def __init__(
        self,
        frame: str,
        target: ArrayLike | Sequence[int | float],
        axis: ArrayLike | Sequence[int | float] = (0.0, 0.0, 1.0),
        weights: ArrayLike = 1.0,
        relative_to: str | None = None,
    ):
        self.frame, self.relative_to = _frame_names(frame, relative_to)
        place = f"of the GazeTask of {frame!r}"
        self.target = arguments.parameter(target, f"target {place}", (3,))
        arguments.require(self.target, np.isfinite, f"target {place}", "finite")
        self.axis = arguments.parameter(axis, f"axis {place}", (3,))
        arguments.require_direction(self.axis, f"axis {place}")
        self.weights = arguments.parameter(weights, f"weights {place}", ())
        arguments.require_not_negative(self.weights, f"weights {place}")


class ComTask(Task):
    """The centre of mass of the robot reaches a target (3,) in m, in the world.

    `weights`: () or (3,), 0 or more, in 1/m^2, for the axes of the world (default 1). The error is
    the centre of mass minus the target. Raises ArgumentError for a target with NaN or infinite
    entries, and for weights that are negative or not finite.
    """

    target: Float[arguments.Parameter, "3"]
    weights: Float[arguments.Parameter, "3"]
    _error_size: ClassVar[int] = 3
    _shapes: ClassVar = {"target": (3,), "weights": (3,)}

    def __init__(
        self,
        target: ArrayLike | Sequence[int | float],
        weights: ArrayLike | Sequence[int | float] = 1.0,
    ):
        self.target = arguments.parameter(target, "target of the ComTask", (3,))
        arguments.require(self.target, np.isfinite, "target of the ComTask", "finite")
        self.weights = _weights(weights, "weights of the ComTask", 3)


class PostureTask(Task):
    """The robot stays near a target configuration (nq,).

    `weights`: () or (nv,), 0 or more, in 1/m^2 or 1/rad^2 (default 1e-4). The error is
    `difference(model, target, q)`. This task is a preference: the solution may be far from the
    target, so `IkSolution.converged` does not depend on it. Among the configurations that reach the
    targets of all other tasks, the solution is a local minimum of the weighted errors of the
    posture tasks. In two cases the task is a term of the sum of all weighted errors: if
    `inverse_kinematics` does not reach the other targets, and always in
    `differential_inverse_kinematics`. Then it moves the solution away from the other targets, by a
    distance that is about proportional to its weight.

    Raises ArgumentError for a target with NaN or infinite entries, and for weights that are
    negative or not finite.
    """

    target: Float[arguments.Parameter, " nq"]
    weights: Float[arguments.Parameter, "..."]

    def __init__(
        self,
        target: ArrayLike | Sequence[int | float],
        weights: ArrayLike | Sequence[int | float] = 1e-4,
    ):
        self.target = arguments.parameter(target, "target of the PostureTask", (None,))
        arguments.require(self.target, np.isfinite, "target of the PostureTask", "finite")
        self.weights = _weights(weights, "weights of the PostureTask", None)


def _weights(x: ArrayLike | Sequence, name: str, n: int | None) -> arguments.Parameter:
    """Weights (n,) from () or (n,). If n is None, any length is right, and () stays ()."""
    weights = arguments.parameter(x, name, (), (n,))
    arguments.require_not_negative(weights, name)
    if weights.ndim or n is None:
        return weights
    return weights * np.ones(n, weights.dtype)


def _frame_names(frame: str, relative_to: str | None) -> tuple[str, str | None]:
    """The names, if they are names; else raises ArgumentError."""
    require_frame_name(frame, "frame", world=False)
    require_frame_name(relative_to, "relative_to")
    return frame, relative_to


def _pose(R: Any, p: Any) -> Pose:
    """`Pose(R, p)`; R and p may be NumPy arrays of float64, which `cast` converts later.

    The types are `Any`, because the fields of `Pose` have the type of arrays of JAX.
    """
    return Pose(R, p)


def _identity(like: arguments.Parameter) -> arguments.Parameter:
    return jnp.eye(3, dtype=like.dtype) if isinstance(like, Array) else np.eye(3)


def _concatenated(a: arguments.Parameter, b: arguments.Parameter) -> arguments.Parameter:
    dtypes = [x.dtype for x in (a, b) if isinstance(x, Array)]
    if not dtypes:
        return np.concatenate([a, b])
    return jnp.concatenate([jnp.asarray(x, dtypes[0]) for x in (a, b)])


# --------------------------------------------------------------------------- errors and Jacobians


class Rows(NamedTuple):
    """The errors of all tasks and the equations of all constraints at one configuration.

    - `error` (m,), `J` (m, nv), `weights` (m,): the tasks;
    - `position` (k,): the values phi(q) of the equations phi(q) = 0 of the constraints, then the
      values of the inequalities phi(q) <= 0 of the clearances; `K` (k, nv): the Jacobian of phi.
    """

    error: Float[Array, " m"]
    J: Float[Array, "m nv"]
    weights: Float[Array, " m"]
    position: Float[Array, " k"]
    K: Float[Array, "k nv"]


class TaskErrors(NamedTuple):
    """The errors of n tasks and constraints, each (n,); 0 where one has no such error.

    - `linear` in m: positions of frames and of the centre of mass, and the errors of clearances;
    - `angular` in rad: rotations of frames and angles of gaze;
    - `mixed`: configurations, in m and rad, and equations of constraints, in their units.

    The error of a clearance is its largest violation, 0 or more. Every other error is a Euclidean
    norm, for a task over the entries with a weight above 0; constraints have no weights.
    """

    linear: Float[Array, " n"]
    angular: Float[Array, " n"]
    mixed: Float[Array, " n"]


def checked_tasks(
    model: Model, tasks: Sequence[Task | Constraint], velocities: bool = False
) -> tuple[Task | Constraint, ...]:
    """The tasks as a tuple. Raises ArgumentError, which names the task, if one does not fit.

    `velocities`: whether the caller computes a velocity. Then `Nonholonomic` constraints are
    accepted.
    """
    arguments.robot(model)
    if isinstance(tasks, (Task, Constraint)) or not isinstance(tasks, Sequence):
        raise ArgumentError(f"tasks is {tasks!r}, expected a sequence of tasks")
    if not tasks:
        raise ArgumentError("tasks is empty, expected at least one task")
    for i, task in enumerate(tasks):
        shapes = task._shapes if isinstance(task, Task) else {}
        if isinstance(task, Clearance):
            shapes = {"margin": (len(task.pairs),)}
        for name, shape in shapes.items():
            found = np.shape(attrgetter(name)(task))
            if found != shape:
                raise ArgumentError(
                    f"tasks[{i}]: {name} of the {type(task).__name__} has shape {found}, expected "
                    f"{shape}; batch with jax.vmap"
                )
        if isinstance(task, (FrameTask, GazeTask)):
            ends = task.frame, task.relative_to
            bodies = bodies_of(model, ends)
            if bodies[0] == bodies[1]:
                place = "the world" if bodies[0] < 0 else f"the body of {task.relative_to!r}"
                raise ArgumentError(
                    f"tasks[{i}]: frame {task.frame!r} of {model!r} is fixed to {place}, "
                    f"expected a moving frame"
                )
        elif isinstance(task, PostureTask):
            sizes = (("target", task.target, model.nq, "nq"),)
            if np.ndim(task.weights):
                sizes += (("weights", task.weights, model.nv, "nv"),)
            for name, x, n, symbol in sizes:
                if np.shape(x) != (n,):
                    raise ArgumentError(
                        f"tasks[{i}]: {name} of the PostureTask has shape {np.shape(x)}, expected "
                        f"({n},) ({symbol}) for {model!r}"
                    )
            values = arguments.known(task.target)
            if values is not None:
                name = f"tasks[{i}]: target of the PostureTask"
                arguments.nonzero_quaternions(name, np.asarray(values, model.dtype), model)
        elif isinstance(task, Nonholonomic) and not velocities:
            raise ArgumentError(
                f"tasks[{i}] is a Nonholonomic constraint, which restricts velocities but not the "
                f"configuration; expected another constraint"
            )
        elif not isinstance(task, (ComTask, Constraint, Clearance)):
            raise ArgumentError(f"tasks[{i}] is {task!r}, expected a task or a Constraint")
    return tuple(tasks)


def weights_are_valid(tasks: Sequence[Task | Constraint]) -> Bool[Array, ""]:
    """Whether all weights are finite and 0 or more. A task does not check weights under a trace."""
    kinds = FrameTask, GazeTask, ComTask, PostureTask
    weights = [task.weights for task in tasks if isinstance(task, kinds)]
    valid = [jnp.all((x >= 0) & (x < jnp.inf)) for x in map(jnp.asarray, weights)]
    return jnp.all(jnp.array(valid, bool))


def rows(model: Model, tasks: Sequence[Task | Constraint], q: Float[Array, " nq"]) -> Rows:
    """The `Rows` of all tasks and constraints at q, in the order of `_order`."""
    kinematics = forward_kinematics.unchecked(model, q)
    by_kind: list[list[Any]] = [[tasks[i] for i in indices] for indices in _order(tasks)]
    *targets, constraints, clearances = by_kind
    frames, gazes, coms, postures = cast(targets, model.dtype)
    blocks = []
    if frames:
        error, J, weights = _frame_rows(model, kinematics, frames)
        blocks.append((error.reshape(-1), J.reshape(-1, model.nv), weights.reshape(-1)))
    if gazes:
        error, J, weights = _gaze_rows(model, kinematics, gazes)
        blocks.append((error.reshape(-1), J.reshape(-1, model.nv), weights))
    if coms:
        com, J = center_of_mass(model, kinematics), com_jacobian(model, kinematics)
        blocks += [(com - task.target, J, task.weights) for task in coms]
    for task in postures:
        error = difference.unchecked(model, task.target, q)
        J = _posture_jacobian(model, task.target, q)
        blocks.append((error, J, jnp.broadcast_to(task.weights, (model.nv,))))
    zero = jnp.zeros(model.nv, model.dtype)
    equations = constraint_rows.unchecked(model, kinematics, zero, constraints)
    empty = (zero[:0], jnp.zeros((0, model.nv), model.dtype), zero[:0])
    error, J, weights = (jnp.concatenate(parts) for parts in zip(empty, *blocks))
    position, K = equations.position, equations.K
    for task in cast(clearances, model.dtype):
        distance, rates = distances_and_jacobian(model, kinematics, task.pairs)
        position = jnp.concatenate([position, task.margin - distance])
        K = jnp.concatenate([K, -rates])
    return Rows(error, J, weights, position, K)


def number_of_inequalities(tasks: Sequence[Task | Constraint]) -> int:
    """The number of inequalities, which is the number of pairs of all clearances."""
    return sum(len(task.pairs) for task in tasks if isinstance(task, Clearance))


def clip_inequalities(
    tasks: Sequence[Task | Constraint],
    x: Float[Array, " k"],
    least: Float[Array, " k"] | None = None,
) -> Float[Array, " k"]:
    """The vector x, in which the last entries, one per inequality, are raised to at least `least`.

    `least`: zero by default; only its last entries are used. If x is `Rows.position`, the result
    with `least` zero is the violation of the equations and inequalities.
    """
    count = number_of_inequalities(tasks)
    if not count:
        return x
    k = len(x) - count
    bound = jnp.zeros_like(x) if least is None else least
    return jnp.concatenate([x[:k], jnp.maximum(x[k:], bound[k:])])


def task_errors(
    model: Model, tasks: Sequence[Task | Constraint], found: Rows, q: Float[Array, " nq"]
) -> TaskErrors:
    """The errors of all tasks and constraints; `found`: the result of `rows` at q."""
    frames, gazes, coms, postures, constraints, clearances = _order(tasks)
    counted = jnp.where(found.weights > 0, found.error, 0)
    zero = jnp.zeros((), model.dtype)
    linear, angular, mixed = ([zero] * len(tasks) for _ in range(3))
    start = 0
    for i in frames:
        linear[i], angular[i] = (safe_norm(counted[start + k : start + k + 3]) for k in (0, 3))
        start += 6
    for i in gazes:
        angular[i] = safe_norm(counted[start : start + 3])
        start += 3
    for i in coms:
        linear[i] = safe_norm(counted[start : start + 3])
        start += 3
    for i in postures:
        mixed[i] = safe_norm(counted[start : start + model.nv])
        start += model.nv
    start = 0
    for i in constraints:
        constraint: Any = tasks[i]
        size = number_of_equations(model, q, constraint)
        mixed[i] = safe_norm(found.position[start : start + size])
        start += size
    for i in clearances:
        task: Any = tasks[i]
        linear[i] = jnp.max(found.position[start : start + len(task.pairs)], initial=0)
        start += len(task.pairs)
    return TaskErrors(*(jnp.stack(x) for x in (linear, angular, mixed)))


def has_to_hold(tasks: Sequence[Task | Constraint]) -> np.ndarray:
    """For each task whether `converged` depends on it, (n,) of bool; False for a preference."""
    return np.array([not isinstance(task, PostureTask) for task in tasks])


def number_of_leading_entries(tasks: Sequence[Task | Constraint]) -> int:
    """The number of entries of `Rows.error` before the preferences; 0 without a preference."""
    required = has_to_hold(tasks)
    sizes = [x._error_size for x, held in zip(tasks, required) if held and isinstance(x, Task)]
    return 0 if np.all(required) else sum(sizes)


def scale_preferences(
    tasks: Sequence[Task | Constraint], share: Float[Array, ""]
) -> tuple[Task | Constraint, ...]:
    """The tasks, with the weights of the preferences multiplied by a share from 0 to 1."""
    every: Sequence[Any] = tasks
    return tuple(
        task if held else eqx.tree_at(lambda x: x.weights, task, task.weights * share)
        for task, held in zip(every, has_to_hold(tasks))
    )


def _order(tasks: Sequence[Task | Constraint]) -> list[list[int]]:
    """The indices of the tasks of each kind.

    The kinds are frames, gaze, centre of mass, posture, constraints and clearances.

    The order is also the order of the entries of `Rows`. Frames must stay first, because
    `_dofs_of_worst_frame` in solution.py takes the first entries. Preferences must come after all
    tasks with entries in `Rows.error`: see `number_of_leading_entries`.
    """
    kinds = (FrameTask, GazeTask, ComTask, PostureTask, Constraint, Clearance)
    return [[i for i, task in enumerate(tasks) if isinstance(task, kind)] for kind in kinds]


def _posture_jacobian(model: Model, target: Array, q: Array) -> Float[Array, "nv nv"]:
    """The derivative of `difference(model, target, q)` in the tangent space."""
    _, velocities = coordinates_with_rates(model)
    # If the configurations of all joints form vector spaces, the difference is q - target.
    if len(velocities) == model.nv:
        return jnp.eye(model.nv, dtype=model.dtype)
    zero = jnp.zeros(model.nv, model.dtype)

    def error(dq):
        return difference.unchecked(model, target, integrate.unchecked(model, q, dq))

    return jax.jacfwd(error)(zero)


def _frame_rows(
    model: Model, kinematics: Kinematics, tasks: Sequence[FrameTask]
) -> tuple[Float[Array, "n 6"], Float[Array, "n 6 nv"], Float[Array, "n 6"]]:
    """The errors, Jacobians and weights of n frame tasks."""
    X_AF, J = _moving_frames(model, kinematics, tasks)
    X_AT = stacked([task.target for task in tasks])
    X_TF = inverse_compose(X_AT, X_AF)
    rotation = so3.log(X_TF.R)
    linear = einsum("nij,nvj->niv", X_TF.R, J[..., :3])
    angular = einsum("nij,nvj->niv", so3.right_jacobian_inverse(rotation), J[..., 3:])
    return (
        jnp.concatenate([X_TF.p, rotation], axis=1),
        jnp.concatenate([linear, angular], axis=1),
        jnp.stack([task.weights for task in tasks]),
    )


def _gaze_rows(
    model: Model, kinematics: Kinematics, tasks: Sequence[GazeTask]
) -> tuple[Float[Array, "n 3"], Float[Array, "n 3 nv"], Float[Array, " _"]]:
    """The errors and Jacobians of gaze tasks, and the weights, one per entry of an error.

    With the unit vectors u and n of a `GazeTask`, the length of `(n - u) / 2` is the sine of half
    the angle, and `|n + u| / 2` is the cosine. So `(n - u) / 2` and `|n + u| / 2` are the vector
    and the scalar of a unit quaternion, whose logarithm is the error. The Jacobian of the error is
    bounded near the angle pi.
    """
    X_AF, J = _moving_frames(model, kinematics, tasks)
    target, axis = (jnp.stack([getattr(task, x) for task in tasks]) for x in ("target", "axis"))
    line = inverse_transform_point(X_AF, target)
    # The rates (n, nv, 3) of the line to the target, in the axes of F, and then of its direction n.
    rates = -J[..., :3] - jnp.cross(J[..., 3:], line[:, None])
    u, n = _unit(axis), _perturb_opposite(_unit(line), _unit(axis), rates)
    rates = _perpendicular(rates, n[:, None]) / _divisor(safe_norm(line))[:, None, None]
    cosine = safe_norm(n + u)[:, None] / 2
    cosine_rates = einsum("nvi,ni->nv", rates, u) / (4 * _divisor(cosine))
    quaternion = jnp.concatenate([(n - u) / 2, cosine], axis=1)
    quaternion_rates = jnp.concatenate([rates / 2, cosine_rates[..., None]], axis=2)
    error = so3.unit_quaternion_log(quaternion)
    velocity = so3.quaternion_velocity(quaternion[:, None], quaternion_rates)
    return (
        error,
        einsum("nij,nvj->niv", so3.right_jacobian_inverse(error), velocity),
        jnp.repeat(jnp.stack([task.weights for task in tasks]), 3),
    )


def _perturb_opposite(n: Array, u: Array, rates: Array) -> Float[Array, "n 3"]:
    """The unit vectors n, turned by `2 sqrt(eps)` if they are opposite to the unit vectors u.

    At pi the angle between n and u has no derivative. n turns along the sum of the `rates`
    (n, nv, 3), the changes of the lines to the targets per dof. The weights of this sum differ, so
    that opposite rates do not cancel.
    """
    small = float(jnp.finfo(n.dtype).eps) ** 0.5
    weights = jnp.asarray(1 / np.arange(1.0, rates.shape[1] + 1), n.dtype)
    sideways = _unit(_perpendicular(lax.stop_gradient(einsum("nvi,v->ni", rates, weights)), n))
    opposite = safe_norm(n + u)[:, None] < small
    return jnp.where(opposite, _unit(n + 2 * small * sideways), n)


def _perpendicular(x: Array, n: Array) -> Array:
    """The components of vectors x that are perpendicular to unit vectors n."""
    return x - jnp.sum(x * n, axis=-1, keepdims=True) * n


def _unit(x: Array) -> Array:
    """The directions of vectors (n, 3); zero for a zero vector."""
    return x / _divisor(safe_norm(x))[:, None]


def _divisor(x: Array) -> Array:
    """The entries of x, with 1 instead of 0."""
    return jnp.where(x == 0, 1, x)


def _moving_frames(
    model: Model, kinematics: Kinematics, tasks: Sequence[FrameTask | GazeTask]
) -> tuple[Pose, Float[Array, "n nv 6"]]:
    """The poses X_AF of the frames F of n tasks in their frames A (`relative_to`), and Jacobians.

    A Jacobian has one row per entry of v: the velocity of F relative to A, in the axes of F.
    """
    F = find_places(model, kinematics, [task.frame for task in tasks])
    J = place_jacobians(model, kinematics, F)
    references = [task.relative_to for task in tasks]
    if all(reference is None for reference in references):
        X_AF = F.X.X_WF
    else:
        A = find_places(model, kinematics, references)
        X_AF = relative_pose(A.X, F.X)
        X_FA = jax.tree.map(lambda x: x[:, None], relative_pose(F.X, A.X))
        J = J - transform_motion(X_FA, place_jacobians(model, kinematics, A))
    return X_AF, J
