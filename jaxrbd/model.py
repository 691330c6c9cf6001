"""The robot as a pytree: every number a differentiable leaf, every structure static.

Here, and only here, joint kinds meet the tree: `joint_poses` turns q into the poses of the bodies
in their parents, `joint_motion` turns a velocity into the bodies' relative motions (`S v`), and
`joint_force` is its transpose (`S^T F`). Mimic joints live at this edge too: with `v_tree = G v`,
these three are all that ever sees G.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float

from .joints import Joint
from .spatial import Pose
from .topology import Topology


class Coupling(eqx.Module):
    """Mimic joints: each coordinate of the tree follows one independent coordinate.

    `q_tree = multiplier * q[q_source] + offset`, `v_tree = v_multiplier * v[v_source]`: an
    independent coordinate is its own source, with multiplier 1 and offset 0.
    """

    q_multiplier: Float[Array, " nq_tree"]
    q_offset: Float[Array, " nq_tree"]
    v_multiplier: Float[Array, " nv_tree"]
    q_source: tuple[int, ...] = eqx.field(static=True)
    v_source: tuple[int, ...] = eqx.field(static=True)
    q_independent: tuple[int, ...] = eqx.field(static=True)
    v_independent: tuple[int, ...] = eqx.field(static=True)

    def position(self, q: Array) -> Array:
        """All coordinates of the tree from the independent ones."""
        return self.q_multiplier * q[np.array(self.q_source)] + self.q_offset

    def motion(self, v: Array) -> Array:
        """All velocities of the tree from the independent ones: `G v`, along the first axis."""
        columns = (-1,) + (1,) * (v.ndim - 1)
        return self.v_multiplier.reshape(columns) * v[np.array(self.v_source)]

    def force(self, tau: Array) -> Array:
        """Generalised force on the independent coordinates: `G^T tau`, along the first axis."""
        columns = (-1,) + (1,) * (tau.ndim - 1)
        weighted = self.v_multiplier.reshape(columns) * tau
        out = jnp.zeros((len(self.v_independent), *tau.shape[1:]), tau.dtype)
        return out.at[np.array(self.v_source)].add(weighted)


class Model(eqx.Module):
    """A robot: `nb` moving bodies, `nq` configuration coordinates, `nv` degrees of freedom.

    Made by `load_urdf`, `load_robot` or `build_model`; a pytree, so `vmap` and `grad` over its
    masses, inertias, placements, axes or gravity work. Bodies are in depth-first order, joint i
    moves body i. Lengths in m, masses in kg, angles in rad.

    Leaves:
    - `placement`: (nb,) poses of each joint's fixed side in the parent body's frame;
    - `inertia`: (nb, 10), about each body frame's origin, see `jaxrbd.spatial`;
    - `joints`: the joints, stacked by kind (`joint_bodies` says which body each moves);
    - `frame_pose`: (nf,) poses of the named frames (one a link) in their bodies;
    - `gravity`: (3,), acceleration of free fall in the world's axes;
    - `armature`, `damping`, `friction`: one a degree of freedom of the tree, mimic joints
      included. Armature enters every algorithm as inertia on the diagonal of M; damping and
      friction enter none of them by themselves, see `passive_force`;
    - `lower_position_limit`, `upper_position_limit` (nq,), `velocity_limit`, `effort_limit` (nv,):
      infinite where there is none. No algorithm enforces them;
    - `coupling`: the mimic joints, or None.
    """

    placement: Pose
    inertia: Float[Array, "nb 10"]
    joints: tuple[Joint, ...]
    frame_pose: Pose
    gravity: Float[Array, "3"]
    armature: Float[Array, " nv_tree"]
    damping: Float[Array, " nv_tree"]
    friction: Float[Array, " nv_tree"]
    lower_position_limit: Float[Array, " nq"]
    upper_position_limit: Float[Array, " nq"]
    velocity_limit: Float[Array, " nv"]
    effort_limit: Float[Array, " nv"]
    coupling: Coupling | None
    topology: Topology = eqx.field(static=True)
    joint_bodies: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    joint_names: tuple[str, ...] = eqx.field(static=True)
    body_names: tuple[str, ...] = eqx.field(static=True)
    frame_names: tuple[str, ...] = eqx.field(static=True)
    frame_bodies: tuple[int, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True, default="robot")

    @property
    def nb(self) -> int:
        """Number of moving bodies."""
        return self.topology.nb

    @property
    def nq(self) -> int:
        """Number of independent configuration coordinates: the length of q."""
        return self.topology.nq if self.coupling is None else len(self.coupling.q_independent)

    @property
    def nv(self) -> int:
        """Number of independent degrees of freedom: the length of v, a and tau."""
        return self.topology.nv if self.coupling is None else len(self.coupling.v_independent)

    @property
    def dtype(self) -> np.dtype:
        """The floating dtype of all leaves, and so of all results."""
        return np.dtype(self.inertia.dtype)

    def astype(self, dtype: DTypeLike) -> Model:
        """The same robot with every array cast to `dtype` (float32 or float64)."""
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self)

    def __repr__(self) -> str:
        return (
            f"Model({self.name!r}, nb={self.nb}, nq={self.nq}, nv={self.nv}, "
            f"frames={len(self.frame_names)}, dtype={self.dtype.name})"
        )


# -------------------------------------------------------- independent coordinates and the tree's


def tree_position(model: Model, q: Float[Array, " nq"]) -> Float[Array, " nq_tree"]:
    """All coordinates of the tree from the independent ones."""
    return q if model.coupling is None else model.coupling.position(q)


def tree_motion(model: Model, v: Float[Array, " nv"]) -> Float[Array, " nv_tree"]:
    """All velocities of the tree from the independent ones: `G v`."""
    return v if model.coupling is None else model.coupling.motion(v)


def independent_force(model: Model, rows: Float[Array, "nv_tree ..."]) -> Float[Array, "nv ..."]:
    """Generalised forces on the independent coordinates, `G^T rows`, along the first axis."""
    return rows if model.coupling is None else model.coupling.force(rows)


# ------------------------------------------------------------------------ joints in their places


@dataclasses.dataclass(frozen=True)
class JointGroup:
    """The joints of one kind and their places in the tree.

    `bodies` (n,) are moved by them; `index["q"]` (n, nq) and `index["v"]` (n, nv) are their
    coordinates; `number` is the kind's place in `model.joints`.
    """

    number: int
    joint: Joint
    bodies: np.ndarray
    index: dict[str, np.ndarray]


def joint_groups(model: Model) -> list[JointGroup]:
    """The joints by kind; all of it is known while tracing."""
    groups = []
    for number, (joint, bodies) in enumerate(zip(model.joints, model.joint_bodies)):
        at = np.array(bodies)
        q_index = model.topology.q_start[at][:, None] + np.arange(joint.nq)
        v_index = model.topology.v_start[at][:, None] + np.arange(joint.nv)
        groups.append(JointGroup(number, joint, at, {"q": q_index, "v": v_index}))
    return groups


def joint_poses(model: Model, q: Float[Array, " nq"]) -> Pose:
    """Poses `X_PB` of the bodies in their parents, R (nb, 3, 3) and p (nb, 3) in m."""
    q = tree_position(model, q)
    groups = joint_groups(model)
    R, p = [], []
    for group in groups:
        n = len(group.bodies)
        placement = jax.tree.map(lambda x: take_rows(x, group.bodies), model.placement)
        pose = group.joint.pose(placement, take_rows(q, group.index["q"]))
        R.append(jnp.broadcast_to(pose.R, (n, 3, 3)))
        p.append(jnp.broadcast_to(pose.p, (n, 3)))
    bodies = [group.bodies for group in groups]
    return Pose(
        merge_rows(R, bodies, (3, 3), model.dtype), merge_rows(p, bodies, (3,), model.dtype)
    )


def motion_subspace(model: Model) -> Float[Array, "nv_tree 6"]:
    """Rows of S, one a degree of freedom of the tree, each in its body's own frame."""
    rows, dofs = [], []
    for group in joint_groups(model):
        n, nv = group.index["v"].shape
        S = jnp.asarray(group.joint.subspace(), model.dtype)
        rows.append(jnp.broadcast_to(S, (n, nv, 6)).reshape(n * nv, 6))
        dofs.append(group.index["v"].ravel())
    return merge_rows(rows, dofs, (6,), model.dtype)


