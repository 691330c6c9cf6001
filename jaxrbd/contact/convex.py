"""Rigid contact: a time step whose velocity minimizes one convex function.

There is no complementarity problem. Let M be the mass matrix, `u = J v` the velocities of the
contact points, and `free` the velocity after the step without contact. The velocity after the step
is

    v+ = argmin  (v - free)^T M (v - free) / 2 + sum over contacts of l(u) + sum over joints of l_j.

The function l is convex and once differentiable. Its negative gradient is the contact impulse

    gamma = projection on Coulomb's cone of  y = (u_target n - u) / R,     l = R |gamma|^2 / 2,

where n is the normal of the ground. `contact_step` defines `u_target`. The impulse is zero for a
point that leaves the ground, y for a point that sticks, and on the edge of the cone for a point
that slides. R is a small compliance, a fraction of the inverse inertia of the robot at the contact.
R makes l finite and differentiable.

The functions l_j of the joint velocities give the impulses of position limits, dry friction,
damping and servos.

`coulomb.py` computes the impulses of contacts, `joint_terms.py` the impulses on joints, `newton.py`
the minimum, and `inverse_inertia.py` the scale of R.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import einsum, inverse_factor, matmul
from ..algorithms.equation_of_motion import equation_of_motion
from ..algorithms.kinematics import Kinematics, forward_kinematics
from ..algorithms.rnea import rnea
from ..configuration import integrate
from ..model import Model, arguments
from ..model.joint_space import independent_joint_force, joint_rates
from .contacts import contact_bodies, find_contacts, opposed, relative
from .coulomb import ContactLaw
from .inverse_inertia import inverse_inertias, joint_rows
from .joint_terms import JointImpulses, JointLaw, Servo, joint_law
from .newton import Term, hessian_factor, minimise, stacked_rows
from .points import body_wrenches, point_jacobians, point_velocities
from .scene import Scene


class ContactStep(NamedTuple):
    """The state after a time step, and the contact impulses in the step.

    - `q` (nq,), `v` (nv,): the state after the step;
    - `distance` (n + m,): the distance of each of n spheres from the ground, and of each of m pairs
      of shapes, before the step, in m;
    - `impulse` (n + m, 3): the impulse on each sphere, and on the first shape of each pair, in N s,
      in world axes;
    - `joint_impulse`: the impulses of limits, dissipation and servo on the joints;
    - `residual` (): the size of the last Newton step relative to the velocity before the step and
      to its change, in the norm of the kinetic energy. It is below `TOLERANCE` of newton.py times
      the eps of the dtype if the solver converged.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    distance: Float[Array, " contacts"]
    impulse: Float[Array, "contacts 3"]
    joint_impulse: JointImpulses
    residual: Float[Array, ""]


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
    servo: Servo | None = None,
) -> ContactStep:
    """One time step of a robot with rigid contact, joint limits, dissipation and servos.

    - `q` (nq,), `v` (nv,), `tau` (nv,), `f_ext` (nb, 6): as for `forward_dynamics`;
    - `dt` in s, more than 0;
    - `regularisation`, more than 0: R of a contact divided by the inverse inertia of the robot at
      the sphere. `inverse_inertias` computes this inverse inertia once for many steps;
    - `recovery` in s, 0 or more: the depth of a sphere in the ground decays with the time constant
      `dt + recovery`; likewise the excess of a joint beyond its limit;
    - `servo`: a `Servo` that drives the joints, in addition to tau (default none).

    The velocity v+ after the step minimizes the convex function at the head of the module
    `contact/convex.py`, and `q+ = integrate(q, dt v+)`. The target velocity along the normal is
    `u_target = -distance / dt` for a sphere outside the ground, and `-distance / (dt + recovery)`
    for a sphere in the ground. If the gradient of the distance does not have the length 1, the
    distance in these formulas is divided by the length of the gradient. Of the material, only the
    friction coefficient mu is used.

    The position limits of all joints act whose velocity is the rate of their coordinate. The limits
    of planar, spherical and free joints are only used by `random_configuration`. Damping and dry
    friction act on a model made by `Model.with_dissipation`. All impulses on joints are computed
    with the velocity after the step, so stiff gains and damping are stable.
    `contact/joint_terms.py` states the impulses.

    Consequences, to first order in dt:

    - the distance after a step is at least `-dt R gamma_n` for a sphere that was outside the
      ground; at rest, the depth of a sphere is `(dt + recovery) R gamma_n`;
    - a contact that sticks creeps at the speed `R gamma_t`, and likewise a joint that dry friction
      holds;
    - the convex form of friction has two errors: a sphere that slides at the speed u stays at the
      distance `dt mu u` above the ground, and a sphere that lands while sliding leaves the ground
      with a speed of up to mu u;
    - the impulses dissipate kinetic energy, except that the impulse on a sphere in the ground can
      add an energy of at most `gamma_n u_target`;
    - there is no restitution: it is not a function of the velocity after the step alone, and would
      need a second solve per step.

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
    f_ext = None if f_ext is None else arguments.wrenches(model, f_ext)
    mu = arguments.number(model, scene.material.friction, "friction")
    kinematics, scene = forward_kinematics(model, q), scene.astype(model.dtype)
    found, bodies = find_contacts(model, scene, kinematics), contact_bodies(model, scene)
    length = jnp.sqrt(jnp.sum(found.gradient**2, axis=-1))
    normal = found.gradient / length[:, None]
    slack = jnp.where(found.distance < 0, dt + recovery, dt)
    target = (-found.distance / (length * slack))[:, None] * normal

    scales = scene.inverse_inertia
    scales = inverse_inertias(model, scene) if scales is None else scales
    scale = arguments.array(
        model,
        jnp.asarray(scales.joints, model.dtype),
        "inverse_inertia.joints",
        model.armature.shape,
        "nv_joint",
    )
    conductance = _conductance(regularisation, jnp.asarray(scales.contacts, model.dtype))
    contacts = ContactLaw(normal, conductance, target, mu)
    joints = joint_law(
        model, kinematics.q, dt, recovery, _conductance(regularisation, scale), servo
    )
    # The law of the joints has all dissipation.
    conservative = model.with_dissipation(False)

    # JAX differentiates the equation `unbalanced(v_next) = 0`, and not the solver.
    solved = _solve(
        bodies,
        *lax.stop_gradient((scene, conservative, kinematics, found.arm, contacts, joints)),
        *lax.stop_gradient((v, tau, dt, f_ext)),
    )

    def impulses(v_next):
        u = point_velocities(model, kinematics, bodies, found.arm, v_next)
        on_contacts = contacts.impulses(relative(scene, u))
        return on_contacts, joints.impulses(joint_rates(model, kinematics.q, v_next))

    def unbalanced(v_next):
        """The change of momentum minus all impulses, (nv,): zero at the solution."""
        by_contact, by_joint = impulses(v_next)
        f = opposed(scene, by_contact / dt)
        forces = body_wrenches(model, kinematics, bodies, found.arm, f)
        forces = forces if f_ext is None else forces + f_ext
        momentum = dt * (rnea(conservative, kinematics, v, (v_next - v) / dt, forces) - tau)
        return momentum - independent_joint_force(model, kinematics.q, by_joint.total)

    def solve_tangent(linear, b):
        W = solved.hessian_factor
        return lax.custom_linear_solve(
            linear, b, lambda _, b: matmul(matmul(W, b), W), symmetric=True
        )

    v_next = lax.custom_root(unbalanced, solved.v, lambda _, v: v, solve_tangent)
    q_next = integrate(model, kinematics.q, dt * v_next)
    # The value of the solver, with the derivative of `impulses`.
    impulse, joint_impulse = jax.tree.map(
        lambda value, x: value + (x - lax.stop_gradient(x)), solved.impulses, impulses(v_next)
    )
    return ContactStep(q_next, v_next, found.distance, impulse, joint_impulse, solved.residual)


def _conductance(regularisation: Array, inverse_inertia: Array) -> Array:
    """1 / R. It is 0 for a point that cannot move, such as a point on the axis of its only joint.

    An impulse on such a point has no effect.
    """
    moves = inverse_inertia > 0
    return jnp.where(moves, 1 / (regularisation * jnp.where(moves, inverse_inertia, 1)), 0)


class _Solved(NamedTuple):
    """The velocity (nv,) after the step, the impulses and the residual of the solver.

    - `impulses`: on the contacts, (n, 3), and on the joints;
    - `hessian_factor` (nv, nv): the inverse factor of the Hessian of the convex function in v.
    """

    v: Float[Array, " nv"]
    impulses: tuple[Float[Array, "n 3"], JointImpulses]
    residual: Float[Array, ""]
    hessian_factor: Float[Array, "nv nv"]


def _solve(
    bodies: np.ndarray,
    scene: Scene,
    model: Model,
    kinematics: Kinematics,
    arm: Array,
    contacts: ContactLaw,
    joints: JointLaw,
    v: Array,
    tau: Array,
    dt: Array,
    f_ext: Array | None,
) -> _Solved:
    """The minimum of the convex function, for contact points at `arm` on `bodies`."""
    motion = equation_of_motion(model, kinematics, v, f_ext)
    J = point_jacobians(model, kinematics, motion.columns, bodies, arm)[:, :3]
    J = relative(scene, J)
    W = inverse_factor(motion.M)
    u_contacts = matmul(J.reshape(-1, model.nv), v).reshape(-1, 3)
    u_joints = joint_rates(model, kinematics.q, v)
    terms = [
        Term(contacts, einsum("nik,jk->nij", J, W), u_contacts),
        Term(joints.together(), joint_rows(model, kinematics.q, W), u_joints),
    ]
    push = matmul(W, dt * (tau - motion.bias))
    energy = jnp.sum(v * matmul(motion.M, v)) / 2
    x, residual = minimise(terms, push, energy)
    u_contacts, u_joints = (term.u_0 + matmul(term.rows, x) for term in terms)
    u = jnp.concatenate([u_contacts.ravel(), u_joints])
    factor = matmul(hessian_factor(terms, stacked_rows(terms), u), W)
    impulses = contacts.impulses(u_contacts), joints.impulses(u_joints)
    return _Solved(v + matmul(x, W), impulses, residual, factor)
