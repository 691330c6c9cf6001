"""Rigid contact: a time step whose velocity minimizes one convex function.

There is no complementarity problem. Let M be the mass matrix, `u = J v` the velocities of the
contact points, and `free` the velocity after the step without contact. The velocity after the step
is

    v+ = argmin  (v - free)^T M (v - free) / 2 + sum over contacts of l(u).

The function l is convex and once differentiable. Its negative gradient is the contact impulse

    gamma = projection on Coulomb's cone of  y = (u_target n - u) / R,     l = R |gamma|^2 / 2,

where n is the normal of the ground. `contact_step` defines `u_target`. The impulse is zero for a
point that leaves the ground, y for a point that sticks, and on the edge of the cone for a point
that slides. R is a small compliance, a fraction of the inverse inertia at the contact. R makes l
finite and differentiable.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import einsum, matmul, solve_positive_definite
from ..algorithms.common_frame import dof_columns
from ..algorithms.crba import crba
from ..algorithms.kinematics import Kinematics, forward_kinematics, root_centred
from ..algorithms.rnea import bias_force
from ..configuration import integrate
from ..model import Model, arguments
from ..model.joint_space import independent_force
from ..spatial import rotate
from .scene import Scene, contact_points, cross, tangential


class ContactStep(NamedTuple):
    """The state after a time step, and the contact impulses in the step.

    - `q` (nq,), `v` (nv,): the state after the step;
    - `distance` (n,): the distance of each sphere from the ground before the step, in m;
    - `impulse` (n, 3): the contact impulse on each sphere, in N s, in world axes;
    - `residual` (): the size of the last Newton step relative to the velocity, both in the norm of
      the kinetic energy. It is below `TOLERANCE` times the eps of the dtype if the solver
      converged.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    distance: Float[Array, " n"]
    impulse: Float[Array, "n 3"]
    residual: Float[Array, ""]


TOLERANCE = 1000
MAX_STEPS = 50
HALVINGS = 12


