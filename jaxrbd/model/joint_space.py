"""The maps between the joint space (q, v, tau) and the bodies of the tree.

A velocity of the robot has four representations:

    representation          shape        entries
    v                       (nv,)        the independent velocities
    joint rates             (nv_joint,)  the velocities of every joint, mimic joints included
    tree rates              (nv_tree,)   one per row of S: the velocities of the tree's dofs
    relative velocities     (nb, 6)      spatial velocity of each body relative to its parent

The velocity map G turns v into tree rates. It is the identity for most robots. It is constant where
joints mimic others, and it depends on q where joints follow others by a function (`Follow`) or have
a motion subspace that depends on q (`joints.Custom`). The motion subspace S is constant: it turns
tree rates into relative velocities. So the relative velocities are `S G v`, their time derivatives
are `S (G a + dG/dt v)`, and forces on the bodies give generalized forces `G^T S^T F`.

Only this module calls joint kinds, and no algorithm uses G.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.components import halves
from .._math.linear import einsum
from .._math.rows import merge_rows, take_rows
from ..joints import Custom
from ..spatial import Pose, transform_motion
from ..topology import Topology
from .model import JointGroup, Model, joint_groups, joint_groups_of


def joint_poses(model: Model, q: Float[Array, " nq"], bodies: np.ndarray | None = None) -> Pose:
    """Poses `X_PB` of the bodies in their parents, R (nb, 3, 3) and p (nb, 3) in m.

    `bodies`: some of them, in increasing order (default all).
    """
    q = joint_coordinates(model, q)
    groups = joint_groups(model) if bodies is None else joint_groups_of(model, bodies)
    R, p = [], []
    for group in groups:
        n = len(group.bodies)
        placement = jax.tree.map(lambda x: take_rows(x, group.bodies), model.placement)
        pose = group.joint.pose(placement, take_rows(q, group.index["q"]))
        R.append(jnp.broadcast_to(pose.R, (n, 3, 3)))
        p.append(jnp.broadcast_to(pose.p, (n, 3)))
    moved = [group.bodies for group in groups]
    return Pose(merge_rows(R, moved, (3, 3), model.dtype), merge_rows(p, moved, (3,), model.dtype))


def motion_subspace(
    model: Model, X: Pose | None = None, bodies: np.ndarray | None = None
) -> Float[Array, "nv_tree 6"]:
    """Rows of S, one a degree of freedom of the tree, each in its body's own frame.

    Or, given the bodies' poses X in one frame, in that. `bodies`: those of some of them, in
    increasing order, whose poses the rows of X then are (default all).
    """
    groups = joint_groups(model) if bodies is None else joint_groups_of(model, bodies)
    rows, dofs = [], []
    for group in groups:
        n, width = group.index["S"].shape
        S = jnp.asarray(group.joint.subspace(), model.dtype)
        if X is not None:
            own = group.bodies if bodies is None else np.searchsorted(bodies, group.bodies)
            at = jax.tree.map(lambda x: take_rows(x, own)[:, None], X)
            S = transform_motion(at, S)
        rows.append(jnp.broadcast_to(S, (n, width, 6)).reshape(n * width, 6))
        dofs.append(group.index["S"].ravel())
    return merge_rows(rows, dofs, (6,), model.dtype)


def subspaces_by_kind(
    model: Model, q: Float[Array, " nq"]
) -> list[tuple[JointGroup, Float[Array, "n nv 6"]]]:
    """The joints' motion subspaces kind by kind, a row a velocity, in their bodies' frames."""
    coordinates = joint_coordinates(model, q)
    found = []
    for group in joint_groups(model):
        if isinstance(group.joint, Custom):
            S = group.joint.tangent(coordinates[group.index["q"]])
        else:
            S = jnp.asarray(group.joint.subspace(), model.dtype)
        found.append((group, jnp.broadcast_to(S, (len(group.bodies), group.joint.nv, 6))))
    return found


def relative_velocities(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nb 6"]:
    """`S G v`: the motion of each body relative to its parent, in the body's frame."""
    return _along_subspaces(model, tree_rates(model, q, v))


def relative_accelerations(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, "nb 6"]:
    """`S (G a + dG/dt v)`: the rate of `relative_velocities`, in the body's frame."""
    return _along_subspaces(model, tree_rate_derivatives(model, q, v, a))


