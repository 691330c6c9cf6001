"""Forward dynamics by the articulated-body algorithm, on the tree of degrees of freedom.

A joint of n dofs is n nodes in a chain: the first is handed the parent's motion, the last bears
the body. So every node has one dof, each division is by a number, and no joint's width is seen.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul
from ..model import Model, arguments
from ..model.joint_space import (
    active_dissipative_force,
    joint_poses,
    motion_subspace,
    relative_velocities,
)
from ..spatial import Pose, cross_motion, gyroscopic_force, inertia_matrix, inverse_motion_matrix
from ..tree import parent_rows, propagate
from .crba import minverse
from .forward_dynamics import forward_dynamics
from .kinematics import Kinematics, forward_kinematics
from .rnea import gravity_acceleration


class _Nodes(NamedTuple):
    """The dof tree: one row a node."""

    parent: Array
    X: Array  # (nv, 6, 6) motion of the parent node to this node
    S: Array  # (nv, 6)
    I: Array  # (nv, 6, 6) inertia borne by this node
    p: Array  # (nv, 6) bias force borne by this node
    c: Array  # (nv, 6) bias acceleration
    tau: Array  # (nv,)
    armature: Array  # (nv,)


@arguments.compiled
def aba(
    model: Model, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None
) -> Float[Array, " nv"]:
    """Acceleration of the robot under the joint forces tau, in O(nb) operations.

    Arguments, result and errors as for `forward_dynamics`, which is the faster up to some 50 dofs
    and to differentiate; this is the better for long chains. Where joints follow others (mimic),
    and so the dofs are no tree, it is `forward_dynamics` itself. Source: Featherstone, table 7.1.
    """
    if not arguments.robot(model).velocity_map_is_identity:
        return forward_dynamics(model, q, v, tau, f_ext)
    q = arguments.configuration(model, q)
    v = arguments.velocity(model, v)
    tau = arguments.velocity(model, tau, "tau") - active_dissipative_force(model, q, v)
    X = joint_poses(model, q)
    vJ = relative_velocities(model, q, v)
    V = propagate(model.topology, X, vJ)
    p = gyroscopic_force(model.inertia, V)
    if f_ext is not None:
        p = p - arguments.wrenches(model, f_ext)
    nodes = _dof_tree(model, X, p, cross_motion(V, vJ), tau)
    U, D, u = _articulate(nodes)
    return _accelerate(nodes, U, D, u, gravity_acceleration(model))


@arguments.compiled
def aba_minverse(model: Model, q: ArrayLike | Kinematics) -> Float[Array, "nv nv"]:
    """Inverse of the mass matrix by the dof tree, without forming M, in O(nv^2), (nv, nv).

    Each column is the response of the robot, at rest and weightless, to a unit force on one dof;
    the articulated inertias are common to all. `q` (nq,) or its `Kinematics`. `minverse` is the
    faster for robots; this is the better for long chains. Where joints follow others (mimic) it is
    `minverse` itself. Raises ArgumentError on a wrong shape or dtype. Source: Carpentier (2018).
    """
    if not arguments.robot(model).velocity_map_is_identity:
        return minverse(model, q)
    X = forward_kinematics(model, q).X_PB
    at_rest = jnp.zeros((model.nb, 6), model.dtype)
    nodes = _dof_tree(model, X, at_rest, at_rest, jnp.zeros(model.nv, model.dtype))
    U, D, _ = _articulate(nodes)

    def response(tau):
        return _accelerate(nodes, U, D, _bear(nodes, U, D, tau), jnp.zeros(6, model.dtype))

    columns = jax.vmap(response)(jnp.eye(model.nv, dtype=model.dtype))
    return (columns + columns.T) / 2


def _dof_tree(model: Model, X: Pose, p: Array, c: Array, tau: Array) -> _Nodes:
    """Lay the bodies on the nodes: pose and bias on a joint's first node, inertia on its last."""
    topology = model.topology
    body = topology.dof_body
    first = np.isin(np.arange(topology.nv), topology.v_start)
    last = np.append(body[1:] != body[:-1], True)[: topology.nv]
    return _Nodes(
        parent=jnp.asarray(parent_rows(topology.dof_parent)),
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


def _articulate(nodes: _Nodes) -> tuple[Array, Array, Array]:
    """Leaves to root: articulated inertias and bias forces; returns U (nv, 6), D and u (nv,).

    The buffer holds `[I_A | p_A]`, one row of it (6, 7) a node, the world's last.
    """

    def body(buffer, step):
        i, node = step
        own = lax.dynamic_index_in_dim(buffer, i, keepdims=False)
        IA, pA = own[:, :6], own[:, 6]
        U = matmul(IA, node.S)
        D = matmul(node.S, U) + node.armature
        u = node.tau - matmul(node.S, pA)
        Ia = IA - U[:, None] * (U / D)
        pa = pA + matmul(Ia, node.c) + U * (u / D)
        handed = matmul(node.X.T, jnp.concatenate([matmul(Ia, node.X), pa[:, None]], axis=1))
        at_parent = lax.dynamic_index_in_dim(buffer, node.parent, keepdims=False) + handed
        return lax.dynamic_update_index_in_dim(buffer, at_parent, node.parent, 0), (U, D, u)

    nv = len(nodes.tau)
    borne = jnp.concatenate([nodes.I, nodes.p[..., None]], axis=-1)
    buffer = jnp.concatenate([borne, jnp.zeros((1, 6, 7), borne.dtype)])
    steps = (jnp.arange(nv, dtype=jnp.int32), nodes)
    return lax.scan(body, buffer, steps, reverse=True)[1]


def _bear(nodes: _Nodes, U: Array, D: Array, tau: Array) -> Array:
    """Leaves to root: what of the forces tau is left to move each node, u (nv,)."""

    def body(p, step):
        i, node, U, D, tau = step
        pA = lax.dynamic_index_in_dim(p, i, keepdims=False)
        u = tau - matmul(node.S, pA)
        handed = matmul(node.X.T, pA + U * (u / D))
        at_parent = lax.dynamic_index_in_dim(p, node.parent, keepdims=False) + handed
        return lax.dynamic_update_index_in_dim(p, at_parent, node.parent, 0), u

    nv = len(tau)
    steps = (jnp.arange(nv, dtype=jnp.int32), nodes, U, D, tau)
    return lax.scan(body, jnp.zeros((nv + 1, 6), tau.dtype), steps, reverse=True)[1]


def _accelerate(nodes: _Nodes, U: Array, D: Array, u: Array, world: Array) -> Array:
    """Root to leaves: accelerations of the nodes, and of the dofs, (nv,)."""

    def body(buffer, step):
        i, node, U, D, u = step
        above = lax.dynamic_index_in_dim(buffer, node.parent, keepdims=False)
        a = matmul(node.X, above) + node.c
        qdd = (u - matmul(U, a)) / D
        return lax.dynamic_update_index_in_dim(buffer, a + node.S * qdd, i, 0), qdd

    nv = len(nodes.tau)
    buffer = jnp.zeros((nv + 1, 6), world.dtype).at[nv].set(world)
    return lax.scan(body, buffer, (jnp.arange(nv, dtype=jnp.int32), nodes, U, D, u))[1]
