"""The joints that make the mass matrix singular in every configuration.

The mass matrix is a sum of squares, `M = A^T A`. A has six rows per link, which are the square root
of the link's inertia times the link's Jacobian. A also has one row per armature entry. The rank of
A is the same in all configurations except special ones. So the check uses one configuration, with
irregular values.

The check does not form A. It goes through the links from the leaves to the root, and computes for
each link a matrix W such that `|W V|^2 / 2` is the least kinetic energy of the link's subtree when
the link has the velocity `V = [v; w]`. So `W^T W` is the articulated-body inertia. A velocity qd of
a joint is unresisted if it needs no kinetic energy, that is, if `W S^T qd = 0` and qd moves no
armature. The rows of S span the joint's motion subspace. Source: Featherstone, Rigid Body Dynamics
Algorithms, section 7.1 (articulated-body inertia). Here the recursion computes the square root W,
so rounding errors are not squared.

A coordinate of a joint that other joints follow is called shared. In W each shared coordinate has a
column after the six columns of the velocity.

The check uses NumPy in double precision. For joint kinds that files can contain, JAX compiles
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..joints import Joint, generic_coordinates, subspace_rows
from ..spatial import Pose, pose_matrix
from .description import Follow, JointSpec, Link, Mimic, stages

# A joint is unresisted if the square root of the inertia along its motion is at most this fraction
# of the sum of the square roots of the inertias that the joint moves. For example, a link with
# 1e-18 times these inertias resists the joint, because the square root of this ratio, 1e-9, is
# above `_ROUNDING`. `_SINGLE_ROUNDING` is the limit if JAX evaluates the functions of `Custom` or
# `Follow` in single precision.
_ROUNDING, _SINGLE_ROUNDING = 1e-10, 1e-5
# The relative rounding error of principal moments about the centre of mass, which are computed from
# the inertia about the origin of the link frame.
_MOMENT_ROUNDING = 1e-12


def singular_joints(links: Sequence[Link], joints: Sequence[JointSpec]) -> list[ModelError]:
    """One ModelError, returned and not raised, per joint that makes M singular everywhere.

    `joints`: the joints of a valid tree, as `checks.checked` returns them. The list is empty if M
    is invertible in all configurations except special ones. Of several joints that can cancel each
    other's motion, the list has only the joint nearest to the world. The list is also empty if
    values overflow, because the check then has no result.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            return _singular_joints(links, joints)
        except np.linalg.LinAlgError:
            return []


def _singular_joints(links: Sequence[Link], joints: Sequence[JointSpec]) -> list[ModelError]:
    tree = _Tree(links, joints)
    found = tree.unresisted({joint.name for joint in joints})
    faults = []
    for joint in joints:
        if joint.name not in found:
            continue
        alone = tree.unresisted({joint.name}).get(joint.name, 0)  # with all other joints welded
        nv = sum(stage.nv for stage in stages(joint.kind))
        freedoms = "" if nv == 1 else f" ({alone or found[joint.name]} of {nv} degrees of freedom)"
        why = (
            f"no link that moves with {joint.child!r} has inertia along its motion{freedoms}"
            if alone
            else f"other joints can cancel its effect{freedoms} on every link with inertia"
        )
        message = f"joint {joint.name!r}: {why}, and it has no armature"
        faults.append(ModelError(message, link=joint.child, joint=joint.name))
    return faults


