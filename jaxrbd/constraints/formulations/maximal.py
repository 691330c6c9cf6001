"""Dynamics in maximal coordinates: free bodies, and each joint as a constraint between two bodies.

This module solves the system (3.74) of Featherstone's book. The unknowns are the accelerations of
all bodies and the constraint forces of all joints. The system is dense and slow to solve, but its
solution is independent of `forward_dynamics`. All quantities are in world axes, with the origin at
the root body of each tree. Accelerations are relative to the world. The system is

    [  I     P T ] [   a   ]   [ P T_a tau - p ]
    [T^T P^T  0  ] [-lambda] = [-dT^T/dt P^T v ]      (3.74)

where I are the inertias of all bodies, a and v their spatial accelerations and velocities, and p
their bias forces. T and T_a are the subspaces of constraint force and of active force of all
joints. Their basis vectors are columns here, and rows in the arrays of this module. P maps joint
forces to forces on the bodies that the joints connect.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..._math.linear import complement, inverse_positive_definite, matmul, solve
from ..._math.rows import merge_rows
from ...algorithms.common_frame import velocities
from ...algorithms.kinematics import (
    Kinematics,
    configuration_and_poses,
    configuration_of,
    poses_in_parents,
)
from ...errors import ArgumentError
from ...model import Model, arguments
from ...model.joint_space import (
    active_dissipative_force,
    body_subspace,
    coordinate_rates,
    subspaces_by_kind,
)
from ...spatial import (
    Pose,
    cross_force,
    from_linear,
    gyroscopic_force,
    inertia_matrix,
    inverse_transform_force,
    inverse_transform_motion,
    transform_force,
    transform_inertia,
)


class JointSubspaces(NamedTuple):
    """Subspaces of one joint of n dofs in the frame of the joint's body, as rows.

    - `S` (n, 6): the motion subspace. The joint velocity is `S^T rates`;
    - `T` (6 - n, 6): the subspace of constraint force; `T_a` (n, 6): the subspace of active force.
      The joint force is `T_a^T tau + T^T lambda`.

    `T S^T = 0` and `T_a S^T = 1`.
    """

    S: Float[Array, "n 6"]
    T: Float[Array, "c 6"]
    T_a: Float[Array, "n 6"]


class MaximalDynamics(NamedTuple):
    """Accelerations from maximal coordinates, and the forces of the joints.

    - `acceleration` (nv,): the joint accelerations;
    - `body_acceleration` (nb, 6): the spatial accelerations in the body frames;
    - `joint_wrench` (nb, 6): the force of each joint on its body, in the body frame. It is the
      active force `T_a^T tau'` plus the constraint force `T^T lambda`, with rows as in
      `JointSubspaces`. tau' is tau without the joint forces that accelerate the armature and
      balance the dissipation;
    - `multipliers` (6 nb - nv,): lambda, the coordinates of the constraint forces in the rows of T,
      joint by joint.
    """

    acceleration: Float[Array, " nv"]
    body_acceleration: Float[Array, "nb 6"]
    joint_wrench: Float[Array, "nb 6"]
    multipliers: Float[Array, " c"]


@arguments.compiled(arrays=("q",), static_argnames="joint")
def joint_subspaces(model: Model, q: Array | Kinematics, joint: str) -> JointSubspaces:
    """Motion subspace, constraint-force subspace and active-force subspace of a joint.

    `q` (nq,) or its `Kinematics`. The subspaces depend on q only for compound joints and
    `joints.Custom`. `joint`: the name of a joint, as for `Model.joint`. The rows of T are an
    orthonormal basis of the complement of S. T_a is the transpose of the pseudo-inverse of S:
    `T_a^T tau` is the force of least norm that does the work of tau. Raises ArgumentError for an
    unknown joint. Source: Featherstone (3.33), (3.34).
    """
    bodies = model.joint(joint).bodies
    X_PB = poses_in_parents(model, q)
    q = configuration_of(q)
    rows = jnp.zeros((0, 6), model.dtype)
    for body in bodies:  # one body per stage of a compound joint, otherwise one body
        rows = inverse_transform_motion(jax.tree.map(lambda x: x[body], X_PB), rows)
        rows = jnp.concatenate([rows, body_subspace(model, q, body)])
    return _complete(rows)


@arguments.compiled(arrays=("q", "v", "tau", "f_ext"))
def maximal_dynamics(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    f_ext: Array | None = None,
) -> MaximalDynamics:
    """Forward dynamics from (3.74): every body is free, and every joint is a constraint.

    The arguments are as for `forward_dynamics`, which gives the same acceleration in a fraction of
    the time. Raises ArgumentError for a robot with joints that follow others, because a constraint
    between two bodies cannot describe such a joint. Source: Featherstone (3.66) to (3.74).
    """
    found = _maximal_equations(model, q, v, tau, f_ext)
    X, T, T_a, tau, size = found.X, found.T, found.T_a, found.tau, 6 * model.nb
    solved = solve(found.matrix, found.right)
    a, multipliers = solved[:size], -solved[size:]
    acceleration = matmul(T_a.on_bodies.reshape(model.nv, size), a) + T_a.velocity_product
    active = T_a.rows * (tau - model.armature * acceleration)[:, None]
    f_J = jnp.zeros((model.nb, 6), model.dtype).at[T_a.body].add(active)
    f_J = f_J.at[T.body].add(T.rows * multipliers[:, None])
    return MaximalDynamics(
        acceleration,
        inverse_transform_motion(X, a.reshape(model.nb, 6)),
        inverse_transform_force(X, f_J),
        multipliers,
    )


@arguments.compiled(arrays=("q", "v", "tau", "f_ext"))
def maximal_system(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    f_ext: Array | None = None,
) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """Matrix (n, n) and right-hand side (n,) of (3.74), whose solution is `[a, -lambda]`.

    The arguments and errors are as for `maximal_dynamics`, which solves the system. The unknown a
    (6 nb,) contains the spatial accelerations of the bodies in world axes, about the root of each
    tree. The unknown lambda (6 nb - nv,) contains the multipliers. So n = 12 nb - nv.
    """
    found = _maximal_equations(model, q, v, tau, f_ext)
    return found.matrix, found.right


class _MaximalEquations(NamedTuple):
    """The system (3.74), and the quantities with which `maximal_dynamics` reads the solution."""

    matrix: Array
    right: Array
    X: Pose
    T: _Rows
    T_a: _Rows
    tau: Array


def _maximal_equations(model: Model, q, v, tau, f_ext) -> _MaximalEquations:
    if model.coupling is not None:
        raise ArgumentError(f"{model!r} has joints that follow others, expected independent joints")
    q, X = configuration_and_poses(model, q)
    tau = tau - active_dissipative_force(model, q, v)
    V = velocities(model, X, q, v).V
    T, T_a = _joint_rows(model, q, v, X, V)

    I = inertia_matrix(transform_inertia(X, model.inertia))
    gravity = from_linear(model.gravity)
    p = gyroscopic_force(transform_inertia(X, model.inertia), V) - matmul(I, gravity)
    if f_ext is not None:
        p = p - transform_force(X, f_ext)

    size = 6 * model.nb
    bodies = np.arange(model.nb)
    mass = jnp.zeros((model.nb, 6, model.nb, 6), model.dtype).at[bodies, :, bodies].set(I)
    active, constraint = (x.on_bodies.reshape(len(x.rows), size) for x in (T_a, T))
    # With T_a as rows, the joint accelerations are T_a a_J + dT_a/dt v_J, where a_J and v_J are the
    # spatial acceleration and velocity of a body relative to its parent. The armature resists the
    # joint accelerations.
    rotors = matmul(active.T, model.armature[:, None] * active)
    force = matmul(active.T, tau - model.armature * T_a.velocity_product) - p.reshape(size)
    corner = jnp.zeros((len(constraint), len(constraint)), model.dtype)
    matrix = jnp.block([[mass.reshape(size, size) + rotors, constraint.T], [constraint, corner]])
    right = jnp.concatenate([force, -T.velocity_product])
    return _MaximalEquations(matrix, right, X, T, T_a, tau)


class _Rows(NamedTuple):
    """Rows of T^T or T_a^T of all joints, in world axes, and products of the rows.

    - `rows` (r, 6); `body` (r,): for each row, the body that the joint moves;
    - `on_bodies` (r, nb, 6): the rows times P^T;
    - `velocity_product` (r,): the time derivatives of the rows times the velocities v_J of the
      bodies relative to their parents.
    """

    rows: Array
    body: np.ndarray
    on_bodies: Array
    velocity_product: Array


def _joint_rows(model: Model, q: Array, v: Array, X: Pose, V: Array) -> tuple[_Rows, _Rows]:
    """T^T and T_a^T of all joints; the rows of T_a^T are in the order of v."""

    def subspaces(q):
        """T and T_a of all joints, in the body frames."""
        completed = [jax.vmap(_complete)(S) for _, S in subspaces_by_kind(model, q)]
        return [
            merge_rows([_flat(getattr(s, name)) for s in completed], places, (6,), model.dtype)
            for name, places in (("T", constraint_rows), ("T_a", active_rows))
        ]

    groups = [group for group, _ in subspaces_by_kind(model, q)]
    active_rows = [group.index["v"].ravel() for group in groups]
    widths = np.array(model.joint_nvs, int)
    start = np.cumsum([0, *(6 - widths)])
    constraint_rows = [
        (start[group.bodies][:, None] + np.arange(6 - group.joint.nv)).ravel() for group in groups
    ]
    subspace_rows, subspace_rates = jax.jvp(subspaces, (q,), (coordinate_rates(model, v),))
    P_T = np.eye(model.nb)
    for body, parent in enumerate(model.topology.parents):
        if parent >= 0:
            P_T[body, parent] = -1
    P_T = jnp.asarray(P_T, model.dtype)
    v_J = matmul(P_T, V)
    found = []
    for rows, rates, numbers in zip(subspace_rows, subspace_rates, (6 - widths, widths)):
        body = np.repeat(np.arange(model.nb), numbers)
        X_joint = jax.tree.map(lambda x: x[body], X)
        rows, rates = transform_force(X_joint, rows), transform_force(X_joint, rates)
        rates = rates + cross_force(V[body], rows)
        on_bodies = P_T[body][..., None] * rows[:, None]
        found.append(_Rows(rows, body, on_bodies, jnp.sum(rates * v_J[body], axis=-1)))
    return found[0], found[1]


def _complete(S: Array) -> JointSubspaces:
    """T and T_a for independent rows S."""
    return JointSubspaces(S, complement(S), matmul(inverse_positive_definite(matmul(S, S.T)), S))


def _flat(x: Array) -> Array:
    return x.reshape(-1, 6)
