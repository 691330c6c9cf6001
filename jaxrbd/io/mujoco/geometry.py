"""Contact geometry of a compiled MuJoCo model: spheres on moving bodies, and one ground."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...contact import Ground, HeightGrid, Material, Plane, Scene
from ...contact.height_grid import NODES
from .source import Source


class Candidate(NamedTuple):
    """Two geoms that can touch each other, and the explicit pair of the file, or None."""

    geom1: int
    geom2: int
    pair: int | None


def read_scene(source: Source) -> tuple[Scene | None, tuple[tuple[str, str], ...]]:
    """The contacts with the ground, and the names of pairs of geoms on two moving bodies.

    A sphere is a sphere of the scene, a capsule is two spheres at its ends, and a box is eight
    points at its corners.
    """
    m = source.m
    if source.disabled("CONTACT", "CONSTRAINT"):
        return None, ()
    moves = source.moving_bodies()[m.geom_bodyid]
    pairs: list[tuple[str, str]] = []
    touching: list[tuple[int, Candidate]] = []  # a moving geom, and its contact with the ground
    ground: int | None = None
    for contact in _candidates(source):
        if not moves[contact.geom1] and not moves[contact.geom2]:
            continue  # a mocap body, which is welded to the world
        if moves[contact.geom1] and moves[contact.geom2]:
            pairs.append((source.geoms[contact.geom1], source.geoms[contact.geom2]))
            continue
        moving, fixed = contact.geom1, contact.geom2
        if not moves[moving]:
            moving, fixed = fixed, moving
        kind = _kind(source, fixed)
        if kind not in ("plane", "hfield"):
            source.omit(f"geom {source.geoms[fixed]!r}: a {kind} of the world as ground")
            continue
        if ground is None:
            ground = fixed
        if fixed != ground:
            first = source.geoms[ground]
            source.omit(f"geom {source.geoms[fixed]!r}: a second ground, besides {first!r}")
            continue
        kind = _kind(source, moving)
        if kind not in ("sphere", "capsule", "box"):
            source.omit(f"geom {source.geoms[moving]!r}: contact of a {kind} with the ground")
            continue
        touching.append((moving, contact))
    surface = None if ground is None else _ground(source, ground)
    if surface is None or not touching:
        return None, tuple(pairs)
    frames, radii, offsets = [], [], []
    for geom, _ in touching:
        radius, centres = _spheres(source, geom)
        frames += len(centres) * [source.bodies[m.geom_bodyid[geom]]]
        radii += len(centres) * [radius]
        offsets += centres
    friction = _friction(source, touching)
    scene = Scene(frames, radii, np.array(offsets), surface, Material(friction=friction))
    return scene, tuple(pairs)


def _kind(source: Source, geom: int) -> str:
    return source.kind("Geom", source.m.geom_type[geom])


def _candidates(source: Source) -> list[Candidate]:
    """The pairs of geoms that MuJoCo tests for contact: explicit pairs, then filtered pairs.

    Source: MuJoCo, chapter "Computation", section "Selection" of collision detection.
    """
    m = source.m
    found = [
        Candidate(int(m.pair_geom1[i]), int(m.pair_geom2[i]), i)
        for i in range(m.npair)
        if np.any(m.body_weldid[m.geom_bodyid[[m.pair_geom1[i], m.pair_geom2[i]]]] != 0)
    ]
    explicit = {frozenset(pair[:2]) for pair in found}
    body = np.array(m.geom_bodyid)
    weld = m.body_weldid[body]
    parent = m.body_weldid[m.body_parentid[weld]]
    affine = (m.geom_contype[:, None] & m.geom_conaffinity[None, :]) != 0
    allowed = (affine | affine.T) & (weld[:, None] != weld[None, :])
    if not source.disabled("FILTERPARENT"):
        child = (weld[:, None] == parent[None, :]) & (weld[:, None] != 0) & (weld[None, :] != 0)
        allowed &= ~(child | child.T)
    excluded = {frozenset((int(x) >> 16, int(x) & 0xFFFF)) for x in m.exclude_signature}
    for i, j in np.argwhere(np.triu(allowed, 1)).tolist():
        bodies = frozenset((int(body[i]), int(body[j])))
        if bodies not in excluded and frozenset((i, j)) not in explicit:
            found.append(Candidate(i, j, None))
    return found


def _ground(source: Source, geom: int) -> Ground | None:
    m = source.m
    body = source.static_pose(int(m.geom_bodyid[geom]))
    H = body @ source.pose(m.geom_pos[geom], m.geom_quat[geom])
    if _kind(source, geom) == "plane":
        normal = H[:3, 2]
        return Plane(normal, normal @ H[:3, 3])
    if not np.allclose(H[:3, :3], np.eye(3), atol=1e-12):
        source.omit(f"geom {source.geoms[geom]!r}: a height field that is turned")
        return None
    field = m.geom_dataid[geom]
    rows, columns, start = m.hfield_nrow[field], m.hfield_ncol[field], m.hfield_adr[field]
    size_x, size_y, size_z, _ = m.hfield_size[field]
    data = np.array(m.hfield_data[start : start + rows * columns], float).reshape(rows, columns)
    corner = H[:2, 3] - [size_x, size_y]
    spacing = 2 * np.array([size_x, size_y]) / [columns - 1, rows - 1]
    if min(rows, columns) < NODES:
        source.omit(f"geom {source.geoms[geom]!r}: a height field of less than 4 x 4 points")
        return None
    return HeightGrid(H[2, 3] + size_z * data.T, spacing, corner)


def _spheres(source: Source, geom: int) -> tuple[float, list[np.ndarray]]:
    """The radius and the centres, in the frame of the body, of the spheres of a geom."""
    m = source.m
    position, size = np.array(m.geom_pos[geom]), np.array(m.geom_size[geom])
    R = source.rotation(m.geom_quat[geom])
    if _kind(source, geom) == "sphere":
        return float(size[0]), [position]
    if _kind(source, geom) == "capsule":
        return float(size[0]), [position + sign * size[1] * R[:, 2] for sign in (-1, 1)]
    signs = np.array(np.meshgrid(*3 * [[-1, 1]], indexing="ij")).reshape(3, 8).T
    return 0.0, [position + R @ (sign * size) for sign in signs]


class _Surface(NamedTuple):
    """The parameters of one contact."""

    friction: float
    condim: int
    margin: float


def _surface(source: Source, contact: Candidate) -> _Surface:
    """The parameters as MuJoCo combines them from two geoms, or from an explicit pair."""
    m = source.m
    if contact.pair is not None:
        i = contact.pair
        if m.pair_friction[i, 0] != m.pair_friction[i, 1]:
            names = [source.geoms[geom] for geom in contact[:2]]
            source.omit(f"pair of the geoms {names[0]!r} and {names[1]!r}: anisotropic friction")
        numbers = m.pair_friction[i, 0], m.pair_dim[i], m.pair_margin[i]
        return _Surface(float(numbers[0]), int(numbers[1]), float(numbers[2]))
    geoms = [contact.geom1, contact.geom2]
    margin = float(np.max(m.geom_margin[geoms]))
    priority = m.geom_priority[geoms]
    if priority[0] != priority[1]:
        geoms = [geoms[int(np.argmax(priority))]]
    friction, condim = np.max(m.geom_friction[geoms, 0]), np.max(m.geom_condim[geoms])
    return _Surface(float(friction), int(condim), margin)


def _friction(source: Source, touching: list[tuple[int, Candidate]]) -> float:
    """The coefficient of friction of the contacts with the ground."""
    m = source.m
    coefficients: list[float] = []
    velocity = source.field("geom_surfacevel", np.zeros((m.ngeom, 6)))
    adhesion = source.field("geom_adhesion", np.zeros(m.ngeom))
    pair_adhesion = source.field("pair_adhesion", np.zeros(m.npair))
    for geom, contact in touching:
        surface, name = _surface(source, contact), source.geoms[geom]
        if surface.condim > 3:
            source.omit(f"geom {name!r}: torsional or rolling friction (condim {surface.condim})")
        if surface.margin != 0:
            source.omit(f"geom {name!r}: margin {surface.margin:g} of the contact with the ground")
        geoms = [contact.geom1, contact.geom2]
        stick = adhesion[geoms].any() if contact.pair is None else pair_adhesion[contact.pair] != 0
        for feature, present in (("surfacevel", velocity[geoms].any()), ("adhesion", stick)):
            if present:
                source.omit(f"geom {name!r}: {feature} of the contact with the ground")
        coefficients.append(float(surface.friction) if surface.condim > 1 else 0.0)
    for (geom, _), coefficient in zip(touching, coefficients):
        if coefficient != coefficients[0]:
            source.omit(
                f"geom {source.geoms[geom]!r}: friction {coefficient:g} with the ground, where "
                f"geom {source.geoms[touching[0][0]]!r} has {coefficients[0]:g}"
            )
    return coefficients[0]
