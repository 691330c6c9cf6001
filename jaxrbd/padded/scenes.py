"""Contact scenes of different robots as one `Scene` whose arrays have a leading axis of robots."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool

from .._math.cast import as_array
from ..collision import PlacedShape
from ..contact import CollisionPairs, Material, Scene
from ..contact.scene import PADDING_MARGIN
from ..contact.shape_pairs import GROUND
from ..errors import ArgumentError
from ..model.arguments import require_type, sequence
from ..spatial import Pose
from .common_tree import WORLD
from .robots import PaddedRobots, marked

Key = TypeVar("Key", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class PaddedScenes:
    """The contact scenes of n padded robots. `pad_scenes` returns it.

    - `scene`: a `Scene` whose arrays have a leading axis (n, ...), to map over together with
      `PaddedRobots.model`;
    - `contact_index`: for each robot, the indices in `scene` of its contacts, in the order of the
      robot's scene.
    """

    scene: Scene
    contact_index: tuple[np.ndarray, ...]

    @property
    def has_contact(self) -> np.ndarray:
        """Which contacts of `scene` each robot has, (n, contacts) of bool."""
        return marked(self.contact_index, self.scene.size)


def acting_contacts(scene: Scene) -> Bool[Array, " contacts"]:
    """For each contact of a padded scene, whether the robot has it, (contacts,) of bool.

    `scene`: `PaddedScenes.scene` for one robot, as inside `vmap`.
    """
    require_type(scene, "scene", Scene)
    return scene.margin != PADDING_MARGIN


def pad_scenes(robots: PaddedRobots, scenes: Sequence[Scene]) -> PaddedScenes:
    """The contact scenes of padded robots as one scene, for one compiled program.

    - `robots`: n robots;
    - `scenes`: for each robot its scene. The frames of spheres and shapes are names or indices of
      frames of this robot; None is the world, for shapes. Grounds are of one class, with arrays of
      equal shapes. `torsional` is given in all materials or in none, and so is `rolling`.

    In the result, robots share the spheres on one body of the common tree. They also share shapes
    there of one class with arrays of equal shapes. A sphere or a shape that a robot does not have
    is padding, which touches nothing: the margin of its contacts is -1e6 m. A robot has the same
    results as with the given scene, up to rounding.

    Raises ArgumentError for another number of scenes. It also raises ArgumentError, which names the
    robot, for an unknown frame, a sphere on a frame that is fixed to the world, grounds or
    materials that break the rules above, scenes with a softness, and scenes with inverse inertias
    (map `inverse_inertias` over the result).
    """
    require_type(robots, "robots", PaddedRobots)
    scenes = list(sequence(scenes, "scenes", "Scene"))
    if len(scenes) != len(robots):
        raise ArgumentError(f"scenes has {len(scenes)} entries, expected {len(robots)}")
    for name, scene in zip(robots.names, scenes):
        _check(name, scene, scenes[0])
    frames = [_frames(robots, i, scene.frames) for i, scene in enumerate(scenes)]
    spheres, sphere_index = _places([_bodies(robots, found) for found in frames])
    sphere_frames = _frame_of_each_body(robots)[np.array(spheres, int)]
    pairs, pair_index = _pad_pairs(robots, [scene.pairs for scene in scenes])
    # The contacts of the padded scene: first all spheres, then the contacts of all pairs.
    counts = pairs[0].counts.tolist()
    starts = [len(spheres) + sum(counts[:k]) for k in range(len(counts))]
    contacts = [
        np.array([*places, *(starts[k] + j for k in pairs_i for j in range(counts[k]))], int)
        for places, pairs_i in zip(sphere_index, pair_index)
    ]
    padded = []
    for i, scene in enumerate(scenes):
        used = sphere_frames[sphere_index[i]]
        no_rotations = np.broadcast_to(np.eye(3), (len(used), 3, 3))
        _, offsets = _poses_in_frames(
            robots, i, frames[i], used, no_rotations, np.asarray(scene.offsets)
        )
        padded.append(
            dataclasses.replace(
                scene,
                frames=tuple(sphere_frames.tolist()),
                offsets=_scattered(sphere_index[i], offsets, len(spheres)),
                radii=_scattered(sphere_index[i], scene.radii, len(spheres)),
                material=_material(scene, contacts[i], len(spheres) + sum(counts)),
                pairs=pairs[i],
            )
        )
    dtype = robots.model.dtype
    return PaddedScenes(
        jax.tree.map(lambda *x: as_array(np.stack(x), dtype), *padded), tuple(contacts)
    )


def _check(name: str, scene: Scene, first: Scene) -> None:
    """Raise ArgumentError, which names the robot, if its scene does not fit the first scene."""
    if not isinstance(scene, Scene):
        raise ArgumentError(f"the scene of {name!r} is {scene!r}, expected a Scene")
    if scene.inverse_inertia is not None:
        raise ArgumentError(
            f"the scene of {name!r} has inverse_inertia, expected None: map inverse_inertias over "
            "the padded scene"
        )
    if scene.material.softness is not None or scene.limit_softness is not None:
        raise ArgumentError(f"the scene of {name!r} has a softness, expected rigid contacts")
    for field in ("ground", "material"):
        structures = [jax.tree.structure(getattr(x, field)) for x in (scene, first)]
        if structures[0] != structures[1]:
            raise ArgumentError(
                f"the {field} of the scene of {name!r} is {structures[0]}, expected "
                f"{structures[1]} as in the first scene"
            )
    shapes = [[np.shape(x) for x in jax.tree.leaves(each.ground)] for each in (scene, first)]
    if shapes[0] != shapes[1]:
        raise ArgumentError(
            f"the ground of the scene of {name!r} has arrays of the shapes {shapes[0]}, expected "
            f"{shapes[1]} as in the first scene"
        )


def _frames(
    robots: PaddedRobots, i: int, frames: Sequence[str | int | None], must_move: bool = True
) -> np.ndarray:
    """The frames of the padded model for frames of robot i; `WORLD` for None.

    `must_move`: whether a frame that is fixed to the world is an error.
    """
    found, given = robots.frame_indices[i], []
    names = list(found)
    for frame in frames:
        if frame is None:
            given.append(WORLD)
            continue
        name = frame
        if not isinstance(frame, str) and -len(names) <= frame < len(names):
            name = names[frame]
        if name not in found:
            raise ArgumentError(f"robot {robots.names[i]!r} has no frame {frame!r}")
        if must_move and robots.model.frame_bodies[found[name]] < 0:
            raise ArgumentError(
                f"frame {frame!r} of {robots.names[i]!r} is fixed to the world, expected a moving "
                "frame"
            )
        given.append(found[name])
    return np.array(given, int)


def _bodies(robots: PaddedRobots, frames: np.ndarray) -> list[int]:
    """The bodies of frames of the padded model; `WORLD` for the world."""
    return np.array([*robots.model.frame_bodies, WORLD], int)[frames].tolist()


def _frame_of_each_body(robots: PaddedRobots) -> np.ndarray:
    """The first frame of each body of the common tree, then `WORLD` for the world, (nb + 1,)."""
    frame_bodies = robots.model.frame_bodies
    return np.array([*map(frame_bodies.index, range(robots.model.nb)), WORLD], int)


def _places(rows: Sequence[Sequence[Key]]) -> tuple[list[Key], list[np.ndarray]]:
    """Places for the items of several robots, where items with equal keys share places.

    `rows`: the keys of the items of each robot. Items of one robot with equal keys have different
    places. Returns the key of each place, and for each robot the places of its items.
    """
    found: dict[tuple[Key, int], int] = {}
    index = []
    for keys in rows:
        earlier: Counter[Key] = Counter()
        places = []
        for key in keys:
            places.append(found.setdefault((key, earlier[key]), len(found)))
            earlier[key] += 1
        index.append(np.array(places, int))
    return [key for key, _ in found], index


def _scattered(index: np.ndarray, values: Any, size: int, fill: float = 0.0) -> np.ndarray:
    """An array with `values` at the places `index` (n,) of the first axis, and `fill` elsewhere."""
    x = np.asarray(values)
    out = np.full((size, *x.shape[1:]), fill)
    out[index] = x
    return out


def _poses_in_frames(
    robots: PaddedRobots,
    i: int,
    frames: np.ndarray,
    used: np.ndarray,
    R: np.ndarray,
    p: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Poses R (n, 3, 3), p (n, 3) in `frames` of robot i, as poses in the frames `used`.

    `frames`, `used` (n,): indices of frames of the padded model; `frames[k]` and `used[k]` are on
    the same body.
    """
    X_BF = robots.model.frame_pose
    R_BF = np.concatenate([np.asarray(X_BF.R[i]), np.eye(3)[None]])  # the last row is the world
    p_BF = np.concatenate([np.asarray(X_BF.p[i]), np.zeros((1, 3))])
    R_B, p_B = R_BF[frames] @ R, (R_BF[frames] @ p[..., None])[..., 0] + p_BF[frames]
    R_FB = np.swapaxes(R_BF[used], 1, 2)
    return R_FB @ R_B, (R_FB @ (p_B - p_BF[used])[..., None])[..., 0]


