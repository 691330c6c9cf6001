"""Coulomb's law of friction as a convex function of the velocity of the contact point."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.components import Vec3, small_product, stack
from .._math.linear import einsum
from .._math.ranks import minus, plus, times


class ContactVector(NamedTuple):
    """Velocities or impulses of contacts, in components.

    - `linear`: a vector;
    - `spin`: the components of torsional and rolling friction, see `ContactLaw.spin`; () without
      such friction.
    """

    linear: Vec3
    spin: tuple[Array, ...]

    @classmethod
    def from_array(cls, x: Float[Array, "n d"]) -> ContactVector:
        """The components of an array with the three linear components first."""
        components = jnp.unstack(x, axis=-1)
        return cls(Vec3(*components[:3]), components[3:])

    @property
    def components(self) -> tuple[Array, ...]:
        """The components x, y, z of the vector, then the components of the spin."""
        return (*self.linear.components, *self.spin)

    def dot(self, b: ContactVector) -> Array:
        """The sum of the products of all components."""
        spins = (times(x, y) for x, y in zip(self.spin, b.spin))
        return functools.reduce(plus, spins, self.linear.dot(b.linear))


class ContactLaw(NamedTuple):
    """The contact impulses of n contacts for the velocities u (n, 3 + s) of their points.

    The impulse gamma of a contact is the point of Coulomb's cone `|tangential| <= mu normal` with
    the least distance to `y = conductance (target - u)`. This point is y itself if the contact
    sticks, zero if it leaves the ground, and on the surface of the cone if it slides.

    A contact with torsional or rolling friction has s more velocities, `spin w`, where w is the
    relative angular velocity. They count as tangential velocities. The impulse on them is the
    moment `spin^T gamma`.

    - `normal` (n, 3): unit normals of the ground;
    - `conductance` (n,): 1 / R in kg, or 0 for a point that cannot move and for a soft contact
      that does not act;
    - `target` (n, 3 + s): the target velocities in m/s. For rigid contact they are
      `u_target normal`, and zero for `spin w`;
    - `mu` (n,): the friction coefficients;
    - `spin` (n, s, 3) in m: s is 0, 1 or 3; see `Scene.spin`.
    """

    normal: Float[Array, "n 3"]
    conductance: Float[Array, " n"]
    target: Float[Array, "n d"]
    mu: Float[Array, " n"]
    spin: Float[Array, "n s 3"]

    def impulses(self, u: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The impulses gamma (n, 3 + s) in N s."""
        return stack(*self._projection(u).impulse().components)

    def approach(self, u: Float[Array, "n d"]) -> Float[Array, " n"]:
        """A speed in m/s for each contact: its impulse is zero where the speed is not positive.

        It is the normal component of `target - u` plus mu times the norm of the tangential
        components, and -inf for a conductance of 0.
        """
        normal = Vec3.from_array(self.normal)
        missing, spin = ContactVector.from_array(self.target - u)
        along_normal = missing.dot(normal)
        tangential = ContactVector(missing - along_normal * normal, spin)
        speed = along_normal + self.mu * jnp.sqrt(tangential.dot(tangential))
        return jnp.where(self.conductance > 0, speed, -jnp.inf)

    def penalty(self, u: Float[Array, "n d"]) -> Float[Array, ""]:
        """The sum over the contacts of l(u) = R |gamma|^2 / 2 in J."""
        return jnp.sum(self._projection(u).penalty())

    def hessian_product(
        self, u: Float[Array, "n d"], x: Float[Array, "n d m"]
    ) -> Float[Array, "n d m"]:
        """The product of the Hessian of l, (d, d) for each contact, with m vectors x."""
        return small_product(jnp.moveaxis(self._projection(u).hessian(), 2, 0), x)

    def _projection(self, u: Array) -> Projection:
        target, u_parts = (ContactVector.from_array(x) for x in (self.target, u))
        return project(Vec3.from_array(self.normal), self.conductance, target, self.mu, u_parts)


def with_spins(
    spin: Float[Array, "n s 3"],
    linear: Float[Array, "n 3 ..."],
    angular: Float[Array, "n 3 ..."],
) -> Float[Array, "n d ..."]:
    """The velocities u of contacts.

    `linear`: the relative velocities of the contact points; `angular`: the relative angular
    velocities of the bodies. More axes, such as those of Jacobians, may follow. `spin`: as in
    `ContactLaw`.
    """
    if not spin.shape[1]:
        return linear
    return jnp.concatenate([linear, einsum("nsi,ni...->ns...", spin, angular)], axis=1)


