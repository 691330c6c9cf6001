"""Coulomb's law of friction as a convex function of the velocity of the contact point."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.components import Vec3, small_product


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

    def impulses(self, u: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        """The impulses gamma (n, 3) in N s."""
        return self._projection(u).impulse().array()

    def penalty(self, u: Float[Array, "n 3"]) -> Float[Array, ""]:
        """The sum over the contacts of l(u) = R |gamma|^2 / 2 in J."""
        return jnp.sum(self._projection(u).penalty())

    def hessian_product(
        self, u: Float[Array, "n 3"], x: Float[Array, "n 3 m"]
    ) -> Float[Array, "n 3 m"]:
        """The product of the Hessian of l, (3, 3) for each contact, with m vectors x."""
        return small_product(jnp.moveaxis(self._projection(u).hessian(), 2, 0), x)

    def _projection(self, u: Array) -> Projection:
        normal, target, u_ = (Vec3.from_array(x) for x in (self.normal, self.target, u))
        return project(normal, self.conductance, target, self.mu, u_)


def project(normal: Vec3, conductance: Array, target: Vec3, mu: Array, u: Vec3) -> Projection:
    """The nearest points of Coulomb's cones; arguments as for `ContactLaw`, in components."""
    y = conductance * (target - u)
    y_n = y.dot(normal)
    y_t = y - y_n * normal
    square = y_t.dot(y_t)
    positive = square > 0
    size = jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)
    height = (y_n + mu * size) / (1 + mu * mu)
    inverse = 1 / jnp.where(positive, size, 1)
    sticks, leaves = size <= mu * y_n, mu * size <= -y_n
    return Projection(
        normal, conductance, mu, y, y_n, y_t, inverse, height, mu * inverse, sticks, leaves
    )


class Projection(NamedTuple):
    """The parts of y, and where the nearest point of the cone is.

    - `normal`, `conductance`, `mu`: of the contact;
    - `y`, `y_n`, `y_t`: y of `ContactLaw`, its normal component and its tangential part;
    - `inverse`: 1 / |y_t|, or 1 where y_t is zero; `slope`: mu / |y_t|;
    - `height`: the normal component of the nearest point on the edge of the cone;
    - `sticks`, `leaves`: whether y is in the cone, and whether zero is the nearest point.
    """

    normal: Vec3
    conductance: Array
    mu: Array
    y: Vec3
    y_n: Array
    y_t: Vec3
    inverse: Array
    height: Array
    slope: Array
    sticks: Array
    leaves: Array

    def impulse(self) -> Vec3:
        """gamma, in components."""
        along_y = self._select(1, 0, self.height * self.slope)
        along_n = self._select(0, 0, self.height * (1 - self.slope * self.y_n))
        return along_y * self.y + along_n * self.normal

    def penalty(self) -> Array:
        """`R |gamma|^2 / 2` of each contact."""
        square = self._select(self.y.dot(self.y), 0, self.height**2 * (1 + self.mu**2))
        resistance = jnp.where(self.conductance > 0, 1 / self.conductance, 0)
        return resistance * square / 2

    def power_and_curvature(self, du: Vec3) -> tuple[Array, Array]:
        """For a change du of u: the power of gamma, and the second derivative of l."""
        along_n, along_d = du.dot(self.normal), self.inverse * du.dot(self.y_t)
        along_edge = along_n + self.mu * along_d
        square = du.dot(du)
        power = self._select(du.dot(self.y), 0, self.height * along_edge)
        circle = self.height * self.slope * (square - along_n**2 - along_d**2)
        curvature = self._select(square, 0, along_edge**2 / (1 + self.mu**2) + circle)
        return power, self.conductance * curvature

    def hessian(self) -> Array:
        """The Hessian of l, (3, 3, ...): the negative derivative of gamma in u.

        With the direction d of the tangential part of y, the edge of the cone is along `n + mu d`.
        For a contact that slides, the Hessian has one part along the edge, and one part along the
        circle of the cone.
        """
        one = np.eye(3, dtype=self.y_n.dtype).reshape(3, 3, *[1] * self.y_n.ndim)
        n, d = (jnp.stack([x.x, x.y, x.z]) for x in (self.normal, self.inverse * self.y_t))
        conductance, mu, circle = (
            x[None, None] for x in (self.conductance, self.mu, self.height * self.slope)
        )
        edge = n + mu[0] * d
        along_edge = edge[:, None] * edge[None] / (1 + mu**2)
        along_circle = circle * (one - n[:, None] * n[None] - d[:, None] * d[None])
        return conductance * self._select(one, 0, along_edge + along_circle)

    def _select(self, sticks, leaves, slides):
        return jnp.where(self.sticks, sticks, jnp.where(self.leaves, leaves, slides))