class _Rows(NamedTuple):
    """W (k, c), where c is 6 plus the number of shared coordinates, and the `bound` (c,).

    `bound`: for each column of W, the sum of the sizes of the terms that were added to compute the
    column. The rounding errors of the column are a fraction of the bound.
    """

    W: np.ndarray
    bound: np.ndarray

    def moved(self, H: np.ndarray) -> _Rows:
        """The rows for the velocity in another frame.

        `H` (4, 4): the pose of the present frame in the other frame.
        """
        R, p = H[:3, :3], H[:3, 3]
        W, bound = self.W.copy(), self.bound.copy()
        W[:, :3] = self.W[:, :3] @ R.T
        W[:, 3:6] = self.W[:, 3:6] @ R.T - W[:, :3] @ _cross(p)
        bound[3:6] += np.linalg.norm(p) * bound[:3]
        return _Rows(W, bound)

    def released(self, S: np.ndarray, armature: np.ndarray, rounding: float) -> tuple[_Rows, int]:
        """The rows without the motion of the joint, and the joint's number of unresisted dofs.

        The motion is eliminated, so the rows are functions of the velocity on the parent's side of
        the joint.
        """
        root = np.sqrt(armature)
        columns = np.concatenate([self.W[:, :6] @ S.T, np.diag(root)])
        bound = self.bound[:6] @ np.abs(S).T + root
        U, s, _ = np.linalg.svd(_scaled(columns, bound), full_matrices=False)
        resisted = U[:, s > rounding]
        W = np.concatenate([self.W, np.zeros((len(S), self.W.shape[1]))])
        return _Rows(W - resisted @ (resisted.T @ W), self.bound), len(S) - resisted.shape[1]

    def with_shared_motion(self, S: np.ndarray, armature: np.ndarray, slope: np.ndarray) -> _Rows:
        """The rows with the motion of a joint as a function of the shared coordinates.

        `slope`: the derivative of the joint's one coordinate in the shared coordinates. The joint
        follows these coordinates, or its coordinate is one of them.
        """
        root = np.sqrt(armature[0])
        W = np.concatenate([self.W, np.zeros((1, self.W.shape[1]))])
        W[:, 6:] += np.outer(np.append(self.W[:, :6] @ S[0], root), slope)
        bound = self.bound.copy()
        bound[6:] += (bound[:6] @ np.abs(S[0]) + root) * np.abs(slope)
        return _Rows(W, bound)


