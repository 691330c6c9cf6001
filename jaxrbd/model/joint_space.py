"""The maps between the joint space (q, v, tau) and the bodies of the tree.

A velocity of the robot has four representations:

    representation          shape        entries
    v                       (nv,)        the independent velocities
    joint rates             (nv_joint,)  the velocities of every joint, mimic joints included
    tree rates              (nv_tree,)   one per row of S: the velocities of the tree's dofs
    relative velocities     (nb, 6)      spatial velocity of each body relative to its parent

The velocity map G maps v to the tree rates. For most robots it is the identity. It is constant if
joints mimic others. It depends on q if joints follow others by a function (`Follow`) or are
`joints.Custom`. The motion subspace S is constant and maps the tree rates to relative velocities.
So the relative velocities are `S G v`, their time derivatives are `S (G a + dG/dt v)`, and the
forces F on the bodies give the generalized force `G^T S^T F`. In these formulas S has one column
per dof of the tree. The arrays store S transposed, so "a row of S" is the spatial vector (6,) of
one dof.

Algorithms call these functions, and do not use the joint kinds or the matrix G. Some algorithms use
the matrix dG/dt, which `velocity_map_rate` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.components import halves
from .._math.ranks import times
from .._math.rows import merge_rows, take_rows
from ..joints import subspace_is_identity
from ..spatial import Pose, transform_motion
from .model import JointGroup, Model, joint_groups, joint_groups_with_bodies


def joint_poses(model: Model, q: Float[Array, " nq"], bodies: np.ndarray | None = None) -> Pose:
    """Poses `X_PB` of the bodies in their parents: R (nb, 3, 3) and p (nb, 3) in m.

    `bodies`: the bodies to include, in increasing order (default all).
    """
    q = joint_coordinates(model, q)
    groups = joint_groups(model) if bodies is None else joint_groups_with_bodies(model, bodies)
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
    """Rows of S, one per degree of freedom of the tree, each in the frame of its body.

    - `X`: poses of the bodies in one common frame; the rows of S are then in this frame;
    - `bodies`: the bodies to include, in increasing order (default all). X has one pose per body in
      `bodies`.
    """
    groups = joint_groups(model) if bodies is None else joint_groups_with_bodies(model, bodies)
    rows, dofs = [], []
    for group in groups:
        n, width = group.index["S"].shape
        S = jnp.asarray(group.joint.subspace(), model.dtype)
        if X is not None:
            index = group.bodies if bodies is None else np.searchsorted(bodies, group.bodies)
            X_group = jax.tree.map(lambda x: take_rows(x, index)[:, None], X)
            S = transform_motion(X_group, S)
        rows.append(jnp.broadcast_to(S, (n, width, 6)).reshape(n * width, 6))
        dofs.append(group.index["S"].ravel())
    return merge_rows(rows, dofs, (6,), model.dtype)


def subspaces_by_kind(
    model: Model, q: Float[Array, " nq"]
) -> list[tuple[JointGroup, Float[Array, "n nv 6"]]]:
    """For each joint kind, the velocity subspaces of its joints, in the frames of their bodies.

    There is one row per entry of the joint's velocity: the spatial velocity of the body relative to
    its parent if this entry is 1 and the other entries are 0. The rows are rows of S, except for a
    `joints.Custom`, whose tree rates are not its velocities.
    """
    coordinates = joint_coordinates(model, q)
    found = []
    for group in joint_groups(model):
        if group.joint.tree_rates_are_joint_rates:
            S = jnp.asarray(group.joint.subspace(), model.dtype)
        else:
            S = group.joint.velocity_subspace(coordinates[group.index["q"]])
        found.append((group, jnp.broadcast_to(S, (len(group.bodies), group.joint.nv, 6))))
    return found


def body_subspace(model: Model, q: Float[Array, " nq"], body: int) -> Float[Array, "n 6"]:
    """The velocity subspace of the joint of one body, in the body frame.

    See `subspaces_by_kind`.
    """
    group, S = next(pair for pair in subspaces_by_kind(model, q) if body in pair[0].bodies)
    return S[group.bodies.tolist().index(body)]


def relative_velocities(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nb 6"]:
    """`S G v`: the spatial velocity of each body relative to its parent, in the body's frame."""
    return _map_rates(model, tree_rates(model, q, v))