def _material(scene: Scene, contacts: np.ndarray, size: int) -> Material:
    """The material of a scene, with one value per contact of the padded scene."""
    material = scene.material
    fields = {
        "friction": _scattered(contacts, scene.friction, size),
        "margin": _scattered(contacts, scene.margin, size, PADDING_MARGIN),
    }
    for name in ("torsional", "rolling"):
        if (value := getattr(material, name)) is not None:
            fields[name] = _scattered(
                contacts, np.broadcast_to(np.asarray(value), len(contacts)), size
            )
    # Not the constructor: it refuses the margin of padding.
    return eqx.tree_at(
        lambda x: [getattr(x, name) for name in fields], material, list(fields.values())
    )


def _pad_pairs(
    robots: PaddedRobots, given: Sequence[CollisionPairs]
) -> tuple[list[CollisionPairs], list[np.ndarray]]:
    """The common pairs of all robots with the shapes of each robot, and which pairs a robot has.

    The first result has one `CollisionPairs` per robot, all with the same pairs. The second result
    has, for each robot, the indices of its pairs among the common pairs.
    """
    frames = [
        _frames(robots, i, [shape.frame for shape in pairs.shapes], must_move=False)
        for i, pairs in enumerate(given)
    ]
    keys = [
        [(body, *_form(shape)) for body, shape in zip(_bodies(robots, found), pairs.shapes)]
        for found, pairs in zip(frames, given)
    ]
    shapes, shape_index = _places(keys)
    shape_frames = _frame_of_each_body(robots)[np.array([body for body, *_ in shapes], int)]
    members, pair_index = _places(
        [
            [(int(index[a]), GROUND if b == GROUND else int(index[b])) for a, b in pairs.members]
            for index, pairs in zip(shape_index, given)
        ]
    )
    placed: list[dict[int, PlacedShape]] = []
    for i, (pairs, index) in enumerate(zip(given, shape_index)):
        poses = [shape.X_FS for shape in pairs.shapes]
        R = np.array([X.R for X in poses], float).reshape(-1, 3, 3)
        p = np.array([X.p for X in poses], float).reshape(-1, 3)
        used = shape_frames[index]
        by_place: dict[int, PlacedShape] = {}
        for shape, frame, k, R_k, p_k in zip(
            pairs.shapes, used.tolist(), index, *_poses_in_frames(robots, i, frames[i], used, R, p)
        ):
            X = Pose(jnp.asarray(R_k), jnp.asarray(p_k))
            frame = None if frame == WORLD else frame
            by_place[int(k)] = PlacedShape(shape.shape, frame, X, f"shape {k}")
        placed.append(by_place)
    # A robot without a shape at a place gets the shape of the first robot with a shape there.
    first = {k: shape for row in reversed(placed) for k, shape in row.items()}
    return [
        CollisionPairs(tuple({**first, **row}[k] for k in range(len(shapes))), tuple(members))
        for row in placed
    ], pair_index


def _form(placed: PlacedShape) -> tuple[Hashable, Hashable]:
    """The class of a shape, and the shapes of its arrays."""
    shape = placed.shape
    return jax.tree.structure(shape), tuple(np.shape(x) for x in jax.tree.leaves(shape))
