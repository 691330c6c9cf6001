"""State spaces: sets of states, which move along tangent vectors."""

from __future__ import annotations

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import PyTree

from ..configuration import difference, integrate
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.names import described


class Space(eqx.Module):
    """A set of states, each with a tangent space of vectors (n,).

    `size` is n. Near a state, `retract` and `difference` are inverse to each other. The derivative
    of `retract(x, dx)` by dx is the identity at dx = 0, and so is the derivative of
    `difference(x0, x1)` by x1 at x1 = x0. A space that defines `parts` also defines `move`.
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The dimension n of the tangent space."""

    @abc.abstractmethod
    def retract(self, x: PyTree, dx: Array) -> PyTree:
        """The state x, moved along the tangent vector dx (n,)."""

    @property
    def parts(self) -> tuple[int, ...]:
        """The sizes of the parts of a tangent vector that `move` takes; their sum is n."""
        return (self.size,)

    def move(self, x: PyTree, *parts: Array) -> PyTree:
        """`retract(x, dx)`, where dx consists of the parts, one after another.

        The parts are separate arguments, so JAX computes no derivatives by parts that a function
        does not use. For example, a cost of q needs no derivatives by the change of v.
        Raises ArgumentError for another number of parts.
        """
        _require_parts(self, parts)
        return self.retract(x, *parts)

    @abc.abstractmethod
    def difference(self, x0: PyTree, x1: PyTree) -> Array:
        """The tangent vector (n,) that moves the state x0 to the state x1."""

    @abc.abstractmethod
    def checked(self, x: PyTree, name: str) -> PyTree:
        """The state x as arrays. Raises ArgumentError, which names it `name`, for a wrong state."""


class VectorSpace(Space):
    """The space of vectors (n,), which move to x + dx; `vector_space` makes it."""

    dimension: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.dimension

    def retract(self, x, dx):
        return self.checked(x, "x") + self.checked(dx, "dx")

    def difference(self, x0, x1):
        return self.checked(x1, "x1") - self.checked(x0, "x0")

    def checked(self, x, name):
        return arguments.floats(x, name, (self.size,))


class RobotStateSpace(Space):
    """The states (q, v) of a robot; `state_space` makes it.

    A tangent vector (2 nv,) has a displacement dq (nv,) and a change dv (nv,) of the velocity. The
    configuration moves to `jaxrbd.integrate(model, q, dq)`, so quaternions keep unit length.
    """

    model: Model

    @property
    def size(self) -> int:
        return 2 * self.model.nv

    @property
    def parts(self):
        return self.model.nv, self.model.nv

    def retract(self, x, dx):
        return self.move(x, *jnp.split(_tangent_vector(self, dx), 2))

    def move(self, x, *parts):
        _require_parts(self, parts)
        (q, v), (dq, dv) = self.checked(x, "x"), parts
        dv = arguments.velocity(self.model, dv, "dv")
        return integrate(self.model, q, dq), v + dv

    def difference(self, x0, x1):
        (q0, v0), (q1, v1) = self.checked(x0, "x0"), self.checked(x1, "x1")
        return jnp.concatenate([difference.unchecked(self.model, q0, q1), v1 - v0])

    def checked(self, x, name):
        if not isinstance(x, (tuple, list)) or len(x) != 2:
            dtype = getattr(x, "dtype", None)
            what = described(x) + (f" and dtype {dtype}" if dtype is not None else "")
            sizes = f"({self.model.nq},) and ({self.model.nv},)"
            raise ArgumentError(
                f"{name} is {what}, expected the pair (q, v) of arrays of shapes {sizes}"
            )
        q = arguments.configuration(self.model, x[0], f"{name}[0]")
        values = arguments.known(q)
        if values is not None:
            arguments.nonzero_quaternions(f"{name}[0]", values, self.model)
        return q, arguments.velocity(self.model, x[1], f"{name}[1]")


class ProductSpace(Space):
    """The space of tuples with one state per factor; `product_space` makes it.

    A tangent vector consists of the tangent vectors of the factors, one after another.
    """

    factors: tuple[Space, ...]

    @property
    def size(self) -> int:
        return sum(space.size for space in self.factors)

    @property
    def parts(self):
        return tuple(n for space in self.factors for n in space.parts)

    def retract(self, x, dx):
        parts = jnp.split(_tangent_vector(self, dx), np.cumsum(self.parts)[:-1])
        return self.move(x, *parts)

    def move(self, x, *parts):
        _require_parts(self, parts)
        rest, factors = iter(parts), zip(self.factors, self.checked(x, "x"))
        return tuple(space.move(y, *(next(rest) for _ in space.parts)) for space, y in factors)

    def difference(self, x0, x1):
        factors = zip(self.factors, self.checked(x0, "x0"), self.checked(x1, "x1"))
        return jnp.concatenate([space.difference(y0, y1) for space, y0, y1 in factors])

    def checked(self, x, name):
        states, n = arguments.sequence(x, name, "states"), len(self.factors)
        if len(states) != n:
            raise ArgumentError(f"{name} has {len(states)} entries, expected {n} states")
        return tuple(
            space.checked(y, f"{name}[{i}]")
            for i, (space, y) in enumerate(zip(self.factors, states))
        )


def _require_parts(space: Space, parts: tuple) -> None:
    """Raise ArgumentError if `move` has another number of parts."""
    if len(parts) != len(space.parts):
        raise ArgumentError(f"move has {len(parts)} parts, expected {len(space.parts)}")


def _tangent_vector(space: Space, dx: ArrayLike) -> Array:
    """dx as an array (n,). Raises ArgumentError for another shape."""
    dx = arguments.as_array(dx, "dx")
    if dx.shape != (space.size,):
        raise ArgumentError(f"dx has shape {dx.shape}, expected ({space.size},)")
    return dx


def state_space(model: Model) -> RobotStateSpace:
    """The space of the states (q, v) of a robot, with tangent vectors (2 nv,)."""
    return RobotStateSpace(arguments.robot(model))


def vector_space(n: int) -> VectorSpace:
    """The space of vectors (n,). Raises ArgumentError unless n is an int of 1 or more."""
    arguments.require_counts(n=n)
    return VectorSpace(n)


def product_space(*spaces: Space) -> ProductSpace:
    """The space of tuples with one state of each space.

    For example, `product_space(state_space(model), vector_space(1))` has the states ((q, v), z)
    with a vector z (1,), such as the duration of the motion. x0 fixes z at the first stage. To let
    the solver choose z, replace it by a control in the dynamics of the first stage. Raises
    ArgumentError for no spaces, and for an object that is no `Space`.
    """
    if not spaces:
        raise ArgumentError("product_space has no spaces, expected at least one")
    for i, space in enumerate(spaces):
        arguments.require_type(space, f"spaces[{i}]", Space)
    return ProductSpace(spaces)


__all__ = [
    "ProductSpace",
    "RobotStateSpace",
    "Space",
    "VectorSpace",
    "product_space",
    "state_space",
    "vector_space",
]
