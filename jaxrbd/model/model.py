"""The robot as a pytree: every number a differentiable leaf, every structure static."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float

from .._math.rows import take_rows
from ..errors import ArgumentError, ModelError
from ..joints import Joint
from ..spatial import Pose
from ..topology import Topology
from .coupling import Coupling


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
    - `armature`, `damping`, `friction`: one a velocity of each joint, mimic joints included.
      Armature enters every algorithm as inertia on the diagonal of M; damping and friction enter
      them only in a model made by `with_dissipation`, see `passive_force`;
    - `lower_position_limit`, `upper_position_limit` (nq,), `velocity_limit`, `effort_limit` (nv,):
      infinite where there is none. No algorithm enforces them;
    - `coupling`: the joints that follow others, or None.
    """

    placement: Pose
    inertia: Float[Array, "nb 10"]
    joints: tuple[Joint, ...]
    frame_pose: Pose
    gravity: Float[Array, "3"]
    armature: Float[Array, " nv_joint"]
    damping: Float[Array, " nv_joint"]
    friction: Float[Array, " nv_joint"]
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
    dissipative: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        """Raise ModelError, which names the field, where a shape does not fit the structure.

        Of a batch of robots an array has further axes in front. What is no array (None, the axes of
        a `vmap`) is let through. JAX makes models of new leaves without this check.
        """
        nb, nf, nv_joint = self.topology.nb, len(self.frame_names), sum(self.joint_nvs)
        shapes = {
            "placement.R": (self.placement, (nb, 3, 3)),
            "placement.p": (self.placement, (nb, 3)),
            "inertia": (self, (nb, 10)),
            "frame_pose.R": (self.frame_pose, (nf, 3, 3)),
            "frame_pose.p": (self.frame_pose, (nf, 3)),
            "gravity": (self, (3,)),
            **dict.fromkeys(("armature", "damping", "friction"), (self, (nv_joint,))),
            **dict.fromkeys(("lower_position_limit", "upper_position_limit"), (self, (self.nq,))),
            **dict.fromkeys(("velocity_limit", "effort_limit"), (self, (self.nv,))),
        }
        for field, (owner, shape) in shapes.items():
            x = getattr(owner, field.rpartition(".")[2], None)
            if isinstance(x, (list, tuple)):
                raise ModelError(f"{field} is a {type(x).__name__}, expected an array {shape}")
            found = tuple(getattr(x, "shape", shape))
            if found[max(0, len(found) - len(shape)) :] != shape:
                raise ModelError(f"{field} has shape {found}, expected {shape} for {self._named}")
        names = {"joint_names": nb, "body_names": nb, "frame_bodies": nf}
        for field, size in names.items():
            if len(getattr(self, field)) != size:
                raise ModelError(
                    f"{field} has {len(getattr(self, field))} entries, expected {size} for "
                    f"{self._named}"
                )

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
        return sum(self.joint_nvs) if self.coupling is None else len(self.coupling.v_independent)

    @property
    def joint_nvs(self) -> tuple[int, ...]:
        """Number of velocities of each joint; `topology.nvs` counts rows of S."""
        widths = np.zeros(self.nb, int)
        for joint, bodies in zip(self.joints, self.joint_bodies):
            widths[list(bodies)] = joint.nv
        return tuple(widths.tolist())

    @property
    def velocity_map_is_identity(self) -> bool:
        """Whether the velocity map G is the identity: the tree rates are v.

        G turns v into the tree rates; see `joint_space`. It is the identity where no joint follows
        others and no joint is a `joints.Custom`.
        """
        return self.coupling is None and self.tree_rates_are_velocities

    @property
    def tree_rates_are_velocities(self) -> bool:
        """Whether the tree rates of every joint are its velocities; see `joints.Joint`."""
        return all(joint.tree_rates_are_velocities for joint in self.joints)

    @property
    def velocity_map_is_constant(self) -> bool:
        """Whether the velocity map G does not depend on q."""
        followers = self.coupling is not None and self.coupling.followers
        return self.tree_rates_are_velocities and not followers

    @property
    def quaternions(self) -> tuple[tuple[str, int], ...]:
        """The joints whose coordinates hold a unit quaternion, each with its first place in q."""
        places = tuple(joint.quaternion for joint in self.joints)
        independent = None if self.coupling is None else self.coupling.q_independent
        return _quaternions(self.topology, self.joint_bodies, self.joint_names, places, independent)

    @property
    def dtype(self) -> np.dtype:
        """The floating dtype of all leaves, and so of all results."""
        return np.dtype(self.inertia.dtype)

    def astype(self, dtype: DTypeLike) -> Model:
        """The same robot with every array cast to `dtype` (float32 or float64).

        Raises ArgumentError where dtype is not floating, and for float64 while JAX has double
        precision switched off (`jax_enable_x64`).
        """
        try:
            wanted = np.dtype(dtype)
        except TypeError:
            wanted = None
        if wanted is None or not jnp.issubdtype(wanted, jnp.floating):
            raise ArgumentError(f"dtype is {dtype!r}, expected float32 or float64")
        if wanted == np.float64 and jnp.result_type(float) != np.float64:
            raise ArgumentError(
                "dtype is float64, which JAX has switched off: call "
                'jax.config.update("jax_enable_x64", True) first'
            )
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self)

    def with_dissipation(self, on: bool = True) -> Model:
        """The same robot, its joints' damping and Coulomb friction part of its dynamics or not.

        When on, `rnea`, `bias_force` and their derivatives hold the joint forces that overcome
        them, and forward dynamics is slowed by them; see `passive_force`. Off is the default.
        """
        return dataclasses.replace(self, dissipative=on)

    @property
    def _named(self) -> str:
        return f"Model({self.name!r}, nb={self.nb}, nq={self.nq}, nv={self.nv})"

    def __repr__(self) -> str:
        return f"{self._named[:-1]}, frames={len(self.frame_names)}, dtype={self.dtype.name})"