def spin_moments(spin: Float[Array, "n s 3"], f: Float[Array, "n d"]) -> Float[Array, "n 3"]:
    """The moments (n, 3) about the contact points of forces or impulses f (n, 3 + s)."""
    return einsum("nsi,ns->ni", spin, f[:, 3:])


def project(
    normal: Vec3, conductance: Array, target: ContactVector, mu: Array, u: ContactVector
) -> Projection:
    """The points of Coulomb's cones nearest to y; arguments as for `ContactLaw`, in components."""
    spins = (minus(t, x) for t, x in zip(target.spin, u.spin))
    y = ContactVector(
        conductance * (target.linear - u.linear), tuple(times(conductance, x) for x in spins)
    )
    y_n = y.linear.dot(normal)
    y_t = y._replace(linear=y.linear - y_n * normal)
    square = y_t.dot(y_t)
    positive = square > 0
    size = jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)
    height = (y_n + mu * size) / (1 + mu * mu)
    inverse = 1 / jnp.where(positive, size, 1)
    # With `<=`, all contacts without friction and tangential velocity would stick, also those of
    # shapes that are apart.
    sticks, leaves = size < mu * y_n, mu * size <= -y_n
    return Projection(
        normal, conductance, mu, y, y_n, y_t, inverse, height, mu * inverse, sticks, leaves
    )


class Projection(NamedTuple):
    """The parts of y, and the nearest point of the cone.

    - `normal`, `conductance`, `mu`: of the contact;
    - `y`, `y_n`, `y_t`: y of `ContactLaw`, its normal component and its tangential part;
    - `inverse`: 1 / |y_t|, or 1 where y_t is zero; `slope`: mu times `inverse`;
    - `height`: the normal component of the nearest point on the surface of the cone;
    - `sticks`, `leaves`: whether y is in the cone, and whether zero is the nearest point.
    """

    normal: Vec3
    conductance: Array
    mu: Array
    y: ContactVector
    y_n: Array
    y_t: ContactVector
    inverse: Array
    height: Array
    slope: Array
    sticks: Array
    leaves: Array

    def impulse(self) -> ContactVector:
        """gamma, in components."""
        along_y = self._select(1, 0, self.height * self.slope)
        along_n = self._select(0, 0, self.height * (1 - self.slope * self.y_n))
        return ContactVector(
            along_y * self.y.linear + along_n * self.normal,
            tuple(along_y * x for x in self.y.spin),
        )

    def penalty(self) -> Array:
        """`R |gamma|^2 / 2` of each contact."""
        square = self._select(self.y.dot(self.y), 0, self.height**2 * (1 + self.mu**2))
        resistance = jnp.where(self.conductance > 0, 1 / self.conductance, 0)
        return resistance * square / 2

    def power_and_curvature(self, du: ContactVector) -> tuple[Array, Array]:
        """For a change du of u: the power `gamma . du`, and the second derivative of l along du."""
        along_n, along_d = du.linear.dot(self.normal), self.inverse * du.dot(self.y_t)
        along_line = along_n + self.mu * along_d
        square = du.dot(du)
        power = self._select(du.dot(self.y), 0, self.height * along_line)
        circle = self.height * self.slope * (square - along_n**2 - along_d**2)
        curvature = self._select(square, 0, along_line**2 / (1 + self.mu**2) + circle)
        return power, self.conductance * curvature

    def hessian(self) -> Array:
        """The Hessian of l, (d, d, ...): the negative derivative of gamma with respect to u.

        With the direction d of the tangential part of y, the line on the cone through gamma is
        along `n + mu d`. For a contact that slides, the Hessian has one part along this line, and
        one part along the circle on the cone through gamma.
        """
        size = len(self.y.components)
        one = np.eye(size, dtype=self.y_n.dtype).reshape(size, size, *[1] * self.y_n.ndim)
        no_spin = [jnp.zeros_like(self.normal.x)] * len(self.y.spin)
        n = jnp.stack([*self.normal.components, *no_spin])
        d = jnp.stack([self.inverse * x for x in self.y_t.components])
        conductance, mu, circle = (
            x[None, None] for x in (self.conductance, self.mu, self.height * self.slope)
        )
        line = n + mu[0] * d
        along_line = line[:, None] * line[None] / (1 + mu**2)
        along_circle = circle * (one - n[:, None] * n[None] - d[:, None] * d[None])
        return conductance * self._select(one, 0, along_line + along_circle)

    def _select(self, sticks, leaves, slides):
        return jnp.where(self.sticks, sticks, jnp.where(self.leaves, leaves, slides))
