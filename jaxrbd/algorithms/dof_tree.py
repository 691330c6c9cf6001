"""The tree of degrees of freedom, in the frames of its nodes.

A joint of n dofs is a chain of n nodes, each with one dof. The first node has the pose of the body
in its parent; the last node has the inertia of the body. The other nodes have the identity
transform and no inertia. So each division is by a scalar, and the recursions are the same for all
joints.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..model import Model
from ..model.joint_space import active_dissipative_force, motion_subspace, relative_velocities
from ..spatial import Pose, cross_motion, gyroscopic_force, inertia_matrix, inverse_motion_matrix
from ..tree import propagate
from .kinematics import Kinematics, configuration_of, poses_in_parents


class DofTree(NamedTuple):
    """The dof tree, one row per node."""

    X: Array  # (nv, 6, 6) transform of motions from the parent node to this node
    S: Array  # (nv, 6) motion vector of the dof
    I: Array  # (nv, 6, 6) rigid-body inertia
    p: Array  # (nv, 6) bias force of the rigid body, minus the external force on it
    c: Array  # (nv, 6) bias acceleration
    tau: Array  # (nv,) joint force, minus damping and friction if dissipation is on
    armature: Array  # (nv,) inertia of the motor, added to the diagonal of M


def dof_tree(
    model: Model, q: Array | Kinematics, v: Array, tau: Array, f_ext: Array | None
) -> DofTree:
    """The nodes of a model whose velocity map is the identity. Arguments as for `aba`."""
    X = poses_in_parents(model, q)
    q = configuration_of(q)
    tau = tau - active_dissipative_force(model, q, v)
    vJ = relative_velocities(model, q, v)
    V = propagate(model.topology, X, vJ)
    p = gyroscopic_force(model.inertia, V)
    if f_ext is not None:
        p = p - f_ext
    return _nodes(model, X, p, cross_motion(V, vJ), tau)


def _nodes(model: Model, X: Pose, p: Array, c: Array, tau: Array) -> DofTree:
    """The nodes, from the poses X in the parents, bias forces p and bias accelerations c of bodies.

    The first node of a joint has the pose and the bias acceleration of the body. The last node has
    the inertia and the bias force of the body.
    """
    topology = model.topology
    body = topology.dof_body
    first = np.isin(np.arange(topology.nv), topology.v_start)
    last = np.append(body[1:] != body[:-1], True)[: topology.nv]
    return DofTree(
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
