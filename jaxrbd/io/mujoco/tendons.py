"""Tendons of a compiled MuJoCo model."""

from __future__ import annotations

import numpy as np

from ...collision.distances import pose_of
from ...model.shapes import Cylinder, Sphere
from ...tendons import FixedTendon, PathPoint, Pulley, SpatialTendon, Tendons, Wrap
from ...tendons.paths import Tendon
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
_OMITTED = {
    "tendon_stiffnesspoly": "polynomial stiffness",
    "tendon_dampingpoly": "polynomial damping",
    "tendon_springyield": "springyield",
}


def read_tendons(source: Source, sites: dict[str, str]) -> Tendons:
    """All tendons, in the order of the file; `sites`: the frame of each site."""
    m = source.m
    if not m.ntendon:
        return Tendons(())
    for field, feature in _OMITTED.items():
        for tendon in np.flatnonzero(_property(source, field).reshape(m.ntendon, -1).any(axis=1)):
            source.omit(f"tendon {source.tendons[tendon]!r}: {feature}")
    limits = np.where(
        _property(source, "tendon_limited").astype(bool)[:, None],
        m.tendon_range,
        [-np.inf, np.inf],
    )
    properties = {
        "stiffness": _property(source, "tendon_stiffness"),
        "damping": _property(source, "tendon_damping"),
        "friction": _property(source, "tendon_frictionloss"),
        "armature": _property(source, "tendon_armature"),
    }
    for actuator in range(len(m.actuator_trntype)):
        if source.transmission(actuator) == "tendon":
            # As for joints, an actuator adds its armature and its damping, times gear^2.
            tendon, square = m.actuator_trnid[actuator, 0], source.gear(actuator) ** 2
            for name in ("armature", "damping"):
                values = source.field(f"actuator_{name}", np.zeros(len(m.actuator_trntype)))
                if name == "armature" or not source.disabled(*_FIELDS["tendon_damping"]):
                    properties[name][tendon] += square * values[actuator]
    return Tendons(
        [_tendon(source, tendon, sites) for tendon in range(m.ntendon)],
        rest=np.array(m.tendon_lengthspring),
        limits=limits if np.isfinite(limits).any() else None,
        **{name: x if x.any() else None for name, x in properties.items()},
    )


def _property(source: Source, field: str) -> np.ndarray:
    """A property of all tendons; zeros where a flag disables it."""
    zeros = np.zeros(source.m.ntendon)
    values = np.array(source.field(field, zeros), float)
    return np.zeros_like(values) if source.disabled(*_FIELDS[field]) else values


def _side(source: Source, site: int, body: int, sites: dict[str, str]) -> PathPoint:
    """A side site; if it is on the body of the shape, as a point in the frame of the body."""
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
