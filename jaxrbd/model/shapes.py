"""Convex shapes of links and obstacles.

The origin of the frame of a shape is the middle of the shape; for a half-space it is a point of the
surface. The sizes of a shape are leaves of a pytree, so JAX can batch them and differentiate
distances with respect to them. (In `Model.geometry`, the sizes are constants.) The constructors
raise ArgumentError for a size that is negative or not finite, and for a rounding that is too large;
a size of 0 is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float

from .parameters import Parameter, parameter, require, require_not_negative

Vector = ArrayLike | Sequence[int | float]


class Sphere(eqx.Module):
    """All points within `radius` () of the origin, in m."""

    radius: Float[Parameter, ""]

    def __init__(self, radius: ArrayLike):
        self.radius = checked_size(radius, "radius")


class Capsule(eqx.Module):
    """All points within `radius` () of a segment on the z axis, in m.

    The segment extends from `-half_length` () to `half_length`.
    """

    radius: Float[Parameter, ""]
    half_length: Float[Parameter, ""]

    def __init__(self, radius: ArrayLike, half_length: ArrayLike):
        self.radius = checked_size(radius, "radius")
        self.half_length = checked_size(half_length, "half_length")


class Box(eqx.Module):
    """A box along the axes of its frame.

    - `half_sizes` (3,) in m: half the lengths of the sides, including the rounding;
    - `rounding` () in m: the radius of edges and corners, at most the smallest half size.
    """

    half_sizes: Float[Parameter, "3"]
    rounding: Float[Parameter, ""]

    def __init__(self, half_sizes: Vector, rounding: ArrayLike = 0.0):
        self.half_sizes = checked_size(half_sizes, "half_sizes", (3,))
        self.rounding = checked_size(rounding, "rounding")
        _require_room(self.half_sizes, "half_sizes", self.rounding)


class Cylinder(eqx.Module):
    """A cylinder about the z axis.

    - `radius` (), `half_length` () in m, including the rounding;
    - `rounding` () in m: the radius of the edges, at most the radius and the half length.
    """

    radius: Float[Parameter, ""]
    half_length: Float[Parameter, ""]
    rounding: Float[Parameter, ""]

    def __init__(self, radius: ArrayLike, half_length: ArrayLike, rounding: ArrayLike = 0.0):
        self.radius = checked_size(radius, "radius")
        self.half_length = checked_size(half_length, "half_length")
        self.rounding = checked_size(rounding, "rounding")
        _require_room(self.radius, "radius", self.rounding)
        _require_room(self.half_length, "half_length", self.rounding)


class Ellipsoid(eqx.Module):
    """An ellipsoid with the semi-axes `radii` (3,) along the axes of its frame, in m.

    `rounding` () in m: all points within this distance of the ellipsoid belong to the shape, so the
    shape extends beyond the radii. Distances are exact if the largest radius is at most 100 times
    the smallest one.
    """

    radii: Float[Parameter, "3"]
    rounding: Float[Parameter, ""]

    def __init__(self, radii: Vector, rounding: ArrayLike = 0.0):
        self.radii = checked_size(radii, "radii", (3,))
        self.rounding = checked_size(rounding, "rounding")


class HalfSpace(eqx.Module):
    """All points with z at most 0 in its frame: a ground, a wall or a ceiling."""


def checked_size(x: Vector, name: str, shape: tuple[int, ...] = ()) -> Parameter:
    """A size in m as an array.

    Raises ArgumentError, which names the size, if it has another shape, is negative or not finite.
    """
    size = parameter(x, name, shape)
    require_not_negative(size, name)
    return size


def _require_room(size: Parameter, name: str, rounding: Parameter) -> None:
    """Raise ArgumentError for a size below the rounding, unless JAX traces one of them."""
    if not isinstance(rounding, Tracer):
        least = float(rounding)
        require(size, lambda x: x >= least, name, f"{least} or more, the rounding")