def relative_accelerations(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, "nb 6"]:
    """`S (G a + dG/dt v)`: the time derivative of `relative_velocities`, in the body's frame."""
    return _map_rates(model, tree_rate_derivatives(model, q, v, a))


def generalized_force(
    model: Model, q: Float[Array, " nq"], F: Float[Array, "nb 6"]
) -> Float[Array, " nv"]:
    """`G^T S^T F`: the generalized force of one spatial force per body, in the body's frame."""

    def rows(group: JointGroup) -> Array:
        if subspace_is_identity(group.joint):
            return take_rows(F, group.bodies)
        force, moment = halves(take_rows(F, group.bodies)[:, None])
        linear, angular = halves(jnp.asarray(group.joint.subspace(), model.dtype))
        return force.dot(linear) + moment.dot(angular)

    return independent_force(model, q, _merge_groups(model, rows, "S", ()))


def _map_rates(model: Model, rates: Float[Array, " nv_tree"]) -> Float[Array, "nb 6"]:
    """`S rates`, one joint kind at a time, because most entries of S as one matrix are zero."""
    groups = joint_groups(model)

    def motion(group: JointGroup) -> Array:
        if subspace_is_identity(group.joint):
            return take_rows(rates, group.index["S"])
        S = jnp.asarray(group.joint.subspace(), model.dtype)
        group_rates = take_rows(rates, group.index["S"])[..., None]
        n, width = group.index["S"].shape
        rows = [times(group_rates[:, k], S[..., k, :]) for k in range(width)]
        return sum(rows[1:], start=rows[0]) if rows else jnp.zeros((n, 6), model.dtype)

    bodies = [group.bodies for group in groups]
    return merge_rows([motion(group) for group in groups], bodies, (6,), model.dtype)


# ------------------------------------------------- entries of independent joints and of all joints


def independent_index(model: Model, space: str) -> np.ndarray:
    """The indices (nq,) of the independent coordinates among the coordinates of all joints.

    `space`: "q", or "v" for the velocities (nv,).
    """
    if model.coupling is None:
        return np.arange(model.nq if space == "q" else model.nv)
    return np.array(getattr(model.coupling, f"{space}_independent"), int)


def independent_entries(model: Model, x: Array, space: str) -> Array:
    """The entries of independent joints (nq,) or (nv,), from the entries of all joints."""
    return x if model.coupling is None else take_rows(x, independent_index(model, space))


def entries_of_all_joints(model: Model, x: Array, space: str, fill: ArrayLike = 0) -> Array:
    """The entries x of the independent joints (last axis), extended to all joints.

    Joints that follow others get `fill`.
    """
    if model.coupling is None:
        return x
    size = model.topology.nq if space == "q" else sum(model.joint_nvs)
    out = jnp.full((*x.shape[:-1], size), fill, x.dtype)
    return out.at[..., independent_index(model, space)].set(x, unique_indices=True)


# ------------------------------------------------ G: from independent velocities to tree rates


def joint_coordinates(model: Model, q: Float[Array, " nq"]) -> Float[Array, " nq_joint"]:
    """The coordinates of all joints, from the independent coordinates q."""
    return q if model.coupling is None else model.coupling.position(q)


