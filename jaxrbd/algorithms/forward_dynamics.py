"""Forward dynamics: articulated-body inertias, and the derivative as an implicit function.

The acceleration a satisfies `M a + bias = tau`. So its derivative is `M^-1 (dtau - d rnea)`, where
`d rnea` is the change of the inverse dynamics at constant a. JAX never differentiates a solver.

The change of the inverse dynamics is written in one frame with world axes, by the method of
rnea_derivatives.py. Let `d` be the displacement of a body relative to its parent, and V_p and A_p
the velocity and the acceleration of the parent. In a frame that is displaced with the subtree of
the body, the poses of the bodies of the subtree do not change. In this frame, the displacement has
the same effect on their velocities and accelerations as an additional velocity `psi_dot = V_p x d`
and an additional acceleration `psi_ddot = A_p x d + V_p x psi_dot` of the world. The displacement
also rotates and moves the composite force F of the subtree: F changes by `d x* F`.

Let V be the velocity of the body, and `w` a change of its velocity relative to the parent. This
change has the same effect on the bodies of the subtree as an additional velocity w and an
additional acceleration `(V + V_p) x w` of the world.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Float

from .._math.linear import inverse_positive_definite, matmul
from .._math.rows import take_rows
from .._math.rules import changed_leaves, custom_jvp
from ..configuration import velocity_of_rate
from ..model import Model, arguments
from ..model.joint_space import active_dissipative_force
from ..spatial import (
    Pose,
    apply_inertia,
    apply_velocity_moments,
    cross_force,
    cross_motion,
    inertial_force,
    rotate,
    skew,
    transform_force,
    velocity_moments,
)
from ..tree import by_loops_or_paths, sum_dofs, sum_to_leaves, sum_to_root
from .articulated import ArticulatedFactors, articulate, articulated_motion, articulated_solve
from .common_frame import body_inertias, dof_columns
from .crba import crba, mass_matrix_product
from .divide_and_conquer import divide_and_conquer
from .kinematics import Kinematics, forward_kinematics, root_centred
from .rnea import bias_force, gravity_acceleration


@arguments.compiled(arrays=("q", "v", "tau", "f_ext"))
def forward_dynamics(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    f_ext: Array | None = None,
) -> Float[Array, " nv"]:
    """Acceleration of the robot under the joint forces tau, `M(q)^-1 (tau - bias)`, (nv,).

    - `q` (nq,) or its `Kinematics`, `v` (nv,), `tau` (nv,) in N or N m;
    - `f_ext` (nb, 6): external forces as in `rnea`.

    The result is in rad/s^2 or m/s^2; `bias` is `bias_force(model, q, v, f_ext)`. The solver uses
    articulated-body inertias and takes O(nv) operations. If joints follow others or are
    user-defined, the solver computes the inverse of M instead. JAX differentiates the equation
    `M a = tau - bias` and not the solver. So the derivative is `M^-1 (dtau - d rnea)`, where d rnea
    is the derivative of `rnea` at constant a. The value and all derivatives share one factorisation
    of M. Where M is singular, the result has no meaning: rounding errors decide whether it is
    finite. For a massless last link without armature it is not finite.
    Within `tree.implementation("parallel")`, the program composes articulated bodies by divide and
    conquer (divide_and_conquer.py), and JAX differentiates this composition.
    Source: Featherstone, section 6.1 and table 7.1.
    """
    if not model.velocity_map_is_identity:
        return _by_mass_matrix(model, q, v, tau, f_ext)
    return by_loops_or_paths(_by_loops, divide_and_conquer, model, q, v, tau, f_ext)


def _by_loops(
    model: Model, q: Array | Kinematics, v: Array, tau: Array, f_ext: Array | None
) -> Array:
    if isinstance(q, Kinematics):
        return _by_mass_matrix(model, q, v, tau, f_ext)
    return _motion((model, f_ext), q, v, tau).acceleration


def _by_mass_matrix(
    model: Model, q: Array | Kinematics, v: Array, tau: Array, f_ext: Array | None
) -> Array:
    """The solution of `M a = tau - bias`, which JAX differentiates as a linear system."""
    kinematics = forward_kinematics.unchecked(model, q)
    bias = bias_force.unchecked(model, kinematics, v, f_ext)
    return solve_mass_matrix(model, kinematics, tau - bias)


def solve_mass_matrix(
    model: Model, q: Array | Kinematics, b: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """`M(q)^-1 b` (nv,) for a generalized force b, differentiated as an implicit function."""
    kinematics = forward_kinematics.unchecked(model, q)
    solve = mass_matrix_solver(*lax.stop_gradient((model, kinematics)))
    return lax.custom_linear_solve(
        lambda x: mass_matrix_product.unchecked(model, kinematics, x),
        b,
        lambda _, b: solve(b),
        symmetric=True,
    )


def mass_matrix_solver(model: Model, kinematics: Kinematics) -> Callable[[Array], Array]:
    """The function `b -> M(q)^-1 b`, b (nv,). Calls of the function share one factorisation."""
    if not model.velocity_map_is_identity:
        inverse = inverse_positive_definite(crba(model, kinematics))
        return lambda b: matmul(inverse, b)
    X = root_centred(kinematics)
    factors = articulate(model, dof_columns(model, X), body_inertias(model, X))
    return lambda b: articulated_solve(model, factors, b)


# ----------------------------------------------------------- the acceleration in one common frame

Parameters = tuple[Model, Array | None]  # the model and the external forces


class _Motion(NamedTuple):
    """The acceleration (nv,), and quantities that the derivative of the acceleration uses too.

    `X`: poses of the bodies in world axes, with positions relative to the root body; `A_dofs`
    (nb, 6): the accelerations of the bodies that are due to the acceleration of the dofs.
    """

    acceleration: Array
    X: Pose
    A_dofs: Array
    factors: ArticulatedFactors


class _Bodies(NamedTuple):
    """Quantities of the bodies in the common frame, at zero acceleration of the dofs.

    `J` (nv, 6): the dof columns; `I` (nb, 10): inertias; `vJ`, `aJ` (nb, 6): velocities and
    accelerations relative to the parents; `V`, `A` (nb, 6): velocities and accelerations relative
    to the world, where A includes the acceleration -g of the world, which has the same effect as
    gravity; `f` (nb, 6): external forces.
    """

    J: Array
    I: Array
    vJ: Array
    V: Array
    aJ: Array
    A: Array
    f: Array | float


def _bodies(parameters: Parameters, X: Pose, v: Array) -> _Bodies:
    model, f_ext = parameters
    J = dof_columns(model, X)
    vJ = sum_dofs(model.topology, v[:, None] * J)
    V = sum_to_leaves(model.topology, vJ)
    aJ = cross_motion(V, vJ)
    A = sum_to_leaves(model.topology, aJ, gravity_acceleration(model))
    f = 0.0 if f_ext is None else transform_force(X, f_ext)
    return _Bodies(J, body_inertias(model, X), vJ, V, aJ, A, f)


@custom_jvp
def _motion(parameters: Parameters, q: Array, v: Array, tau: Array) -> _Motion:
    """The motion by articulated-body inertias. Source: Featherstone, table 7.1."""
    model = parameters[0]
    X = root_centred(forward_kinematics.unchecked(model, q))
    bodies = _bodies(parameters, X, v)
    force = inertial_force(bodies.I, bodies.V, bodies.A) - bodies.f
    b = tau - active_dissipative_force(model, q, v)
    a, A_dofs, factors = articulated_motion(model, bodies.J, bodies.I, force, b)
    return _Motion(a, X, A_dofs, factors)


def _implicit_motion(parameters: Parameters, q: Array, v: Array, tau: Array) -> _Motion:
    """As `_motion`, in formulas that JAX differentiates with respect to the parameters too."""
    model, f_ext = parameters
    kinematics = forward_kinematics.unchecked(model, q)
    bias = bias_force.unchecked(model, kinematics, v, f_ext)
    a = solve_mass_matrix(model, kinematics, tau - bias)
    X = root_centred(kinematics)
    J = dof_columns(model, X)
    relative = sum_dofs(model.topology, a[:, None] * J)
    J, terms = articulate(*lax.stop_gradient((model, J, body_inertias(model, X))))
    # The factors of `articulated_motion` have one more column, so add a zero column.
    factors = ArticulatedFactors(J, jnp.pad(terms, ((0, 0), (0, 1))))
    return _Motion(a, X, sum_to_leaves(model.topology, relative), factors)


def _motion_jvp(primals, tangents):
    """The derivative that the head of this file describes. It shares the factorisation of M."""
    parameters, q, v, _ = primals
    changed_parameters, _, _ = changed_leaves(parameters, tangents[0])
    if changed_parameters:
        values, changes, with_values = changed_leaves(primals, tangents)
        return jax.jvp(lambda x: _implicit_motion(*with_values(x)), (values,), (changes,))
    model, motion = parameters[0], _motion(*primals)
    bodies = _bodies(parameters, motion.X, v)
    q_dot, v_dot, tau_dot = (None if isinstance(x, SymbolicZero) else x for x in tangents[1:])

    def relative(*rates):
        """For each of the rates (nv,), the motions of the bodies relative to the parents."""
        rows = [x[:, None] * bodies.J for x in rates]
        sums = sum_dofs(model.topology, jnp.concatenate(rows, axis=-1))
        return jnp.split(sums, len(rates), axis=-1)

    zero = jnp.zeros_like(v)
    force = zero if tau_dot is None else tau_dot
    dq = zero if q_dot is None else velocity_of_rate.unchecked(model, q, q_dot)
    d, w = relative(dq, zero if v_dot is None else v_dot)
    if v_dot is not None:
        force = force - jax.jvp(lambda v: _dissipation(model, q, v), (v,), (v_dot,))[1]
    if q_dot is not None or v_dot is not None:
        force = force - _inverse_dynamics_change(model, bodies, motion, d, w)
    a_dot = _solve(model, bodies, motion.factors, force)

    # The tangents of X and A_dofs are for derivatives of higher order. The formulas of X_dot and
    # A_dofs_dot assume that the frame does not move with the root body. This assumption is allowed,
    # because the acceleration of the dofs is the same for every origin of the frame.
    twist = sum_to_leaves(model.topology, d)
    turn = skew(twist[:, 3:])
    X_dot = Pose(matmul(turn, motion.X.R), rotate(turn, motion.X.p) + twist[:, :3])
    (a_relative,), (change,) = relative(motion.acceleration), relative(a_dot)
    A_dofs_dot = sum_to_leaves(model.topology, cross_motion(twist, a_relative) + change)
    factors_dot = jax.tree.map(jnp.zeros_like, motion.factors)
    return motion, _Motion(a_dot, X_dot, A_dofs_dot, factors_dot)


_motion.defjvp(_motion_jvp, symbolic_zeros=True)


def _dissipation(model: Model, q: Array, v: Array) -> Array:
    """`active_dissipative_force` as an array (nv,), also where it is the number 0."""
    return jnp.zeros_like(v) + active_dissipative_force(model, q, v)


def _inverse_dynamics_change(
    model: Model, bodies: _Bodies, motion: _Motion, d: Array, w: Array
) -> Array:
    """The change (nv,) of `rnea` at constant acceleration of the dofs.

    `d`, `w` (nb, 6): the displacements of the bodies relative to their parents, and the changes of
    the relative velocities that are due to changes of v.
    """
    topology, (J, I, vJ, V, aJ, A, f) = model.topology, bodies
    A = A + motion.A_dofs
    V_parent = V - vJ
    A_parent = A - aJ - sum_dofs(topology, motion.acceleration[:, None] * J)
    psi_dot = cross_motion(V_parent, d)
    psi_ddot = cross_motion(A_parent, d) + cross_motion(V_parent, psi_dot)
    accelerations = psi_ddot + cross_motion(V + V_parent, w)
    changes = jnp.concatenate([psi_dot + w, accelerations], axis=-1)
    dV, dA = jnp.split(sum_to_leaves(topology, changes), 2, axis=-1)
    force = apply_inertia(I, dA) + 2 * apply_velocity_moments(velocity_moments(I, V), dV)
    displaced = cross_force(d, sum_to_root(topology, inertial_force(I, V, A) - f))
    return _dof_forces(model, J, sum_to_root(topology, force + displaced) - displaced)


def _solve(model: Model, bodies: _Bodies, factors: ArticulatedFactors, b: Array) -> Array:
    """`M^-1 b` (nv,), differentiated as an implicit function."""
    topology, factors = model.topology, lax.stop_gradient(factors)

    def mass_matrix_times(x):
        A = sum_to_leaves(topology, sum_dofs(topology, x[:, None] * bodies.J))
        force = sum_to_root(topology, apply_inertia(bodies.I, A))
        return _dof_forces(model, bodies.J, force) + model.armature * x

    def solve(_, b):
        return articulated_solve(model, factors, b)

    return lax.custom_linear_solve(mass_matrix_times, b, solve, symmetric=True)


def _dof_forces(model: Model, J: Array, force: Array) -> Array:
    """The generalized forces (nv,) of the composite forces (nb, 6) of the bodies."""
    return jnp.sum(J * take_rows(force, model.topology.dof_body), axis=-1)
