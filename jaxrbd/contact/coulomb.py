"""Coulomb's law of friction as a convex function of the velocity of the contact point."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._math.components import Vec3, rows


class ContactLaw(NamedTuple):
    """The contact impulses of n contacts for the velocities u (n, 3) of their points.

    The impulse gamma of a contact is the point of Coulomb's cone `|tangential| <= mu normal` with
    the least distance to `y = conductance (target - u)`. This point is y itself if the contact
    sticks, zero if it leaves the ground, and on the edge of the cone if it slides.

    - `normal` (n, 3): unit normals of the ground;
    - `conductance` (n,): 1 / R in kg, or 0 for a point that cannot move;
    - `target` (n, 3): the target velocities `u_target normal` in m/s;
    - `mu` (n,): the friction coefficients.
    """

    normal: Float[Array, "n 3"]
    conductance: Float[Array, " n"]
    target: Float[Array, "n 3"]
    mu: Float[Array, " n"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of u."""
        return self.normal.shape

    def impulses(self, u: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        """The impulses gamma (n, 3) in N s."""
        at = self._projection(u)
        along_y = _select(at, 1, 0, at.height * at.slope)
        along_n = _select(at, 0, 0, at.height * (1 - at.slope * at.y_n))
        return (along_y * at.y + along_n * Vec3.from_array(self.normal)).array()

    def penalty(self, u: Float[Array, "... n 3"]) -> Float[Array, "..."]:
        """The sum over the contacts of l(u) = R |gamma|^2 / 2 in J, at any number of points u."""
        at = self._projection(u)
        square = _select(at, at.y.dot(at.y), 0, at.height**2 * (1 + self.mu**2))
        resistance = jnp.where(self.conductance > 0, 1 / self.conductance, 0)
        return jnp.sum(resistance * square, axis=-1) / 2

    def hessian_product(
        self, u: Float[Array, "n 3"], x: Float[Array, "n 3 m"]
    ) -> Float[Array, "n 3 m"]:
        """The product of the Hessian of l, (3, 3) for each contact, with m vectors x.

        The Hessian is the negative derivative of gamma in u. With the direction d of the tangential
        part of y, the edge of the cone is along `n + mu d`. For a contact that slides, the Hessian
        has one part along the edge, and one part along the circle of the cone.
        """
        at, mu = self._projection(u), self.mu[:, None]
        n, d = Vec3.from_array(self.normal), at.inverse * at.y_t
        n, d = (Vec3(*(c[:, None] for c in (a.x, a.y, a.z))) for a in (n, d))
        a = Vec3(*rows(x))
        turning = _select(at, 1, 0, at.height * at.slope)[:, None]
        slides = self.conductance * jnp.where(at.sticks | at.leaves, 0, 1).astype(x.dtype)
        a_n, a_d = n.dot(a), d.dot(a)
        edge = (a_n + mu * a_d) / (1 + mu * mu)
        on_edge = (edge - turning * a_n) * n + (mu * edge - turning * a_d) * d
        product = (self.conductance[:, None] * turning) * a + slides[:, None] * on_edge
        return jnp.stack([product.x, product.y, product.z], axis=1)

    def _projection(self, u: Array) -> _Projection:
        n, mu = Vec3.from_array(self.normal), self.mu
        y = self.conductance * (Vec3.from_array(self.target) - Vec3.from_array(u))
        y_n = y.dot(n)
        y_t = y - y_n * n
        square = y_t.dot(y_t)
        positive = square > 0
        size = jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)
        height = (y_n + mu * size) / (1 + mu * mu)
        inverse = 1 / jnp.where(positive, size, 1)
        sticks, leaves = size <= mu * y_n, mu * size <= -y_n
        return _Projection(y, y_n, y_t, inverse, height, mu * inverse, sticks, leaves)


class _Projection(NamedTuple):
    """The parts of y, and where the nearest point of the cone is.

    - `y_n`, `y_t`: the normal and the tangential part of y;
    - `inverse`: 1 / |y_t|, or 1 where y_t is zero; `slope`: mu / |y_t|;
    - `height`: the normal component of the nearest point on the edge of the cone;
    - `sticks`, `leaves`: whether y is in the cone, and whether zero is the nearest point.
    """

    y: Vec3
    y_n: Array
    y_t: Vec3
    inverse: Array
    height: Array
    slope: Array
    sticks: Array
    leaves: Array


def _select(at: _Projection, sticks, leaves, slides):
    return jnp.where(at.sticks, sticks, jnp.where(at.leaves, leaves, slides))