def _scaled(columns: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """The columns divided by their bounds. Raises LinAlgError if the squares overflow."""
    scaled = columns / np.where(bound > 0, bound, 1)
    if not (np.all(np.isfinite(scaled)) and np.all(np.isfinite(bound**2))):
        raise np.linalg.LinAlgError("overflow")
    return scaled


def _sum(parts: list[_Rows]) -> _Rows:
    """The rows of several bodies that move as one, reduced to at most as many rows as columns."""
    W = np.concatenate([part.W for part in parts])
    if len(W) > W.shape[1]:
        W = np.asarray(np.linalg.qr(W, mode="r"))
    return _Rows(W, np.sum([part.bound for part in parts], axis=0))


class _Tree:
    """A robot in one configuration: W of each link, S and the pose of each joint stage."""

    def __init__(self, links: Sequence[Link], joints: Sequence[JointSpec]):
        self.joints = _parents_first(joints)
        self.by_name = {joint.name: joint for joint in joints}
        self.rounding = _ROUNDING
        leading = {name for joint in joints for name in self._leaders(joint)}
        self.shared = [joint.name for joint in joints if joint.name in leading]
        self.rows = _link_rows(links, 6 + len(self.shared))
        self._choose_configuration(np.random.default_rng(0))

    def unresisted(self, moving: set[str]) -> dict[str, int]:
        """The number of unresisted dofs of each joint that has unresisted dofs.

        Joints that are not in `moving` are welded.
        """
        found: dict[str, int] = {}
        mask = np.array([name in moving for name in self.shared], float)
        parts: dict[str | None, list[_Rows]] = {name: [rows] for name, rows in self.rows.items()}
        for joint in reversed(self.joints):
            rows = _sum(parts.pop(joint.child))
            all_armature = np.asarray(joint.armature, float)
            last = len(all_armature)
            for S, X in reversed(self.stage_data[joint.name]):
                first, free = last - len(S), 0
                armature = all_armature[first:last]
                if joint.name in self.slopes:
                    rows = rows.with_shared_motion(S, armature, self.slopes[joint.name])
                elif joint.name in moving:
                    rows, free = rows.released(S, armature, self.rounding)
                if free:
                    found[joint.name] = found.get(joint.name, 0) + free
                rows, last = rows.moved(X), first
            if joint.parent is not None or self.shared:
                parts.setdefault(joint.parent, []).append(rows.moved(joint.placement))
        return found | self._unresisted_shared(parts.get(None, []), mask)

    def _unresisted_shared(self, parts: list[_Rows], mask: np.ndarray) -> dict[str, int]:
        """1 for each shared joint that moves in motions that need no kinetic energy.

        `mask`: 1 for each shared coordinate of a joint that is not welded, 0 for the others.

        Joints that move less than half as much as the joint that moves most are left out.
        """
        if not parts:
            return {}
        rows = _sum(parts)
        columns, bound = rows.W[:, 6:][:, mask > 0], rows.bound[6:][mask > 0]
        _, s, Vt = np.linalg.svd(_scaled(columns, bound))
        free = np.linalg.norm(Vt[np.sum(s > self.rounding) :], axis=0)
        moving = [name for name, moves in zip(self.shared, mask) if moves]
        largest = np.max(free, initial=0)
        return {name: 1 for name, part in zip(moving, free) if part > largest / 2}

    def _choose_configuration(self, rng: np.random.Generator) -> None:
        """Choose a configuration; set `stage_data` (S and pose of each stage) and `slopes`.

        `slopes`: for each joint with shared coordinates, the derivative of the joint's coordinate
        in the shared coordinates.
        """
        q = {joint.name: [_irregular(s, rng) for s in stages(joint.kind)] for joint in self.joints}
        unit: dict[str, np.ndarray] = dict(zip(self.shared, np.eye(len(self.shared))))
        self.slopes = dict(unit)
        for joint in self.joints:
            if joint.mimic is not None:
                leaders = self._leaders(joint)
                value, rates = self._follow(joint, np.array([q[name][0][0] for name in leaders]))
                self.slopes[joint.name] = rates @ np.array([unit[name] for name in leaders])
                q[joint.name] = [np.array([value])]
        self.stage_data = {
            joint.name: [
                self._subspace_and_pose(*stage) for stage in zip(stages(joint.kind), q[joint.name])
            ]
            for joint in self.joints
        }

    def _leaders(self, joint: JointSpec) -> tuple[str, ...]:
        """The independent joints that a joint follows, if it follows any."""
        if isinstance(joint.mimic, Follow):
            return joint.mimic.joints
        leader = joint
        while isinstance(leader.mimic, Mimic):
            leader = self.by_name[leader.mimic.joint]
        return () if leader is joint else (leader.name,)

    def _follow(self, joint: JointSpec, leaders: np.ndarray) -> tuple[float, np.ndarray]:
        """The coordinate of a joint that follows others, and its derivatives in the leaders."""
        if isinstance(follow := joint.mimic, Follow):
            self.rounding = max(self.rounding, _jax_rounding())

            def function(x):
                return jnp.reshape(follow.function(x), ())

            value = float(function(jnp.asarray(leaders)))
            slopes = np.asarray(jax.jacfwd(function)(jnp.asarray(leaders)), float)
            # Fixed values replace a value or a slope of the function that is not finite.
            rates = np.where(np.isfinite(slopes), slopes, 1.0)
            return value if np.isfinite(value) else 0.1, rates
        chain, mimic = [], joint.mimic
        while isinstance(mimic, Mimic):
            chain.append(mimic)
            mimic = self.by_name[mimic.joint].mimic
        value, rate = leaders[0], 1.0
        for mimic in reversed(chain):
            value = mimic.multiplier * value + mimic.offset
            rate = mimic.multiplier * rate
        return value, np.array([rate])

    def _subspace_and_pose(self, stage: Joint, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows (nv, 6) of S, and the pose (4, 4) of the child in the joint's fixed frame."""
        if stage.tree_rates_are_joint_rates:
            S = subspace_rows(stage)
            return S, _exponential(q @ S)
        self.rounding = max(self.rounding, _jax_rounding())
        q_jax = jnp.asarray(q)
        origin = Pose(jnp.eye(3, dtype=q_jax.dtype), jnp.zeros(3, q_jax.dtype))
        S, pose = stage.velocity_subspace(q_jax), stage.pose(origin, q_jax)
        return np.asarray(S, float), np.array(pose_matrix(pose), float)


def _parents_first(joints: Sequence[JointSpec]) -> list[JointSpec]:
    children: dict[str | None, list[JointSpec]] = {}
    for joint in joints:
        children.setdefault(joint.parent, []).append(joint)
    order, pending = [], list(children.get(None, []))
    while pending:
        joint = pending.pop()
        order.append(joint)
        pending.extend(children.get(joint.child, []))
    return order


def _link_rows(links: Sequence[Link], columns: int) -> dict[str, _Rows]:
    """The square root of each link's inertia; negative principal moments count as positive."""
    I = np.array([link.inertia for link in links], float).reshape(-1, 10)
    mass = I[:, 0]
    com = I[:, 1:4] / np.where(mass > 0, mass, 1)[:, None]
    xx, xy, yy, xz, yz, zz = I[:, 4:].T
    about_origin = np.moveaxis(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), -1, 0)
    arm = _cross(com)
    about_com = about_origin + mass[:, None, None] * arm @ arm
    moments, axes = np.linalg.eigh(about_com)
    size = np.linalg.norm(about_origin, axis=(1, 2))
    moments = np.where(np.abs(moments) > _MOMENT_ROUNDING * size[:, None], np.abs(moments), 0)
    W = np.zeros((len(links), 6, columns))
    W[:, :3, :3] = np.sqrt(mass)[:, None, None] * np.eye(3)
    W[:, :3, 3:6] = -np.sqrt(mass)[:, None, None] * arm
    W[:, 3:, 3:6] = np.sqrt(moments)[:, :, None] * np.swapaxes(axes, 1, 2)
    bound = np.zeros((len(links), columns))
    bound[:, :3], bound[:, 3:6] = np.sqrt(mass)[:, None], np.sqrt(size)[:, None]
    return {link.name: _Rows(*rows) for link, *rows in zip(links, W, bound)}


def _irregular(stage: Joint, rng: np.random.Generator) -> np.ndarray:
    """Irregular coordinates of a joint.

    For a `Custom` joint they are `generic_coordinates`, because `Custom.check_parameters` has
    tested the joint's functions there.
    """
    if stage.tree_rates_are_joint_rates:
        return rng.uniform(0.2, 1.2, stage.nv)
    return generic_coordinates(stage.nv)


def _jax_rounding() -> float:
    return _SINGLE_ROUNDING if jnp.result_type(float) == jnp.float32 else _ROUNDING


def _exponential(V: np.ndarray) -> np.ndarray:
    """The pose (4, 4) of a body after unit time at the constant velocity `[v; w]` (6,)."""
    v, w = V[:3], V[3:]
    angle, K, H = np.linalg.norm(w), _cross(w), np.eye(4)
    if angle == 0:
        H[:3, 3] = v
        return H
    sine, cosine = np.sin(angle) / angle, (1 - np.cos(angle)) / angle**2
    H[:3, :3] += sine * K + cosine * K @ K
    H[:3, 3] = v + cosine * K @ v + (1 - sine) / angle**2 * K @ K @ v
    return H


def _cross(p: np.ndarray) -> np.ndarray:
    """The matrices (..., 3, 3) of the cross products `p x`."""
    x, y, z = np.moveaxis(p, -1, 0)
    o = np.zeros_like(x)
    return np.moveaxis(np.array([[o, -z, y], [z, o, -x], [-y, x, o]]), (0, 1), (-2, -1))