# ------------------------------------------------------------------------ joints in their places


# Cached here, because a value that is cached in a pytree changes its structure.
@functools.lru_cache(maxsize=256)
def _quaternions(
    topology: Topology,
    joint_bodies: tuple[tuple[int, ...], ...],
    joint_names: tuple[str, ...],
    places: tuple[int | None, ...],
    independent: tuple[int, ...] | None,
) -> tuple[tuple[str, int], ...]:
    found = []
    for bodies, place in zip(joint_bodies, places):
        if place is None:
            continue
        for body in bodies:
            first = int(topology.q_start[body]) + place
            if independent is None:
                found.append((joint_names[body], first))
            elif first in independent:
                found.append((joint_names[body], independent.index(first)))
    return tuple(sorted(found, key=lambda joint: joint[1]))


@dataclasses.dataclass(frozen=True)
class JointGroup:
    """The joints of one kind and their places in the tree.

    `bodies` (n,) are moved by them; `index["q"]` (n, nq) and `index["v"]` (n, nv) are their
    coordinates and velocities among those of all joints, `index["S"]` (n, rows) their rows of S;
    `number` is the kind's place in `model.joints`.
    """

    number: int
    joint: Joint
    bodies: np.ndarray
    index: dict[str, np.ndarray]


def joint_groups(model: Model) -> list[JointGroup]:
    """The joints by kind; all of it is known while tracing."""
    topology = model.topology
    v_start = np.cumsum([0, *model.joint_nvs])[:-1]
    groups = []
    for number, (joint, bodies) in enumerate(zip(model.joints, model.joint_bodies)):
        at = np.array(bodies)
        index = {
            "q": topology.q_start[at][:, None] + np.arange(joint.nq),
            "v": v_start[at][:, None] + np.arange(joint.nv),
            "S": topology.v_start[at][:, None] + np.arange(topology.nvs[bodies[0]]),
        }
        groups.append(JointGroup(number, joint, at, index))
    return groups


def joint_groups_of(model: Model, bodies: np.ndarray) -> list[JointGroup]:
    """The joints that move some bodies, by kind."""
    groups = []
    for group in joint_groups(model):
        at = np.flatnonzero(np.isin(group.bodies, bodies))
        if at.size:
            joint = jax.tree.map(lambda x: take_rows(x, at), group.joint)
            index = {space: rows[at] for space, rows in group.index.items()}
            groups.append(JointGroup(group.number, joint, group.bodies[at], index))
    return groups
