"""Forces of a fluid on the links of a robot: drag, viscosity, lift and added mass.

All boxes are one batch, and all ellipsoids are another one. The force on a shape is a function of
two velocities in the axes of the shape: the velocity of its center relative to the fluid, and its
angular velocity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.components import cross, square_root
from .._math.rows import rows_or_world
from ..algorithms.common_frame import velocities
from ..algorithms.kinematics import Kinematics, first_root_centred, forward_kinematics
from ..algorithms.places import places_from_first_root
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joints_by_name import parameters, required_parameters
from ..model.parameters import are_rotations
from ..spatial import Pose, inverse_rotate, rotate
from .point_forces import generalized_force_at_points


class FluidBoxes(eqx.Module):
    """n boxes in a fluid, each fixed to a link.

    The velocity u of the center relative to the fluid and the angular velocity w have components
    along the edges of the box. The lengths l of the edges have the mean D. A box has, along edge i,
    where j and k are the other edges,

        force   -3 pi D viscosity u_i  -  density / 2  l_j l_k |u_i| u_i,
        moment  -pi D^3 viscosity w_i  -  density / 64  l_i (l_j^4 + l_k^4) |w_i| w_i.

    - `frames`: the names of n frames of links;
    - `sizes` (n, 3) in m: the lengths of the edges;
    - `X_FB`: the poses of the boxes in the frames, R (n, 3, 3) and p (n, 3) in m; by default the
      identity.

    Raises ArgumentError for a wrong shape, a size that is negative or not finite, and an `X_FB`
    that is no rigid pose. Source: MuJoCo, chapter "Fluid forces", inertia model.
    """

    frames: tuple[str, ...] = eqx.field(static=True)
    sizes: Float[arguments.Parameter, "n 3"]
    X_FB: Pose

    def __init__(
        self, frames: Sequence[str], sizes: ArrayLike | Sequence, X_FB: Pose | None = None
    ):
        self.frames, self.sizes, self.X_FB = _checked(frames, sizes, "sizes", X_FB, "X_FB")


class FluidEllipsoids(eqx.Module):
    """n ellipsoids in a fluid, each fixed to a link.

    An ellipsoid has the Stokes drag of a sphere whose radius is the mean semi-axis, a drag that
    grows with the square of the speed, the lifts of Kutta and Magnus, and the gyroscopic forces of
    the fluid that moves with it. The inertia of this fluid does not resist accelerations.

    - `frames`: the names of n frames of links;
    - `semi_axes` (n, 3) in m;
    - `X_FE`: the poses of the ellipsoids in the frames, R (n, 3, 3) and p (n, 3) in m; by default
      the identity;
    - `coefficients` (n, 5): blunt drag, slender drag, angular drag, Kutta lift, Magnus lift; by
      default 0.5, 0.25, 1.5, 1 and 1;
    - `added_volume` (n, 3) in m^3, and `added_moment` (n, 3) in m^5: the mass and the moments of
      inertia of the fluid that moves with the ellipsoid, divided by the density, for motions along
      and about the axes of the ellipsoid; by default zero.

    Raises ArgumentError for a wrong shape, an `X_FE` that is no rigid pose, another value that is
    not finite, and a semi-axis that is not positive. Source: MuJoCo, chapter "Fluid forces",
    ellipsoid model; Andersen, Pesavento and Wang, Journal of Fluid Mechanics 541 (2005); Lamb,
    Hydrodynamics, sections 114 and 124.
    """

    frames: tuple[str, ...] = eqx.field(static=True)
    semi_axes: Float[arguments.Parameter, "n 3"]
    X_FE: Pose
    coefficients: Float[arguments.Parameter, "n 5"]
    added_volume: Float[arguments.Parameter, "n 3"]
    added_moment: Float[arguments.Parameter, "n 3"]

    def __init__(
        self,
        frames: Sequence[str],
        semi_axes: ArrayLike | Sequence,
        X_FE: Pose | None = None,
        coefficients: ArrayLike | Sequence | None = None,
        added_volume: ArrayLike | Sequence | None = None,
        added_moment: ArrayLike | Sequence | None = None,
    ):
        self.frames, self.semi_axes, self.X_FE = _checked(
            frames, semi_axes, "semi_axes", X_FE, "X_FE"
        )
        arguments.require(self.semi_axes, lambda x: x > 0, "semi_axes", "more than 0")
        n = len(self.frames)
        usual = np.tile([0.5, 0.25, 1.5, 1.0, 1.0], (n, 1))
        self.coefficients = parameters(coefficients, "coefficients", usual)
        self.added_volume = parameters(added_volume, "added_volume", np.zeros((n, 3)))
        self.added_moment = parameters(added_moment, "added_moment", np.zeros((n, 3)))
        for name in ("coefficients", "added_volume", "added_moment"):
            arguments.require(getattr(self, name), np.isfinite, name, "finite")


class FluidForces(eqx.Module):
    """The forces of a fluid on a robot.

    - `density` () in kg/m^3, and `viscosity` () in Pa s, of the fluid;
    - `wind` (3,) in m/s: the velocity of the fluid in world axes; by default zero;
    - `boxes`, `ellipsoids`: the shapes on which the fluid acts, or None.

    The shapes do not change the inertia of the robot, and there is no buoyancy: see
    `GravityCompensation`. The first derivatives are continuous; those of the quadratic terms are
    zero where a shape does not move relative to the fluid. Raises ArgumentError for a wrong shape,
    a value that is not finite, and a negative density or viscosity. Source: MuJoCo, chapter "Fluid
    forces".
    """

    density: Float[arguments.Parameter, ""]
    viscosity: Float[arguments.Parameter, ""]
    wind: Float[arguments.Parameter, "3"]
    boxes: FluidBoxes | None
    ellipsoids: FluidEllipsoids | None

    def __init__(
        self,
        density: ArrayLike,
        viscosity: ArrayLike,
        wind: ArrayLike | Sequence | None = None,
        boxes: FluidBoxes | None = None,
        ellipsoids: FluidEllipsoids | None = None,
    ):
        self.density = required_parameters(density, "density", ())
        self.viscosity = required_parameters(viscosity, "viscosity", ())
        for name in ("density", "viscosity"):
            arguments.require_not_negative(getattr(self, name), name)
        self.wind = parameters(wind, "wind", np.zeros(3))
        arguments.require(self.wind, np.isfinite, "wind", "finite")
        for name, x, kind in (
            ("boxes", boxes, FluidBoxes),
            ("ellipsoids", ellipsoids, FluidEllipsoids),
        ):
            if x is not None and not isinstance(x, kind):
                raise ArgumentError(f"{name} is {x!r}, expected {kind.__name__} or None")
        self.boxes, self.ellipsoids = boxes, ellipsoids

    def __call__(self, model: Model, q: Array | Kinematics, v: ArrayLike) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N and N m, for q (nq,) or its `Kinematics`, and v (nv,).

        Raises ArgumentError for an unknown frame.
        """
        return _fluid_force(model, self, q, v)