@arguments.compiled(
    checks={
        "dt": arguments.POSITIVE,
        "regularisation": arguments.POSITIVE,
        "recovery": arguments.NOT_NEGATIVE,
    }
)
def contact_step(
    model: Model,
    scene: Scene,
    q: ArrayLike | Kinematics,
    v: ArrayLike,
    tau: ArrayLike,
    dt: ArrayLike,
    f_ext: ArrayLike | None = None,
    regularisation: ArrayLike = 1e-3,
    recovery: ArrayLike = 0.02,
) -> ContactStep:
    """One time step of a robot on rigid ground with Coulomb friction.

    - `q` (nq,), `v` (nv,), `tau` (nv,), `f_ext` (nb, 6): as for `forward_dynamics`;
    - `dt` in s, more than 0;
    - `regularisation`, more than 0: R of a contact divided by the inverse inertia at the contact,
      which is the mean of the diagonal of `J M^-1 J^T`;
    - `recovery` in s, 0 or more: the depth of a sphere in the ground decays with the time constant
      `dt + recovery`.

    The velocity v+ after the step minimizes the convex function at the head of the module
    `contact/convex.py`, and `q+ = integrate(q, dt v+)`. The target velocity along the normal is
    `u_target = -distance / dt` for a sphere outside the ground, and `-distance / (dt + recovery)`
    for a sphere in the ground. If the gradient of the distance does not have the length 1, the
    distance in these formulas is divided by the length of the gradient. Of the material, only the
    friction coefficient mu is used.

    Consequences, to first order in dt:

    - the distance after a step is at least `-dt R gamma_n` for a sphere that was outside the
      ground; at rest, the depth of a sphere is `(dt + recovery) R gamma_n`;
    - a contact that sticks creeps at the speed `R gamma_t`;
    - the convex form of friction has two errors: a sphere that slides at the speed u stays at the
      distance `dt mu u` above the ground, and a sphere that lands while sliding leaves the ground
      with a speed of up to mu u;
    - the impulses dissipate kinetic energy, except that the impulse on a sphere in the ground can
      add an energy of at most `gamma_n u_target`;
    - there is no restitution.

    JAX can differentiate the result with respect to all arguments, to any order. It differentiates
    the minimizing velocity as an implicit function (`lax.custom_root`), and not the iterations. The
    derivatives jump where a contact changes from sticking to sliding or to leaving. There, the
    derivative of one side is returned. The derivatives also jump at the distance 0, because
    `u_target` has different slopes inside and outside the ground. Raises ArgumentError for an
    unknown frame or a parameter out of its range; traced parameters out of their range give NaN.
    Source: Todorov (2014), Convex and analytically-invertible dynamics with contacts and
    constraints; Castro, Permenter and Han (2022), An unconstrained convex formulation of compliant
    contact. Here R is isotropic.
    """
    v, tau = arguments.velocity(model, v), arguments.velocity(model, tau, "tau")
    dt = arguments.POSITIVE.or_nan(arguments.number(model, dt, "dt"))
    regularisation = arguments.number(model, regularisation, "regularisation")
    regularisation = arguments.POSITIVE.or_nan(regularisation)
    recovery = arguments.NOT_NEGATIVE.or_nan(arguments.number(model, recovery, "recovery"))
    dt = jnp.where(jnp.isnan(recovery), recovery, dt)  # NaN even if no sphere touches
    kinematics = forward_kinematics(model, q)
    points = contact_points(model, scene, kinematics, v)
    normal, length = points.normal, jnp.sqrt(jnp.sum(points.gradient**2, axis=-1))
    mu = arguments.number(model, scene.material.friction, "friction")

    J = _jacobian(model, scene, kinematics, points.arm)
    M = crba(model, kinematics)
    force = tau - bias_force(model, kinematics, v, f_ext)
    columns = jnp.concatenate([force[:, None], J.reshape(-1, model.nv).T], axis=1)
    solved = solve_positive_definite(M, columns)
    free = v + dt * solved[:, 0]
    mobility = jnp.sum(J * solved[:, 1:].T.reshape(J.shape), axis=(1, 2)) / 3
    # A point on the axis of its only joint cannot move, and an impulse on it has no effect.
    moves = mobility > 0
    conductance = jnp.where(moves, 1 / (regularisation * jnp.where(moves, mobility, 1)), 0)
    slack = jnp.where(points.distance < 0, dt + recovery, dt)
    target = (-points.distance / (length * slack))[:, None] * normal
    problem = _Problem(M, free, J, normal, conductance, target, mu)

    def solve_tangent(linear, b):
        return solve_positive_definite(jax.jacfwd(linear)(jnp.zeros_like(b)), b)

    v_next, residual = lax.custom_root(
        problem.gradient, v, lambda _, v: _minimum(problem, v), solve_tangent, has_aux=True
    )
    impulse = problem.impulses(matmul(J, v_next))
    return ContactStep(
        integrate(model, kinematics.q, dt * v_next), v_next, points.distance, impulse, residual
    )


class _Problem(NamedTuple):
    """The convex function of the velocities v (nv,), with n contacts; see the head of the module.

    `conductance` (n,): 1 / R, or 0 for a point that cannot move; `target` (n, 3): `u_target n`.
    """

    M: Array
    free: Array
    J: Array
    normal: Array
    conductance: Array
    target: Array
    mu: Array

    def impulses(self, u: Array) -> Array:
        """The impulses gamma (n, 3) for velocities u (n, 3) of the contact points."""
        return _on_cone(self.conductance[:, None] * (self.target - u), self.normal, self.mu)

    def gradient(self, v: Array) -> Array:
        """The gradient (nv,): the change of momentum minus the impulses of the contacts."""
        return matmul(self.M, v - self.free) - self._joint_impulse(self.impulses(matmul(self.J, v)))

    def hessian(self, v: Array) -> Array:
        slope = jax.vmap(jax.jacfwd(_on_cone), (0, 0, None))
        y = self.conductance[:, None] * (self.target - matmul(self.J, v))
        G = self.conductance[:, None, None] * slope(y, self.normal, self.mu)
        n = self.J.shape[-1]
        GJ = matmul(G, self.J)
        return self.M + matmul(self.J.reshape(-1, n).T, GJ.reshape(-1, n))

    def increase(self, v: Array, step: Array, fractions: Array) -> Array:
        """The increase (k,) of the function from v to v + fraction * step, for k fractions."""
        u, du = matmul(self.J, v), matmul(self.J, step)
        M_step = matmul(self.M, step)
        linear, quadratic = matmul(M_step, v - self.free), matmul(M_step, step) / 2

        def penalty(fraction):
            impulse = self.impulses(u + fraction * du)
            compliance = jnp.where(self.conductance > 0, 1 / self.conductance, 0)
            return jnp.sum(compliance * jnp.sum(impulse**2, axis=-1)) / 2

        contacts = jax.vmap(penalty)(fractions) - penalty(jnp.zeros_like(fractions[0]))
        return fractions * linear + fractions**2 * quadratic + contacts

    def _joint_impulse(self, impulse: Array) -> Array:
        return einsum("nij,ni->j", self.J, impulse)


