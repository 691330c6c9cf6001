"""The description of a robot: links and joints.

A description is plain data in NumPy and float64. Readers of files return descriptions, and users
can write descriptions in Python. `jaxrbd.build_model` makes a `Model` from a description.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import numpy as np
from jax import Array

from ..errors import ModelError
from ..joints import Joint, Revolute, as_module, is_rotation
from .geometry import Geometry
from .parameters import entries, is_symmetric, names, parameter, require

Numbers = int | float | Sequence[int | float] | np.ndarray


@dataclasses.dataclass(frozen=True)
class Link:
    """A rigid link: its name, its ten inertial parameters, and its geometry.

    - `inertia`: (10,), `[m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]` in the link frame, the rotational
      inertia about the origin of this frame (kg, kg m, kg m^2); see `link_inertia`. Default: a
      massless link;
    - `visuals`, `collisions`: the shapes to draw, and the shapes that touch other bodies.
      `jaxrbd.view` draws both; `collision.pairs_of` and `contact.Scene` use `collisions`. No
      algorithm of the dynamics reads them.
    """

    name: str
    inertia: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(10))
    visuals: Sequence[Geometry] = ()
    collisions: Sequence[Geometry] = ()


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A joint with zero dofs: the builder welds the child to the parent."""


@dataclasses.dataclass(frozen=True)
class Compound:
    """A joint built as a chain of joints with massless links between them.

    The motion subspace of such a joint may depend on q, but the motion subspaces of its `stages`
    are constant. So the algorithms need no special case for it. The coordinates of the joint are
    the coordinates of the stages, in order. Stage k of a joint j has the name `j.k`, from k = 1 on.

    Raises ModelError for no stages, and for a stage that is no joint of `jaxrbd.joints`. A joint
    without dofs is a `Fixed`.
    """

    stages: tuple[Joint, ...]

    def __post_init__(self):
        found = entries(self.stages)
        if found is None or not all(isinstance(stage, Joint) for stage in found):
            raise ModelError(
                f"stages of a Compound are {self.stages!r}, expected a tuple of joints of "
                f"jaxrbd.joints"
            )
        if not found:
            raise ModelError("a Compound has no stages, expected one or more; see Fixed")


def universal(axis1: Numbers, axis2: Numbers) -> Compound:
    """Universal joint: a rotation about `axis1`, then a rotation about `axis2`, in rad.

    `axis1` (3,) is fixed in the parent, and `axis2` (3,) is fixed in the child.
    """
    return Compound((Revolute(axis1), Revolute(axis2)))


def euler(sequence: str) -> Compound:
    """Euler joint: successive rotations in rad about the moving axes in `sequence`, such as "zyx".

    Raises ModelError if `sequence` is not a string of one or more of the letters x, y and z.
    """
    axes = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}
    if not isinstance(sequence, str) or not sequence or set(sequence) - set(axes):
        raise ModelError(f"Euler sequence {sequence!r}: expected letters x, y and z")
    return Compound(tuple(Revolute(axes[letter]) for letter in sequence))


@dataclasses.dataclass(frozen=True)
class Mimic:
    """The rule `q = multiplier * q_leader + offset` for the coordinate q of a joint with one dof.

    `joint`: the name of the leader, the joint with the coordinate q_leader. The leader has one dof
    too. q, q_leader and `offset` are in rad or m.
    """

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


class Follow(eqx.Module):
    """The rule `q = function(q_leaders)` for the coordinate q of a joint with one dof.

    - `joints`: the names of the m leaders. Each has one dof and follows no other joint;
    - `function`: maps the leaders' coordinates (m,) to the coordinate (), in rad or m. It is a pure
      and smooth function in jax.numpy, or an `eqx.Module` with a `__call__`. The arrays of a module
      become floats and leaves of the model, so indices belong in static fields.

    Source: Featherstone, section 3.2 (explicit constraints).
    """

    joints: tuple[str, ...] = eqx.field(
        static=True, converter=functools.partial(names, what="joints")
    )
    function: Callable[[Array], Array] = eqx.field(converter=as_module)


