"""Rigid contact: a time step whose velocity minimizes one convex function.

There is no complementarity problem. Let M be the mass matrix, `u = J v` the velocities of the
contact points, and `free` the velocity after the step without contact. The velocity after the step
is

    v+ = argmin  (v - free)^T M (v - free) / 2 + sum over contacts of l(u) + sum over joints of l_j.

The function l is convex and once differentiable. Its negative gradient is the contact impulse

    gamma = projection on Coulomb's cone of  y = (u_target n - u) / R,     l = R |gamma|^2 / 2,

where n is the normal of the contact. `contact_step` defines `u_target`. The impulse is zero for a
point that leaves the ground, y for a point that sticks, and on the surface of the cone for a point
that slides. With torsional or rolling friction, u also has angular velocities, multiplied by
lengths. These components belong to the tangential part of u; their impulses are moments, see
`Scene.spin`. R is a small compliance, a fraction of the inverse inertia of the robot at the
contact. R makes l finite and differentiable.

The functions l_j of the joint velocities give the impulses of position limits, dry friction,
damping and servos. The rates of constraints and of tendons have such functions too.

`coulomb.py` computes the impulses of contacts, `joint_terms.py` the impulses on joints,
`tendon_terms.py` the impulses of tendons, `newton.py` the minimum, `inverse_inertia.py` the scale
of R, and `free_motion.py` the rotation of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import inverse_factor, inverse_positive_definite, matmul
from .._math.recompute import WORLD_POSES, recompute, stored
from .._math.rules import implicit_root, with_value
from ..actuators.transmissions import transmission_lengths_and_arms
from ..algorithms.crba import crba
from ..algorithms.equation_of_motion import equation_of_motion
from ..algorithms.kinematics import Kinematics, forward_kinematics
from ..algorithms.rnea import rnea
from ..constraints import Constraint, ConstraintRows, constraint_rows
from ..constraints.rows import checked_constraints
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import independent_joint_force, joint_rates
from ..tendons import Tendons
from ..tendons.tendons import ArmatureTerms, armature_terms
from .contacts import (
    Contacts,
    contact_bodies,
    contact_jacobians,
    contact_velocities,
    contact_wrenches,
    find_contacts,
    opposed,
)
from .coulomb import ContactLaw, spin_moments
from .free_motion import FreeMotion, free_motion, move
from .inverse_inertia import inverse_inertias, joint_jacobian
from .joint_terms import (
    SERVO_CHECKS,
    TENDON_SERVO_CHECKS,
    ClippedLaw,
    JointImpulses,
    JointLaw,
    Servo,
    conductance_of,
    joint_law,
    require_servo,
)
from .newton import Problem
from .points import body_wrenches
from .scene import InverseInertias, Scene, lengths_and_normals, scene_for
from .tendon_terms import tendon_law, tendon_servo_law
from .working_set import contact_solution, partitions_of


class ContactStep(NamedTuple):
    """The state after a time step, and the contact impulses in the step.

    - `q` (nq,), `v` (nv,): the state after the step. The linear velocities of free-flyers and
      planar joints are in the axes after the step;
    - `distance` (n + m,): the distance of each of n spheres from the ground, and the distance at
      each of the m contacts of pairs, before the step, in m;
    - `impulse` (n + m, 3): the impulse on each sphere, and on the first shape of the pair at each
      contact, in N s, in world axes;
    - `moment` (n + m, 3): the impulse of torsional and rolling friction on the same shapes, about
      the contact points, in N m s, in world axes; zeros without such friction;
    - `joint_impulse`: the impulses of limits, dissipation and servo on the joints;
    - `constraint_impulse` (rows,): the impulses of the constraints, see `constraint_rows`;
    - `tendon_impulse` (tendons,): the tension of each tendon times dt in N s, from its spring, its
      damping, its friction and its limits, if the `Tendons` have such properties; then the tensions
      of the tendons of the servo;
    - `residual` (): the square root of E / E_0. E is the decrease of the convex function that the
      last step of Newton's method predicts. E_0 is the sum of all l, of the kinetic energy before
      the time step, and of the kinetic energy of the change of the velocity. The solver aims at a
      residual below `TOLERANCE` of newton.py times the eps of the dtype; rounding errors can keep
      it above. If it is above sqrt(eps), the solver did not converge, and q and v are NaN.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    distance: Float[Array, " contacts"]
    impulse: Float[Array, "contacts 3"]
    moment: Float[Array, "contacts 3"]
    joint_impulse: JointImpulses
    constraint_impulse: Float[Array, " rows"]
    tendon_impulse: Float[Array, " tendons"]
    residual: Float[Array, ""]


