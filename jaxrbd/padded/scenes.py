"""Contact scenes of different robots as one `Scene` whose arrays have a leading axis of robots."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jaxtyping import Bool

from .._math.cast import as_array
from ..contact import Scene
from ..errors import ArgumentError
from .robots import PaddedRobots, marked

# The margin of a padding contact in m, so that it acts at no distance that occurs. It is finite,
# because derivatives of an infinite distance would be NaN.
_NEVER = -1e6


@dataclasses.dataclass(frozen=True)
class PaddedScenes:
    """The contact scenes of n padded robots. `pad_scenes` returns it.

    - `scene`: a `Scene` whose arrays have a leading axis (n, ...), to map over together with
      `PaddedRobots.model`;
    - `contact_index`: for each robot, the indices of its contacts among those of `scene`, in the
      order of its own scene.
    """

    scene: Scene
    contact_index: tuple[np.ndarray, ...]

    @property
    def has_contact(self) -> np.ndarray:
        """Which contacts of `scene` each robot has, (n, contacts) of bool."""
        return marked(self.contact_index, len(self.scene.frames))


def acting_contacts(scene: Scene) -> Bool[Array, " contacts"]:
    """Which contacts of a padded scene are those of its robot, for one robot as inside `vmap`."""
    return scene.margin > _NEVER / 2


def pad_scenes(robots: PaddedRobots, scenes: Sequence[Scene]) -> PaddedScenes:
    """The contact scenes of padded robots as one scene, for one compiled program.

    - `robots`: n robots;
    - `scenes`: for each robot its scene. A sphere's frame is the name or index of a link of this
      robot. Grounds are of one class, with arrays of equal shapes, and materials have or lack
      `torsional` and `rolling` friction in all scenes.

    On each body of the common tree the result has as many spheres as the robot with the most
    spheres there. A robot with fewer has padding spheres, which touch nothing: their margin is
    -1e6 m. Results of a robot equal those with its own scene up to rounding.

    Raises ArgumentError, which names the robot, for another number of scenes, an unknown frame or
    one that is fixed to the world, different grounds or materials, and for scenes with pairs of
    shapes or with inverse inertias. (For the latter, map `inverse_inertias` over the result.)
    """
    scenes = list(scenes)
    if len(scenes) != len(robots):
        raise ArgumentError(f"scenes has {len(scenes)} entries, expected {len(robots)}")
    for name, scene in zip(robots.names, scenes):
        _check(name, scene, scenes[0])
    frames = [_frames(robots, i, scene) for i, scene in enumerate(scenes)]
    bodies = [np.array(robots.model.frame_bodies, int)[found] for found in frames]
    counts = np.stack([np.bincount(found, minlength=robots.model.nb) for found in bodies])
    most = np.max(counts, axis=0)
    first = np.cumsum(most) - most
    slots = [_slots(found, first) for found in bodies]
    slot_frames = np.repeat(_frame_of_each_body(robots), most)
    padded = [
        _padded(robots, i, scene, frames[i], slots[i], slot_frames)
        for i, scene in enumerate(scenes)
    ]
    dtype = robots.model.dtype
    scene = jax.tree.map(lambda *x: as_array(np.stack(x), dtype), *padded)
    return PaddedScenes(scene, tuple(slots))


def _check(name: str, scene: Scene, first: Scene) -> None:
    if not isinstance(scene, Scene):
        raise ArgumentError(f"the scene of {name!r} is {scene!r}, expected a Scene")
    if len(scene.pairs):
        raise ArgumentError(f"the scene of {name!r} has pairs of shapes, which can't be padded")
    if scene.inverse_inertia is not None:
        raise ArgumentError(
            f"the scene of {name!r} has inverse_inertia, expected None: map inverse_inertias over "
            "the padded scene"
        )
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


def _frames(robots: PaddedRobots, i: int, scene: Scene) -> np.ndarray:
    """The frame of the padded model for each sphere of robot i."""
    found, given = robots.frame_indices[i], []
    names = list(found)
    for frame in scene.frames:
        name = frame if isinstance(frame, str) else names[frame] if frame < len(names) else frame
        if name not in found:
            raise ArgumentError(f"robot {robots.names[i]!r} has no frame {frame!r}")
        if robots.model.frame_bodies[found[name]] < 0:
            raise ArgumentError(
                f"frame {frame!r} of {robots.names[i]!r} is fixed to the world, expected a moving "
                "frame"
            )
        given.append(found[name])
    return np.array(given, int)


def _slots(bodies: np.ndarray, first: np.ndarray) -> np.ndarray:
    """A sphere of the padded scene for each sphere of a robot; those of a body keep their order."""
    earlier = np.array([np.sum(bodies[:k] == body) for k, body in enumerate(bodies)], int)
    return first[bodies] + earlier


def _frame_of_each_body(robots: PaddedRobots) -> np.ndarray:
    """One frame of each body of the common tree, (nb,). The link of a body is such a frame."""
    frame_bodies = robots.model.frame_bodies
    return np.array([frame_bodies.index(body) for body in range(robots.model.nb)], int)


def _padded(
    robots: PaddedRobots,
    i: int,
    scene: Scene,
    frames: np.ndarray,
    slots: np.ndarray,
    slot_frames: np.ndarray,
) -> Scene:
    """The scene of robot i with the spheres of all robots, with NumPy arrays."""
    n = len(slot_frames)

    def at_slots(values: Any, fill: float = 0.0) -> np.ndarray:
        x = np.asarray(values)
        out = np.full((n, *x.shape[1:]), fill)
        out[slots] = x
        return out

    R, p = (np.asarray(x[i]) for x in robots.model.frame_pose)
    used = slot_frames[slots]
    in_body = np.einsum("kij,kj->ki", R[frames], np.asarray(scene.offsets)) + p[frames]
    offsets = np.einsum("kji,kj->ki", R[used], in_body - p[used])
    # Not the constructor: it refuses the margin of padding spheres.
    material = scene.material
    fields = {"friction": at_slots(scene.friction), "margin": at_slots(scene.margin, _NEVER)}
    for name in ("torsional", "rolling"):
        if (value := getattr(material, name)) is not None:
            fields[name] = at_slots(np.broadcast_to(np.asarray(value), len(slots)))
    material = eqx.tree_at(
        lambda x: [getattr(x, name) for name in fields], material, list(fields.values())
    )
    return dataclasses.replace(
        scene,
        frames=tuple(slot_frames.tolist()),
        offsets=at_slots(offsets),
        radii=at_slots(scene.radii),
        material=material,
    )