def joint_motion(model: Model, v: Float[Array, " nv"]) -> Float[Array, "nb 6"]:
    """`S G v`: the motion of each body relative to its parent, in the body's frame."""
    return _sum_dofs(model.topology, tree_motion(model, v)[:, None] * motion_subspace(model))


def joint_force(model: Model, F: Float[Array, "nb 6"]) -> Float[Array, " nv"]:
    """`G^T S^T F`: the generalised force of a force on each body, in the body's frame."""
    at_dofs = take_rows(F, model.topology.dof_body)
    return independent_force(model, jnp.sum(motion_subspace(model) * at_dofs, axis=-1))


def armature_force(model: Model, a: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """The armature's share of `M a`: `G^T diag(armature) G a`."""
    return independent_force(model, model.armature * tree_motion(model, a))


def _sum_dofs(topology: Topology, rows: Array) -> Array:
    """Sum the rows (nv, 6) of each body's dofs, (nb, 6)."""
    if topology.nv == topology.nb:
        return rows
    member = topology.dof_body == np.arange(topology.nb)[:, None]
    return jnp.matmul(jnp.asarray(member, rows.dtype), rows, precision="highest")


def take_rows(x: Array, index: np.ndarray) -> Array:
    """`x[index]` along the first axis; a slice, which is cheaper, where the index is a range."""
    flat = index.ravel()
    if flat.size and np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size)):
        block = x[flat[0] : flat[0] + flat.size]
        return block.reshape(*index.shape, *x.shape[1:])
    return x[index]


def merge_rows(parts: list[Array], places: list[np.ndarray], shape, dtype) -> Array:
    """One array of the rows of all parts, each row at its place; `shape` is that of a row."""
    if not parts:
        return jnp.zeros((0, *shape), dtype)
    stacked = parts[0] if len(parts) == 1 else jnp.concatenate(parts)
    return take_rows(stacked, np.argsort(np.concatenate(places)))
