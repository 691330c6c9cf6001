"""The nearest points of two cores that do not overlap.

Let P_A and P_B be the maps from a point to the nearest point of the cores a and b. The points u of
b and P_A(u) of a are nearest to each other if `u = P_B(P_A(u))`. This u is the minimum over b of
the convex function `|u - P_A(u)|^2 / 2`. Each iteration compares u with two candidates:

1. `P_B(P_A(u))`. The sequence of these points converges, but slowly if surfaces are nearly parallel
   (Cheney and Goldstein, 1959);
2. the point of least distance along the step of Newton's method for `u = P_B(P_A(u))`. The step is
   shortened so that u does not leave its flat face.

For polyhedra, candidate 2 is exact once both points are on the right faces, so the iterations end.
For curved surfaces the convergence is quadratic. No step depends on the kinds of the cores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._math.linear import matmul

# Steps of the line search along a step of Newton's method.
_SEARCH_STEPS = 4


class CorePair(NamedTuple):
    """Cores a and b. R (3, 3) and p (3,): the orientation and the origin of a in the frame of b.

    All vectors are in the frame of b.
    """

    a: Any  # a Core
    b: Any
    R: Array
    p: Array

    def nearest_in_a(self, x: Array) -> tuple[Array, Array]:
        """The point of a that is nearest to x, and its derivative in the frame of a."""
        point, J = self.a.nearest(matmul(x - self.p, self.R))
        return matmul(self.R, point) + self.p, J

    def separation(self, n: Array) -> Array:
        """The width of the gap between a and b along n, the direction from a to b.

        If a and b overlap along n, it is minus the width of the overlap.
        """
        n_a = matmul(n, self.R)
        top_of_a, bottom_of_b = jnp.dot(n_a, self.a.support(n_a)), jnp.dot(n, self.b.support(-n))
        return bottom_of_b - top_of_a - jnp.dot(n, self.p)

    def width(self, n: Array) -> Array:
        """`separation(n)` from the heights of the cores, which takes less time, for searches.

        Where several points are farthest, its derivative is not the derivative of `separation`.
        """
        heights = self.a.height(matmul(n, self.R)) + self.b.height(-n)
        return -heights - jnp.dot(n, self.p)

    def moved(self, s: Array) -> CorePair:
        """The pair after b has moved by s."""
        return self._replace(p=self.p - s)


class Linearization(NamedTuple):
    """The map `P_B(P_A(u))` at u.

    - `image` (3,): the value; `M` (3, 3): the derivative of `u - P_B(P_A(u))`;
    - `J_a`, `J_b` (3, 3): the derivatives of P_A and P_B.
    """

    image: Array
    M: Array
    J_a: Array
    J_b: Array


def linearization(pair: CorePair, u: Array) -> Linearization:
    """The map `P_B(P_A(u))` and its derivative."""
    a, J = pair.nearest_in_a(u)
    J_a = matmul(matmul(pair.R, J), pair.R.T)
    image, J_b = pair.b.nearest(a)
    return Linearization(image, jnp.eye(3, dtype=u.dtype) - matmul(J_b, J_a), J_a, J_b)


def nearest_point(pair: CorePair, u: Array, iterations: int = 60) -> tuple[Array, Array]:
    """The point of b that is nearest to a, and whether more iterations would improve it.

    `u` (3,): the point of b from which the iterations start. If the cores overlap, the result is a
    point of both.
    """

    def body(state):
        candidates, _, count = state
        u, closer = closest(pair, candidates)
        return jnp.stack([*_candidates(pair, u), u]), closer | (count == 0), count + 1

    def unfinished(state):
        return state[1] & (state[2] < iterations)

    # An iteration computes candidates, and the next iteration compares them. So the candidates are
    # stored before they are compared. Otherwise XLA may compute them again in each kernel that
    # reads them, with other rounding errors, and the entries of the result may come from different
    # candidates.
    start = jnp.stack([u, u, u]), jnp.ones((), bool), jnp.zeros((), jnp.int32)
    candidates, improving, _ = lax.while_loop(unfinished, body, start)
    return candidates[-1], improving


def closest(pair: CorePair, candidates: Array) -> tuple[Array, Array]:
    """The first of the candidates (k, 3) with the least distance to a, within rounding errors.

    The second result is whether it is closer than the last candidate by more than rounding errors.
    """
    gap = candidates - jax.vmap(lambda x: pair.nearest_in_a(x)[0])(candidates)
    square = jnp.sum(gap * gap, axis=1)
    # Below this tolerance the squares differ by rounding errors only.
    eps, length = jnp.finfo(gap.dtype).eps, jnp.sqrt(square[-1])
    tolerance = 8 * eps * length * (length + pair.a.extent() + pair.b.extent())
    best = jnp.argmax(square <= jnp.min(square) + tolerance)
    return candidates[best], square[best] < square[-1] - tolerance


def _candidates(pair: CorePair, u: Array) -> tuple[Array, Array]:
    """The two candidates of an iteration, see the head of the module."""
    at_u = linearization(pair, u)
    eps = jnp.finfo(u.dtype).eps
    # M has eigenvalues from 0 to 1. A zero belongs to parallel faces, where any point is nearest.
    newton = matmul(inverse(at_u.M + eps**0.75 * jnp.eye(3, dtype=u.dtype)), at_u.image - u)
    end, _ = pair.b.nearest(u + pair.b.flat_part(u, newton) * newton)
    step = end - u
    # Newton's method for a zero slope of half |x - P_A(x)|^2 along the step. The slope increases
    # along the step, at different rates for different faces. The search begins at the end of the
    # step, and stays there if the slope is not positive.
    step_a, square = matmul(step, pair.R), jnp.dot(step, step)
    noise = 4 * eps * jnp.sqrt(square) * (pair.a.extent() + pair.b.extent())

    def search(_, state):
        fraction, _, low, high = state
        x = u + fraction * step
        nearest, J = pair.nearest_in_a(x)
        slope, curvature = jnp.dot(x - nearest, step), square - jnp.dot(step_a, matmul(J, step_a))
        falls = slope <= noise
        low, high = jnp.where(falls, fraction, low), jnp.where(falls, high, fraction)
        curved = curvature > 64 * eps * square
        root = fraction - slope / jnp.where(curved, curvature, 1)
        is_root = curved & (root > low) & (root < high)
        fraction = jnp.where(is_root, root, jnp.where(low == 1, 1, (low + high) / 2))
        return fraction, is_root, low, high

    zero, one = jnp.zeros_like(square), jnp.ones_like(square)
    state = one, jnp.zeros((), bool), zero, one
    fraction, is_root, low, _ = lax.fori_loop(0, _SEARCH_STEPS, search, state)
    # No iteration has evaluated the last point. If it is the middle of an interval, `low` is safer:
    # the distance decreases from 0 to `low`.
    fraction = jnp.where(is_root | (low == 0), fraction, low)
    return u + fraction * step, at_u.image


def inverse(M: Array) -> Array:
    """The inverse of a matrix (3, 3); the adjugate if the determinant is 0."""
    rolled = {(i, j): jnp.roll(M, (-i, -j), (0, 1)) for i in (1, 2) for j in (1, 2)}
    cofactors = rolled[1, 1] * rolled[2, 2] - rolled[1, 2] * rolled[2, 1]
    determinant = jnp.dot(M[0], cofactors[0])
    return cofactors.T / jnp.where(determinant == 0, 1, determinant)