def _checked(
    frames: Sequence[str], sizes: Any, sizes_name: str, X: Pose | None, X_name: str
) -> tuple[tuple[str, ...], arguments.Parameter, Pose]:
    names = arguments.names(frames, "frames")
    n = len(names)
    sizes = required_parameters(sizes, sizes_name, (n, 3))
    arguments.require_not_negative(sizes, sizes_name)
    if X is not None and not isinstance(X, Pose):
        raise ArgumentError(f"{X_name} is {X!r}, expected a Pose or None")
    R, p = (None, None) if X is None else X
    rotations: Any = parameters(R, f"{X_name}.R", np.tile(np.eye(3), (n, 1, 1)))
    positions: Any = parameters(p, f"{X_name}.p", np.zeros((n, 3)))
    arguments.require(rotations, are_rotations, f"{X_name}.R", "rotation matrices")
    arguments.require(positions, np.isfinite, f"{X_name}.p", "finite")
    return names, sizes, Pose(rotations, positions)


class _Fluid(NamedTuple):
    """The density () in kg/m^3 and the viscosity () in Pa s, in the dtype of the model."""

    density: Array
    viscosity: Array


@arguments.compiled(arrays=("q", "v"))
def _fluid_force(
    model: Model, fluid: FluidForces, q: Array | Kinematics, v: Array
) -> Float[Array, " nv"]:
    """See `FluidForces.__call__`."""
    if not model.nb or (fluid.boxes is None and fluid.ellipsoids is None):
        return jnp.zeros_like(v)
    kinematics = forward_kinematics.unchecked(model, q)
    V = velocities(model, first_root_centred(model, kinematics), kinematics.q, v).V
    medium = _Fluid(*(jnp.asarray(x, model.dtype) for x in (fluid.density, fluid.viscosity)))
    wind = jnp.asarray(fluid.wind, model.dtype)
    parts = []  # (bodies, points, forces, moments)

    def add(frames: Sequence[str], X_FS: Pose, law: Callable[[Array, Array], Any]) -> None:
        places, X = places_from_first_root(model, kinematics, frames, X_FS)
        rates = rows_or_world(V, places.bodies, jnp.zeros(6, model.dtype))
        linear, angular = rates[:, :3], rates[:, 3:]
        u = inverse_rotate(X.R, linear + cross(angular, X.p) - wind[None])
        w = inverse_rotate(X.R, angular)
        force, moment = law(u, w)
        parts.append((places.bodies, X.p, rotate(X.R, force), rotate(X.R, moment)))

    if fluid.boxes is not None:
        add(fluid.boxes.frames, fluid.boxes.X_FB, partial(_box_forces, medium, fluid.boxes))
    if fluid.ellipsoids is not None:
        law = partial(_ellipsoid_forces, medium, fluid.ellipsoids)
        add(fluid.ellipsoids.frames, fluid.ellipsoids.X_FE, law)
    bodies = np.concatenate([part[0] for part in parts])
    p, force, moment = (jnp.concatenate(x) for x in list(zip(*parts))[1:])
    return generalized_force_at_points(model, kinematics, bodies, p, force, moment)


