"""Forward dynamics by the articulated-body algorithm, on the tree of degrees of freedom."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.linear import matmul
from ..model import Model, arguments
from ..tree import backward_pass, forward_pass
from .crba import minverse
from .dof_tree import DofTree, dof_tree
from .forward_dynamics import forward_dynamics, solve_mass_matrix
from .kinematics import Kinematics, forward_kinematics
from .rnea import gravity_acceleration


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
    nodes = dof_tree(model, q, v, tau, f_ext)
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


def _backward_pass(parents: np.ndarray, nodes: DofTree) -> tuple[Array, Array, Array]:
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
    parents: np.ndarray, nodes: DofTree, U: Array, D: Array, u: Array, world: Array
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