def generalized_force(
    model: Model, q: Float[Array, " nq"], F: Float[Array, "nb 6"]
) -> Float[Array, " nv"]:
    """`G^T S^T F`: the generalised force of a force on each body, in the body's frame."""

    def rows(group: JointGroup) -> Array:
        force, moment = halves(take_rows(F, group.bodies)[:, None])
        linear, angular = halves(jnp.asarray(group.joint.subspace(), model.dtype))
        return force.dot(linear) + moment.dot(angular)

    return independent_force(model, q, _merge_groups(model, rows, "S", ()))


def _along_subspaces(model: Model, rates: Float[Array, " nv_tree"]) -> Float[Array, "nb 6"]:
    """`S rates`, by joints and not as a matrix product: each joint has a few rows of S."""
    groups = joint_groups(model)

    def motion(group: JointGroup) -> Array:
        S = jnp.asarray(group.joint.subspace(), model.dtype)
        of = take_rows(rates, group.index["S"])[..., None]
        n, width = group.index["S"].shape
        rows = [of[:, k] * S[..., k, :] for k in range(width)]
        return sum(rows[1:], start=rows[0]) if rows else jnp.zeros((n, 6), model.dtype)

    bodies = [group.bodies for group in groups]
    return merge_rows([motion(group) for group in groups], bodies, (6,), model.dtype)


def sum_dofs(topology: Topology, rows: Array) -> Array:
    """Sum the rows (nv, 6) of each body's dofs, (nb, 6)."""
    widths = sorted(set(topology.nvs))
    bodies = [np.flatnonzero(np.array(topology.nvs) == width) for width in widths]
    sums = []
    for width, at in zip(widths, bodies):
        index = topology.v_start[at][:, None] + np.arange(width)
        sums.append(jnp.sum(take_rows(rows, index), axis=1))
    return merge_rows(sums, bodies, (6,), rows.dtype)


# ---------------------------------------------- G: from the independent velocities to the tree's


def joint_coordinates(model: Model, q: Float[Array, " nq"]) -> Float[Array, " nq_joint"]:
    """The coordinates of every joint from the independent ones."""
    return q if model.coupling is None else model.coupling.position(q)


