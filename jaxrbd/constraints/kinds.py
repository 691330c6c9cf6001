"""What an implicit constraint is, and constraints that are stated as equations.

A constraint is m equations `phi(q) = 0`, or `K(q) v = 0` where they bind velocities alone. What the
dynamics need of it are its `ConstraintRows`: phi itself, its Jacobian K in the tangent
space, and `dK/dt v`.
Constraints between two frames are in `between_frames.py`.
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
from ..model import Model


class ConstraintRows(NamedTuple):
    """m constraint equations at a state: `K a + bias = 0` keeps them.

    `position` (m,) is phi(q); `K` (m, nv) its Jacobian, `K v` its rate; `bias` (m,) is `dK/dt v`.
    Lengths in m, angles in rad.

    `K_terms` (m, nv): the absolute values of the terms that each entry of K is the sum of. The
    rounding error of an entry is a few eps of it. Where it is None, the terms are taken to be as
    large as the largest entry of K in the same column.
    """

    position: Float[Array, " m"]
    K: Float[Array, "m nv"]
    bias: Float[Array, " m"]
    K_terms: Float[Array, "m nv"] | None = None


class BodyMotion(NamedTuple):
    """The state that constraints are evaluated at.

    `V` (nb, 6) are the velocities of the bodies and `A` (nb, 6) their accelerations at a = 0, each
    in its body's own frame.
    """

    kinematics: Kinematics
    v: Array
    V: Array
    A: Array


class Constraint(eqx.Module):
    """m equations on the motion of a robot: `FrameConstraint`, `Equation` or `Nonholonomic`."""

    @abc.abstractmethod
    def rows(self, model: Model, motion: BodyMotion) -> ConstraintRows:
        """The equations at a state."""

    @abc.abstractmethod
    def position(self, model: Model, q: Float[Array, " nq"] | Kinematics) -> Float[Array, " m"]:
        """phi(q) alone."""

    @abc.abstractmethod
    def wrenches(
        self, model: Model, q: Float[Array, " nq"] | Kinematics, multiplier: Float[Array, " m"]
    ) -> Float[Array, "nb 6"]:
        """The forces on the bodies that the multipliers stand for, each in its body's frame."""


class Equation(Constraint):
    """Any equations `function(model, q) = 0` with values (m,): their rows by differentiation.

    `function` is a plain function or, where it has numbers of its own, an `eqx.Module`. Its m
    values are compared with one another where rows are redundant: state quantities of very
    different size, or in different units, as several equations.
    """

    function: Callable[[Model, Array], Array]

    def __init__(self, function: Callable[[Model, Array], Array]):
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
            return self.position(model, integrate(model, q, dq))

        # A curve with constant v is a geodesic of `integrate`: its second derivative is the bias.
        def rate(t):
            return jax.jvp(moved, (t * motion.v,), (motion.v,))[1]

        bias = jax.jvp(rate, (jnp.zeros((), model.dtype),), (jnp.ones((), model.dtype),))[1]
        return ConstraintRows(moved(zero), jax.jacfwd(moved)(zero), bias)

    def wrenches(self, model, q, multiplier):
        raise ArgumentError(f"{self!r} states no forces on bodies, expected a FrameConstraint")


class Nonholonomic(Constraint):
    """Any equations `matrix(model, q) @ v = 0` that bind velocities and no configuration.

    `matrix` gives K (m, nv), as a plain function or an `eqx.Module`: a blade that does not slip
    sideways, a wheel that rolls. The position of its rows is zero.
    """

    matrix: Callable[[Model, Array], Array]

    def __init__(self, matrix: Callable[[Model, Array], Array]):
        self.matrix = as_module(matrix)

    def position(self, model, q):
        q = q.q if isinstance(q, Kinematics) else q
        return jnp.zeros(len(self._matrix(model, q)), model.dtype)

    def rows(self, model, motion):
        q, v = motion.kinematics.q, motion.v

        def rate(t):
            K = self._matrix(model, integrate(model, q, t * v))
            return matmul(K, v)

        bias = jax.jvp(rate, (jnp.zeros((), model.dtype),), (jnp.ones((), model.dtype),))[1]
        return ConstraintRows(self.position(model, q), self._matrix(model, q), bias)

    def wrenches(self, model, q, multiplier):
        raise ArgumentError(f"{self!r} states no forces on bodies, expected a FrameConstraint")

    def _matrix(self, model: Model, q: Array) -> Array:
        K = jnp.asarray(self.matrix(model, q))
        if K.ndim != 2 or K.shape[1] != model.nv or K.dtype != model.dtype:
            raise ArgumentError(
                f"the matrix of a Nonholonomic has shape {K.shape} and dtype {K.dtype}, expected "
                f"(m, {model.nv}) of {model.dtype}"
            )
        return K
