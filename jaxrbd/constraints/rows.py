"""The rows of a sequence of constraints: constraints of one kind are evaluated in one batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..algorithms.kinematics import Kinematics, motions
from ..errors import ArgumentError
from ..model import Model, arguments
from ..spatial import identity_pose
from .between_frames import FrameConstraint, kind_key, rows_of_one_kind
from .kinds import BodyMotion, Constraint, ConstraintRows


def checked_constraints(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The constraints as a tuple; raises ArgumentError if one of them is no `Constraint`."""
    constraints = arguments.sequence(constraints, "constraints", "constraints")
    for i, constraint in enumerate(constraints):
        if not isinstance(constraint, Constraint):
            raise ArgumentError(f"constraints[{i}] is {constraint!r}, expected a Constraint")
    return constraints


def active_array(constraints: Sequence[Constraint], active: ArrayLike | None) -> Array | None:
    """`active` as an array (number of constraints,) of bool; None if all constraints act."""
    if active is None:
        return None
    return truth_values(active, "active", (len(constraints),), ", one entry per constraint")


def truth_values(x: ArrayLike, name: str, shape: tuple[int, ...], entries: str = "") -> Array:
    """`x`, an array of bool or of numbers, as an array of bool: 0 is False.

    Raises ArgumentError for other objects, and for another shape; `entries` explains the shape in
    the message.
    """
    x = arguments.as_array(x, name)
    if x.shape != shape:
        raise ArgumentError(f"{name} has shape {x.shape}, expected {shape}{entries}")
    if not jnp.isdtype(x.dtype, ("bool", "integral", "real floating")):
        raise ArgumentError(f"{name} has dtype {x.dtype}, expected bool or real numbers")
    return x.astype(bool)


def nan_or_zero(x: ArrayLike | None, dtype: Any) -> Array:
    """NaN () if x has NaN, else 0."""
    x = jnp.asarray(False if x is None else x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.zeros((), dtype)
    return jnp.where(jnp.any(jnp.isnan(x)), jnp.nan, 0).astype(dtype)


def require_no_nan(name: str, values: np.ndarray, model: Any = None) -> None:
    """Raise ArgumentError if a value is NaN: a check of `arguments.compiled`."""
    arguments.require(values, lambda x: x == x, name, "bool or numbers, not NaN")


def by_kind(
    constraints: Sequence[Constraint],
) -> tuple[list[tuple[int, ...]], list[int]]:
    """The indices of the constraints between frames, one tuple per kind, and the other indices."""
    others: list[int] = []
    kinds: dict[Any, list[int]] = {}
    for i, constraint in enumerate(constraints):
        if isinstance(constraint, FrameConstraint):
            kinds.setdefault(kind_key(constraint), []).append(i)
        else:
            others.append(i)
    return [tuple(indices) for indices in kinds.values()], others


def constraint_blocks(
    model: Model, kinematics: Kinematics, v: Array, constraints: Sequence[Constraint]
) -> list[ConstraintRows]:
    """The rows of each constraint at the velocity v (nv,)."""
    checked_constraints(constraints)
    motion = BodyMotion(kinematics, v, *motions(model, kinematics, v, jnp.zeros_like(v)))
    kinds, others = by_kind(constraints)
    rows = {i: _with_terms(constraints[i].rows(model, motion)) for i in others}
    for indices in kinds:
        same_kind: list[Any] = [constraints[i] for i in indices]
        rows |= zip(indices, rows_of_one_kind(model, motion, same_kind))
    return [rows[i] for i in range(len(constraints))]


def stacked_rows(
    model: Model, blocks: Sequence[ConstraintRows], active: Array | None = None
) -> ConstraintRows:
    """The rows of all constraints. The rows of a constraint that does not act are zero."""
    shapes = ((0,), (0, model.nv), (0,), (0, model.nv))
    empty = ConstraintRows(*(jnp.zeros(shape, model.dtype) for shape in shapes))
    if active is not None:
        blocks = [only_active(rows, active[i]) for i, rows in enumerate(blocks)]
    return jax.tree.map(lambda *x: jnp.concatenate(x), empty, *blocks)


def only_active(rows: Any, active: Array) -> Any:
    """Arrays of a constraint, or zeros if `active` () is False."""
    return jax.tree.map(lambda x: jnp.where(active, x, 0), rows)


def number_of_equations(model: Model, q: Any, constraint: Constraint) -> int:
    """The number of equations of a constraint; `q`: as for `Constraint.position`."""

    def errors():
        if isinstance(constraint, FrameConstraint):
            return constraint.checked_error(model, identity_pose(model.dtype))
        return constraint.position(model, q)

    return len(jax.eval_shape(errors))


def split_rows(
    model: Model, q: Any, constraints: Sequence[Constraint], *arrays: Array
) -> list[tuple[Array, ...]]:
    """Each array, which has one row per equation, as a tuple of one part per constraint.

    `q`: as for `Constraint.position`.
    """
    ends = np.cumsum([0, *(number_of_equations(model, q, c) for c in constraints)])
    return [tuple(x[i:j] for i, j in itertools.pairwise(ends)) for x in arrays]


def _with_terms(rows: ConstraintRows) -> ConstraintRows:
    """The rows with `K_terms`; by default, the largest absolute value in each column of K."""
    if rows.K_terms is not None:
        return rows
    largest = jnp.max(jnp.abs(rows.K), axis=0, initial=0)
    return rows._replace(K_terms=jnp.broadcast_to(largest, rows.K.shape))
