"""What a robot is, in words and numbers: links, joints, and how each is stated.

A description is plain data in numpy and float64; `jaxrbd.build_model` makes a `Model` of
it. Every reader of files produces one, and a robot is built by hand by writing one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import numpy as np
from jax import Array

from ..errors import ArgumentError, ModelError
from ..joints import Joint, Revolute, as_module

Numbers = int | float | Sequence[int | float] | np.ndarray


@dataclasses.dataclass(frozen=True)
class Link:
    """A rigid link: a name and its ten inertial parameters in the link's own frame.

    `inertia`: (10,), `[m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]`, rotational part about the frame's
    origin (kg, kg m, kg m^2); see `link_inertia`. Default: a massless link.
    """

    name: str
    inertia: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(10))


@dataclasses.dataclass(frozen=True)
class Fixed:
    """The joint that allows no motion: the builder welds its child to its parent."""


@dataclasses.dataclass(frozen=True)
class Compound:
    """A joint built as a chain of others, with massless links between: exact in every derivative.

    For joints whose motion subspace depends on q. Its coordinates are those of `stages`, in order.
    """

    stages: tuple[Joint, ...]


def universal(axis1: Numbers, axis2: Numbers) -> Compound:
    """Universal joint: a rotation about `axis1` of the parent, then one about `axis2`, in rad."""
    return Compound((Revolute(axis1), Revolute(axis2)))


def euler(sequence: str) -> Compound:
    """Rotations in turn about the moving axes named in `sequence`, such as "zyx", in rad.

    Raises ModelError where a letter is not x, y or z.
    """
    axes = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}
    unknown = set(sequence) - set(axes)
    if unknown or not sequence:
        raise ModelError(f"Euler sequence {sequence!r}: expected letters x, y and z")
    return Compound(tuple(Revolute(axes[letter]) for letter in sequence))


@dataclasses.dataclass(frozen=True)
class Mimic:
    """The coordinate of a one-dof joint follows another: `q = multiplier * q_leader + offset`."""

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


class Follow(eqx.Module):
    """The coordinate of a one-dof joint is a smooth function of others: `q = function(q_leaders)`.

    - `joints`: the names of the m leading joints, of one dof each, that follow no others;
    - `function`: from their coordinates (m,) to this joint's, a number: a pure function of
      jax.numpy, or an `eqx.Module` with a `__call__`, whose arrays are then leaves of the model.

    Source: Featherstone, section 3.2 (explicit constraints).
    """

    joints: tuple[str, ...] = eqx.field(static=True, converter=tuple)
    function: Callable[[Array], Array] = eqx.field(converter=as_module)


@dataclasses.dataclass(frozen=True)
class JointSpec:
    """A joint between two links.

    - `kind`: an instance of a class of `jaxrbd.joints`, such as `Revolute(axis)`, or `Fixed()`, or
      a `Compound`;
    - `parent`: the name of the parent link; None is the world;
    - `placement`: (4, 4), pose of the joint's fixed side in the parent link's frame. The child
      link's frame is the joint's moving side;
    - `lower`, `upper`: configuration limits, a number or (nq,); `velocity_limit`, `effort_limit`,
      `damping`, `friction`, `armature`: a number or (nv,). SI units. None means unlimited;
    - `mimic`: how its coordinate follows others, if it does.
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


# The fields over configuration coordinates and over dofs, with the number that None stands for.
POSITION_FIELDS = {"lower": -np.inf, "upper": np.inf}
DOF_FIELDS = {
    "velocity_limit": np.inf,
    "effort_limit": np.inf,
    "damping": 0.0,
    "friction": 0.0,
    "armature": 0.0,
}


def stages(kind: Joint | Fixed | Compound) -> tuple[Joint, ...]:
    """The joints with freedom that a kind consists of: none, one, or a chain."""
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

    `mass` in kg; `com` (3,) in m in the link's frame; `inertia_com` (3, 3) in kg m^2 about the
    centre of mass, in axes turned by `rotation` (3, 3) from the link's (defaults: a point mass,
    the link's axes). Raises ArgumentError on a wrong shape. Source: Featherstone (2.63).
    """
    c = _shaped(com, "com", (3,))
    turn = np.eye(3) if rotation is None else _shaped(rotation, "rotation", (3, 3))
    no_size = np.zeros((3, 3))
    about_com = no_size if inertia_com is None else _shaped(inertia_com, "inertia_com", (3, 3))
    I = turn @ about_com @ turn.T + mass * (c @ c * np.eye(3) - np.outer(c, c))
    return np.array([mass, *(mass * c), I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]])


def placement_matrix(xyz: Numbers = (0, 0, 0), rpy: Numbers = (0, 0, 0)) -> np.ndarray:
    """The (4, 4) pose of a position in m and roll, pitch, yaw in rad about fixed axes.

    `R = Rz(yaw) Ry(pitch) Rx(roll)`. Raises ArgumentError on a wrong shape. Source: the URDF
    specification, element origin.
    """
    xyz, rpy = _shaped(xyz, "xyz", (3,)), _shaped(rpy, "rpy", (3,))
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy), np.cos(rpy)
    H = np.eye(4)
    H[:3, :3] = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    H[:3, 3] = xyz
    return H


def _shaped(x: Numbers, name: str, shape: tuple[int, ...]) -> np.ndarray:
    x = np.asarray(x, dtype=float)
    if x.shape != shape:
        raise ArgumentError(f"{name} has shape {x.shape}, expected {shape}")
    return x
