"""Tendons of a compiled MuJoCo model."""

from __future__ import annotations

import numpy as np

from ...collision.distances import pose_of
from ...model.shapes import Cylinder, Sphere
from ...tendons import (
    FixedTendon,
    PathPoint,
    Pulley,
    RotationAngle,
    SpatialTendon,
    Tendons,
    Wrap,
)
from ...tendons.paths import Tendon
from .dof_parameters import without_zero_terms
from .source import Source

# The fields of the properties of tendons, and the flags that disable them. Not every version of
# MuJoCo has all fields.
_FIELDS = {
    "tendon_stiffness": ("SPRING", "PASSIVE"),
    "tendon_stiffnesspoly": ("SPRING", "PASSIVE"),
    "tendon_springyield": ("SPRING", "PASSIVE"),
    "tendon_damping": ("DAMPER", "PASSIVE"),
    "tendon_dampingpoly": ("DAMPER", "PASSIVE"),
    "tendon_limited": ("LIMIT", "CONSTRAINT"),
    "tendon_frictionloss": ("FRICTIONLOSS", "CONSTRAINT"),
    "tendon_armature": (),
}


def read_tendons(source: Source, sites: dict[str, str]) -> Tendons:
    """All tendons, in the order of the file, then the rotations of the ball joints with a limit.

    `sites`: the frame of each site.
    """
    m = source.m
    balls = _limited_balls(source)
    if not m.ntendon and not balls:
        return Tendons(())
    for tendon in np.flatnonzero(_property(source, "tendon_springyield")):
        source.omit(f"tendon {source.tendons[tendon]!r}: springyield")
    limits = np.full((m.ntendon, 2), [-np.inf, np.inf])
    for tendon in np.flatnonzero(_property(source, "tendon_limited")).tolist():
        limits[tendon] = source.limits("tendon", tendon, f"tendon {source.tendons[tendon]!r}")
    properties = {
        "stiffness": _polynomials(source, "stiffness"),
        "damping": _polynomials(source, "damping"),
        "friction": _property(source, "tendon_frictionloss"),
        "armature": _property(source, "tendon_armature"),
    }
    n = len(source.actuators)
    armature, linear = (
        source.field(f"actuator_{name}", np.zeros(n)) for name in ("armature", "damping")
    )
    damping = np.column_stack([linear, source.field("actuator_dampingpoly", np.zeros((n, 2)))])
    for actuator in range(n):
        if source.transmission(actuator) == "tendon":
            # As for joints, an actuator adds its armature and its damping, times gear^2.
            tendon, square = m.actuator_trnid[actuator, 0], source.gear(actuator) ** 2
            properties["armature"][tendon] += square * armature[actuator]
            if not source.disabled(*_FIELDS["tendon_damping"]):
                properties["damping"][tendon] += square * damping[actuator]
    for name, values in properties.items():
        # The first coefficient of a stiffness may not be negative; the others may be negative.
        columns = values if values.ndim == 2 else values[:, None]
        checked = columns[:, :1] if name == "stiffness" else columns
        for tendon in np.flatnonzero((checked < 0).any(axis=1)):
            source.omit(f"tendon {source.tendons[tendon]!r}: negative {name}")
            values[tendon] = 0
    properties |= {name: without_zero_terms(properties[name]) for name in ("stiffness", "damping")}
    ball_limits = [source.limits("jnt", ball, f"joint {source.joints[ball]!r}") for ball in balls]
    limits = np.append(limits, ball_limits or limits[:0], 0)

    def with_balls(x: np.ndarray) -> np.ndarray:
        """The property, with zeros for the rotations of the ball joints."""
        return np.append(x, np.zeros((len(balls), *x.shape[1:])), axis=0)

    angles = [RotationAngle(source.joints[ball], source.joints[ball]) for ball in balls]
    return Tendons(
        [*(_tendon(source, tendon, sites) for tendon in range(m.ntendon)), *angles],
        rest=with_balls(np.array(m.tendon_lengthspring)),
        limits=limits if np.isfinite(limits).any() else None,
        **{name: with_balls(x) if x.any() else None for name, x in properties.items()},
    )


def _limited_balls(source: Source) -> list[int]:
    """The ball joints with a range."""
    if source.disabled("LIMIT", "CONSTRAINT"):
        return []
    limited = np.flatnonzero(source.m.jnt_limited).tolist()
    return [joint for joint in limited if not source.is_scalar(joint)]


def _polynomials(source: Source, name: str) -> np.ndarray:
    """The coefficients (ntendon, 3) of the stiffness or the damping."""
    linear = _property(source, f"tendon_{name}")
    higher = _property(source, f"tendon_{name}poly", 2)
    return np.column_stack([linear, higher])


def _property(source: Source, field: str, *width: int) -> np.ndarray:
    """A property of all tendons, (ntendon, *width); zeros where a flag disables it."""
    zeros = np.zeros((source.m.ntendon, *width))
    values = np.array(source.field(field, zeros), float)
    return np.zeros_like(values) if source.disabled(*_FIELDS[field]) else values


def _side(source: Source, site: int, body: int, sites: dict[str, str]) -> PathPoint:
    """The side site of a wrapping shape, as a point of a path.

    `body`: the body of the shape. If the site is on this body, the point is in the frame of the
    body, not in the frame of the site.
    """
    if body > 0 and source.m.site_bodyid[site] == body:
        return PathPoint(source.bodies[body], source.m.site_pos[site].copy())
    if body == 0 and source.m.site_bodyid[site] == 0:
        return PathPoint(None, source.m.site_pos[site].copy())
    return PathPoint(sites[source.sites[site]])


def _tendon(source: Source, tendon: int, sites: dict[str, str]) -> Tendon:
    m = source.m
    parts = range(m.tendon_adr[tendon], m.tendon_adr[tendon] + m.tendon_num[tendon])
    name = source.tendons[tendon]
    kinds = {part: source.kind("Wrap", m.wrap_type[part]) for part in parts}
    if kinds[parts[0]] == "joint":
        joints = [source.joints[m.wrap_objid[part]] for part in parts]
        return FixedTendon(name, m.wrap_prm[parts.start : parts.stop].copy(), joints)
    path: list[PathPoint | Wrap | Pulley] = []
    for part, kind in kinds.items():
        index, parameter = int(m.wrap_objid[part]), float(m.wrap_prm[part])
        if kind == "pulley":
            path.append(Pulley(parameter))
        elif kind == "site":
            path.append(PathPoint(sites[source.sites[index]]))
        else:
            body = int(m.geom_bodyid[index])
            side = _side(source, int(parameter), body, sites) if parameter >= 0 else None
            H = source.pose(m.geom_pos[index], m.geom_quat[index])
            radius = float(m.geom_size[index, 0])
            shape = Sphere(radius) if kind == "sphere" else Cylinder(radius, m.geom_size[index, 1])
            frame = source.bodies[body] if body > 0 else None
            path.append(Wrap(shape, frame, pose_of(H[:3, :3], H[:3, 3], "X_FS"), side))
    return SpatialTendon(name, path)