# The arguments of a step that are arrays of the model, and the ranges of its other parameters.
compiled_step = arguments.compiled(
    arrays=("q", "v", "tau", "f_ext"),
    checks={
        "dt": arguments.POSITIVE,
        "regularisation": arguments.POSITIVE,
        "recovery": arguments.NOT_NEGATIVE,
        "smoothing": arguments.POSITIVE,
        **{f"servo.{name}": check for name, check in SERVO_CHECKS.items()},
        **{f"servo.tendons.{name}": check for name, check in TENDON_SERVO_CHECKS.items()},
    },
)


@compiled_step
def contact_step(
    model: Model,
    scene: Scene,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    dt: ArrayLike,
    f_ext: Array | None = None,
    regularisation: ArrayLike = 1e-3,
    recovery: ArrayLike = 0.02,
    servo: Servo | None = None,
    constraints: Sequence[Constraint] = (),
    smoothing: ArrayLike | None = None,
    tendons: Tendons | None = None,
) -> ContactStep:
    """One time step of a robot with rigid contact, joint limits, dissipation and servos.

    - `q` (nq,), `v` (nv,), `tau` (nv,), `f_ext` (nb, 6): as for `forward_dynamics`;
    - `dt` in s, more than 0;
    - `regularisation`, more than 0: R of a contact divided by the inverse inertia of the robot at
      the contact. `inverse_inertias` computes this inverse inertia once for many steps;
    - `recovery` in s, 0 or more: the depth of a contact decays with the time constant
      `dt + recovery`; likewise the excess of a joint beyond its limit;
    - `servo`: a `Servo` that drives the joints, in addition to tau (default none);
    - `constraints`: constraints such as closed loops, from `jaxrbd.constraints`; rows may be
      redundant. An error phi decays with the time constant `dt + recovery`. The inverse inertia of
      a row is the diagonal entry of `K M^-1 K^T` plus 1e-4 times the mean of the diagonal;
    - `smoothing` in m, more than 0: a length for the derivatives before touch-down, only for rigid
      contacts (default none). It has no effect on the step;
    - `tendons`: `jaxrbd.tendons.Tendons` (default none). Their springs, damping, dry friction,
      limits and armature act in the step, see `contact/tendon_terms.py`, so tau must not contain
      their forces.

    The velocity v+ after the step minimizes the convex function at the head of the module
    `contact/convex.py`, and the robot moves with v+ for the time dt. In these equations, the linear
    velocities of free-flyers and planar joints are in the axes before the step. The result is in
    the axes after the step. A robot that is one rigid body without forces keeps its momentum and
    its energy. For a robot of several bodies, this holds to first order in dt
    (`contact/free_motion.py`). Let d be the distance minus the margin, divided by the length of the
    gradient of the distance. The target velocity along the normal is `u_target = -d / dt` for d of
    0 or more, and `-d / (dt + recovery)` for a negative d. A step uses only the coefficients of
    friction, the lengths `torsional` and `rolling`, the margin and the softness of the material.

    Contacts whose material has a `Softness`, and limits with `scene.limit_softness`, are soft as in
    MuJoCo. They act only while d is negative, with the target and the R of `contact/softness.py` in
    place of `regularisation` and `recovery`. The statements about rigid contact below do not hold
    for them. A landing sphere is decelerated over several steps, so dt must be shorter than the
    time constant of the softness.

    Position limits act on all joints whose velocity is the rate of the coordinate. Limits of
    planar, spherical and free joints do not act, and joints that follow others have no limits.
    Damping and dry friction act on a model made by `Model.with_dissipation`. All impulses on joints
    are computed with the velocity after the step, so stiff gains and damping are stable.
    `contact/joint_terms.py` states the impulses.

    Consequences, to first order in dt:

    - the distance after a step is at least `-dt R gamma_n` for a sphere that was outside the
      ground; at rest, the depth of a sphere is `(dt + recovery) R gamma_n`;
    - a contact that sticks creeps at the speed `R gamma_t`, and so does a joint that dry friction
      holds. A contact that holds a moment m about its normal turns at `R dt m / c^2`, with
      `c = torsional / friction`. For rolling friction, c is `rolling / friction`;
    - the convex form of friction has two errors: a sphere that slides at the speed u stays at the
      distance `dt mu u` above the ground, and a sphere that lands while sliding, or starts on the
      ground while sliding, leaves the ground with a speed of up to mu u. With friction moments and
      the angular velocity w, `torsional w` or `rolling w` takes the place of mu u;
    - the impulses dissipate kinetic energy, except that the impulse on a sphere in the ground can
      add an energy of at most `gamma_n u_target`;
    - there is no restitution, because its impulse is not a function of the velocity after the step
      alone, and would need a second solve per step.

    JAX can differentiate the result with respect to all arguments, to any order. It differentiates
    the minimizing velocity as an implicit function, and not the iterations. The derivatives jump
    where a contact changes from sticking to sliding or to leaving. There, the derivative of one
    side is returned. The derivatives also jump at the distance 0, because `u_target` has different
    slopes inside and outside the ground.

    Before touch-down, the true derivatives do not depend on the ground, so an optimizer does not
    find a contact. With `smoothing`, a contact that is at the distance d after the step has an
    effect on the derivatives, but not on the step. Along the normal, it reduces a change of the
    velocity by the fraction `exp(-d / smoothing)` of the change. So for one point mass the
    derivative of the normal velocity is multiplied by `1 - exp(-d / smoothing)`, to first order in
    `regularisation`. This factor is the bias of the smoothed derivatives; at d = 5 smoothing it is
    0.993.

    Raises ArgumentError for an unknown frame or a parameter out of its range; traced parameters out
    of their range give NaN. The state is also NaN where the solver does not converge. This can
    happen if `regularisation` is near the eps of the dtype.

    Source: Todorov (2014), Convex and analytically-invertible dynamics with contacts and
    constraints; Castro, Permenter and Han (2022), An unconstrained convex formulation of compliant
    contact. Here R is isotropic.
    """
    dt, options = checked_options(model, dt, regularisation, recovery, smoothing)
    scene = scene_for(model, scene)
    terms = servo, constraints, Tendons(()) if tendons is None else tendons

    def step() -> ContactStep:
        return _step(model, scene, q, v, tau, dt, f_ext, options, *terms)

    # For reverse mode, JAX then stores only the solution and the world poses of each step, and not
    # about 250 arrays.
    return recompute(step, WORLD_POSES)()


