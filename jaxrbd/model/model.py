"""The robot as a pytree: the parameters are differentiable leaves, the structure is static."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float

from .._math.rows import take_rows
from ..errors import ArgumentError, ModelError
from ..joints import Joint
from ..spatial import Pose, inertia_from_com, transform_inertia
from ..topology import Topology
from .coupling import Coupling
from .geometry import LinkGeometry
from .names import JointPlace, body_index, frame_index, joint_place
from .parameters import is_symmetric, parameter, require, require_flag, require_not_negative

# The joint that `load_urdf` adds between the world and the root link.
ROOT_JOINT = "root_joint"


class Model(eqx.Module):
    """A robot with `nb` moving bodies, `nq` configuration coordinates, `nv` degrees of freedom.

    `load_urdf`, `load_robot` and `build_model` return models. A model is a pytree, so `vmap` and
    `grad` work over its masses, inertias, placements, axes and gravity. Bodies are in depth-first
    order; joint i moves body i. Lengths in m, masses in kg, angles in rad.

    Leaves:

    - `placement`: (nb,) poses of the joints' fixed frames in the frames of the parent bodies;
    - `inertia`: (nb, 10), about the origin of each body frame, see `jaxrbd.spatial`;
    - `joints`: the joints, one entry per kind; `joint_bodies` lists the bodies that each entry
      moves;
    - `frame_pose`: (nf,) poses of the named frames, one per link, in the frames of their bodies;
    - `fixed_inertia`: (nw, 10), inertias of the links that are fixed to the world, in the frames of
      the links and in the order of `frame_names`. No algorithm uses them, because these links do
      not move. `append_model`, `describe` and written files keep them;
    - `gravity`: (3,), acceleration of free fall in the world frame, m/s^2;
    - `armature`, `damping`, `friction`: (nv_joint,), one entry per velocity of every joint,
      including mimic joints. Every algorithm includes the armature in the mass matrix. Damping and
      friction are part of the dynamics only after `with_dissipation`, see `passive_force`;
    - `lower_position_limit`, `upper_position_limit` (nq,), `velocity_limit`, `effort_limit` (nv,):
      infinite where there is no limit. Only `contact_step` and inverse kinematics enforce limits;
    - `coupling`: the joints that follow others, or None.

    Static fields: the `topology`; the names `joint_names`, `body_names` (nb) and `frame_names`
    (nf), where a body has the name of the child link of its joint; `frame_bodies` (nf), the body of
    each frame, -1 for the world; the `name` of the robot; and `dissipative`, see
    `with_dissipation`.

    `geometry` has the visual and collision shapes of the links. It is no leaf, and it does not
    affect compiled programs, see `LinkGeometry`.
    """

    placement: Pose
    inertia: Float[Array, "nb 10"]
    joints: tuple[Joint, ...]
    frame_pose: Pose
    fixed_inertia: Float[Array, "nw 10"]
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
    geometry: LinkGeometry = eqx.field(static=True, default=LinkGeometry())

    def __check_init__(self):
        """Raise ModelError, which names the field, if a shape does not match the structure.

        Arrays may have leading batch axes. Leaves that are not arrays are accepted: None, or the
        integers of a model that is an argument `in_axes` of `vmap`. JAX creates models from new
        leaves without this check.
        """
        nb, nf, nv_joint = self.topology.nb, len(self.frame_names), sum(self.joint_nvs)
        names = {"joint_names": nb, "body_names": nb, "frame_bodies": nf}
        for field, size in names.items():
            if len(getattr(self, field)) != size:
                raise ModelError(
                    f"{field} has {len(getattr(self, field))} entries, expected {size} for "
                    f"{self._named}"
                )
        shapes = {
            "placement.R": (self.placement, (nb, 3, 3)),
            "placement.p": (self.placement, (nb, 3)),
            "inertia": (self, (nb, 10)),
            "frame_pose.R": (self.frame_pose, (nf, 3, 3)),
            "frame_pose.p": (self.frame_pose, (nf, 3)),
            "fixed_inertia": (self, (sum(body < 0 for body in self.frame_bodies), 10)),
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
        for kind in (self.geometry.visuals, self.geometry.collisions):
            if unknown := [name for name in kind if name not in self.frame_names]:
                raise ModelError(f"geometry has the links {unknown}, which are no frames")

    @property
    def nb(self) -> int:
        """Number of moving bodies."""
        return self.topology.nb

    @property
    def nq(self) -> int:
        """Number of independent configuration coordinates, the length of q."""
        return self.topology.nq if self.coupling is None else len(self.coupling.q_independent)

    @property
    def nv(self) -> int:
        """Number of independent degrees of freedom, the length of v, a and tau."""
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
        """Whether the velocity map G is the identity, so that v equals the tree rates.

        G maps v to the tree rates; see `joint_space`. G is the identity if no joint follows others
        and no joint is a `joints.Custom`.
        """
        return self.coupling is None and self.tree_rates_are_joint_rates

    @property
    def tree_rates_are_joint_rates(self) -> bool:
        """Whether the tree rates of every joint are its velocities; see `joints.Joint`."""
        return all(joint.tree_rates_are_joint_rates for joint in self.joints)

    @property
    def velocity_map_is_constant(self) -> bool:
        """Whether the velocity map G does not depend on q."""
        followers = self.coupling is not None and self.coupling.followers
        return self.tree_rates_are_joint_rates and not followers

    @property
    def quaternions(self) -> tuple[tuple[str, int], ...]:
        """The joints with a unit quaternion, each with the first index of its quaternion in q."""
        places = tuple(joint.quaternion for joint in self.joints)
        independent = None if self.coupling is None else self.coupling.q_independent
        return _quaternions(self.topology, self.joint_bodies, self.joint_names, places, independent)

    @property
    def dtype(self) -> np.dtype:
        """The floating dtype of all leaves, and of all results that are not integers or bools."""
        return np.dtype(self.inertia.dtype)

    def astype(self, dtype: DTypeLike) -> Model:
        """The same robot with every array cast to `dtype`, float32 or float64.

        Raises ArgumentError for float64 if double precision is off in JAX (`jax_enable_x64`).
        """
        try:
            wanted = None if dtype is None else np.dtype(dtype)
        except TypeError:
            wanted = None
        if wanted not in (np.float32, np.float64):
            raise ArgumentError(f"dtype is {dtype!r}, expected float32 or float64")
        if wanted == np.float64 and jnp.result_type(float) != np.float64:
            raise ArgumentError(
                "dtype is float64, which JAX has switched off: call "
                'jax.config.update("jax_enable_x64", True) first'
            )
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self)

    def with_dissipation(self, on: bool = True) -> Model:
        """The same robot with damping and Coulomb friction in its dynamics (`on`) or without.

        If `on`, `rnea`, `bias_force` and their derivatives include the joint forces that balance
        damping and friction, and forward dynamics includes `passive_force`. `build_model` and the
        readers of files return models without damping and friction in the dynamics. Raises
        ArgumentError if `on` is not True or False.
        """
        require_flag(on, "on")
        return dataclasses.replace(self, dissipative=bool(on))

    def joint(self, name: str) -> JointPlace:
        """Where the coordinates, velocities and bodies of a joint are.

        For example, `q[model.joint(name).q]` are the coordinates of the joint. `name`: the name of
        a joint. For a compound joint j, "j" means all stages and "j.1" means the first stage.
        Raises ArgumentError for an unknown joint.
        """
        return joint_place(self, name)

    def frame_index(self, frame: str | int) -> int:
        """Index in `frame_names` of a frame, given by the name of a link or a joint, or by index.

        The frame of a joint is its moving frame, which is the frame of its child link. If a link
        and a joint have the same name, the name means the link. Negative indices count from the
        end. Every function with an argument `frame` accepts the same names and indices.
        Raises ArgumentError if the model has no such frame.
        """
        return frame_index(self, frame)

    @property
    def actuated(self) -> np.ndarray:
        """Whether a motor drives each degree of freedom, (nv,) of bool.

        A dof has no motor if its effort limit is 0, if it belongs to a `joints.FreeFlyer`, or if it
        belongs to the `root_joint` of `load_urdf`. Raises ArgumentError if JAX traces the effort
        limits.
        """
        if isinstance(self.effort_limit, Tracer):
            raise ArgumentError("effort_limit is traced; use Model.actuated outside of jit")
        driven = np.asarray(self.effort_limit) != 0
        for group in joint_groups(self):
            for body in group.bodies:
                name = self.joint_names[body]
                if not group.joint.actuated or name == ROOT_JOINT:
                    driven[self.joint(name).v] = False
        return driven

    @property
    def selection_matrix(self) -> np.ndarray:
        """The matrix B (nv, n) from the forces u of n motors to joint forces, `tau = B u`.

        The motors are in the order of the dofs that are `actuated`. Errors as in `actuated`.
        """
        return np.eye(self.nv, dtype=self.dtype)[:, self.actuated]

    def with_mass(self, body: str, mass: ArrayLike) -> Model:
        """The same robot with another mass of one body, in kg.

        The density is scaled: the centre of mass stays, the rotational inertia changes in
        proportion. `body`: a name in `body_names`. Raises ArgumentError for an unknown body, a
        body without mass, and a mass that is negative or not finite.
        """
        require_one_robot(self)
        i = body_index(self, body)
        mass = parameter(mass, "mass", ())
        require_not_negative(mass, "mass")
        given = self.inertia[i, 0]
        if not isinstance(given, Tracer) and given == 0:
            raise ArgumentError(f"body {body!r} has no mass that could be scaled; use with_payload")
        scaled = self.inertia[i] * (jnp.asarray(mass, self.dtype) / given)
        return dataclasses.replace(self, inertia=self.inertia.at[i].set(scaled))

    def with_payload(
        self,
        frame: str | int,
        mass: ArrayLike,
        center_of_mass: ArrayLike | Sequence[float] = (0.0, 0.0, 0.0),
        inertia_com: ArrayLike | None = None,
    ) -> Model:
        """The same robot with a rigid payload attached to a frame.

        `frame`: as in `frame_index`; `mass` in kg; `center_of_mass` (3,) in m in the frame;
        `inertia_com` (3, 3) in kg m^2 about the centre of mass, in the axes of the frame (default
        zero: a point mass). A negative mass removes a payload. Raises ArgumentError for an unknown
        frame, a frame that is fixed to the world, a wrong shape, values that are not finite, and a
        matrix that is not symmetric.
        """
        require_one_robot(self)
        index = frame_index(self, frame)
        body = self.frame_bodies[index]
        if body < 0:
            raise ArgumentError(f"frame {frame!r} is fixed to the world; expected a moving frame")
        I_com = np.zeros((3, 3)) if inertia_com is None else inertia_com
        given = {"mass": (mass, ()), "center_of_mass": (center_of_mass, (3,))}
        given["inertia_com"] = I_com, (3, 3)
        values = [parameter(x, name, shape) for name, (x, shape) in given.items()]
        for name, x in zip(given, values):
            require(x, np.isfinite, name, "finite")
        require(values[2], is_symmetric, "inertia_com", "a symmetric matrix")
        payload = inertia_from_com(*(jnp.asarray(x, self.dtype) for x in values))
        X_BF = jax.tree.map(lambda x: x[index], self.frame_pose)
        inertia = self.inertia.at[body].add(transform_inertia(X_BF, payload))
        return dataclasses.replace(self, inertia=inertia)

    @property
    def _named(self) -> str:
        return f"Model({self.name!r}, nb={self.nb}, nq={self.nq}, nv={self.nv})"

    def __repr__(self) -> str:
        # The leaves of a model may be other objects, such as the axes of `jax.vmap`.
        dtype = getattr(self.inertia, "dtype", None)
        return f"{self._named[:-1]}, frames={len(self.frame_names)}, dtype={dtype})"


def require_one_robot(model: Model) -> None:
    """Raise ArgumentError for a model whose arrays have a batch axis, outside of `jax.vmap`."""
    if getattr(model.inertia, "ndim", 2) != 2:
        raise ArgumentError(
            f"{model.name!r} is a batch of models: its inertias have shape {model.inertia.shape}, "
            f"expected ({model.nb}, 10) for one robot; batch with jax.vmap"
        )


# ---------------------------------------------------------------------------- joints in the tree


# Cached outside the model: a value cached inside a pytree would change its structure.
@functools.lru_cache(maxsize=256)
def _quaternions(
    topology: Topology,
    joint_bodies: tuple[tuple[int, ...], ...],
    joint_names: tuple[str, ...],
    places: tuple[int | None, ...],
    independent: tuple[int, ...] | None,
) -> tuple[tuple[str, int], ...]:
    """The value of `Model.quaternions`.

    - `places`: for each joint kind, the index of the quaternion in the coordinates of the joint;
    - `independent`: the indices of the entries of q among the coordinates of all joints; None if no
      joint follows others.
    """
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


def joint_kinds(model: Model) -> list[type[Joint]]:
    """The kind of the joint of each body."""
    kinds = {
        body: type(joint)
        for joint, bodies in zip(model.joints, model.joint_bodies)
        for body in bodies
    }
    return [kinds[body] for body in range(model.nb)]


@dataclasses.dataclass(frozen=True)
class JointGroup:
    """The joints of one kind and their indices in the tree.

    - `number`: the index of the kind in `model.joints`;
    - `joint`: the n joints, stacked;
    - `bodies`: (n,), the bodies that the joints move;
    - `index["q"]` (n, nq), `index["v"]` (n, nv): indices of the joints' coordinates and velocities
      among the coordinates and velocities of all joints;
    - `index["S"]` (n, tree_nv): indices of the joints' rows of S.
    """

    number: int
    joint: Joint
    bodies: np.ndarray
    index: dict[str, np.ndarray]


def joint_groups(model: Model) -> list[JointGroup]:
    """One group of joints per kind. All indices are known while JAX traces."""
    topology = model.topology
    v_start = np.cumsum([0, *model.joint_nvs])[:-1]
    groups = []
    for number, (joint, bodies) in enumerate(zip(model.joints, model.joint_bodies)):
        moved = np.array(bodies)
        index = {
            "q": topology.q_start[moved][:, None] + np.arange(joint.nq),
            "v": v_start[moved][:, None] + np.arange(joint.nv),
            "S": topology.v_start[moved][:, None] + np.arange(topology.nvs[bodies[0]]),
        }
        groups.append(JointGroup(number, joint, moved, index))
    return groups


def joint_groups_with_bodies(model: Model, bodies: np.ndarray) -> list[JointGroup]:
    """The joints that move the given bodies, by kind."""
    groups = []
    for group in joint_groups(model):
        chosen = np.flatnonzero(np.isin(group.bodies, bodies))
        if chosen.size:
            joint = jax.tree.map(lambda x: take_rows(x, chosen), group.joint)
            index = {space: rows[chosen] for space, rows in group.index.items()}
            groups.append(JointGroup(group.number, joint, group.bodies[chosen], index))
    return groups
