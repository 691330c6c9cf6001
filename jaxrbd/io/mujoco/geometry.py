"""Contact geometry of a compiled MuJoCo model: shapes on bodies and in the world, and a ground.

A file can have many more pairs of geoms than geoms. So the work per pair is done by NumPy, for all
pairs at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np

from ...collision import HalfSpace, PlacedShape, convex_hull
from ...collision.distances import pose_of
from ...collision.height_grid import NODES
from ...collision.shapes import Shape
from ...contact import Ground, HeightGrid, InverseInertias, Material, Plane, Scene, Softness
from ...contact.scene import ground_contacts
from ...contact.shape_pairs import pairs_and_ground
from ...errors import ArgumentError, ModelError, listed
from ...model.geometry import Mesh
from .shapes import geom_shape
from .softness import LEAST_FRICTION, ContactSoftness, read_contact_softness
from .source import Source

SHAPES = ("sphere", "capsule", "box", "cylinder", "ellipsoid", "mesh")
GROUNDS = ("plane", "hfield")

# The friction of sliding, of torsion and of rolling acts in contacts whose condim is larger than
# the entry.
CONDIMS = (1, 3, 4)

# If more contacts than this number have the same unsupported feature, one text describes them all.
# Otherwise each contact has its own text.
FEW = 4


class Candidates(NamedTuple):
    """Pairs of geoms that can touch each other.

    - `geoms` (n, 2): the ids of both geoms;
    - `pair` (n,): the id of the explicit pair of the file, or -1.
    """

    geoms: np.ndarray
    pair: np.ndarray

    def select(self, rows: np.ndarray) -> Candidates:
        """The pairs for which a mask (n,) is true."""
        return Candidates(self.geoms[rows], self.pair[rows])


class ReadScene(NamedTuple):
    """The scene of all geoms that can touch, or None, and the names of the geoms of its pairs.

    `warnings`: texts about simplified meshes, and about robots that no contact can support.
    """

    scene: Scene | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def read_scene(source: Source, soft: bool) -> ReadScene:
    """The scene of all geoms that can touch; `soft`: with MuJoCo's soft contacts.

    The ground is the first height field of the world or, without one, the first plane. Other planes
    are half-spaces, and the shapes of mocap bodies are in the frames of these bodies. Shapes touch
    the ground as in `Scene.from_shapes`, and each other as in `collision_pairs`. A mesh is replaced
    by its convex hull, as in MuJoCo.
    """
    m = source.m
    if source.disabled("CONTACT", "CONSTRAINT"):
        return ReadScene()
    # For each geom: whether a joint moves it, whether it can be a shape, whether it is a surface.
    moves = source.moving_bodies()[m.geom_bodyid]
    shaped, surfaces = (np.isin(source.geom_kinds, kinds) for kinds in (SHAPES, GROUNDS))
    found = _candidates(source)
    # A joint must move at least one geom of a pair. For MuJoCo's `body_weldid`, mocap bodies move.
    found = found.select(np.any(moves[found.geoms], axis=1))
    # Of each pair, one geom that moves, and the other geom.
    moving = np.where(moves[found.geoms[:, 0]], *found.geoms.T)
    other = found.geoms.sum(axis=1) - moving
    on_surface = surfaces[other] & ~moves[other]
    is_surface = on_surface[:, None] & (found.geoms == other[:, None])  # for both geoms of a pair
    # A surface on a mocap body moves with it, so it is not the ground.
    carried = source.carriers[m.geom_bodyid] > 0
    grounds = list(dict.fromkeys(other[on_surface & ~carried[other]].tolist()))
    # The first surface is the ground. Height fields come first: a plane can also be a half-space.
    grounds.sort(key=lambda geom: source.geom_kinds[geom] != "hfield")
    is_surface &= ~(carried & (source.geom_kinds == "hfield"))[other][:, None]
    fields = [geom for geom in grounds[1:] if source.geom_kinds[geom] == "hfield"]
    for geom in fields:
        first = source.geoms[grounds[0]]
        source.omit(f"geom {source.geoms[geom]!r}: a second height field, besides {first!r}")
    # `kept`: the pairs that the scene will have; `on_ground`: the contacts with the ground.
    kept = ~(on_surface & np.isin(other, fields))
    on_ground = on_surface & np.isin(other, grounds[:1])
    shapeless = ~shaped[found.geoms] & ~is_surface & kept[:, None]
    omitted = _shapeless_contacts(source, found, shapeless, on_ground)
    kept &= ~np.any(shapeless, axis=1)
    surface = _ground(source, grounds[0]) if grounds else None
    if surface is None:
        kept &= ~on_ground
    unsupported = _unsupported_robots(source, moves, found.select(kept), found.select(~kept))
    touching, pairs = found.select(kept & on_ground), found.select(kept & ~on_ground)
    friction, margin, condim, features = _materials(source, touching, pairs)
    for text in [*omitted, *features]:
        source.omit(text)
    if not kept.any():
        return ReadScene(warnings=unsupported)
    softness = None
    if soft:
        geoms, pair = (np.concatenate(x) for x in zip(touching, pairs))
        softness = read_contact_softness(source, geoms, pair, friction[:, 0], condim)
    scene, simplified = _scene(
        source, moves, moving[kept & on_ground], pairs, surface, friction, margin, softness
    )
    names = tuple((source.geoms[a], source.geoms[b]) for a, b in pairs.geoms.tolist())
    return ReadScene(scene, names, (*unsupported, *simplified))


def _scene(
    source: Source,
    moves: np.ndarray,
    supported: np.ndarray,
    pairs: Candidates,
    surface: Ground | None,
    friction: np.ndarray,
    margin: np.ndarray,
    softness: ContactSoftness | None,
) -> tuple[Scene, list[str]]:
    """The scene with the given contacts, and a text about the meshes that are simplified.

    - `moves`: (ngeom,), whether a joint moves a geom;
    - `supported`: (n,), the geoms that can touch the ground `surface`;
    - `friction`, `margin`, `softness`: of the contacts of these geoms, then of the pairs; see
      `_materials` and `read_contact_softness`.
    """
    used, places = np.unique([*supported, *pairs.geoms.ravel()], return_inverse=True)
    shapes, simplified = _shapes(source, used.tolist(), moves)
    supported_shapes = [shapes[place] for place in places[: len(supported)]]
    pairs_of_shapes = [
        (shapes[a], shapes[b]) for a, b in places[len(supported) :].reshape(-1, 2).tolist()
    ]
    # The contacts: the spheres on the ground, the pairs, then the other shapes on the ground.
    spheres = ground_contacts(supported_shapes)
    contact_pairs = pairs_and_ground(pairs_of_shapes, spheres.others)
    counts = np.array(spheres.counts, int)

    def per_contact(x: np.ndarray) -> np.ndarray:
        """The values for each contact of the scene, from the values for each pair of geoms."""
        x_ground, x_pairs = np.split(x, [len(supported)])
        x_pairs = np.concatenate([x_pairs, x_ground[counts == 0]])
        both = (x_ground, counts), (x_pairs, contact_pairs.counts)
        return np.concatenate([np.repeat(x, count, axis=0) for x, count in both])

    torsional, rolling = friction[:, 1].any(), friction[:, 2].any()
    material = Material(
        friction=per_contact(friction[:, 0]),
        margin=per_contact(margin) if margin.any() else 0.0,
        torsional=per_contact(friction[:, 1]) if torsional or rolling else None,
        rolling=per_contact(friction[:, 2]) if rolling else None,
        softness=None if softness is None else Softness(*map(per_contact, softness[:2])),
    )
    scene = Scene(
        spheres.frames, spheres.radii, spheres.centres, surface, material, pairs=contact_pairs
    )
    if softness is not None:
        inverse_inertia = InverseInertias(per_contact(softness.inverse_inertia), np.zeros(0))
        scene = dataclasses.replace(scene, inverse_inertia=inverse_inertia)
    return scene, simplified


def _unsupported_robots(
    source: Source, moves: np.ndarray, kept: Candidates, left_out: Candidates
) -> tuple[str, ...]:
    """A text about the floating robots that no contact can support, because contacts are left out.

    A floating robot has a free joint at its root. If the file lets it touch the world, its contacts
    with the world count; otherwise its contacts with other robots count.

    - `moves`: (ngeom,), whether a joint moves a geom;
    - `kept`, `left_out`: the contacts that the scene has and does not have.
    """
    m = source.m
    robot = np.array(m.body_rootid)[m.geom_bodyid]  # the root body of each geom

    def contacts_of_robots(contacts: Candidates) -> tuple[np.ndarray, np.ndarray]:
        """The geoms of robots in contacts with the world or other robots, and a key for each.

        The key is 2 r for a geom of the robot with the root body r in a contact with the world, and
        2 r + 1 in a contact with another robot.
        """
        geoms, others = contacts.geoms.ravel(), contacts.geoms[:, ::-1].ravel()
        chosen = robot[geoms] != robot[others]
        return geoms[chosen], (2 * robot[geoms] + moves[others])[chosen]

    lost, lost_keys = contacts_of_robots(left_out)
    kept_keys = set(contacts_of_robots(kept)[1].tolist())
    known = kept_keys | set(lost_keys.tolist())
    names, keys = [], []
    for root in range(1, m.nbody):
        joints = range(m.body_jntadr[root], m.body_jntadr[root] + m.body_jntnum[root])
        if m.body_parentid[root] != 0 or not any(source.is_free(joint) for joint in joints):
            continue
        key = next((key for key in (2 * root, 2 * root + 1) if key in known), None)
        if key is not None and key not in kept_keys:
            names.append(source.bodies[root])
            keys.append(key)
    if not names:
        return ()
    chosen = np.isin(lost_keys, keys)
    missing = lost[chosen][np.argsort(lost_keys[chosen], kind="stable")]
    geoms = [_label(source, geom) for geom in dict.fromkeys(missing.tolist())]
    bodies = listed([f"body {name!r}" for name in names])
    return (
        f"no contact can support {bodies} with a free joint, because contacts of its geoms were "
        f"left out: {listed(geoms)}",
    )


def _shapeless_contacts(
    source: Source, found: Candidates, shapeless: np.ndarray, on_ground: np.ndarray
) -> list[str]:
    """Texts about the contacts of geoms that are no shapes of jaxrbd.

    - `shapeless` (n, 2): whether a geom can be neither a shape nor the ground;
    - `on_ground` (n,): whether the contact is a contact with the ground.
    """
    rows, sides = np.nonzero(shapeless)
    owners, partners = found.geoms[rows, sides], found.geoms[rows, 1 - sides]
    kinds, ground = source.geom_kinds[owners], on_ground[rows]
    texts = []
    for kind, with_ground in dict.fromkeys(zip(kinds.tolist(), ground.tolist())):
        chosen = (kinds == kind) & (ground == with_ground)
        geoms, others = owners[chosen].tolist(), partners[chosen].tolist()
        # Two geoms of one kind that touch each other have one text.
        _, first = np.unique(_keys(found.geoms[rows[chosen]]), return_index=True)
        contacts = first.tolist()

        def text(contact: int) -> str:
            name, partner = (source.geom_in_text(x[contact]) for x in (geoms, others))
            partner = "ground" if with_ground else f"geom {partner}"
            return f"geom {name}: contact of an {kind} with the {partner}"

        where = "the ground" if with_ground else "other geoms"
        elements = [source.geom_labels[geom] for geom in dict.fromkeys(geoms)]
        count = f"{len(elements)} geom{'s' * (len(elements) > 1)}"
        if len(contacts) != len(elements):
            count = f"{len(contacts)} contacts of {count}"
        texts += _contact_texts(
            f"contact of an {kind} with {where}", count, elements, contacts, text
        )
    return texts


def _contact_texts(
    feature: str,
    count: str,
    elements: list[str],
    contacts: list[int],
    text: Callable[[int], str],
) -> list[str]:
    """One `text` per contact with an unsupported feature, or one text for many contacts.

    `count`: the number of contacts in words; `elements`: the geoms in the text for many contacts.
    """
    if len(contacts) <= FEW:
        return [text(contact) for contact in contacts]
    return [f"{feature} ({count}: {listed(elements)})"]


def _shapes(
    source: Source, geoms: list[int], moves: np.ndarray
) -> tuple[list[PlacedShape], list[str]]:
    """The shapes of geoms, and a text about the meshes whose hulls have fewer vertices."""
    shapes, simplified = [], []
    hulls: dict[int, tuple[Shape, float]] = {}  # by mesh: many geoms can have one mesh
    for geom in geoms:
        if source.geom_kinds[geom] == "mesh":
            mesh = int(source.m.geom_dataid[geom])
            if mesh not in hulls:
                hulls[mesh] = _hull(source, geom)
            shape, error = hulls[mesh]
        else:
            shape, error = _shape(source, geom), 0.0
        body = int(source.m.geom_bodyid[geom])
        H = source.pose(source.m.geom_pos[geom], source.m.geom_quat[geom])
        frame = source.bodies[body]
        if not moves[geom] and not source.carriers[body]:
            frame, H = None, source.static_pose(body) @ H
        shapes.append(
            PlacedShape(shape, frame, pose_of(H[:3, :3], H[:3, 3], "pose"), source.geoms[geom])
        )
        if error:
            simplified.append(f"{_label(source, geom)} within {error:.2g} m")
    if not simplified:
        return shapes, []
    count = f"{len(simplified)} mesh{'es' * (len(simplified) > 1)}"
    text = f"hulls with fewer vertices than in MuJoCo for {count}: {listed(simplified)}"
    return shapes, [text]


def _shape(source: Source, geom: int) -> Shape:
    """The shape of a geom other than a mesh."""
    if source.geom_kinds[geom] == "plane":
        return HalfSpace()
    return cast(Shape, geom_shape(source, geom))


def _hull(source: Source, geom: int) -> tuple[Shape, float]:
    """The hull of the mesh of a geom, and its error in m."""
    mesh = cast(Mesh, geom_shape(source, geom))
    try:
        return convex_hull(mesh.vertices)
    except ArgumentError as error:
        raise ModelError(f"{_label(source, geom)}: {error}") from None


def _label(source: Source, geom: int) -> str:
    """The kind, the name and the body of a geom."""
    return f"the {source.geom_kinds[geom]} {source.geom_labels[geom]}"


def _candidates(source: Source) -> Candidates:
    """The pairs of geoms that MuJoCo tests for contact: explicit pairs, then filtered pairs.

    Source: MuJoCo, chapter "Computation", section "Selection" of collision detection.
    """
    m = source.m
    body = np.array(m.geom_bodyid)
    explicit = np.stack([m.pair_geom1, m.pair_geom2], axis=1).reshape(-1, 2)
    # A contact of bodies that are welded together has no effect.
    ids = np.flatnonzero(np.ptp(m.body_weldid[body[explicit]], axis=1) != 0)
    explicit = explicit[ids]
    # A class has the geoms of all bodies that are welded together, with one contype and one
    # conaffinity. They can touch the same geoms.
    fields = np.stack([m.body_weldid[body], m.geom_contype, m.geom_conaffinity], axis=1)
    classes, class_of_geom = np.unique(fields, axis=0, return_inverse=True)
    weld, contype, affinity = classes.T
    parent = m.body_weldid[m.body_parentid[weld]]
    affine = (contype[:, None] & affinity[None, :]) != 0
    allowed = (affine | affine.T) & (weld[:, None] != weld[None, :])
    if not source.disabled("FILTERPARENT"):
        child = (weld[:, None] == parent[None, :]) & (weld[:, None] != 0) & (weld[None, :] != 0)
        allowed &= ~(child | child.T)
    geoms = _products(class_of_geom.ravel(), np.argwhere(np.triu(allowed, 1)))
    signatures = np.array(m.exclude_signature, np.int64)
    excluded = _keys(np.stack([signatures >> 16, signatures & 0xFFFF], axis=1))
    geoms = geoms[~np.isin(_keys(body[geoms]), excluded)]
    geoms = geoms[~np.isin(_keys(geoms), _keys(explicit))]
    return Candidates(
        np.concatenate([explicit, geoms]), np.concatenate([ids, np.full(len(geoms), -1)])
    )


def _products(classes: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """For each pair of classes, all pairs of a geom of one class and a geom of the other.

    The result (n, 2) is sorted.

    - `classes`: (ngeom,), the class of each geom;
    - `pairs`: (k, 2), pairs of different classes.
    """
    geoms, counts = np.argsort(classes, kind="stable"), np.bincount(classes)
    starts = np.cumsum(counts) - counts
    sizes = counts[pairs].prod(axis=1)
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first, second = np.repeat(pairs, sizes, axis=0).T
    a, b = np.divmod(place, counts[second])
    found = np.stack([geoms[starts[first] + a], geoms[starts[second] + b]], axis=1)
    found.sort(axis=1)
    return found[np.lexsort((found[:, 1], found[:, 0]))]


def _keys(pairs: np.ndarray) -> np.ndarray:
    """One number (n,) per pair (n, 2) of ids, the same for both orders of the two ids."""
    return (np.min(pairs, axis=1).astype(np.int64) << 32) + np.max(pairs, axis=1)


def _ground(source: Source, geom: int) -> Ground | None:
    """The geom, a plane or a height field, as the ground.

    For a height field that is turned: None, and a text in `source.omitted`.
    """
    m = source.m
    body = source.static_pose(int(m.geom_bodyid[geom]))
    H = body @ source.pose(m.geom_pos[geom], m.geom_quat[geom])
    if source.geom_kinds[geom] == "plane":
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
    heights = _refined(_refined(data.T).T).T
    spacing = 2 * np.array([size_x, size_y]) / (np.array(heights.shape) - 1)
    return HeightGrid(H[2, 3] + size_z * heights, spacing, corner)


def _refined(heights: np.ndarray) -> np.ndarray:
    """The heights (n, m) with interpolated rows between the rows, until a grid has enough rows."""
    while len(heights) < NODES:
        middles = (heights[1:] + heights[:-1]) / 2
        heights = np.insert(heights, range(1, len(heights)), middles, axis=0)
    return heights


def _margins(source: Source, geoms: np.ndarray) -> np.ndarray:
    """The distance (n,) below which the geoms (n, 2) touch, by the rule of the installed MuJoCo.

    From version 3.9 on, it is the sum of the margins. Before, it was the larger margin and, before
    version 3.5, the gap was subtracted.
    """
    m = source.m
    if _version(source) >= (3, 9):
        return np.sum(m.geom_margin[geoms], axis=1)
    margin = np.max(m.geom_margin[geoms], axis=1, initial=0)
    if _subtracts_gap(source):
        margin = margin - np.max(m.geom_gap[geoms], axis=1, initial=0)
    return margin


def _subtracts_gap(source: Source) -> bool:
    return _version(source) < (3, 5)


def _version(source: Source) -> tuple[int, ...]:
    """The first two numbers of the version of MuJoCo."""
    return tuple(int(number) for number in source.mj.__version__.split(".")[:2])


def _materials(
    source: Source, touching: Candidates, pairs: Candidates
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """The friction, the margin and the condim of each contact with the ground, then of each pair.

    MuJoCo combines the parameters of two geoms, or takes the parameters of an explicit pair. The
    friction (n, 3) has the coefficients of sliding, of torsion and of rolling; a coefficient that
    the condim of the contact does not include is zero. The last result has texts about features
    without a counterpart.
    """
    m = source.m
    geoms, pair = (np.concatenate(x) for x in zip(touching, pairs))
    # Friction and condim are from the geom with the higher priority; with equal priorities, the
    # larger values.
    priority = m.geom_priority[geoms]
    leads = priority == priority.max(axis=1, keepdims=True)
    friction = np.max(m.geom_friction[geoms], axis=1, where=leads[..., None], initial=0)
    condim = np.max(m.geom_condim[geoms], axis=1, where=leads, initial=0)
    margin = _margins(source, geoms)
    velocity = source.field("geom_surfacevel", np.zeros((m.ngeom, 6)))
    surface_moves = np.any(velocity[geoms], axis=(1, 2))
    sticky = np.any(source.field("geom_adhesion", np.zeros(m.ngeom))[geoms], axis=1)
    explicit = np.flatnonzero(pair >= 0)
    ids = pair[explicit]
    friction[explicit] = m.pair_friction[ids][:, [0, 2, 3]]
    margin[explicit] = m.pair_margin[ids] - (m.pair_gap[ids] if _subtracts_gap(source) else 0)
    condim[explicit] = m.pair_dim[ids]
    sticky[explicit] = source.field("pair_adhesion", np.zeros(m.npair))[ids] != 0
    friction[condim[:, None] <= CONDIMS] = 0.0
    # Contacts with moments need sliding friction; MuJoCo uses at least this coefficient too.
    moments = np.any(friction[:, 1:], axis=1)
    friction[moments, 0] = np.maximum(friction[moments, 0], LEAST_FRICTION)
    # An explicit pair has two coefficients of sliding and two of rolling, one per direction.
    slides, rolls = m.pair_friction[ids][:, :2], m.pair_friction[ids][:, 3:]
    anisotropic = (slides[:, 0] != slides[:, 1]) & (condim[explicit] > 1)
    anisotropic |= (rolls[:, 0] != rolls[:, 1]) & (condim[explicit] > 4)
    for contact in explicit[anisotropic]:
        first, second = (source.geoms[geom] for geom in geoms[contact])
        source.omit(f"pair of the geoms {first!r} and {second!r}: anisotropic friction")

    features: dict[str, list[int]] = {}  # the contacts with each feature
    masks = {"surfacevel": surface_moves, "adhesion": sticky, "a negative margin": margin < 0}
    for feature, is_present in masks.items():
        if is_present.any():
            features[feature] = np.flatnonzero(is_present).tolist()
    texts = []
    for feature, contacts in features.items():

        def text(contact: int) -> str:
            first, second = (source.geom_in_text(geom) for geom in geoms[contact].tolist())
            return f"contact of the geoms {first} and {second}: {feature}"

        labels = source.geom_labels
        elements = [f"{labels[a]} and {labels[b]}" for a, b in geoms[contacts].tolist()]
        count = f"{len(elements)} pairs"
        texts += _contact_texts(f"contacts with {feature}", count, elements, contacts, text)
    return friction, np.maximum(margin, 0), condim, texts