@arguments.compiled(arrays=("q",), checks={"dt": arguments.POSITIVE})
def step_wrenches(
    model: Model, scene: Scene, q: Array | Kinematics, step: ContactStep, dt: ArrayLike
) -> Float[Array, "nb 6"]:
    """The mean forces of the contacts on the bodies in a step, as the `f_ext` of `rnea`.

    - `q` (nq,) or its `Kinematics`: the configuration before the step;
    - `step`: the result of `contact_step` for the scene, and `dt` in s its duration.

    Row i is the wrench `[force; moment]` (6,) in N and N m, in the frame of body i. With this
    wrench, force sensors (`sensors.SubtreeSensor`) measure contact. Raises ArgumentError for a dt
    that is not positive, and for a step of a scene with another number of contacts.
    """
    dt = arguments.POSITIVE.or_nan(arguments.number(model, dt, "dt"))
    require_step_of(scene, step)
    scene, kinematics = scene_for(model, scene), forward_kinematics.unchecked(model, q)
    forces, moments = (opposed(scene, x / dt) for x in (step.impulse, step.moment))
    arm = find_contacts(model, scene, kinematics).arm
    return body_wrenches(model, kinematics, contact_bodies(model, scene), arm, forces, moments)


def require_step_of(scene: Scene, step: ContactStep) -> None:
    """Raise ArgumentError unless `step` is a step with one row per contact of `scene`."""
    arguments.require_type(step, "step", ContactStep)
    if step.impulse.shape != (scene.size, 3):
        raise ArgumentError(
            f"step.impulse has shape {step.impulse.shape}, expected ({scene.size}, 3), one row for "
            "each contact of the scene"
        )


class Options(NamedTuple):
    """The parameters `regularisation`, `recovery` and `smoothing` of `contact_step`."""

    regularisation: Array
    recovery: Array
    smoothing: Array | None


