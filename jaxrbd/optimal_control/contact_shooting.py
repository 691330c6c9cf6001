"""Contact steps as the dynamics of optimal control, and trajectories that find their contacts.

A contact that does not touch has no effect on a motion. So the derivatives of a step do not lead a
solver to a contact. `ContactShooting` therefore has a length s, the smoothing. For s > 0, the
contacts are relaxed: they act at the distance s, and they are compliant:

- the margin of a contact is the margin of the material plus s;
- the regularisation is `regularisation + s / (r g dt (dt + recovery))` with g = 9.81 m/s^2.

Here r is a ratio of masses: 1 by default. With a load, r is the load divided by the effective mass
of a contact. The inverse of the effective mass is the mean of the inverse inertias of the contacts.
So under the weight of the load (by default, of the effective mass), a contact at rest gives way by
about s, and a robot stands on relaxed contacts about as high as on rigid ones.
A legged robot needs the load: the effective mass of a foot is much smaller than the mass that rests
on it. Relaxed friction is viscous: a contact that sticks creeps.

With s = 0, the step is `contact_step`. For any s, the derivatives are the derivatives of this step,
so the line search measures the progress of the solver. `solve_contacts` decreases s to zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike
from jaxtyping import Float, Int, PyTree

from .._math.cast import cast
from .._math.components import norm
from .._math.linear import matmul
from .._math.rules import changed_leaves, custom_jvp
from ..algorithms.kinematics import forward_kinematics
from ..configuration import configuration_rate, velocity_of_rate
from ..contact import (
    ContactStep,
    Scene,
    Servo,
    contact_step,
    contact_step_derivatives,
    inverse_inertias,
)
from ..contact.contacts import find_contacts
from ..contact.joint_terms import independent_servo_law, require_servo
from ..errors import ArgumentError
from ..integrators import StepDerivatives, rollout
from ..integrators.step_derivatives import derivatives_of_step
from ..model import Model, arguments
from ..model.joint_space import independent_joint_force
from ..model.names import joint_of_dof
from .problem import Problem, checked_dofs, force_of_controls, positive_number, state_pair
from .solution import Solution, check_functions, solve, states_and_controls
from .stages import largest

# The acceleration g in m/s^2 at the head of the module.
GRAVITY = 9.81
# The smoothings of `solve_contacts` in m.
SMOOTHING = (*(0.2 * 0.8**i for i in range(28)), 0.0)


class StepOptions(NamedTuple):
    """The arguments of a contact step, except the state and the forces."""

    model: Model
    scene: Scene
    dt: Array
    regularisation: Array
    recovery: Array
    servo: Servo | None

    def step(self, q: Array, v: Array, tau: Array) -> ContactStep:
        """The result of `contact_step`. A finite effort of the servo limits the sum with tau."""
        model, scene, dt, *options, servo = self
        tau, servo = _with_limited_forces(servo, tau)
        return contact_step(model, scene, q, v, tau, dt, None, *options, servo)

    def derivatives(self, q: Array, v: Array, tau: Array) -> StepDerivatives:
        """The state after `step`, and its derivatives with respect to q, v and tau."""
        model, scene, dt, *options, servo = self
        tau, servo = _with_limited_forces(servo, tau)
        found = contact_step_derivatives(model, scene, q, v, tau, dt, None, *options, servo)
        if servo is None:
            return found
        # A servo at its limit has a constant force, which no longer depends on tau.
        law = independent_servo_law(model, q, dt, servo)
        at_limit = _limited(servo) & (law.curvatures(found.v) == 0)
        return found._replace(B=jnp.where(at_limit, 0, found.B))

    def joint_forces(self, found: ContactStep, tau: Array) -> Array:
        """The forces (nv,) of tau and the servo in N or N m; `found`: the result of `step`."""
        tau, _ = _with_limited_forces(self.servo, tau)
        impulse = independent_joint_force(self.model, found.q, found.joint_impulse.servo)
        return tau + impulse / self.dt


def _limited(servo: Servo) -> Array:
    """Whether each dof (nv,) has a servo with a finite effort."""
    control = servo.control
    driven = (jnp.asarray(control.stiffness) > 0) | (jnp.asarray(control.damping) > 0)
    return driven & jnp.isfinite(jnp.asarray(control.effort))


def _with_limited_forces(servo: Servo | None, tau: Array) -> tuple[Array, Servo | None]:
    """tau without its entries on joints with a finite effort, and the servo with these entries."""
    if servo is None:
        return tau, None
    force = jnp.where(_limited(servo), tau, 0)
    tau = tau - force
    if servo.force is not None:
        force = force + jnp.asarray(servo.force)
    return tau, servo._replace(force=force)


class ContactShooting(eqx.Module):
    """One contact step as the dynamics of a `Problem`; `contact_shooting` makes it."""

    model: Model
    scene: Scene
    dt: Float[arguments.Parameter, ""]
    smoothing: Float[arguments.Parameter, ""]
    regularisation: Float[arguments.Parameter, ""]
    recovery: Float[arguments.Parameter, ""]
    servo: Servo | None
    load: Float[arguments.Parameter, ""] | None
    dofs: tuple[int, ...] | None = eqx.field(static=True)

    def __call__(self, t: ArrayLike, x: PyTree, u: Array, p: PyTree) -> PyTree:
        """The state (q, v) after a step from the state x = (q, v) with the control u."""
        q, v = state_pair(x)
        return _state_after(self.options(), q, v, force_of_controls(self.model, u, self.dofs))

    def step(self, x: PyTree, u: Array) -> ContactStep:
        """The whole result of the step, with distances and impulses of the contacts.

        The impulse of the servo includes u for joints whose servo has a finite effort. Raises
        ArgumentError for an x that is no pair, and for a u of another size.
        """
        q, v = state_pair(x)
        return self.options().step(q, v, force_of_controls(self.model, u, self.dofs))

    def with_smoothing(self, smoothing: ArrayLike) -> ContactShooting:
        """These dynamics with another smoothing () in m, 0 or more."""
        smoothing = _not_negative(smoothing, "smoothing")
        return eqx.tree_at(lambda dynamics: dynamics.smoothing, self, smoothing)

    def options(self) -> StepOptions:
        """The arguments of `contact_step`, relaxed by the smoothing."""
        dt, s, regularisation, recovery = (
            jnp.asarray(x, self.model.dtype)
            for x in (self.dt, self.smoothing, self.regularisation, self.recovery)
        )
        scene, relative = self.scene.astype(self.model.dtype), 1.0
        if self.load is not None:
            assert scene.inverse_inertia is not None  # `contact_shooting` computes it
            load = jnp.asarray(self.load, self.model.dtype)
            inverse = jnp.mean(scene.inverse_inertia.contacts)
            # The mean is 0 if the robot moves no contact, and NaN if there is no contact.
            relative = jnp.where(inverse > 0, load * inverse, 1)
        material = dataclasses.replace(scene.material, margin=scene.material.margin + s)
        return StepOptions(
            self.model,
            dataclasses.replace(scene, material=material),
            dt,
            regularisation + s / (relative * GRAVITY * dt * (dt + recovery)),
            recovery,
            cast(self.servo, self.model.dtype),
        )


def contact_shooting(
    model: Model,
    scene: Scene,
    dt: ArrayLike,
    dofs: Sequence[int] | None = None,
    smoothing: ArrayLike = 0.0,
    regularisation: ArrayLike = 1e-3,
    recovery: ArrayLike = 0.02,
    servo: Servo | None = None,
    load: ArrayLike | None = None,
) -> ContactShooting:
    """The dynamics (t, x, u, p) -> x' of a `Problem`: one `contact_step` under joint forces.

    - `scene`: the contacts, a `contact.Scene`; `dt` in s, more than 0;
    - `dofs`: the index in v of each entry of u, as for `joint_torques`;
    - `smoothing` in m, 0 or more: contacts act at this distance and are compliant, as the head of
      `optimal_control/contact_shooting.py` defines. 0 (default) is rigid contact;
    - `regularisation`, `recovery`, `servo`: as for `contact_step`. The controls u are added to the
      forces of the servo. For joints whose servo has a finite effort, u is a `force` of the servo,
      so the effort limits the sum of both: with the limits of the motors as effort, the joint
      forces of a trajectory are within these limits. A robot with legs is easier to control with a
      servo, because its legs alone do not keep their posture;
    - `load` in kg, more than 0: the mass that rests on one contact, such as the mass of a robot
      divided by the number of its feet. Under the weight of the load, a contact with the smoothing
      s gives way by about s. The default is the effective mass of the contact.

    The state x is (q, v), a state of `state_space(model)`. The first derivatives by x and u are
    analytic (`contact.contact_step_derivatives`). JAX differentiates the program of the step for
    second derivatives, as for `hessian="exact"`, which takes long to compile. Raises ArgumentError
    for parameters out of their range, for a servo with arrays of another shape or with entries that
    are not finite, and for a dof that is out of range or occurs twice. A finite effort of a joint
    with a control and no gains is an error too, because no servo limits this control. Only
    `solve_contacts` refuses an x0 and a guess that penetrate; in `solve`, a contact that penetrates
    pushes the shapes apart, as in `contact_step`.
    """
    model = arguments.robot(model)
    dofs = checked_dofs(model, dofs)
    if not isinstance(scene, Scene):
        raise ArgumentError(f"scene is {scene!r}, expected a contact.Scene")
    dt = positive_number(dt, "dt")
    regularisation = positive_number(regularisation, "regularisation")
    if servo is not None:
        require_servo(model, servo)
        servo.control.checked_values(model, "servo.control.")
        _require_limits_with_gains(model, servo, dofs)
    if load is not None:
        load = positive_number(load, "load")
    if scene.inverse_inertia is None:
        scales = inverse_inertias(model, scene)
        scene = dataclasses.replace(scene, inverse_inertia=scales)
    return ContactShooting(
        model,
        scene,
        dt,
        _not_negative(smoothing, "smoothing"),
        regularisation,
        _not_negative(recovery, "recovery"),
        servo,
        load,
        dofs,
    )


def _require_limits_with_gains(model: Model, servo: Servo, dofs: tuple[int, ...] | None) -> None:
    """Raise ArgumentError, which names it, for a joint with control and finite effort but no gain.

    Traced gains and efforts are not checked.
    """
    control = servo.control
    fields = control.stiffness, control.damping, control.effort
    stiffness, damping, effort = (arguments.known(x) for x in fields)
    if stiffness is None or damping is None or effort is None:
        return
    for dof in range(model.nv) if dofs is None else dofs:
        if np.isfinite(effort[dof]) and not (stiffness[dof] or damping[dof]):
            raise ArgumentError(
                f"servo.control.effort is {effort[dof]} for joint {joint_of_dof(model, dof)!r}, "
                "which has no stiffness and no damping; expected a gain, or an infinite effort"
            )


def _not_negative(x: ArrayLike, name: str) -> arguments.Parameter:
    x = arguments.parameter(x, name, ())
    arguments.require_not_negative(x, name)
    return x


# ------------------------------------------------------------------------------- the derivatives


@custom_jvp
def _state_after(options: StepOptions, q: Array, v: Array, tau: Array) -> tuple[Array, Array]:
    """The state after a step, with analytic derivatives by q, v and tau in forward mode."""
    found = options.step(q, v, tau)
    return found.q, found.v


def _state_after_jvp(primals, tangents):
    options, q, v, tau = primals
    changes, q_dot, v_dot, tau_dot = tangents
    model = options.model
    q_next, v_next, A, B = _derivatives(options, q, v, tau)
    change = jnp.zeros(2 * model.nv, v.dtype)
    if not isinstance(q_dot, SymbolicZero):
        change = change + matmul(A[:, : model.nv], velocity_of_rate.unchecked(model, q, q_dot))
    if not isinstance(v_dot, SymbolicZero):
        change = change + matmul(A[:, model.nv :], v_dot)
    if not isinstance(tau_dot, SymbolicZero):
        change = change + matmul(B, tau_dot)
    dq, dv = jnp.split(change, 2)
    rates = configuration_rate.unchecked(model, q_next, dq), dv
    leaves, leaf_changes, with_values = changed_leaves(options, changes)
    if leaves:

        def by_options(leaves):
            found = with_values(leaves).step(q, v, tau)
            return found.q, found.v

        more = jax.jvp(by_options, (leaves,), (leaf_changes,))[1]
        rates = jax.tree.map(jnp.add, rates, more)
    return (q_next, v_next), rates


_state_after.defjvp(_state_after_jvp, symbolic_zeros=True)


@custom_jvp
def _derivatives(options: StepOptions, q: Array, v: Array, tau: Array) -> StepDerivatives:
    """`StepOptions.derivatives`. For second derivatives, JAX differentiates the step instead."""
    return options.derivatives(q, v, tau)


@_derivatives.defjvp
def _(primals, tangents):
    def by_jax(options, q, v, tau):
        def step(q, v, tau):
            found = options.step(q, v, tau)
            return found.q, found.v

        return derivatives_of_step(options.model, step, q, v, tau)

    return jax.jvp(by_jax, primals, tangents)


# ------------------------------------------------------------------------------- the continuation


class ContactSolution(NamedTuple):
    """A trajectory of `solve_contacts`.

    - `solution`: the `Solution` of the last solve, for rigid contact;
    - `status`, `iterations`, `cost` (L,): one entry for each of the L smoothings;
    - `replay_error` (): the largest difference between the states of the solution and the states
      of `contact_step` with the controls of the solution, in the units of q and v;
    - `penetration` () in m: the largest depth of a contact in all states;
    - `complementarity` () in N m: the largest product of the force on a contact and its distance
      after the step. It is 0 in an exact model of contact; see `contact_step` for the distance of
      a contact that slides;
    - `joint_forces` (N, nv) in N or N m: the joint forces of the stages, which are the sums of
      controls and servo.
    """

    solution: Solution
    status: Int[Array, " L"]
    iterations: Int[Array, " L"]
    cost: Float[Array, " L"]
    replay_error: Float[Array, ""]
    penetration: Float[Array, ""]
    complementarity: Float[Array, ""]
    joint_forces: Float[Array, "N nv"]


def solve_contacts(
    problem: Problem,
    x0: PyTree,
    p: PyTree,
    guess: Any,
    smoothing: Sequence[float] = SMOOTHING,
    iterations: int = 25,
    tolerance: ArrayLike | None = None,
    depth: float = 1e-3,
) -> ContactSolution:
    """A trajectory with contacts that the solver finds; there is no schedule of contacts.

    - `problem`: a `Problem` with dynamics of `contact_shooting`;
    - `x0`, `p`, `guess`, `tolerance`: as for `solve`;
    - `smoothing`: lengths in m that decrease to 0. Each solve starts from the result of the solve
      before. In the first solve, contacts act at the first length: a contact that is farther away
      and that the cost does not approach is not found. The default is 28 lengths from 0.2 m, each
      0.8 times the length before, and then 0;
    - `iterations`: the largest number of steps of each solve, 1 or more;
    - `depth` in m: the largest accepted depth of the contacts in x0 and in the states of a guess.

    One compiled program serves all solves. The rollout has feedback: after one full step, all later
    trajectories of a solve satisfy the dynamics. The cost has kinks where contacts begin and end.
    So the last solve often ends with the status ITERATION_LIMIT or FAILED, at a trajectory that no
    step improves. Check its goal, its constraints and `replay_error`. Raises ArgumentError for
    other dynamics, for smoothings that are traced or do not decrease to 0, and for an x0 or a guess
    that penetrates or is not finite; other errors as in `solve`.
    """
    arguments.require_type(problem, "problem", Problem)
    dynamics = problem.dynamics
    if not isinstance(dynamics, ContactShooting):
        raise ArgumentError(f"problem has dynamics {dynamics!r}, expected contact_shooting(...)")
    lengths = arguments.parameter(smoothing, "smoothing", (None,))
    if isinstance(lengths, Tracer):
        raise ArgumentError("smoothing is traced, expected lengths that are known")
    lengths = np.asarray(lengths)  # also from a GPU
    most = arguments.parameter(depth, "depth", ())
    arguments.require(most, lambda x: x >= 0, "depth", "a number of 0 or more")
    if not len(lengths) or lengths[-1] != 0 or not np.all(np.diff(lengths) < 0):
        raise ArgumentError(f"smoothing is {smoothing!r}, expected lengths that decrease to 0")
    arguments.require_counts(iterations=iterations)
    x0 = problem.space.checked(x0, "x0")
    states, us = states_and_controls(guess)
    check_functions(problem, x0, us, p)
    arguments.require(x0[1], np.isfinite, "the velocity of x0", "finite")
    arguments.require(us, np.isfinite, "the controls of guess", "finite")
    _require_apart(dynamics, x0[0][None], "x0", depth)
    if states is None:
        states, *_ = _replay(dynamics.with_smoothing(lengths[0]), x0, us)
    elif jax.tree.structure(states) == jax.tree.structure(x0) and [*map(np.shape, states)] == [
        (len(us) + 1, *x.shape) for x in x0
    ]:
        _require_apart(dynamics, jnp.asarray(states[0]), "guess", depth)
        arguments.require(states[1], np.isfinite, "the velocities of guess", "finite")
    guess, solutions = (states, us), []
    for length in lengths:
        relaxed = eqx.tree_at(lambda p: p.dynamics, problem, dynamics.with_smoothing(length))
        found = solve(
            relaxed,
            x0,
            p,
            guess,
            iterations=iterations,
            tolerance=tolerance,
            rollout="feedback",
        )
        guess = found.xs, found.us
        solutions.append(found)
    found = solutions[-1]
    (q, v), rigid = found.xs, dynamics.with_smoothing(0.0)
    (q_replayed, v_replayed), forces, joint_forces = _replay(rigid, x0, found.us)
    distances = _distances(rigid, q)
    return ContactSolution(
        found,
        jnp.stack([x.status for x in solutions]),
        jnp.stack([x.iterations for x in solutions]),
        jnp.stack([x.cost for x in solutions]),
        largest(q_replayed - q, v_replayed - v),
        jnp.max(-distances, initial=0),
        jnp.max(forces * jnp.maximum(distances[1:], 0), initial=0),
        joint_forces,
    )


@jax.jit
def _replay(dynamics: ContactShooting, x0: PyTree, us: Array) -> tuple[PyTree, Array, Array]:
    """The states (N + 1, ...) for the controls, and the forces of the stages in N or N m.

    The forces are the norms (N, n) of the contact forces, and the joint forces (N, nv) of controls
    and servo.
    """
    model, options = dynamics.model, dynamics.options()

    def step(q, v, _, __, u):
        found = dynamics.step((q, v), u)
        tau = force_of_controls(model, u, dynamics.dofs)
        return found.q, found.v, norm(found.impulse) / options.dt, options.joint_forces(found, tau)

    start = *x0, jnp.zeros(dynamics.scene.size, us.dtype), jnp.zeros(model.nv, us.dtype)
    q, v, forces, joint_forces = rollout(step, start, us)
    return (q, v), forces[1:], joint_forces[1:]


@jax.jit
def _distances(dynamics: ContactShooting, q: Array) -> Array:
    """The distances of the contacts (states, n) in m, without the smoothing."""
    model, scene = dynamics.model, dynamics.scene.astype(dynamics.model.dtype)

    def distances(q):
        return find_contacts(model, scene, forward_kinematics.unchecked(model, q)).distance

    return jax.vmap(distances)(q)


def _require_apart(dynamics: ContactShooting, q: Array, name: str, depth: float) -> None:
    """Raise ArgumentError if a row of q (states, nq) is not finite or has a contact too deep."""
    values = arguments.known(q)
    if values is not None and not np.all(np.isfinite(values)):
        state = int(np.argmin(np.isfinite(values).all(axis=1)))
        raise ArgumentError(
            f"{name} is {values[state]} in state {state}, expected finite coordinates"
        )
    found = arguments.known(_distances(dynamics, q))
    if found is None or not found.size or np.min(found) >= -depth:
        return
    state, contact = np.unravel_index(np.argmin(found), found.shape)
    raise ArgumentError(
        f"{name} penetrates: contact {contact} of the scene has the depth {-np.min(found):.3g} m "
        f"in state {state}, expected at most {depth} m"
    )


__all__ = ["ContactShooting", "ContactSolution", "contact_shooting", "solve_contacts"]
