"""Grounds: surfaces that are defined by the distance of a point."""

from __future__ import annotations

import abc

import equinox as eqx
from jax import Array
from jaxtyping import Float


class Ground(eqx.Module):
    """A surface, defined by the distance of a point from the surface, positive outside.

    A subclass defines `distance`. The gradient of the distance gives the normal, so the gradient
    must not be zero near the surface.
    """

    @abc.abstractmethod
    def distance(self, x: Float[Array, "3"]) -> Float[Array, ""]:
        """Distance in m of the point x, in world axes, from the surface."""


class Terrain(Ground):
    """A ground with exactly one height z at each (x, y), the elevation.

    A subclass defines `distance` and `elevation`. The z axis of the world points outwards.
    """

    @abc.abstractmethod
    def elevation(self, xy: Float[Array, "2"]) -> Float[Array, ""]:
        """The height z of the surface at xy, in m, in world axes."""
