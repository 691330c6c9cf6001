"""Derivatives of a function of the configuration, in the tangent space: nv numbers and not nq.

A configuration lives on a manifold. Its tangent vectors are velocities, and the derivative of f
along one is that of `f(integrate(model, q, t v))` at t = 0; a quaternion's fourth number, along
which nothing moves, does not appear.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .configuration import integrate
from .errors import ArgumentError
from .model import Model, arguments

__all__ = [
    "gradient",
    "hessian",
    "jacobian",
]

DEFINITIONS = ("retraction", "lie")


def gradient(model: Model, function: Callable[..., Array]) -> Callable[..., Array]:
    """The gradient (nv,) of a number `function(q, ...)` in q, by reverse mode.

    Like `jax.grad`, the result is a function of the same arguments; it can be transformed further.
    Raises ArgumentError, when called, on a q of wrong shape or dtype.
    """

    def derivative(q: ArrayLike, *args, **kwargs):
        q, zero = _origin(model, q)
        return jax.grad(lambda dq: function(integrate(model, q, dq), *args, **kwargs))(zero)

    return derivative


def jacobian(model: Model, function: Callable[..., Array]) -> Callable[..., Array]:
    """The Jacobian of an array (or pytree) `function(q, ...)` in q, by forward mode.

    The result is a function of the same arguments; its arrays have one more axis, the last, of
    size nv. Raises ArgumentError, when called, on a q of wrong shape or dtype.
    """

    def derivative(q: ArrayLike, *args, **kwargs):
        q, zero = _origin(model, q)
        return jax.jacfwd(lambda dq: function(integrate(model, q, dq), *args, **kwargs))(zero)

    return derivative


def hessian(
    model: Model, function: Callable[..., Array], definition: str = "retraction"
) -> Callable[..., Array]:
    """The Hessian (nv, nv) of a number `function(q, ...)` in q, by either of two definitions.

    - "retraction": the second derivatives of `function(integrate(model, q, dq))` in dq at zero,
      which are symmetric; Newton's method with steps `integrate(model, q, dq)` wants these;
    - "lie": entry [i, j] is the derivative along dof j of the gradient's entry i: iterated Lie
      derivatives. They do not commute within a joint that rotates, so this one is not symmetric.
      Its symmetric part is the other.

    For joints of one dof the two are the same. The result is a function of the same arguments.
    Raises ArgumentError on another definition and, when called, on a q of wrong shape or dtype.
    """
    if definition not in DEFINITIONS:
        raise ArgumentError(f"definition is {definition!r}, expected one of {DEFINITIONS}")

    def derivative(q: ArrayLike, *args, **kwargs):
        q, zero = _origin(model, q)
        if definition == "lie":
            return jacobian(model, gradient(model, function))(q, *args, **kwargs)
        return jax.hessian(lambda dq: function(integrate(model, q, dq), *args, **kwargs))(zero)

    return derivative


def _origin(model: Model, q: ArrayLike) -> tuple[Array, Array]:
    """The configuration, checked, and the zero of its tangent space."""
    return arguments.configuration(model, q), jnp.zeros(model.nv, model.dtype)
