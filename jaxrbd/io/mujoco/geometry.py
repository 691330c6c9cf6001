"""Contact geometry of a compiled MuJoCo model: shapes on bodies and in the world, and a ground."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ...contact import (
    Box,
    Capsule,
    Ground,
    HeightGrid,
    Material,
    Plane,
    Scene,
)
from ...contact.height_grid import NODES
from ...contact.shapes import contact_count, edge_text, stacked_pairs
from ...errors import listed
from .source import Source


class Candidate(NamedTuple):
    """Two geoms that can touch each other, and the explicit pair of the file, or None."""

    geom1: int
    geom2: int
    pair: int | None


class ReadScene(NamedTuple):
    """The scene of all geoms that can touch, or None, and the names of the geoms of its pairs.

    `warnings`: texts about contacts that are not found, and about robots that can rest on nothing.
    """

    scene: Scene | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def read_scene(source: Source) -> ReadScene:
    """The scene of all geoms that can touch.

    The ground is the plane or the height field of the world. Spheres, capsules and boxes touch the
    ground as in `Scene.from_shapes`, and each other as in `collision_pairs`.
    """
    m = source.m
    if source.disabled("CONTACT", "CONSTRAINT"):
        return ReadScene()
    moves = source.moving_bodies()[m.geom_bodyid]
    pairs: list[Candidate] = []
    touching: list[tuple[int, Candidate]] = []  # a moving geom, and its contact with the ground
    left_out: list[Candidate] = []
    ground: int | None = None
    for contact in _candidates(source):
        if not moves[contact.geom1] and not moves[contact.geom2]:
            continue  # a mocap body, which is welded to the world
        moving, fixed = contact.geom1, contact.geom2
        if not moves[moving]:
            moving, fixed = fixed, moving
        if moves[fixed] or _kind(source, fixed) not in ("plane", "hfield"):
            if _has_shapes(source, contact):
                pairs.append(contact)
            else:
                left_out.append(contact)
            continue
        if ground is None:
            ground = fixed
        if fixed != ground:
            first = source.geoms[ground]
            source.omit(f"geom {source.geoms[fixed]!r}: a second ground, besides {first!r}")
            left_out.append(contact)
            continue
        kind = _kind(source, moving)
        if kind not in SHAPES:
            feature, name = f"contact of a {kind} with the ground", source.geom_in_text(moving)
            label = source.geom_label(moving)
            source.omit_contact(feature, "geom", label, f"geom {name}: {feature}")
            left_out.append(contact)
            continue
        touching.append((moving, contact))
    surface = None if ground is None else _ground(source, ground)
    if surface is None:
        left_out += [contact for _, contact in touching]
        touching = []
    kept = [*pairs, *(contact for _, contact in touching)]
    silent = _untouchable(source, moves, kept, left_out)
    if not kept:
        source.group_contacts()
        return ReadScene(warnings=silent)
    on_ground = [_shape(source, geom, moves) for geom, _ in touching]
    collisions = [
        (_shape(source, pair.geom1, moves), _shape(source, pair.geom2, moves)) for pair in pairs
    ]
    friction = _frictions(
        source, [contact for _, contact in touching], on_ground, pairs, collisions
    )
    source.group_contacts()
    scene = Scene.from_shapes(on_ground, (), surface, Material(friction=friction))
    scene = dataclasses.replace(scene, pairs=stacked_pairs(collisions))
    labels = [(_label(source, pair.geom1), _label(source, pair.geom2)) for pair in pairs]
    edges = edge_text(collisions, labels)
    names = tuple((source.geoms[pair.geom1], source.geoms[pair.geom2]) for pair in pairs)
    return ReadScene(scene, names, silent if edges is None else (*silent, edges))


def _untouchable(
    source: Source, moves: np.ndarray, kept: list[Candidate], left_out: list[Candidate]
) -> tuple[str, ...]:
    """A text about the floating robots that can rest on nothing, because contacts were left out.

    A floating robot has a free joint at its root. If the file lets it touch the world, its contacts
    with the world count; otherwise its contacts with other robots count.
    """
    m = source.m
    robot = np.array(m.body_rootid)[m.geom_bodyid]  # the root body of each geom

    def contacts_of(root: int, contacts: list[Candidate], with_world: bool) -> list[int]:
        """The geoms of a robot in contacts with the world, or with other robots."""
        found = []
        for contact in contacts:
            for geom, other in (contact[:2], contact[1::-1]):
                if robot[geom] == root and robot[other] != root and moves[other] != with_world:
                    found.append(geom)
        return found

    silent, missing = [], []
    for root in range(1, m.nbody):
        joints = range(m.body_jntadr[root], m.body_jntadr[root] + m.body_jntnum[root])
        if m.body_parentid[root] != 0 or not any(source.is_free(joint) for joint in joints):
            continue
        for with_world in (True, False):
            lost, left = (contacts_of(root, x, with_world) for x in (left_out, kept))
            if lost or left:
                if not left:
                    silent.append(source.bodies[root])
                    missing += lost
                break
    if not silent:
        return ()
    geoms = [_label(source, geom) for geom in dict.fromkeys(missing)]
    bodies = listed([f"body {name!r}" for name in silent])
    return (
        f"{bodies} with a free joint can rest on nothing, because contacts of its geoms were left "
        f"out: {listed(geoms)}",
    )


SHAPES = ("sphere", "capsule", "box")


def _has_shapes(source: Source, contact: Candidate) -> bool:
    """Whether both geoms of a contact are spheres, capsules or boxes; other geoms are omitted."""
    geoms = [contact.geom1, contact.geom2]
    kinds = [_kind(source, geom) for geom in geoms]
    texts = {}  # one text for two geoms of one kind
    for geom, kind, other in zip(geoms, kinds, reversed(geoms)):
        if kind not in SHAPES:
            name, partner = source.geom_in_text(geom), source.geom_in_text(other)
            text = f"geom {name}: contact of a {kind} with the geom {partner}"
            text = texts.setdefault(kind, text)
            feature = f"contact of a {kind} with other geoms"
            source.omit_contact(feature, "geom", source.geom_label(geom), text)
    return all(kind in SHAPES for kind in kinds)


def _shape(source: Source, geom: int, moves: np.ndarray) -> Capsule | Box:
    """A geom in the frame of its body, or in the world if the geom does not move."""
    m = source.m
    body = int(m.geom_bodyid[geom])
    H = source.pose(m.geom_pos[geom], m.geom_quat[geom])
    frame = source.bodies[body]
    if not moves[geom]:
        frame, H = None, source.static_pose(body) @ H
    size, centre = np.array(m.geom_size[geom]), H[:3, 3]
    kind = _kind(source, geom)
    if kind == "box":
        return Box(frame, size, centre, H[:3, :3])
    half = size[1] * H[:3, 2] if kind == "capsule" else np.zeros(3)
    return Capsule(frame, size[0], centre - half, centre + half)


def _label(source: Source, geom: int) -> str:
    """The kind, the name and the body of a geom."""
    return f"the {_kind(source, geom)} {source.geom_label(geom)}"


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


def _frictions(
    source: Source,
    on_ground: list[Candidate],
    shapes: list[Capsule | Box],
    pairs: list[Candidate],
    collisions: list[tuple[Capsule | Box, Capsule | Box]],
) -> np.ndarray:
    """The coefficient of friction of each contact of the scene, in the order of the scene."""
    found = []
    for contact, shape in zip(on_ground, shapes):
        found += len(shape.spheres) * [_friction(source, contact)]
    by_kind: tuple[list[float], list[float]] = ([], [])  # first the pairs of capsules
    for contact, pair in zip(pairs, collisions):
        friction = _friction(source, contact)
        with_box = any(isinstance(shape, Box) for shape in pair)
        by_kind[with_box].extend(contact_count(*pair) * [friction])
    return np.array(found + by_kind[0] + by_kind[1])


def _friction(source: Source, contact: Candidate) -> float:
    """The coefficient of friction of a contact; features without a counterpart are omitted."""
    m = source.m
    velocity = source.field("geom_surfacevel", np.zeros((m.ngeom, 6)))
    adhesion = source.field("geom_adhesion", np.zeros(m.ngeom))
    pair_adhesion = source.field("pair_adhesion", np.zeros(m.npair))
    surface, geoms = _surface(source, contact), [contact.geom1, contact.geom2]
    first, second = (source.geom_in_text(geom) for geom in geoms)
    element = " and ".join(source.geom_label(geom) for geom in geoms)
    stick = adhesion[geoms].any() if contact.pair is None else pair_adhesion[contact.pair] != 0
    features = {
        f"torsional or rolling friction (condim {surface.condim})": surface.condim > 3,
        f"margin {surface.margin:g}": surface.margin != 0,
        "surfacevel": velocity[geoms].any(),
        "adhesion": stick,
    }
    for feature, present in features.items():
        if present:
            text = f"contact of the geoms {first} and {second}: {feature}"
            source.omit_contact(f"contacts with {feature}", "pair", element, text)
    return float(surface.friction) if surface.condim > 1 else 0.0
