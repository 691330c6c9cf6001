"""Forward dynamics by the articulated-body algorithm, on the tree of degrees of freedom.

A joint of n dofs is a chain of n nodes, each with one dof. The first node has the pose of the body
in its parent; the last node has the inertia of the body. The other nodes have the identity
transform and no inertia. So each division is by a scalar, and the recursion is the same for all
joints.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.linear import matmul
from ..model import Model, arguments
from ..model.joint_space import active_dissipative_force, motion_subspace, relative_velocities
from ..spatial import Pose, cross_motion, gyroscopic_force, inertia_matrix, inverse_motion_matrix
from ..tree import backward_pass, forward_pass, propagate
from .crba import minverse
from .forward_dynamics import forward_dynamics, solve_mass_matrix
from .kinematics import (
    Kinematics,
    configuration_of,
    forward_kinematics,
    poses_in_parents,
)
from .rnea import gravity_acceleration


class _Nodes(NamedTuple):
    """The dof tree, one row per node."""

    X: Array  # (nv, 6, 6) transform of motions from the parent node to this node
    S: Array  # (nv, 6)
    I: Array  # (nv, 6, 6) rigid-body inertia
    p: Array  # (nv, 6) bias force of the rigid body
    c: Array  # (nv, 6) bias acceleration
    tau: Array  # (nv,)
    armature: Array  # (nv,)


@arguments.compiled(arrays=("q", "v", "tau", "f_ext"))
def aba(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    f_ext: Array | None = None,
) -> Float[Array, " nv"]:
    """Acceleration of the robot under the joint forces tau, in O(nv) operations, (nv,).

    Arguments, result and errors as for `forward_dynamics`, which is faster, also for long chains,
    and has derivatives that cost less. `aba` is the recursion of Featherstone's book, in the frames
    of single dofs. If joints of the model follow others (mimic) or are `joints.Custom`, `aba` calls
    `forward_dynamics`. Source: Featherstone, table 7.1.
    """
    if not model.velocity_map_is_identity:
        return forward_dynamics.unchecked(model, q, v, tau, f_ext)
    X = poses_in_parents(model, q)
    q = configuration_of(q)
    tau = tau - active_dissipative_force(model, q, v)
    vJ = relative_velocities(model, q, v)
    V = propagate(model.topology, X, vJ)
    p = gyroscopic_force(model.inertia, V)
    if f_ext is not None:
        p = p - f_ext
    nodes = _dof_tree(model, X, p, cross_motion(V, vJ), tau)
    parents = model.topology.dof_parent
    U, D, u = _backward_pass(parents, nodes)
    return _forward_pass(parents, nodes, U, D, u, gravity_acceleration(model))


@arguments.compiled(arrays=("q",))
def aba_minverse(model: Model, q: Array | Kinematics) -> Float[Array, "nv nv"]:
    """Inverse of the mass matrix without forming M, in O(nv^2) operations, (nv, nv).

    `q` (nq,) or its `Kinematics`. Column j is the acceleration of the robot, at rest and without
    gravity, under a unit force on dof j. The articulated-body inertias are computed once for all
    columns. `minverse` is faster for robots of up to about 100 dofs. If joints of the model follow
    others (mimic) or are `joints.Custom`, `aba_minverse` calls `minverse`. Source: Carpentier
    (2018).
    """
    if not model.velocity_map_is_identity:
        return minverse.unchecked(model, q)
    kinematics = forward_kinematics.unchecked(model, q)
    unit_forces = jnp.eye(model.nv, dtype=model.dtype)
    columns = jax.vmap(lambda b: solve_mass_matrix(model, kinematics, b))(unit_forces)
    return (columns + columns.T) / 2


def _dof_tree(model: Model, X: Pose, p: Array, c: Array, tau: Array) -> _Nodes:
    """The nodes, from the poses X in the parents, bias forces p and bias accelerations c of bodies.

    The first node of a joint has the pose and the bias acceleration of the body. The last node has
    the inertia and the bias force of the body.
    """
    topology = model.topology
    body = topology.dof_body
    first = np.isin(np.arange(topology.nv), topology.v_start)
    last = np.append(body[1:] != body[:-1], True)[: topology.nv]
    return _Nodes(
        X=jnp.where(
            first[:, None, None],
            inverse_motion_matrix(Pose(X.R[body], X.p[body])),
            jnp.eye(6, dtype=model.dtype),
        ),
        S=motion_subspace(model),
        I=jnp.where(last[:, None, None], inertia_matrix(model.inertia[body]), 0),
        p=jnp.where(last[:, None], p[body], 0),
        c=jnp.where(first[:, None], c[body], 0),
        tau=tau,
        armature=model.armature,
    )


def _backward_pass(parents: np.ndarray, nodes: _Nodes) -> tuple[Array, Array, Array]:
    """Leaves to root: articulated-body inertias and bias forces; returns U (nv, 6), D and u (nv,).

    `U = IA S`, `D = S . U + armature` and `u = tau - S . pA` for each node, with the
    articulated-body inertia IA and the bias force pA. The row of a node is `[IA | pA]` (6, 7).
    """

    def eliminate(row, node):
        IA, pA = row[:, :6], row[:, 6]
        U = matmul(IA, node.S)
        D = matmul(node.S, U) + node.armature
        u = node.tau - matmul(node.S, pA)
        Ia = IA - U[:, None] * (U / D)[None]
        pa = pA + matmul(Ia, node.c) + U * (u / D)
        in_parent = matmul(node.X.T, jnp.concatenate([matmul(Ia, node.X), pa[:, None]], axis=1))
        return in_parent, (U, D, u)

    rigid = jnp.concatenate([nodes.I, nodes.p[..., None]], axis=-1)
    return backward_pass(parents, eliminate, rigid, nodes, differentiable=True)[1]


def _forward_pass(
    parents: np.ndarray, nodes: _Nodes, U: Array, D: Array, u: Array, world: Array
) -> Array:
    """Root to leaves: accelerations of the nodes; returns the accelerations of the dofs, (nv,).

    `world` (6,): the acceleration of the world.
    """

    def accelerate(A, step):
        node, U, D, u = step
        a = matmul(node.X, A) + node.c
        qdd = (u - matmul(U, a)) / D
        return a + node.S * qdd, qdd

    steps = (nodes, U, D, u)
    return forward_pass(parents, accelerate, world, steps, differentiable=True)[1]
