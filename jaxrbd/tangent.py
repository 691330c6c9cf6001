"""Derivatives with respect to the configuration: vectors and matrices with axes of size nv.

The velocities are the tangent vectors of the configuration manifold. The derivative of a function f
along a velocity v is the derivative of `f(integrate(model, q, t v))` with respect to t at t = 0. So
a gradient has nv entries, one per velocity. The derivative with respect to the length of a
quaternion is not an entry, because this length does not affect f.
"""

from __future__ import annotations

import functools
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
    """The gradient (nv,) of a scalar `function(q, ...)` with respect to q, by reverse mode.

    Like `jax.grad`, it returns a function of the same arguments, which JAX can transform further.
    Raises ArgumentError for an object that is no function.
    """
    arguments.require_function(function, "function", "a function of q")

    def derivative(q: ArrayLike, *args, **kwargs):
        moved, zero = _origin(model, q)
        return jax.grad(lambda dq: function(moved(dq), *args, **kwargs))(zero)

    return derivative


def jacobian(model: Model, function: Callable[..., Array]) -> Callable[..., Array]:
    """The Jacobian of an array or pytree `function(q, ...)` with respect to q, by forward mode.

    Like `jax.jacfwd`, it returns a function of the same arguments. Each array of the derivative has
    an additional last axis of size nv. Raises ArgumentError for an object that is no function.
    """
    arguments.require_function(function, "function", "a function of q")

    def derivative(q: ArrayLike, *args, **kwargs):
        moved, zero = _origin(model, q)
        return jax.jacfwd(lambda dq: function(moved(dq), *args, **kwargs))(zero)

    return derivative


def hessian(
    model: Model, function: Callable[..., Array], definition: str = "retraction"
) -> Callable[..., Array]:
    """The Hessian (nv, nv) of a scalar `function(q, ...)` with respect to q.

    `definition` is one of two:

    - "retraction": the second derivatives of `function(integrate(model, q, dq))` with respect to dq
      at zero. This matrix is symmetric. It is the matrix for Newton's method with steps
      `integrate(model, q, dq)`;
    - "lie": iterated Lie derivatives. Entry [i, j] is entry i of the gradient, differentiated along
      dof j. Lie derivatives along the dofs of one rotating joint do not commute, so the matrix is
      not symmetric. Its symmetric part is the Hessian of "retraction".

    The two definitions agree if every joint has one dof. Like `jax.hessian`, it returns a function
    of the same arguments. Raises ArgumentError for another definition, and for an object that is no
    function.
    """
    arguments.require_function(function, "function", "a function of q")
    if definition not in DEFINITIONS:
        raise ArgumentError(f"definition is {definition!r}, expected one of {DEFINITIONS}")

    def derivative(q: ArrayLike, *args, **kwargs):
        if definition == "lie":
            return jacobian(model, gradient(model, function))(q, *args, **kwargs)
        moved, zero = _origin(model, q)
        return jax.hessian(lambda dq: function(moved(dq), *args, **kwargs))(zero)

    return derivative


def _origin(model: Model, q: ArrayLike) -> tuple[Callable[[Array], Array], Array]:
    """The function from tangent vectors at q to configurations, and the zero tangent vector."""
    moved = functools.partial(integrate, model, arguments.configuration(model, q))
    return moved, jnp.zeros(model.nv, model.dtype)
