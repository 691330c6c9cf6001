"""Points of segments: the nearest points of two segments, and points that move with the ends."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax


def nearest_on_segments(
    half_a: Array, half_b: Array, c: Array, along_a: Array, along_b: Array
) -> tuple[Array, Array]:
    """The coordinates s and t in m of the nearest points along the axes of segments a and b.

    For parallel segments, the points are in the middle of the part in which they face each other.

    - `half_a`, `half_b` () in m: half the lengths of the segments; s and t are 0 in their middles;
    - `c` (): the product of the axes, which are unit vectors;
    - `along_a`, `along_b` () in m: the components along the axes of the vector from the middle of a
      to the middle of b.

    Source: Ericson (2005), Real-time collision detection, section 5.1.9, with coordinates from the
    middles of the segments.
    """

    def limited(x: Array, half: Array) -> Array:
        # On a segment without length, the point does not move. Without `stop_gradient`, `clip`
        # would halve the derivative of x where x is equal to the limit 0.
        return jnp.clip(jnp.where(half > 0, x, lax.stop_gradient(x)), -half, half)

    determinant = 1 - c * c
    crossing = determinant > 16 * jnp.finfo(c.dtype).eps
    of_lines = (along_a - c * along_b) / jnp.where(crossing, determinant, 1)
    ends = [limited(along_a + c * t, half_a) for t in (-half_b, half_b)]
    s = jnp.where(crossing, limited(of_lines, half_a), (ends[0] + ends[1]) / 2)
    t = limited(c * s - along_b, half_b)
    # If t was limited, its point is an end of b. So s is computed again for the final t.
    return limited(along_a + c * t, half_a), t


def with_end(t: Array, half: Array) -> Array:
    """The coordinate t of a point of a segment; if the point is an end, it moves with the end.

    - `t` () in m: from `-half` to `half`;
    - `half` () in m: half the length of the segment.
    """
    at_end = jnp.abs(t) >= (1 - 4 * jnp.finfo(t.dtype).eps) * half
    end = jnp.where(at_end, jnp.sign(t), 0)
    return jnp.where(end == 0, t, end * half)
