"""Contact scenes: spheres on the robot, the ground, pairs of shapes that may touch, and a material.

A scene is a pytree, and all of its parameters are leaves. So `grad` and `vmap` work over the height
of the ground, the radii of feet or the friction. Parameters are cast to the model's dtype.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float

from .._math.cast import cast
from .._math.components import norm
from .._math.rows import take_rows
from ..algorithms.kinematics import Kinematics, forward_kinematics, root_positions
from ..algorithms.places import bodies_of, poses_in_bodies
from ..collision import DistancePairs, PlacedShape
from ..collision.grounds import Ground, Terrain
from ..collision.robot_shapes import checked_pairs, shapes_of
from ..errors import ArgumentError, ContactWarning, listed
from ..joints import as_module
from ..model import Model, arguments
from ..spatial import inverse_rotate, transform_point
from .points import point_motions, point_positions
from .shape_pairs import GROUND, CollisionPairs, ground_spheres, pairs_and_ground
from .softness import Softness

# --------------------------------------------------------------------------------------- ground


class Plane(Terrain):
    """The plane `n . x = offset`, where n is the unit vector along `normal`; by default z = 0.

    `normal` (3,), of any length, points outwards; `offset` () in m is measured along the normal.
    Raises ArgumentError for a normal of zeros, and for values that are not finite.
    """

    normal: Float[arguments.Parameter, "3"]
    offset: Float[arguments.Parameter, ""]

    def __init__(
        self, normal: ArrayLike | Sequence[int | float] = (0.0, 0.0, 1.0), offset: ArrayLike = 0.0
    ):
        self.normal = arguments.parameter(normal, "normal", (3,))
        self.offset = arguments.parameter(offset, "offset", ())
        arguments.require(self.normal, np.isfinite, "normal", "finite")
        arguments.require(self.normal, lambda x: np.any(x != 0), "normal", "not zero")
        arguments.require(self.offset, np.isfinite, "offset", "finite")

    def distance(self, x):
        normal = jnp.asarray(self.normal)
        return jnp.sum(normal * x) / norm(normal) - self.offset

    def elevation(self, xy):
        """The z of the plane at xy; NaN if the z component of the normal is not positive."""
        normal = jnp.asarray(self.normal)
        rises = normal[2] > 0
        z = self.offset * norm(normal) - jnp.sum(normal[:2] * xy)
        return jnp.where(rises, z / jnp.where(rises, normal[2], 1), jnp.nan)


class Height(Terrain):
    """The surface `z = height(xy)` of a smooth function; the z axis of the world points outwards.

    `height` maps xy (2,) in m to a height () in m: a plain function or, if it has parameters, an
    `eqx.Module`. With the height h and the gradient dh of the height, `distance` returns
    `(z - h) / sqrt(1 + |dh|^2)`. This value is exact for planes. On other surfaces the error is of
    the order of the curvature times the square of the distance. The distance is evaluated at the
    centre of a sphere, so the error is smaller for smaller spheres. Raises ArgumentError for a
    `height` that is no function.
    """

    height: Callable[[Array], Array]

    def __init__(self, height: Callable[[Array], Array]):
        arguments.require_function(height, "height", "a function of xy")
        self.height = as_module(height)

    def distance(self, x):
        h, slope = jax.value_and_grad(self._checked_height)(x[:2])
        return (x[2] - h) / jnp.sqrt(1 + jnp.sum(slope * slope))

    def elevation(self, xy):
        return self._checked_height(xy)

    def _checked_height(self, xy: Array) -> Array:
        h = jnp.asarray(self.height(xy))
        if h.shape != () or h.dtype != xy.dtype:
            raise ArgumentError(
                f"height gives shape {h.shape} and dtype {h.dtype}, expected a number of {xy.dtype}"
            )
        return h


# ------------------------------------------------------------------------------------- material


class Material(eqx.Module):
    """The parameters of contact. `contact_force` and `contact_step` state the equations.

    - `stiffness` in N/m^2 and `dissipation` in s/m: parameters of the compliant normal force;
    - `friction`: Coulomb's coefficient: () for all contacts, or (n + m,) with one coefficient per
      contact: first the n spheres of the `Scene`, then the m contacts of its pairs;
    - `slip_speed` in m/s: below this speed, compliant friction is about proportional to the speed;
    - `margin` in m: () or (n + m,) like the friction. Contacts act below this distance, as if the
      shapes were larger; it is the margin of MuJoCo;
    - `torsional`, `rolling` in m: () or (n + m,) like the friction; None (default) for both means
      that no moment acts at a contact. A contact that only turns about its normal has the friction
      moment `torsional f_n`, and a contact that only rolls has `rolling f_n`, with the normal force
      f_n. Sliding, turning and rolling share one cone:
      `|f_t / friction|^2 + (m_n / torsional)^2 + |m_t / rolling|^2 <= f_n^2`, as the elliptic cones
      of MuJoCo (condim 4 and 6). No moment acts where the friction is 0;
    - `softness`: a `Softness` with one row for all contacts or n + m rows. `contact_step` then has
      the soft contacts of MuJoCo (default None: rigid contacts).

    The other parameters are (). The defaults suit a robot of some tens of kg and time steps of 0.5
    ms. Raises ArgumentError for a parameter that is negative or not finite, a slip speed of zero,
    and for a moment at a contact without friction.
    """

    stiffness: Float[arguments.Parameter, ""]
    dissipation: Float[arguments.Parameter, ""]
    friction: Float[arguments.Parameter, "..."]
    slip_speed: Float[arguments.Parameter, ""]
    margin: Float[arguments.Parameter, "..."]
    torsional: Float[arguments.Parameter, "..."] | None
    rolling: Float[arguments.Parameter, "..."] | None
    softness: Softness | None

    def __init__(
        self,
        stiffness: ArrayLike = 1e7,
        dissipation: ArrayLike = 2.0,
        friction: ArrayLike | Sequence[int | float] = 0.8,
        slip_speed: ArrayLike = 0.1,
        margin: ArrayLike | Sequence[int | float] = 0.0,
        torsional: ArrayLike | Sequence[int | float] | None = None,
        rolling: ArrayLike | Sequence[int | float] | None = None,
        softness: Softness | None = None,
    ):
        self.stiffness = arguments.parameter(stiffness, "stiffness", ())
        self.dissipation = arguments.parameter(dissipation, "dissipation", ())
        self.friction = arguments.parameter(friction, "friction")
        self.slip_speed = arguments.parameter(slip_speed, "slip_speed", ())
        self.margin = arguments.parameter(margin, "margin")
        moments = {"torsional": torsional, "rolling": rolling}
        for name, value in moments.items():
            if value is not None:
                value = arguments.parameter(value, name)
            setattr(self, name, value)
        for name in ("stiffness", "dissipation", "friction", "margin", *moments):
            if getattr(self, name) is not None:
                arguments.require_not_negative(getattr(self, name), name)
        for name in moments:
            _require_friction(self.friction, getattr(self, name), name)
        arguments.require(
            self.slip_speed, lambda x: (x > 0) & np.isfinite(x), "slip_speed", "finite, more than 0"
        )
        if softness is not None:
            arguments.require_type(softness, "softness", Softness)
        self.softness = softness


def _require_friction(
    friction: arguments.Parameter, value: arguments.Parameter | None, name: str
) -> None:
    """Raise ArgumentError for a moment at a contact without friction, unless JAX traces them."""
    if value is None or isinstance(friction, Tracer) or isinstance(value, Tracer):
        return
    shapes = np.shape(friction), np.shape(value)
    if () in shapes or shapes[0] == shapes[1]:
        arguments.require(
            value,
            lambda x: (x == 0) | (np.asarray(friction) > 0),
            name,
            f"0 where the friction is 0; friction is {friction}",
        )


# ---------------------------------------------------------------------------------------- scene


class InverseInertias(NamedTuple):
    """Inertias and inverse inertias that `contact_step` uses; `inverse_inertias` computes them.

    - `contacts` (n + m,) in 1/kg: for each sphere of the scene, the mean inverse inertia of the
      robot at the points of the sphere; for each contact of a pair, the mean inverse inertia for
      the relative velocity of a point of the first shape and a point of the second;
    - `joints` (nv_joint,) in 1/kg or 1/(kg m^2): the inverse inertia of each joint velocity;
    - `trees` (k, 10): inertias, not inverse. There is one row per root body on a free-flyer or ball
      joint: the ten inertial parameters of its whole tree, as one rigid body in the neutral
      configuration, in the frame of the root body. If it is None, each step computes it.

    `contact_step` multiplies its argument `regularisation` by `contacts` and `joints`.
    """

    contacts: Float[arguments.Parameter, " contacts"]
    joints: Float[arguments.Parameter, " nv_joint"]
    trees: Float[arguments.Parameter, "k 10"] | None = None


class Scene(eqx.Module):
    """n spheres fixed in frames of a robot, the ground, pairs of shapes, and the material.

    - `frames`: for each sphere the name or index of its frame; a frame may have several spheres;
    - `radii`: (n,) in m, or () for all spheres; a point is a sphere of radius 0;
    - `offsets`: (n, 3) in m, the centres in their frames (default: the origins of the frames);
    - `ground`: a `Ground`, or a function that gives the height z at xy and becomes
      `Height(function)` (default: the plane z = 0);
    - `material`: a `Material`, for all contacts;
    - `inverse_inertia`: the `InverseInertias` of a robot, for `contact_step`. `inverse_inertias`
      computes them. If it is None, each step computes them;
    - `pairs`: pairs of shapes that may touch, from `collision_pairs`, with m contacts (default
      none). The shapes are on the robot or in the world;
    - `limit_softness`: a `Softness` of the position limits of the joints in `contact_step`, with
      one row or one row per joint velocity, (nv_joint, ...) (default None: rigid limits).

    Raises ArgumentError for objects of another type, for a negative radius or inverse inertia, and
    for a radius, an offset or an inertia that is not finite. Functions that take a scene raise
    ArgumentError for an unknown frame or a frame that is fixed to the world.
    """

    frames: tuple[str | int, ...] = eqx.field(static=True)
    offsets: Float[arguments.Parameter, "n 3"]
    radii: Float[arguments.Parameter, " n"]
    ground: Ground
    material: Material
    inverse_inertia: InverseInertias | None
    pairs: CollisionPairs
    limit_softness: Softness | None

    def __init__(
        self,
        frames: Sequence[str | int],
        radii: ArrayLike | Sequence[int | float] = 0.0,
        offsets: ArrayLike | Sequence | None = None,
        ground: Ground | Callable[[Array], Array] | None = None,
        material: Material | None = None,
        inverse_inertia: InverseInertias | None = None,
        pairs: CollisionPairs | None = None,
        limit_softness: Softness | None = None,
    ):
        self.frames = arguments.sequence(frames, "frames", "frames")
        expected = {
            "ground": (ground, Ground | Callable, "a Ground or a function"),
            "material": (material, Material, "a Material"),
            "inverse_inertia": (inverse_inertia, InverseInertias, "InverseInertias"),
            "pairs": (pairs, CollisionPairs, "CollisionPairs, as of collision_pairs"),
            "limit_softness": (limit_softness, Softness, "a Softness"),
        }
        for name, (given, kind, words) in expected.items():
            if given is not None and not isinstance(given, kind):
                raise ArgumentError(f"{name} is {given!r}, expected {words}")
        n = len(self.frames)
        per_sphere = np.ndim(radii) > 0
        self.radii = arguments.parameter(radii, "radii", (n,) if per_sphere else ())
        if not per_sphere:
            self.radii = self.radii * np.ones(n, self.radii.dtype)
        self.offsets = arguments.parameter(
            np.zeros((n, 3)) if offsets is None else offsets, "offsets", (n, 3)
        )
        ground = Plane() if ground is None else ground
        self.ground = ground if isinstance(ground, Ground) else Height(ground)
        self.material = Material() if material is None else material
        arguments.require_not_negative(self.radii, "radii")
        arguments.require(self.offsets, np.isfinite, "offsets", "finite")
        self.pairs = CollisionPairs((), ()) if pairs is None else pairs
        self.limit_softness = limit_softness
        self.inverse_inertia = None
        if inverse_inertia is not None:
            contacts, joints, trees = inverse_inertia
            names = [f"inverse_inertia.{name}" for name in InverseInertias._fields]
            contacts = arguments.parameter(contacts, names[0], (self.size,))
            joints = arguments.parameter(joints, names[1], (np.size(joints),))
            for x, name in zip((contacts, joints), names):
                arguments.require_not_negative(x, name)
            if trees is not None:
                trees = arguments.parameter(trees, names[2], (None, 10))
                arguments.require(trees, np.isfinite, names[2], "finite")
            self.inverse_inertia = InverseInertias(contacts, joints, trees)

    @property
    def size(self) -> int:
        """The number of contacts, n + m: n spheres on the ground, and m contacts of pairs."""
        return len(self.frames) + len(self.pairs)

    @property
    def friction(self) -> Array:
        """The friction coefficient of each contact, (n + m,); NaN for a traced negative value.

        Raises ArgumentError if the material has another number of coefficients.
        """
        return self._per_contact(self.material.friction, "friction")

    @property
    def margin(self) -> Array:
        """The margin of each contact, (n + m,); errors as for `friction`."""
        return self._per_contact(self.material.margin, "margin", _MARGIN)

    def spin(self, normal: Float[Array, "contacts 3"]) -> Float[Array, "contacts s 3"]:
        """For each contact, the matrix from the relative angular velocity to tangential velocities.

        The tangential velocity of a contact has two components along the surface and, with the
        relative angular velocity w, the s components of `spin(normal) w`, in m/s. The matrix
        multiplies w by `torsional / friction` along the normal, and by `rolling / friction` along
        the surface. s is 0 without such friction, 1 with torsional friction alone, and else 3.
        Errors as for `friction`.
        """
        material, friction = self.material, self.friction
        if material.torsional is None and material.rolling is None:
            return jnp.zeros((self.size, 0, 3), normal.dtype)
        slides = friction > 0

        def scale(name: str) -> Array:
            value = getattr(material, name)
            value = self._per_contact(jnp.zeros_like(friction) if value is None else value, name)
            return jnp.where(slides, value / jnp.where(slides, friction, 1), 0)

        torsional, n = scale("torsional")[:, None, None], normal[:, None]
        if material.rolling is None:
            return torsional * n
        rolling = scale("rolling")[:, None, None]
        one = jnp.eye(3, dtype=normal.dtype)[None]
        projection = n * jnp.swapaxes(n, 1, 2)
        return torsional * projection + rolling * (one - projection)

    def _per_contact(
        self,
        value: arguments.Parameter,
        name: str,
        requirement: arguments.Requirement = arguments.NOT_NEGATIVE,
    ) -> Array:
        x = jnp.asarray(value)
        if x.shape not in ((), (self.size,)):
            raise ArgumentError(
                f"{name} has shape {x.shape}, expected () or ({self.size},), one value per contact"
            )
        return jnp.broadcast_to(requirement.or_nan(x), (self.size,))

    @classmethod
    def from_shapes(
        cls,
        shapes: Iterable[PlacedShape],
        pairs: Iterable[tuple[PlacedShape, PlacedShape]] = (),
        ground: Ground | Callable[[Array], Array] | None = None,
        material: Material | None = None,
    ) -> Scene:
        """A scene of `shapes` that may touch the ground, and of `pairs` that may touch each other.

        - Spheres, capsules and boxes touch the ground with spheres: a sphere with itself, a capsule
          with the spheres at its ends, a box with the spheres in its corners.
        - Another shape touches the ground with up to four points, which come after the contacts of
          all pairs. On a plane they are exact. On another ground they are the points of the shape
          that are lowest along the normal of the ground.

        `pairs`: as for `collision_pairs`; other arguments as for `Scene`. Raises ArgumentError for
        a shape that is fixed to the world by `frame=None`, and for objects of another type.
        """
        found = ground_contacts(shapes)
        both = pairs_and_ground(pairs, found.others)
        return cls(found.frames, found.radii, found.centres, ground, material, pairs=both)

    @classmethod
    def from_model(
        cls,
        model: Model,
        ground: Ground | Callable[[Array], Array] | None = None,
        pairs: DistancePairs | None = None,
        material: Material | None = None,
        *,
        most_vertices: int = 32,
    ) -> Scene:
        """A scene of the collision shapes of a robot, `model.geometry.collisions`.

        - `ground`: every shape of a moving link may touch it; default: the plane z = 0;
        - `pairs`: other shapes that may touch each other, from `collision.pairs_of`. Pass the
          shapes of the world and the disabled pairs of an SRDF file to `pairs_of`. Default: no
          pairs;
        - `material`: as for `Scene`;
        - `most_vertices`: the largest number of vertices of the hull of a mesh on the ground.

        Warns with one `ContactWarning`, which names the shapes that are left out, because they are
        meshes in files: `io.read_meshes` reads them. Raises ArgumentError for a mesh without
        volume, for `most_vertices` out of its range, and for a model without shapes on moving links
        if there are no `pairs`.
        """
        shapes, left_out, _ = shapes_of(model, most_vertices)
        if pairs is not None:
            checked_pairs(pairs)
        bodies = bodies_of(model, [shape.frame for shape in shapes])
        moving = [shape for shape, body in zip(shapes, bodies) if body >= 0]
        left_out = dict.fromkeys([*left_out, *(pairs.left_out if pairs else ())])
        if left_out:
            text = f"the scene has no contacts of {listed(list(left_out))}; see io.read_meshes"
            warnings.warn(text, ContactWarning, stacklevel=2)
        if not moving and not pairs:
            raise ArgumentError(f"{model!r} has no collision shapes on moving links")
        members = ((pairs.shapes[i], pairs.shapes[j]) for i, j in pairs.members) if pairs else ()
        return cls.from_shapes(moving, members, ground, material)

    def only_ground(self) -> Scene:
        """The scene with only the contacts with the ground, without those between two shapes.

        Parameters with one value per contact keep the values of the remaining contacts. Raises
        ArgumentError for a parameter with another number of values.
        """
        on_ground = self.pairs.contact_members[:, 1] == GROUND
        kept = np.flatnonzero(np.append(np.ones(len(self.frames), bool), on_ground))

        def of_kept(x: arguments.Parameter, name: str, *width: int) -> arguments.Parameter:
            """The parameter with the shape `width`, or with one row of this shape per contact."""
            if np.shape(x) == width:
                return x
            if np.shape(x) != (self.size, *width):
                raise ArgumentError(
                    f"{name} has shape {np.shape(x)}, expected {width} or {(self.size, *width)}"
                )
            return x[kept]

        material, inverse_inertia = self.material, self.inverse_inertia
        fields: dict[str, Any] = {
            name: of_kept(value, name)
            for name in ("friction", "margin", "torsional", "rolling")
            if (value := getattr(material, name)) is not None
        }
        if material.softness is not None:
            solref, solimp = material.softness.solref, material.softness.solimp
            rows = of_kept(solref, "solref", 2), of_kept(solimp, "solimp", 5)
            fields["softness"] = Softness(*rows)
        if inverse_inertia is not None:
            contacts = inverse_inertia.contacts[kept]
            inverse_inertia = inverse_inertia._replace(contacts=contacts)
        shapes = [self.pairs.shapes[i] for i, j in self.pairs.members if j == GROUND]
        return dataclasses.replace(
            self,
            material=dataclasses.replace(material, **fields),
            inverse_inertia=inverse_inertia,
            pairs=pairs_and_ground((), shapes),
        )

    def bodies(self, model: Model) -> np.ndarray:
        """The body of each sphere, (n,). Raises ArgumentError for a frame fixed to the world."""
        bodies = bodies_of(model, self.frames)
        for frame, body in zip(self.frames, bodies):
            if body < 0:
                raise ArgumentError(
                    f"frame {frame!r} of {model!r} is fixed to the world, expected a moving frame"
                )
        return bodies

    def centres(self, model: Model) -> Float[Array, "n 3"]:
        """The centres of the spheres (n, 3) in m, in the body frames."""
        X_BF = poses_in_bodies(model, self.frames)
        return transform_point(X_BF, jnp.asarray(self.offsets, model.dtype))

    def astype(self, dtype: DTypeLike) -> Scene:
        """The scene with all floating-point parameters cast to `dtype`."""
        return cast(self, dtype)


# The margin in m of a contact that `padded.pad_scenes` adds to a robot: the contact acts at no
# distance that occurs. It is finite, because derivatives of an infinite distance would be NaN.
PADDING_MARGIN = -1e6
_MARGIN = arguments.Requirement("0 or more", lambda x: (x >= 0) | (x == PADDING_MARGIN))


def scene_for(model: Model, scene: Scene) -> Scene:
    """The scene in the dtype of a model; raises ArgumentError for another object than a Scene."""
    arguments.require_type(scene, "scene", Scene)
    return scene.astype(model.dtype)


class GroundContacts(NamedTuple):
    """Shapes on a ground.

    - `frames`, `radii` (n,), `centres` (n, 3): the spheres of the shapes, as for `Scene`;
    - `counts`: the number of spheres of each shape;
    - `others`: the shapes without spheres.
    """

    frames: list[str | int]
    radii: arguments.Parameter
    centres: arguments.Parameter
    counts: list[int]
    others: list[PlacedShape]


def ground_contacts(shapes: Iterable[PlacedShape]) -> GroundContacts:
    """The spheres with which shapes touch the ground; errors as in `Scene.from_shapes`."""
    frames, radii, centres, counts, others = [], [], [], [], []
    for placed in arguments.sequence(shapes, "shapes", "PlacedShape"):
        if not isinstance(placed, PlacedShape):
            raise ArgumentError(f"shapes has {placed!r}, expected objects of type PlacedShape")
        if placed.frame is None:
            raise ArgumentError("shapes has a shape in the world, expected shapes on the robot")
        radius, points = ground_spheres(placed) or (None, [])
        counts.append(len(points))
        frames += [placed.frame] * len(points)
        radii += [radius] * len(points)
        centres += points
        if not points:
            others.append(placed)
    return GroundContacts(frames, _stacked(radii, ()), _stacked(centres, (3,)), counts, others)


def _stacked(values: Sequence[arguments.Parameter], shape: tuple[int, ...]) -> arguments.Parameter:
    """Parameters of this shape as the rows of one array."""
    if not values:
        return np.zeros((0, *shape))
    return (jnp if any(isinstance(x, Array) for x in values) else np).stack(values)


class ContactPoints(NamedTuple):
    """The contact point of each sphere: the point of the sphere with the least distance to ground.

    For a material with a softness, it is the middle between this point and the ground.

    - `distance` (n,) in m: the distances of the spheres from the ground, negative for a sphere that
      overlaps the ground;
    - `gradient` (n, 3): the gradients of the distance with respect to the position; for a plane,
      the unit normal;
    - `position` (n, 3) in m: the contact points, in world axes;
    - `velocity` (n, 3) in m/s: the velocities, in world axes, of the body points that are at the
      contact points; `gradient . velocity` is the rate of the distance;
    - `arm` (n, 3) in m: the positions of the contact points in the body frames.
    """

    distance: Float[Array, " n"]
    gradient: Float[Array, "n 3"]
    position: Float[Array, "n 3"]
    velocity: Float[Array, "n 3"]
    arm: Float[Array, "n 3"]

    @property
    def normal(self) -> Float[Array, "n 3"]:
        """Unit normals of the ground."""
        return lengths_and_normals(self.gradient)[1]


@arguments.compiled(arrays=("q", "v"))
def contact_points(model: Model, scene: Scene, q: Array | Kinematics, v: Array) -> ContactPoints:
    """The distances of the spheres from the ground, and their contact points.

    `q` (nq,) or its `Kinematics`, `v` (nv,). Raises ArgumentError for an unknown frame or a frame
    that is fixed to the world.
    """
    scene = scene_for(model, scene)
    kinematics = forward_kinematics.unchecked(model, q)
    bodies, centres = scene.bodies(model), scene.centres(model)
    p_WR = take_rows(root_positions(model, kinematics), bodies)
    centres_W = point_positions(model, kinematics, bodies, centres) + p_WR
    distance, gradient = jax.vmap(jax.value_and_grad(scene.ground.distance))(centres_W)
    to_point = scene.radii
    if scene.material.softness is not None:
        to_point = (distance + scene.radii) / 2
    to_contact = -(to_point / norm(gradient))[:, None] * gradient
    arm = centres + inverse_rotate(take_rows(kinematics.X_WB.R, bodies), to_contact)
    velocity, _ = point_motions(model, kinematics, bodies, arm, v)
    return ContactPoints(distance - scene.radii, gradient, centres_W + to_contact, velocity, arm)


def lengths_and_normals(
    gradient: Float[Array, "n 3"],
) -> tuple[Float[Array, " n"], Float[Array, "n 3"]]:
    """The lengths of gradients of the distance, and the unit normals along them."""
    length = norm(gradient)
    return length, gradient / length[:, None]


def tangential(normal: Float[Array, "... 3"], x: Float[Array, "... 3"]) -> Float[Array, "... 3"]:
    """The part of x (..., 3) that is orthogonal to a unit normal."""
    return x - jnp.sum(normal * x, axis=-1, keepdims=True) * normal