def checked_options(
    model: Model,
    dt: ArrayLike,
    regularisation: ArrayLike,
    recovery: ArrayLike,
    smoothing: ArrayLike | None,
) -> tuple[Array, Options]:
    """dt and the `Options` with the dtype of the model; NaN for traced parameters out of range."""
    dt = arguments.POSITIVE.or_nan(arguments.number(model, dt, "dt"))
    regularisation = arguments.number(model, regularisation, "regularisation")
    regularisation = arguments.POSITIVE.or_nan(regularisation)
    recovery = arguments.NOT_NEGATIVE.or_nan(arguments.number(model, recovery, "recovery"))
    if smoothing is not None:
        smoothing = arguments.POSITIVE.or_nan(arguments.number(model, smoothing, "smoothing"))
        dt = jnp.where(jnp.isnan(smoothing), smoothing, dt)
    dt = jnp.where(jnp.isnan(recovery), recovery, dt)  # NaN even if no sphere touches
    return dt, Options(regularisation, recovery, smoothing)


def _step(
    model: Model,
    scene: Scene,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    dt: Array,
    f_ext: Array | None,
    options: Options,
    servo: Servo | None,
    constraints: Sequence[Constraint],
    tendons: Tendons,
) -> ContactStep:
    """The step of `contact_step`, for checked arguments."""
    kinematics = forward_kinematics.unchecked(model, q)
    terms = servo, constraints, tendons
    laws, motion = laws_and_motion(model, scene, kinematics, v, dt, options, *terms)
    # The dissipation is in the law of the joints, and not in the dynamics.
    conservative = model.with_dissipation(False)
    operands = conservative, scene, kinematics, laws, v, motion.start, tau, dt, f_ext
    solved, smoothing_conductance, factor = solve(*lax.stop_gradient((*operands, options)))
    solved, smoothing_conductance, factor = stored((solved, smoothing_conductance, factor))
    impulses, residual = solved.impulses, solved.residual
    unbalanced = unbalanced_momentum(*operands, smoothing_conductance)
    v_next = differentiable_velocity(unbalanced, solved.v, factor)
    q_next, v_end = move(model, motion, kinematics.q, v_next, dt)
    # The value of the solver, with the derivative of `impulses_at`.
    differentiable = impulses_at(model, scene, kinematics, laws, v_next, smoothing_conductance)
    impulses = jax.tree.map(with_value, differentiable, impulses)
    contacts, joints, rows, lengthening = impulses
    moment = spin_moments(laws.contacts.spin, contacts)
    distance = laws.distance + scene.margin
    return ContactStep(
        q_next, v_end, distance, contacts[:, :3], moment, joints, rows, -lengthening, residual
    )


def unbalanced_momentum(
    model: Model,
    scene: Scene,
    kinematics: Kinematics,
    laws: Laws,
    v: Array,
    start: Array,
    tau: Array,
    dt: Array,
    f_ext: Array | None,
    smoothing_conductance: Array | None,
) -> Callable[[Array], Array]:
    """The change of momentum minus all impulses, (nv,), as a function of v_next.

    It is zero at the solution. `smoothing_conductance`: from `solve`; other arguments as for
    `solve`.
    """

    def unbalanced(v_next: Array) -> Array:
        impulses = impulses_at(model, scene, kinematics, laws, v_next, smoothing_conductance)
        f = impulses.contacts / dt
        forces = contact_wrenches(model, scene, kinematics, laws.arm, laws.contacts.spin, f)
        forces = forces if f_ext is None else forces + f_ext
        a = (v_next - start) / dt
        momentum = dt * (rnea.unchecked(model, kinematics, v, a, forces) - tau)
        joint_impulse = independent_joint_force(model, kinematics.q, impulses.joints.total)
        others = matmul(impulses.constraints, laws.K) + matmul(impulses.tendons, laws.J_tendons)
        if laws.armature is not None:
            momentum = momentum + dt * (matmul(laws.armature.M, a) + laws.armature.bias)
        return momentum - joint_impulse - others

    return unbalanced