def _box_forces(fluid: _Fluid, boxes: FluidBoxes, u: Array, w: Array) -> tuple[Array, Array]:
    """The forces and moments (n, 3) on boxes, in their axes; u, w (n, 3) in m/s and rad/s."""
    size = jnp.asarray(boxes.sizes, u.dtype)
    l_j, l_k = jnp.roll(size, -1, axis=1), jnp.roll(size, 1, axis=1)
    D = jnp.mean(size, axis=1, keepdims=True)
    area, sections = l_j * l_k, size * (l_j**4 + l_k**4)
    force = -3 * np.pi * fluid.viscosity * D * u - fluid.density / 2 * area * jnp.abs(u) * u
    moment = -np.pi * fluid.viscosity * D**3 * w - fluid.density / 64 * sections * jnp.abs(w) * w
    return force, moment


def _ellipsoid_forces(
    fluid: _Fluid, ellipsoids: FluidEllipsoids, u: Array, w: Array
) -> tuple[Array, Array]:
    """The forces and moments (n, 3) on ellipsoids, in their axes; u, w (n, 3) in m/s and rad/s."""
    axes, coefficients, volume, moment = (
        jnp.asarray(x, u.dtype)
        for x in (
            ellipsoids.semi_axes,
            ellipsoids.coefficients,
            ellipsoids.added_volume,
            ellipsoids.added_moment,
        )
    )
    blunt, slender, angular, kutta, magnus = jnp.split(coefficients, 5, axis=1)
    _, middle, longest = jnp.split(jnp.sort(axes, axis=1), 3, axis=1)
    product = jnp.prod(axes, axis=1, keepdims=True)
    # The drag and the lift of Kutta are products of the square of the speed and a function of the
    # direction d of the velocity. MuJoCo's formula for the area of the projection along d is
    # pi product sqrt(sum(d^2 / a^4) / sum(d^2 / a^2)), for semi-axes a. It is exact along the axes;
    # in general, the area is pi product sqrt(sum(d^2 / a^2)). `ratio` is the quotient of sums in
    # MuJoCo's formula, for semi-axes divided by the longest one.
    speed = square_root(jnp.sum(u * u, axis=1, keepdims=True))
    moves = speed > 0
    d = jnp.where(moves, u, 1) / jnp.where(moves, speed, 1)
    scaled = axes / longest
    normal = d / scaled**2
    ratio = jnp.sum(normal**2, axis=1, keepdims=True) / jnp.sum(d * normal, axis=1, keepdims=True)
    area = np.pi * product / longest * jnp.sqrt(ratio)
    drag = blunt * area + slender * (np.pi * longest * middle - area)
    lift = kutta * area / ratio * cross(cross(normal, d), d)
    pressure = jnp.where(moves, fluid.density * speed * speed * (lift - drag * d), 0)
    # The drag against a rotation about each axis is computed with the larger one of the other two
    # semi-axes.
    wide = jnp.maximum(jnp.roll(axes, -1, axis=1), jnp.roll(axes, 1, axis=1))
    section = 8 / 15 * np.pi * axes * wide**4
    largest = 8 / 15 * np.pi * middle * longest**4
    turning = (angular * section + slender * (largest - section)) * w
    resistance = square_root(jnp.sum(turning * turning, axis=1, keepdims=True))
    D = 2 * jnp.mean(axes, axis=1, keepdims=True)
    momentum, spin = fluid.density * volume * u, fluid.density * moment * w
    swirl = 4 / 3 * np.pi * magnus * product * fluid.density * cross(w, u)
    force = pressure + swirl + cross(momentum, w) - 3 * np.pi * fluid.viscosity * D * u
    torque = cross(momentum, u) + cross(spin, w) - fluid.density * resistance * w
    return force, torque - np.pi * fluid.viscosity * D**3 * w