@dataclasses.dataclass(frozen=True)
class JointSpec:
    """A joint between two links.

    - `kind`: an instance of a class of `jaxrbd.joints`, such as `Revolute(axis)`, or `Fixed()`, or
      a `Compound`;
    - `parent`: the name of the parent link; None is the world;
    - `placement`: (4, 4), pose of the joint's fixed frame in the frame of the parent link. The
      frame of the child link is the joint's moving frame;
    - `lower`, `upper`: configuration limits, () or (nq,); `velocity_limit`, `effort_limit`: () or
      (nv,). None means unlimited;
    - `damping`, `friction`, `armature`: () or (nv,). All values are in SI units;
    - `mimic`: the rule by which the coordinate follows other joints, or None.
    """

    name: str
    kind: Joint | Fixed | Compound
    parent: str | None
    child: str
    placement: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(4))
    lower: Numbers | None = None
    upper: Numbers | None = None
    velocity_limit: Numbers | None = None
    effort_limit: Numbers | None = None
    damping: Numbers = 0.0
    friction: Numbers = 0.0
    armature: Numbers = 0.0
    mimic: Mimic | Follow | None = None

    @property
    def stage_names(self) -> list[str]:
        """The names of the stages of a `Compound`; empty for other kinds."""
        count = len(self.kind.stages) if isinstance(self.kind, Compound) else 0
        return [f"{self.name}.{k}" for k in range(1, count + 1)]


def renamed(mimic: Mimic | Follow | None, new_name: Callable[[str], str]) -> Mimic | Follow | None:
    """The rule with `new_name(name)` in place of the name of each leader."""
    if isinstance(mimic, Mimic):
        return dataclasses.replace(mimic, joint=new_name(mimic.joint))
    if isinstance(mimic, Follow):
        return Follow(tuple(map(new_name, mimic.joints)), mimic.function)
    return None


# The fields with one entry per coordinate, and the fields with one entry per dof. The values
# replace None.
POSITION_FIELDS = {"lower": -np.inf, "upper": np.inf}
DOF_FIELDS = {
    "velocity_limit": np.inf,
    "effort_limit": np.inf,
    "damping": 0.0,
    "friction": 0.0,
    "armature": 0.0,
}


def stages(kind: Joint | Fixed | Compound) -> tuple[Joint, ...]:
    """The moving joints of a kind: none for `Fixed`, the stages of a `Compound`, else `kind`."""
    if isinstance(kind, Fixed):
        return ()
    return kind.stages if isinstance(kind, Compound) else (kind,)


def link_inertia(
    mass: int | float,
    com: Numbers = (0, 0, 0),
    inertia_com: np.ndarray | None = None,
    rotation: np.ndarray | None = None,
) -> np.ndarray:
    """The ten inertial parameters (10,) of a link.

    - `mass`: kg;
    - `com`: (3,), centre of mass in the link frame, m;
    - `inertia_com`: (3, 3), rotational inertia about the centre of mass, kg m^2 (default: zero);
    - `rotation`: (3, 3), from the axes of `inertia_com` to the axes of the link frame (default: the
      identity).

    Raises ArgumentError for another shape, for objects that are no finite real numbers, for an
    `inertia_com` that is not symmetric, and for a `rotation` that is no rotation matrix. Source:
    Featherstone (2.63).
    """
    m = float(shaped(mass, "mass", ()))
    c = shaped(com, "com", (3,))
    turn = np.eye(3) if rotation is None else shaped(rotation, "rotation", (3, 3))
    require(turn, is_rotation, "rotation", "a rotation matrix")
    zero = np.zeros((3, 3))
    about_com = zero if inertia_com is None else shaped(inertia_com, "inertia_com", (3, 3))
    for name, x in (("mass", np.array(m)), ("com", c), ("inertia_com", about_com)):
        require(x, np.isfinite, name, "finite")
    require(about_com, is_symmetric, "inertia_com", "a symmetric matrix")
    I = turn @ about_com @ turn.T + m * (c @ c * np.eye(3) - np.outer(c, c))
    return np.array([m, *(m * c), I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]])


def inertia_about_com(inertia: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The arguments of `link_inertia` for the ten parameters (10,): mass, com and inertia_com."""
    mass, h, (xx, xy, yy, xz, yz, zz) = float(inertia[0]), inertia[1:4], inertia[4:]
    c = h / mass if mass else h
    about_origin = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return mass, c, about_origin - mass * (c @ c * np.eye(3) - np.outer(c, c))


def placement_matrix(xyz: Numbers = (0, 0, 0), rpy: Numbers = (0, 0, 0)) -> np.ndarray:
    """The pose (4, 4) with a position in m and roll, pitch, yaw in rad about fixed axes.

    `R = Rz(yaw) Ry(pitch) Rx(roll)`. Source: the URDF specification, element origin.
    """
    xyz, rpy = shaped(xyz, "xyz", (3,)), shaped(rpy, "rpy", (3,))
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy), np.cos(rpy)
    H = np.eye(4)
    H[:3, :3] = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    H[:3, 3] = xyz
    return H


def shaped(x: Numbers, name: str, *shapes: tuple[int, ...]) -> np.ndarray:
    """x as a NumPy array in float64 with one of the shapes.

    Raises ArgumentError for another shape, and for objects that are no real numbers.
    """
    return np.asarray(parameter(np.asarray(x) if isinstance(x, Array) else x, name, *shapes))