def differentiable_velocity(
    unbalanced: Callable[[Array], Array], solved_v: Array, factor: Array
) -> Array:
    """The velocity of the solver, with the derivatives of the root of `unbalanced`.

    JAX differentiates the equation, and not the solver. `factor`: the factor W of `solve`.
    """

    def solve_tangent(linear, b):
        return lax.custom_linear_solve(
            linear, b, lambda _, b: matmul(matmul(factor, b), factor), symmetric=True
        )

    return implicit_root(unbalanced, lambda: solved_v, solve_tangent)


class Laws(NamedTuple):
    """The laws of all impulses of a step, and the geometry of contacts and constraints.

    - `distance`, `arm`: as in `Contacts`; `K` (m, nv): the rows of the constraints;
    - `J_tendons` (n, nv): the moment arms of the tendons; `armature`: their inertia, or None.
    """

    distance: Float[Array, " contacts"]
    arm: Float[Array, "points 3"]
    contacts: ContactLaw
    joints: JointLaw
    constraints: ClippedLaw
    K: Float[Array, "m nv"]
    tendons: ClippedLaw
    J_tendons: Float[Array, "n nv"]
    armature: ArmatureTerms | None


class Impulses(NamedTuple):
    """The impulses on the contacts, on the joints, of the constraints and of the tendons.

    An impulse of a tendon is positive if it makes the tendon longer.
    """

    contacts: Float[Array, "contacts d"]
    joints: JointImpulses
    constraints: Float[Array, " m"]
    tendons: Float[Array, " n"]


def _laws(
    model: Model,
    scene: Scene,
    scales: InverseInertias,
    kinematics: Kinematics,
    v: Array,
    dt: Array,
    regularisation: Array,
    recovery: Array,
    servo: Servo | None,
    constraints: Sequence[Constraint],
    tendons: Tendons,
) -> Laws:
    """The laws of all impulses of a step; `scales`: the inverse inertias at contacts and joints."""
    found = find_contacts(model, scene, kinematics)
    per_contact, per_joint = (
        arguments.FINITE_NOT_NEGATIVE.or_nan(
            arguments.array(model, jnp.asarray(x), name, shape, sizes)
        )
        for x, name, shape, sizes in (
            (scales.contacts, "inverse_inertia.contacts", (scene.size,), "n + m"),
            (scales.joints, "inverse_inertia.joints", model.armature.shape, "nv_joint"),
        )
    )
    rows = constraint_rows.unchecked(model, kinematics, v, constraints)
    # The tendons with passive forces, then the tendons of the servo.
    passive = tendons.tendons if tendons.acting else ()
    driven = None if servo is None else servo.tendons
    active = () if driven is None else driven.tendons
    found_lengths, arms = transmission_lengths_and_arms(model, (*passive, *active), kinematics)
    row_conductance, tendon_conductance = _row_conductances(
        model, kinematics, regularisation, rows.K, arms
    )
    n = len(passive)
    tendon_laws = [
        tendon_law(
            model,
            tendons,
            found_lengths[:n],
            matmul(arms[:n], v),
            dt,
            recovery,
            tendon_conductance[:n],
        )
    ]
    if driven is not None:
        tendon_laws.append(tendon_servo_law(driven, found_lengths[n:], dt))
    return Laws(
        found.distance,
        found.arm,
        _contact_law(model, scene, per_contact, kinematics, found, v, dt, regularisation, recovery),
        joint_law(
            model,
            kinematics.q,
            joint_rates(model, kinematics.q, v),
            dt,
            regularisation,
            recovery,
            per_joint,
            scene.limit_softness,
            servo,
        ),
        _constraint_law(rows, dt, recovery, row_conductance),
        rows.K,
        _joined(tendon_laws),
        arms,
        armature_terms(model, tendons, kinematics.q, v, arms[:n]),
    )


def _contact_law(
    model: Model,
    scene: Scene,
    inverse_inertia: Array,
    kinematics: Kinematics,
    found: Contacts,
    v: Array,
    dt: Array,
    regularisation: Array,
    recovery: Array,
) -> ContactLaw:
    """The law of the contacts `found`, with `inverse_inertia` (n + m,); d as in `contact_step`."""
    length, normal = lengths_and_normals(found.gradient)
    friction, spin, softness = scene.friction, scene.spin(normal), scene.material.softness
    d = found.distance / length
    # The normal, with zeros for the angular velocities of `ContactLaw.spin`.
    direction = jnp.pad(normal, ((0, 0), (0, spin.shape[1])))
    if softness is None:
        target = (-d / jnp.where(d < 0, dt + recovery, dt))[:, None] * direction
        conductance = conductance_of(regularisation, inverse_inertia)
        return ContactLaw(normal, conductance, target, friction, spin)
    response = softness.response(d, dt, "softness")
    u = contact_velocities(model, scene, kinematics, found.arm, spin, v)
    target = response.kept[:, None] * u + response.push[:, None] * direction
    conductance = conductance_of(response.ratio, inverse_inertia)
    conductance = jnp.where(d < 0, conductance, 0)
    return ContactLaw(normal, conductance, target, friction, spin)


