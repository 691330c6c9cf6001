"""Implicit constraints: the interface, and constraints that are stated as equations.

A constraint is m equations `phi(q) = 0`, or m equations `K(q) v = 0` if it restricts velocities but
not the configuration. The dynamics use the `ConstraintRows` of a constraint: phi, the Jacobian K of
phi in the tangent space, and `dK/dt v`. Constraints between two frames are in `between_frames.py`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._math.linear import matmul
from ..algorithms.kinematics import Kinematics
from ..configuration import integrate
from ..errors import ArgumentError
from ..joints import as_module
from ..model import Model, arguments


class ConstraintRows(NamedTuple):
    """m constraint equations at a state. The accelerations a must satisfy `K a + bias = 0`.

    - `position` (m,): phi(q), in the units of the equations; zeros for constraints of velocities
      only;
    - `K` (m, nv): `K v` is the rate of phi, or the velocity that a `Nonholonomic` constraint sets
      to 0;
    - `bias` (m,): `dK/dt v`;
    - `K_terms` (m, nv): each entry of K is computed as a sum of terms. The entry of `K_terms`
      estimates the sum of the absolute values of these terms. The rounding error of the entry of K
      is a few eps of this sum. If `K_terms` is None, the largest absolute value in each column of K
      replaces the sums of this column.
    """

    position: Float[Array, " m"]
    K: Float[Array, "m nv"]
    bias: Float[Array, " m"]
    K_terms: Float[Array, "m nv"] | None = None


class BodyMotion(NamedTuple):
    """The state at which constraints are evaluated.

    `kinematics` at q; `v` (nv,); `V` (nb, 6), the spatial velocities of the bodies; `A` (nb, 6),
    the spatial accelerations of the bodies for a = 0. V and A are in the body frames.
    """

    kinematics: Kinematics
    v: Array
    V: Array
    A: Array


class Constraint(eqx.Module):
    """m equations on the motion of a robot: `FrameConstraint`, `Equation` or `Nonholonomic`."""

    @abc.abstractmethod
    def rows(self, model: Model, motion: BodyMotion) -> ConstraintRows:
        """The constraint equations at a state."""

    @abc.abstractmethod
    def position(self, model: Model, q: Float[Array, " nq"] | Kinematics) -> Float[Array, " m"]:
        """The values phi(q) (m,)."""

    def wrenches(
        self, model: Model, q: Float[Array, " nq"] | Kinematics, multiplier: Float[Array, " m"]
    ) -> Float[Array, "nb 6"]:
        """The constraint forces (nb, 6) on the bodies for multipliers (m,), in the body frames.

        Raises ArgumentError for equations that are not between frames.
        """
        raise ArgumentError(f"{self!r} has no forces on bodies, expected a FrameConstraint")


class Equation(Constraint):
    """Equations `function(model, q) = 0` with values (m,), differentiated automatically.

    `function` is a plain function or, if it has parameters, an `eqx.Module`. Redundant rows are
    detected by the rounding errors of K. These errors are estimated from the largest entry of each
    column of K over the m rows. So use separate `Equation`s for quantities of very different size
    or in different units. Raises ArgumentError for a function that is not callable; functions that
    use the constraint raise it for values of another shape or dtype.
    """

    function: Callable[[Model, Array], Array]

    def __init__(self, function: Callable[[Model, Array], Array]):
        arguments.require_function(function, "function", "a function of (model, q)")
        self.function = as_module(function)

    def position(self, model, q):
        q = q.q if isinstance(q, Kinematics) else q
        value = jnp.asarray(self.function(model, q))
        if value.ndim != 1 or value.dtype != model.dtype:
            raise ArgumentError(
                f"the function of an Equation gives shape {value.shape} and dtype {value.dtype}, "
                f"expected (m,) of {model.dtype}"
            )
        return value

    def rows(self, model, motion):
        q, zero = motion.kinematics.q, jnp.zeros(model.nv, model.dtype)

        def moved(dq):
            return self.position(model, integrate.unchecked(model, q, dq))

        # The bias is the second derivative of phi in t along the curve `integrate(model, q, t v)`,
        # on which v is constant.
        def rate(t):
            return jax.jvp(moved, (t * motion.v,), (motion.v,))[1]

        bias = jax.jvp(rate, (jnp.zeros((), model.dtype),), (jnp.ones((), model.dtype),))[1]
        return ConstraintRows(moved(zero), jax.jacfwd(moved)(zero), bias)


class Nonholonomic(Constraint):
    """Equations `matrix(model, q) @ v = 0`, which restrict velocities but not the configuration.

    `matrix` is a plain function or an `eqx.Module` that returns K (m, nv). Examples are a blade
    that does not slip sideways and a wheel that rolls. `position` returns zeros. Functions that use
    the constraint raise ArgumentError for a matrix of another shape or dtype. Raises ArgumentError
    for a matrix that is not callable.
    """

    matrix: Callable[[Model, Array], Array]

    def __init__(self, matrix: Callable[[Model, Array], Array]):
        arguments.require_function(matrix, "matrix", "a function of (model, q)")
        self.matrix = as_module(matrix)

    def position(self, model, q):
        q = q.q if isinstance(q, Kinematics) else q
        return jnp.zeros(len(self._matrix(model, q)), model.dtype)

    def rows(self, model, motion):
        q, v = motion.kinematics.q, motion.v

        def rate(t):
            K = self._matrix(model, integrate.unchecked(model, q, t * v))
            return matmul(K, v)

        bias = jax.jvp(rate, (jnp.zeros((), model.dtype),), (jnp.ones((), model.dtype),))[1]
        return ConstraintRows(self.position(model, q), self._matrix(model, q), bias)

    def _matrix(self, model: Model, q: Array) -> Array:
        K = jnp.asarray(self.matrix(model, q))
        if K.ndim != 2 or K.shape[1] != model.nv or K.dtype != model.dtype:
            raise ArgumentError(
                f"the matrix of a Nonholonomic has shape {K.shape} and dtype {K.dtype}, expected "
                f"(m, {model.nv}) of {model.dtype}"
            )
        return K
