"""Touch sensors and height scans: readings of contacts and of the ground."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from .._math.cast import cast
from ..algorithms.kinematics import Kinematics, find_frame, forward_kinematics
from ..contact import ContactForce, ContactStep, Ground, Scene, Terrain
from ..contact.contacts import find_contacts
from ..contact.scene import lengths_and_normals, scene_for
from ..errors import ArgumentError
from ..model import Model, arguments


class Touch(NamedTuple):
    """What touch sensors measure at n spheres on the ground, then at m contacts of pairs of shapes.

    - `touching` (n + m,) of bool: whether the ground pushes on each sphere, and whether the two
      shapes of a pair push on each other at each contact;
    - `normal_force` (n + m,): the force on each sphere along the normal of the ground, and the
      force at each contact of a pair along the normal of the contact, in N, 0 or more.
    """

    touching: Bool[Array, " contacts"]
    normal_force: Float[Array, " contacts"]


@arguments.compiled(checks={"dt": arguments.POSITIVE})
def touch(
    model: Model,
    scene: Scene,
    q: ArrayLike | Kinematics,
    contact: ContactForce | ContactStep,
    dt: ArrayLike | None = None,
) -> Touch:
    """Which contacts of a scene act, and their normal forces.

    - `contact`: the result of `contact_force` or of `contact_step` for the scene;
    - `q` (nq,) or its `Kinematics`: the configuration for which the contact was computed. For a
      `ContactStep` this is the configuration before the step;
    - `dt` in s: the duration of the step. The normal force of a `ContactStep` is the normal impulse
      divided by dt, which is the mean force in the step. For a `ContactForce` dt is None.

    The values are in the order of the contacts of the scene: first the `len(scene.frames)` spheres
    on the ground, then the contacts of `scene.pairs`, whose shapes `scene.pairs.contact_members`
    lists.

    Raises ArgumentError for a dt that is not positive, for a `ContactStep` without dt, for a
    `ContactForce` with dt, and for a `contact` of another type or with another number of contacts
    than the scene.
    """
    arguments.require_type(scene, "scene", Scene)
    if not isinstance(contact, ContactForce | ContactStep):
        raise ArgumentError(
            f"contact is {arguments.described(contact)}, expected a ContactForce or a ContactStep"
        )
    if (dt is None) != isinstance(contact, ContactForce):
        given = "is None" if dt is None else "was given"
        expected = "None" if dt is not None else "the duration of the step in s"
        raise ArgumentError(f"dt {given} for a {type(contact).__name__}, expected {expected}")
    if contact.distance.shape != (scene.size,):
        n, m = len(scene.frames), scene.size - len(scene.frames)
        raise ArgumentError(
            f"contact.distance has shape {contact.distance.shape}, expected ({scene.size},) for a "
            f"scene of {n} spheres and {m} contacts of pairs"
        )
    if dt is None:
        force = contact.normal_force  # pyright: ignore[reportAttributeAccessIssue]
    else:
        dt = arguments.POSITIVE.or_nan(arguments.number(model, dt, "dt"))
        kinematics = forward_kinematics(model, q)
        gradient = find_contacts(model, scene_for(model, scene), kinematics).gradient
        _, normal = lengths_and_normals(gradient)
        impulse = contact.impulse  # pyright: ignore[reportAttributeAccessIssue]
        force = jnp.sum(normal * impulse, axis=-1) / dt
    return Touch(force > 0, force)


@arguments.compiled(arrays=("q",), static_argnames="frame")
def height_scan(
    model: Model,
    q: Array | Kinematics,
    ground: Ground,
    frame: str | int,
    pattern: ArrayLike | Sequence,
) -> Float[Array, " n"]:
    """The heights (n,) in m of the origin of a frame above the ground at n points.

    - `q` (nq,) or its `Kinematics`; `frame`: as in `Model.frame_index`;
    - `ground`: a `Terrain`, such as a `Plane`, a `Height` or a `HeightGrid`;
    - `pattern` (n, 2) in m: the horizontal positions of the points relative to the origin of the
      frame. The pattern turns with the frame about the vertical only: its first axis is the
      horizontal projection of the x axis of the frame. If the x axis of the frame is vertical, the
      first axis of the pattern is the x axis of the world.

    Entry i is the z of the origin of the frame minus the z of the ground at point i. It is positive
    where the ground is below the frame. Raises ArgumentError for an unknown frame and for a ground
    that is no `Terrain`.
    """
    if not isinstance(ground, Terrain):
        raise ArgumentError(
            f"ground is {type(ground).__name__!r}, expected a Terrain, which has an elevation"
        )
    pattern = arguments.real_array(pattern, "pattern", model.dtype)
    if pattern.ndim != 2 or pattern.shape[1] != 2:
        raise ArgumentError(f"pattern has shape {pattern.shape}, expected (n, 2)")
    terrain = cast(ground, model.dtype)
    X = find_frame(model, q, frame)[2]
    p = X.X_WF.p
    x, y = X.X_RF.R[0, 0], X.X_RF.R[1, 0]
    squared = x * x + y * y
    size = jnp.sqrt(jnp.where(squared > 0, squared, 1))
    cos, sin = jnp.where(squared > 0, x / size, 1), y / size
    offsets = cos * pattern + sin * jnp.stack([-pattern[:, 1], pattern[:, 0]], axis=-1)
    return p[2] - jax.vmap(terrain.elevation)(p[None, :2] + offsets)