def _row_conductances(
    model: Model, kinematics: Kinematics, regularisation: Array, *rows: Array
) -> list[Array]:
    """1 / R of each row of some Jacobians (n, nv)."""
    if not any(len(J) for J in rows):
        return [jnp.zeros(0, model.dtype) for _ in rows]
    inverse_M = inverse_positive_definite(crba(model, kinematics))
    found = []
    for J in rows:
        inverse_inertia = jnp.sum(J * matmul(J, inverse_M), axis=1)
        # Some rows are zero, for example in a planar loop. A bounded conductance of these rows
        # keeps the step continuous in the placements of the joints.
        if len(J):
            inverse_inertia = inverse_inertia + 1e-4 * jnp.mean(inverse_inertia)
        found.append(conductance_of(regularisation, inverse_inertia))
    return found


def _constraint_law(
    rows: ConstraintRows, dt: Array, recovery: Array, conductance: Array
) -> ClippedLaw:
    """The law of the constraints: no bounds, and the target velocity `-phi / (dt + recovery)`."""
    bound = jnp.full_like(rows.position, jnp.inf)
    fields = conductance, -rows.position / (dt + recovery), -bound, bound
    return ClippedLaw(*(x[None] for x in fields))


def impulses_at(
    model: Model,
    scene: Scene,
    kinematics: Kinematics,
    laws: Laws,
    v_next: Array,
    smoothing_conductance: Array | None,
) -> Impulses:
    """The impulses at the velocity v_next; `smoothing_conductance`: from `_smoothed`, or None."""
    u = contact_velocities(model, scene, kinematics, laws.arm, laws.contacts.spin, v_next)
    contact_impulses = laws.contacts.impulses(u)
    if smoothing_conductance is not None:
        normal = laws.contacts.normal
        missing = (laws.contacts.target - u)[:, :3]
        push = smoothing_conductance * jnp.sum(missing * normal, axis=-1)
        change = (push - lax.stop_gradient(push))[:, None] * normal
        contact_impulses += jnp.pad(change, ((0, 0), (0, u.shape[1] - 3)))
    return Impulses(
        contact_impulses,
        laws.joints.impulses(joint_rates(model, kinematics.q, v_next)),
        laws.constraints.impulses(matmul(laws.K, v_next)),
        laws.tendons.impulses(matmul(laws.J_tendons, v_next)),
    )


def laws_and_motion(
    model: Model,
    scene: Scene,
    kinematics: Kinematics,
    v: Array,
    dt: Array,
    options: Options,
    servo: Servo | None,
    constraints: Sequence[Constraint],
    tendons: Tendons,
) -> tuple[Laws, FreeMotion]:
    """The laws of all impulses of a step, and the free motion of the root bodies.

    Arguments as for `contact_step`, with the dtype of the model. Raises ArgumentError for a servo,
    constraints or tendons of another type.
    """
    if servo is not None:
        require_servo(model, servo)
    constraints = checked_constraints(constraints)
    arguments.require_type(tendons, "tendons", Tendons)
    if options.smoothing is not None and scene.material.softness is not None:
        raise ArgumentError("smoothing is given, expected None for contacts with a softness")
    scales = scene.inverse_inertia
    scales = inverse_inertias(model, scene) if scales is None else scales
    terms = servo, constraints, tendons
    laws = _laws(
        model, scene, scales, kinematics, v, dt, options.regularisation, options.recovery, *terms
    )
    return laws, free_motion(model, v, dt, scales.trees)


class _Solved(NamedTuple):
    """The velocity (nv,) after the step, the impulses and the residual of the solver."""

    v: Float[Array, " nv"]
    impulses: Impulses
    residual: Float[Array, ""]