def joint_rates(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv_joint"]:
    """The velocities of all joints, from the independent velocities v."""
    return v if model.coupling is None else model.coupling.velocity(q, v)


def tree_rates(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv_tree"]:
    """`G v`: the velocities of the tree's degrees of freedom, one per row of S."""
    rates = joint_rates(model, q, v)
    if model.tree_rates_are_joint_rates:
        return rates
    coordinates = joint_coordinates(model, q)

    def group_rates(group: JointGroup) -> Array:
        v_group = take_rows(rates, group.index["v"])
        if group.joint.tree_rates_are_joint_rates:
            return v_group
        return group.joint.tree_rates(coordinates[group.index["q"]], v_group)

    return _merge_groups(model, group_rates, "S", ())


def independent_force(
    model: Model, q: Float[Array, " nq"], rows: Float[Array, "nv_tree ..."]
) -> Float[Array, "nv ..."]:
    """`G^T rows`, for one row per dof of the tree.

    If `rows` are generalized forces on the dofs, the result is the generalized force on v that does
    the same work. If `rows` are the transposed Jacobian over the dofs, the result is the transposed
    Jacobian over v.
    """
    if not model.tree_rates_are_joint_rates:
        coordinates = joint_coordinates(model, q)

        def group_forces(group: JointGroup) -> Array:
            f_group = take_rows(rows, group.index["S"])
            if group.joint.tree_rates_are_joint_rates:
                return f_group
            return group.joint.joint_force(coordinates[group.index["q"]], f_group)

        rows = _merge_groups(model, group_forces, "v", rows.shape[1:])
    return rows if model.coupling is None else model.coupling.force(q, rows)


def independent_joint_force(
    model: Model, q: Float[Array, " nq"], forces: Float[Array, "nv_joint ..."]
) -> Float[Array, "nv ..."]:
    """The generalized force on v that does the same work as `forces` on all joints.

    `forces` (nv_joint, ...): generalized forces along the first axis.
    """
    return forces if model.coupling is None else model.coupling.force(q, forces)


def project(
    model: Model, q: Float[Array, " nq"], A: Float[Array, "nv_tree nv_tree"]
) -> Float[Array, "nv nv"]:
    """`G^T A G`: the matrix A over the tree's dofs as a matrix over the velocities v."""
    if model.velocity_map_is_identity:
        return A
    return independent_force(model, q, independent_force(model, q, A).T).T


def armature_force(
    model: Model, q: Float[Array, " nq"], accelerations: Float[Array, " nv_joint"]
) -> Float[Array, " nv"]:
    """Generalized force that accelerates the armature, for the accelerations of all joints."""
    return independent_joint_force(model, q, model.armature * accelerations)


def armature_inertia(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """The armature's term in the mass matrix M."""
    return project_diagonal(model, q, model.armature)


def project_diagonal(
    model: Model, q: Float[Array, " nq"], diagonal: Float[Array, " nv_joint"]
) -> Float[Array, "nv nv"]:
    """`J^T diag(diagonal) J`, where J is the matrix of the map `joint_rates` from v."""
    half = independent_joint_force(model, q, jnp.diag(diagonal))
    return independent_joint_force(model, q, half.T).T


def dissipative_force(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """Generalized force that balances viscous damping and Coulomb friction."""
    rates = joint_rates(model, q, v)
    forces = model.damping * rates + model.friction * jnp.sign(rates)
    return independent_joint_force(model, q, forces)


def armature_and_dissipation_force(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """Generalized force that accelerates the armature, plus `active_dissipative_force`."""
    rotors = armature_force(model, q, joint_rate_derivatives(model, q, v, a))
    return rotors + active_dissipative_force(model, q, v)


def active_dissipative_force(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Array | int:
    """`dissipative_force` if the model has dissipation on, else 0."""
    return dissipative_force(model, q, v) if model.dissipative else 0


def joint_rate_derivatives(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, " nv_joint"]:
    """The time derivative of `joint_rates`."""
    return joint_rates(model, q, a) + _rate_of_map(joint_rates, model, q, v)


def tree_rate_derivatives(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, " nv_tree"]:
    """`G a + dG/dt v`: the time derivative of `tree_rates`."""
    return tree_rates(model, q, a) + _rate_of_map(tree_rates, model, q, v)


def coordinates_with_rates(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """The indices i and j of n coordinates with dq_i/dt = v_j, two arrays (n,), in increasing j.

    These are the coordinates of the independent joints whose configurations form a vector space.
    The angle of a planar joint is not among them.
    """
    q_index, v_index = [], []
    for group in joint_groups(model):
        if group.joint.velocities_are_coordinate_rates:
            q_index += group.index["q"].ravel().tolist()
            v_index += group.index["v"].ravel().tolist()
    if model.coupling is not None:
        q_place = {joint_i: i for i, joint_i in enumerate(model.coupling.q_independent)}
        v_place = {joint_i: i for i, joint_i in enumerate(model.coupling.v_independent)}
        pairs = [(q_place[i], v_place[j]) for i, j in zip(q_index, v_index) if i in q_place]
        q_index, v_index = [i for i, _ in pairs], [j for _, j in pairs]
    order = np.argsort(np.array(v_index, int))
    return np.array(q_index, int)[order], np.array(v_index, int)[order]


class PositionLimits(NamedTuple):
    """The limits of the coordinates whose rates are velocities, in the order of the velocities.

    - `place` (nv,): for each dof the index of its coordinate in q, or nq if there is none;
    - `lower`, `upper` (nv,): the limits of these coordinates, infinite where the dof has no such
      coordinate or no limit.
    """

    place: np.ndarray
    lower: Float[Array, " nv"]
    upper: Float[Array, " nv"]

    def coordinates(self, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
        """The coordinate of each dof (nv,), 0 for a dof without one."""
        return _at_places(self.place, q, 0)


def position_limits(model: Model) -> PositionLimits:
    """The position limits that `contact_step` and inverse kinematics enforce.

    The limits of other joints, such as free joints, are bounds of random configurations only.
    """
    coordinates, velocities = coordinates_with_rates(model)
    place = np.full(model.nv, model.nq)
    place[velocities] = coordinates
    return PositionLimits(
        place,
        _at_places(place, model.lower_position_limit, -np.inf),
        _at_places(place, model.upper_position_limit, np.inf),
    )


def _at_places(place: np.ndarray, x: Float[Array, " nq"], fill: ArrayLike) -> Array:
    return take_rows(jnp.append(x, jnp.full((), fill, x.dtype)), place)


def coordinate_rates(model: Model, v: Float[Array, " nv"]) -> Float[Array, " nq"]:
    """dq/dt (nq,), valid only for the coordinates that G can depend on.

    G depends only on the coordinates of one-dof joints and of `joints.Custom`. The velocities of
    these joints are dq/dt.
    """
    q_index, v_index = coordinates_with_rates(model)
    return jnp.zeros(model.nq, v.dtype).at[q_index].set(v[v_index])


def displaced_coordinates(
    model: Model, q: Float[Array, " nq"], dq: Float[Array, " nv"]
) -> Float[Array, " nq"]:
    """q plus a small displacement dq, valid only for the coordinates that G can depend on."""
    return q + coordinate_rates(model, dq)


def velocity_map_rate(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> tuple[Float[Array, "nv_tree nv"], Float[Array, "nv_joint nv"]]:
    """Time derivatives of G (the matrix of `tree_rates`), and of the matrix of `joint_rates`.

    The configuration q moves with the velocity v.
    """

    def matrices(q):
        identity = jnp.eye(model.nv, dtype=model.dtype)
        columns = jax.vmap(lambda x: (tree_rates(model, q, x), joint_rates(model, q, x)))(identity)
        return jax.tree.map(jnp.transpose, columns)

    return jax.jvp(matrices, (q,), (coordinate_rates(model, v),))[1]


def _rate_of_map(rates: Callable, model: Model, q: Array, v: Array) -> Array | int:
    """`dA/dt v`, where A(q) is the matrix of the linear map `rates` from v."""
    if model.velocity_map_is_constant:
        return 0
    return jax.jvp(lambda q: rates(model, q, v), (q,), (coordinate_rates(model, v),))[1]


def _merge_groups(model: Model, function: Callable, space: str, shape) -> Array:
    """Values of `function` for every joint group, merged in the order of the whole robot.

    `space`: "q" if `function` gives one value per joint coordinate, "v" for one value per joint
    velocity, "S" for one value per row of S.
    """
    groups = joint_groups(model)
    rows = [function(group).reshape(group.index[space].size, *shape) for group in groups]
    return merge_rows(rows, [group.index[space].ravel() for group in groups], shape, model.dtype)