def _on_cone(y: Array, normal: Array, mu: Array) -> Array:
    """The point (..., 3) of the cone `|tangential| <= mu normal` with the least distance to y."""
    y_n = jnp.sum(normal * y, axis=-1, keepdims=True)
    y_t = tangential(normal, y)
    square = jnp.sum(y_t * y_t, axis=-1, keepdims=True)
    size = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    sticks, leaves = size <= mu * y_n, mu * size <= -y_n
    direction = y_t / jnp.where(size > 0, size, 1)
    edge = (y_n + mu * size) / (1 + mu * mu) * (normal + mu * direction)
    return jnp.where(sticks, y, jnp.where(leaves, 0, edge))


def _minimum(problem: _Problem, start: Array) -> tuple[Array, Array]:
    """The minimizing velocity (nv,) and the residual of `ContactStep`, by Newton's method.

    Each step is halved until the function decreases by enough.
    """
    eps = float(jnp.finfo(start.dtype).eps)
    fractions = jnp.asarray(0.5 ** np.arange(HALVINGS), start.dtype)

    def unfinished(state):
        count, _, residual = state
        return (count < MAX_STEPS) & (residual > TOLERANCE * eps)

    def newton(state):
        count, v, _ = state
        slope = problem.gradient(v)
        step = -solve_positive_definite(problem.hessian(v), slope)
        decrement = -matmul(slope, step)
        growth = problem.increase(v, step, fractions)
        # Near the minimum the growth is below rounding errors. The last term then accepts the whole
        # step.
        energy = jnp.maximum(_energy(problem, v), _energy(problem, problem.free))
        enough = growth <= -0.1 * fractions * decrement + 10 * eps * energy
        v = v + fractions[jnp.argmax(enough)] * step
        size = jnp.sqrt(jnp.maximum(decrement, 0))
        scale = jnp.sqrt(jnp.maximum(energy, jnp.finfo(v.dtype).tiny))
        return count + 1, v, size / scale

    infinite = jnp.full((), jnp.inf, start.dtype)
    _, v, residual = lax.while_loop(unfinished, newton, (jnp.zeros((), int), start, infinite))
    return v, residual


def _energy(problem: _Problem, v: Array) -> Array:
    return matmul(v, matmul(problem.M, v))


def _jacobian(model: Model, scene: Scene, kinematics: Kinematics, arm: Array) -> Array:
    """The Jacobians (n, 3, nv) of the velocities of the contact points in world axes."""
    bodies, dof_body = scene.bodies(model), model.topology.dof_body
    X = root_centred(kinematics)
    columns = dof_columns(model, X)[:, None]
    positions = X.p[bodies] + rotate(X.R[bodies], arm)
    rows = columns[..., :3] + cross(columns[..., 3:], positions)
    moves = model.topology.supports[np.ix_(dof_body, bodies)]
    rows = independent_force(model, kinematics.q, jnp.where(moves[..., None], rows, 0))
    return jnp.transpose(rows, (1, 2, 0))