def joint_rates(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv_joint"]:
    """The velocities of every joint from the independent ones."""
    return v if model.coupling is None else model.coupling.velocity(q, v)


def tree_rates(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv_tree"]:
    """`G v`: the velocities of the tree's degrees of freedom, one a row of S."""
    rates = joint_rates(model, q, v)
    if not model.has_custom_joints:
        return rates
    coordinates = joint_coordinates(model, q)

    def along_rows(group: JointGroup) -> Array:
        own = take_rows(rates, group.index["v"])
        if not isinstance(group.joint, Custom):
            return own
        return jnp.sum(group.joint.tangent(coordinates[group.index["q"]]) * own[..., None], axis=-2)

    return _merge_groups(model, along_rows, "S", ())


def independent_force(
    model: Model, q: Float[Array, " nq"], rows: Float[Array, "nv_tree ..."]
) -> Float[Array, "nv ..."]:
    """`G^T rows`: from generalised forces on the tree's dofs, along the first axis."""
    if model.has_custom_joints:
        coordinates = joint_coordinates(model, q)

        def along_joints(group: JointGroup) -> Array:
            own = take_rows(rows, group.index["S"])
            if not isinstance(group.joint, Custom):
                return own
            tangent = group.joint.tangent(coordinates[group.index["q"]])
            return einsum("nij,nj...->ni...", tangent, own)

        rows = _merge_groups(model, along_joints, "v", rows.shape[1:])
    return rows if model.coupling is None else model.coupling.force(q, rows)


def independent_joint_force(
    model: Model, q: Float[Array, " nq"], forces: Float[Array, "nv_joint ..."]
) -> Float[Array, "nv ..."]:
    """Generalised forces on the independent velocities, from those on every joint's."""
    return forces if model.coupling is None else model.coupling.force(q, forces)


def project(
    model: Model, q: Float[Array, " nq"], A: Float[Array, "nv_tree nv_tree"]
) -> Float[Array, "nv nv"]:
    """`G^T A G`."""
    if model.velocity_map_is_identity:
        return A
    return independent_force(model, q, independent_force(model, q, A).T).T


def armature_force(
    model: Model, q: Float[Array, " nq"], rates: Float[Array, " nv_joint"]
) -> Float[Array, " nv"]:
    """Generalised force of the armature for accelerations of every joint."""
    return independent_joint_force(model, q, model.armature * rates)


def armature_inertia(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """The armature's share of M."""
    return project_diagonal(model, q, model.armature)


def project_diagonal(
    model: Model, q: Float[Array, " nq"], diagonal: Float[Array, " nv_joint"]
) -> Float[Array, "nv nv"]:
    """A diagonal matrix over every joint's velocities as a matrix over the independent ones."""
    half = independent_joint_force(model, q, jnp.diag(diagonal))
    return independent_joint_force(model, q, half.T).T


def dissipative_force(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """Joint forces that overcome viscous damping and Coulomb friction."""
    rates = joint_rates(model, q, v)
    forces = model.damping * rates + model.friction * jnp.sign(rates)
    return independent_joint_force(model, q, forces)


def armature_and_dissipation_force(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """What the joints themselves take: the armature's inertia, and dissipation where it is on."""
    rotors = armature_force(model, q, joint_rate_derivatives(model, q, v, a))
    return rotors + active_dissipative_force(model, q, v)


def active_dissipative_force(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Array | int:
    """`dissipative_force` where the model has it on, else 0."""
    return dissipative_force(model, q, v) if model.dissipative else 0


def joint_rate_derivatives(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, " nv_joint"]:
    """The rates of `joint_rates`."""
    return joint_rates(model, q, a) + _rate_of_map(joint_rates, model, q, v)


def tree_rate_derivatives(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, " nv_tree"]:
    """`G a + dG/dt v`: the rates of `tree_rates`."""
    return tree_rates(model, q, a) + _rate_of_map(tree_rates, model, q, v)


def coordinate_rates(model: Model, v: Float[Array, " nv"]) -> Float[Array, " nq"]:
    """dq/dt at the coordinates that G depends on, which have one velocity each; 0 elsewhere."""
    q_index, v_index = [], []
    for group in joint_groups(model):
        if group.joint.nq == group.joint.nv:
            q_index += group.index["q"].ravel().tolist()
            v_index += group.index["v"].ravel().tolist()
    if model.coupling is not None:
        q_of = {own: i for i, own in enumerate(model.coupling.q_independent)}
        v_of = {own: i for i, own in enumerate(model.coupling.v_independent)}
        pairs = [(q_of[i], v_of[j]) for i, j in zip(q_index, v_index) if i in q_of]
        q_index, v_index = [i for i, _ in pairs], [j for _, j in pairs]
    return jnp.zeros(model.nq, v.dtype).at[np.array(q_index, int)].set(v[np.array(v_index, int)])


def displaced_coordinates(
    model: Model, q: Float[Array, " nq"], dq: Float[Array, " nv"]
) -> Float[Array, " nq"]:
    """q moved by a small dq, for the coordinates that G depends on alone."""
    return q + coordinate_rates(model, dq)


def velocity_map_rate(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> tuple[Float[Array, "nv_tree nv"], Float[Array, "nv_joint nv"]]:
    """Rates along v of the matrices of `tree_rates` (G) and `joint_rates`."""

    def matrices(q):
        one = jnp.eye(model.nv, dtype=model.dtype)
        columns = jax.vmap(lambda x: (tree_rates(model, q, x), joint_rates(model, q, x)))(one)
        return jax.tree.map(jnp.transpose, columns)

    return jax.jvp(matrices, (q,), (coordinate_rates(model, v),))[1]


def _rate_of_map(rates: Callable, model: Model, q: Array, v: Array) -> Array | int:
    """`dG/dt v` of the map `rates`."""
    if model.velocity_map_is_constant:
        return 0
    return jax.jvp(lambda q: rates(model, q, v), (q,), (coordinate_rates(model, v),))[1]


def _merge_groups(model: Model, function: Callable, space: str, shape) -> Array:
    """One array over all joints' "q", "v" or "S" of a function of each group; see `merge_rows`."""
    groups = joint_groups(model)
    rows = [function(group).reshape(-1, *shape) for group in groups]
    return merge_rows(rows, [group.index[space].ravel() for group in groups], shape, model.dtype)
