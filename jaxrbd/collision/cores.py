"""Cores: convex sets with a formula for the nearest point.

A shape is all points within a radius, the rounding, of its core. A sphere has a point as core, a
capsule a segment. A core states four functions of vectors (3,) in the frame of the core:

- `nearest(x)`: the point of the core that is nearest to a point x, and the derivative J (3, 3) of
  this point with respect to x. J is symmetric, with eigenvalues from 0 to 1. If x is in the core,
  the nearest point is x and J is the identity;
- `support(n)`: a point of the core that is farthest in the direction n. If there are several, it is
  the point in their middle;
- `flat_part(u, step)`: the fraction, at most 1, of the step after which a point u of the surface
  leaves the flat face or the edge that contains u;
- `extent()`: an upper bound () of the distances from the origin of the frame.

Every core is symmetric about the origin of its frame.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

# Newton's steps in `EllipsoidCore`, before the two steps that have derivatives.
_ELLIPSOID_STEPS = 5
# A point within this fraction of a size from a face is on the face.
_ON_FACE = 1e-9


class BoxCore(eqx.Module):
    """The box from `-half_sizes` (3,) to `half_sizes`. It can be a point or a segment."""

    half_sizes: Float[Array, "3"]

    def nearest(self, x: Float[Array, "3"]) -> tuple[Array, Array]:
        limit = self.half_sizes
        inside = jnp.abs(x) <= limit
        point = jnp.where(inside, x, jnp.where(x > 0, limit, -limit))
        return point, jnp.diag(inside.astype(x.dtype))

    def support(self, n: Float[Array, "3"]) -> Array:
        return _sign(n) * self.half_sizes

    def flat_part(self, u: Float[Array, "3"], step: Float[Array, "3"]) -> Array:
        return _part_in_box(u, step, self.half_sizes)

    def extent(self) -> Array:
        return jnp.sum(self.half_sizes)


class CylinderCore(eqx.Module):
    """The cylinder with a radius about the z axis, from `-half_length` to `half_length`.

    `sizes` (2,): the radius and the half length.
    """

    sizes: Float[Array, "2"]

    def nearest(self, x: Float[Array, "3"]) -> tuple[Array, Array]:
        radius, half_length = self.sizes
        height = jnp.clip(x[2], -half_length, half_length)
        square = jnp.dot(x[:2], x[:2])
        outside = square > radius * radius
        ratio = jnp.where(outside, radius / jnp.sqrt(jnp.where(outside, square, 1)), 1)
        point = jnp.concatenate([ratio * x[:2], height[None]])
        # Beside the cylinder, the nearest point moves only along the circle.
        tangent = jnp.stack([-x[1], x[0], jnp.zeros_like(height)])
        tangent = tangent / jnp.sqrt(jnp.where(outside, square, 1))
        flat = jnp.stack([~outside, ~outside, jnp.abs(x[2]) <= half_length]).astype(x.dtype)
        circle = jnp.where(outside, ratio, 0) * tangent[:, None] * tangent[None]
        return point, circle + jnp.diag(flat)

    def support(self, n: Float[Array, "3"]) -> Array:
        radius, half_length = self.sizes
        square = jnp.dot(n[:2], n[:2])
        # Along the axis, the whole end is farthest.
        tilted = square > (16 * jnp.finfo(n.dtype).eps) ** 2
        ratio = jnp.where(tilted, radius / jnp.sqrt(jnp.where(tilted, square, 1)), 0)
        return jnp.concatenate([ratio * n[:2], _sign(n[2:]) * half_length])

    def flat_part(self, u: Float[Array, "3"], step: Float[Array, "3"]) -> Array:
        to_end = _part_in_box(u[2:], step[2:], self.sizes[1:])
        # The fraction t of the step at which u + t step meets the circle, if u is in the circle.
        radius = self.sizes[0]
        room = radius * radius - jnp.dot(u[:2], u[:2])
        square, slope = jnp.dot(step[:2], step[:2]), jnp.dot(step[:2], u[:2])
        inside = (room > _ON_FACE * radius * radius) & (square > 0)
        root = jnp.sqrt(jnp.where(inside, slope * slope + square * room, 1))
        # Both forms are equal; each one subtracts no similar numbers for one sign of the slope.
        outwards = slope > 0
        first = room / jnp.where(inside & outwards, slope + root, 1)
        second = (root - slope) / jnp.where(inside, square, 1)
        to_circle = jnp.where(outwards, first, second)
        return jnp.where(inside, jnp.minimum(to_circle, to_end), to_end)

    def extent(self) -> Array:
        return jnp.sum(self.sizes)


class EllipsoidCore(eqx.Module):
    """The ellipsoid with the semi-axes `radii` (3,) along the axes of its frame."""

    radii: Float[Array, "3"]

    def nearest(self, x: Float[Array, "3"]) -> tuple[Array, Array]:
        radii = self._positive_radii()
        inside = jnp.dot(x / radii, x / radii) <= 1
        # The nearest point is y = r^2 x / (r^2 + t), with the t >= 0 for which |y / r| = 1.
        square = radii * radii
        ratio = jnp.where(inside, 1, square / (square + _multiplier(radii, x)))
        y = ratio * x
        # J = B - (B n) (B n)^T / (n^T B n), with B = diag(ratio) and the normal n = y / r^2.
        normal = y / square
        image = ratio * normal
        size = jnp.dot(normal, image)
        curved = ~inside & (size > 0)
        rank_one = (
            jnp.where(curved, 1 / jnp.where(curved, size, 1), 0) * image[:, None] * image[None]
        )
        return y, jnp.diag(ratio) - rank_one

    def support(self, n: Float[Array, "3"]) -> Array:
        scaled = self.radii * n
        square = jnp.dot(scaled, scaled)
        return self.radii * scaled / jnp.sqrt(jnp.where(square > 0, square, 1))

    def flat_part(self, u: Float[Array, "3"], step: Float[Array, "3"]) -> Array:
        return jnp.ones_like(u[0])

    def extent(self) -> Array:
        return jnp.max(self.radii)

    def _positive_radii(self) -> Array:
        """The radii, increased where their squares would vanish."""
        return jnp.maximum(self.radii, jnp.finfo(self.radii.dtype).tiny ** 0.25)


Core = BoxCore | CylinderCore | EllipsoidCore


def _multiplier(radii: Array, x: Array) -> Array:
    """The root t >= 0 of `|r x / (r^2 + t)| = 1`. Its first three derivatives are exact.

    `1 / |r x / (r^2 + t)|` increases with t, is concave and nearly linear. So Newton's method from
    a t below the root converges from below.
    """

    def newton(t, radii, x):
        denominator = radii * radii + t
        part = radii * x / denominator
        square, slope = jnp.dot(part, part), jnp.dot(part, part / denominator)
        solvable = slope > 0
        length = jnp.sqrt(jnp.where(solvable, square, 1))
        change = (length - 1) * square / jnp.where(solvable, slope, 1)
        return jnp.maximum(t + jnp.where(solvable, change, 0), 0)

    fixed = lax.stop_gradient((radii, x))
    below = fixed[0] * jnp.abs(fixed[1]) - fixed[0] * fixed[0]
    t = jnp.maximum(jnp.max(below), 0)
    t = lax.fori_loop(0, _ELLIPSOID_STEPS, lambda _, t: newton(t, *fixed), t)
    # The derivatives follow from two more steps.
    return newton(newton(t, radii, x), radii, x)


def _part_in_box(u: Array, step: Array, half_sizes: Array) -> Array:
    """`flat_part` of a box of any dimension."""
    room = jnp.where(step > 0, half_sizes - u, half_sizes + u)
    length = jnp.abs(step)
    leaves = (room > _ON_FACE * half_sizes) & (length > room)
    return jnp.min(jnp.where(leaves, room / jnp.where(leaves, length, 1), 1))


def _sign(n: Array) -> Array:
    """The signs of components of a unit vector; 0 for components that may be rounding errors."""
    return jnp.where(jnp.abs(n) > 16 * jnp.finfo(n.dtype).eps, jnp.sign(n), 0)