def solve(
    model: Model,
    scene: Scene,
    kinematics: Kinematics,
    laws: Laws,
    v: Array,
    start: Array,
    tau: Array,
    dt: Array,
    f_ext: Array | None,
    options: Options,
) -> tuple[_Solved, Array | None, Array]:
    """The minimum of the convex function, the conductance of the smoothing, and a factor W.

    `start`: see `FreeMotion`. A small change dp of the momentum changes the velocity after the step
    by `W^T W dp`; W includes the smoothing.
    """
    motion = equation_of_motion(model, kinematics, v, f_ext)
    law = laws.contacts
    J = contact_jacobians(model, scene, kinematics, motion.columns, laws.arm, law.spin)
    joints, others, K = _scalar_laws(model, kinematics, laws)
    M, bias = motion.M, motion.bias
    if laws.armature is not None:
        M, bias = M + laws.armature.M, bias + laws.armature.bias
    problem = Problem(M, dt * (tau - bias), start, law, J, joints, others, K)
    partitions = partitions_of(model, scene, len(K))
    found = contact_solution(
        model, scene, kinematics, motion.columns, laws.arm, problem, partitions
    )
    v_next = start + found.x
    impulses = Impulses(
        found.impulses,
        laws.joints.impulses(joint_rates(model, kinematics.q, v_next)),
        laws.constraints.impulses(matmul(laws.K, v_next)),
        laws.tendons.impulses(matmul(laws.J_tendons, v_next)),
    )
    factor = inverse_factor(found.hessian)
    solved = _Solved(v_next, impulses, found.residual)
    if options.smoothing is None:
        return solved, None, factor
    smoothed = _smoothed(laws, J, solved, factor, options.smoothing, dt, options.regularisation)
    return solved, *lax.stop_gradient(smoothed)


def _scalar_laws(
    model: Model, kinematics: Kinematics, laws: Laws
) -> tuple[ClippedLaw, ClippedLaw, Array]:
    """The law of the velocities v, the law of all other rates, and the Jacobian of these rates."""
    joints, rows = laws.joints.merged(), [laws.constraints, laws.tendons]
    J, K = joint_jacobian(model, kinematics.q), [laws.K, laws.J_tendons]
    if J is not None:
        rows, K = [joints, *rows], [J, *K]
        joints = ClippedLaw(*(jnp.zeros((0, model.nv), model.dtype),) * 4)
    kept = [i for i, x in enumerate(K) if len(x)] or [0]
    others = _joined([rows[i] for i in kept])
    return joints, others, jnp.concatenate([K[i] for i in kept])


def _joined(laws: Sequence[ClippedLaw]) -> ClippedLaw:
    """Laws of different velocities as one law; zeros where a law has fewer kinds of impulses."""
    kinds = max(len(law.target) for law in laws)
    padded = [[jnp.pad(x, ((0, kinds - len(x)), (0, 0))) for x in law] for law in laws]
    return ClippedLaw(*(jnp.concatenate(fields, axis=1) for fields in zip(*padded)))


def _smoothed(
    laws: Laws,
    J: Array,
    solved: _Solved,
    W: Array,
    length: Array,
    dt: Array,
    regularisation: Array,
) -> tuple[Array, Array]:
    """The conductance (contacts,) of the smoothing, and the factor W with the smoothing.

    A contact at the distance d after the step gets the fraction `rho = exp(-d / length)`. In the
    derivatives, its normal impulse reduces a change of the normal velocity by the fraction rho of
    the change. This needs the resistance `R + (1 / rho - 1) w`, with the inverse inertia w.
    """
    law, normal = laws.contacts, laws.contacts.normal
    # A contact that leaves has no impulse.
    leaves = jnp.all(solved.impulses.contacts == 0, axis=-1)
    u = matmul(J[:, :3], solved.v)
    gap = dt * jnp.sum((u - law.target[:, :3]) * normal, axis=-1)
    rho = jnp.where(leaves, jnp.exp(-jnp.maximum(gap, 0) / length), 0)
    conductance = law.conductance * regularisation * rho / (regularisation * rho + 1 - rho)
    rows = matmul(jnp.sum(J[:, :3] * normal[..., None], axis=1), W.T)
    one = jnp.asarray(np.eye(len(W)), W.dtype)
    return conductance, matmul(inverse_factor(one + matmul(rows.T, conductance[:, None] * rows)), W)
