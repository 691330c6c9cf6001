"""What actuators drive besides joints and tendons: the other classes of transmissions.

A transmission has a length, and moment arms: the row (nv,) that maps the force of the actuator to
generalized forces. All transmissions of one class are computed as one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .. import so3
from .._math.cast import cast, stacked
from .._math.components import cross
from ..algorithms.kinematics import Kinematics
from ..algorithms.places import places_from_first_root, wrenches_at_points
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_indices import ball_indices
from ..model.joint_space import independent_joint_force, joint_coordinates
from ..model.joints_by_name import parameters, required_parameters
from ..model.shapes import Vector
from ..spatial import inverse_compose, rotate
from ..tendons.lengths import LengthsAndArms, lengths_and_arms, rows_of_wrenches
from ..tendons.paths import Tendon


class FrameForce(eqx.Module):
    """A force and a moment on a link, such as the thrust of a propeller.

    - `frame`: the name of a frame of the model, at whose origin the force acts;
    - `force` (3,): the force in N for each unit of the actuator's force, zero by default;
    - `moment` (3,): the moment in N m for each unit of the actuator's force, zero by default;
    - `force_axes`, `moment_axes`: "frame" (default) or "world", the axes of the two vectors.

    The length is always zero. The moment arms are the product of the Jacobian of the frame with the
    vectors. Raises ArgumentError if both vectors are None, and for a vector that is not finite.
    Source: MuJoCo, XML reference, actuator/general, attribute site.
    """

    frame: str = eqx.field(static=True)
    force: Float[arguments.Parameter, "3"]
    moment: Float[arguments.Parameter, "3"]
    force_axes: str = eqx.field(static=True)
    moment_axes: str = eqx.field(static=True)

    def __init__(
        self,
        frame: str,
        force: Vector | None = None,
        moment: Vector | None = None,
        force_axes: str = "frame",
        moment_axes: str = "frame",
    ):
        self.frame = arguments.text(frame, "frame")
        if force is None and moment is None:
            raise ArgumentError("force and moment are None, expected at least one of them")
        self.force = _vector(force, "force")
        self.moment = _vector(moment, "moment")
        for name, axes in (("force_axes", force_axes), ("moment_axes", moment_axes)):
            if not isinstance(axes, str) or axes not in ("frame", "world"):
                raise ArgumentError(f"{name} is {axes!r}, expected 'frame' or 'world'")
        self.force_axes, self.moment_axes = force_axes, moment_axes

    @property
    def name(self) -> str:
        """A name for messages."""
        return f"force on {self.frame}"


class FrameDisplacement(eqx.Module):
    """The displacement of a frame relative to a reference frame, along one direction.

    - `frame`, `reference`: the names of two frames of the model;
    - `direction` (3,), `axis` (3,): in axes of the reference, zero by default.

    With the position p and the rotation R of the frame, in the reference frame, the length is
    `direction . p + axis . log(R)`. The moment arms are as in MuJoCo: the difference of the
    Jacobians of both frames in axes of the reference, times `direction` and `axis`, without the
    joints that move both frames. The rate of the actuator is the product of the moment arms and v.
    It is not the derivative of the length if a joint turns the reference and does not move the
    frame, or if the rotation vector log(R) is not parallel to `axis`.

    Raises ArgumentError if both vectors are None, and for a vector that is not finite. Source:
    MuJoCo, XML reference, actuator/general, attribute refsite.
    """

    frame: str = eqx.field(static=True)
    reference: str = eqx.field(static=True)
    direction: Float[arguments.Parameter, "3"]
    axis: Float[arguments.Parameter, "3"]

    def __init__(
        self,
        frame: str,
        reference: str,
        direction: Vector | None = None,
        axis: Vector | None = None,
    ):
        self.frame = arguments.text(frame, "frame")
        self.reference = arguments.text(reference, "reference")
        if direction is None and axis is None:
            raise ArgumentError("direction and axis are None, expected at least one of them")
        self.direction = _vector(direction, "direction")
        self.axis = _vector(axis, "axis")

    @property
    def name(self) -> str:
        """A name for messages."""
        return f"displacement of {self.frame}"


class SliderCrank(eqx.Module):
    """A slider that moves along an axis, and drives a crank through a rod.

    - `crank`: the name of the frame at the end of the crank, where the rod ends;
    - `slider`: the name of the frame of the guide: the slider moves along the z axis of this frame;
    - `rod` (): the length of the rod in m, more than 0.

    The length is the coordinate z of the slider in this frame. Of the two positions where the rod
    fits, it is the one with the smaller z. If the rod is too short to reach the axis, the length is
    the z of the crank in this frame. The derivatives grow without bound where the rod becomes
    perpendicular to the axis. Source: MuJoCo, XML reference, actuator/general, attribute cranksite.
    """

    crank: str = eqx.field(static=True)
    slider: str = eqx.field(static=True)
    rod: Float[arguments.Parameter, ""]

    def __init__(self, crank: str, slider: str, rod: Any):
        self.crank, self.slider = arguments.text(crank, "crank"), arguments.text(slider, "slider")
        self.rod = arguments.parameter(rod, "rod", ())
        arguments.require(self.rod, lambda x: (x > 0) & np.isfinite(x), "rod", "finite, above 0")

    @property
    def name(self) -> str:
        """A name for messages."""
        return f"slider-crank of {self.crank}"


class BallTorque(eqx.Module):
    """A torque on a spherical joint along an axis.

    - `joint`: the name of a spherical joint or a free-flyer;
    - `axis` (3,): the torque in N m for each unit of the actuator's force;
    - `in_parent`: whether `axis` is in the axes of the joint placement, which are fixed in the
      parent link. By default, `axis` is in the axes of the child link.

    The length is `axis . log(q)`, for the quaternion q of the joint. Raises ArgumentError for an
    axis that is not finite. Source: MuJoCo, XML reference, actuator/general, attributes joint and
    jointinparent.
    """

    joint: str = eqx.field(static=True)
    axis: Float[arguments.Parameter, "3"]
    in_parent: bool = eqx.field(static=True)

    def __init__(self, joint: str, axis: Vector, in_parent: bool = False):
        arguments.require_flag(in_parent, "in_parent")
        self.joint, self.in_parent = arguments.text(joint, "joint"), bool(in_parent)
        self.axis = required_parameters(axis, "axis", (3,))
        arguments.require(self.axis, np.isfinite, "axis", "finite")

    @property
    def name(self) -> str:
        """A name for messages."""
        return self.joint


Transmission = FrameForce | FrameDisplacement | SliderCrank | BallTorque


class _LengthsAndWrenches(NamedTuple):
    """The lengths (n,) of n transmissions of one class, and the wrenches of their unit forces.

    - `wrenches`: one or two arrays (n, 6): row i of array k acts on link k of transmission i, in
      axes of the world and about the first root; `bodies`: the bodies (n,) of each array;
    - `fixed` (n, nb): for each transmission the bodies whose joints are left out, or None.
    """

    lengths: Array
    bodies: list[np.ndarray]
    wrenches: list[Array]
    fixed: np.ndarray | None = None


def transmission_lengths_and_arms(
    model: Model, transmissions: Sequence[Tendon | Transmission], kinematics: Kinematics
) -> LengthsAndArms:
    """The lengths (n,) and the moment arms (n, nv) of n tendons and other transmissions."""
    classes: tuple[tuple[Any, Callable], ...] = (
        (Tendon, lengths_and_arms),
        (FrameForce, _through_wrenches(_frame_forces)),
        (FrameDisplacement, _through_wrenches(_frame_displacements)),
        (SliderCrank, _through_wrenches(_slider_cranks)),
        (BallTorque, _ball_torques),
    )
    order: list[int] = []
    found: list[LengthsAndArms] = []
    for kind, evaluate in classes:
        chosen: dict[int, Any] = {i: x for i, x in enumerate(transmissions) if isinstance(x, kind)}
        if chosen:
            order += chosen
            found.append(evaluate(model, [*chosen.values()], kinematics))
    if not found:
        return lengths_and_arms(model, (), kinematics)
    if len(found) == 1:
        return found[0]
    place = np.argsort(order)
    return LengthsAndArms(*(jnp.concatenate(x)[place] for x in zip(*found)))


def _through_wrenches(
    evaluate_wrenches: Callable[..., _LengthsAndWrenches],
) -> Callable[..., LengthsAndArms]:
    """A function that returns the lengths and moment arms of transmissions that act by wrenches."""

    def evaluate(model: Model, items: Sequence[Any], kinematics: Kinematics) -> LengthsAndArms:
        n, found = len(items), evaluate_wrenches(model, items, kinematics)
        arms = rows_of_wrenches(
            model,
            kinematics,
            np.tile(np.arange(n), len(found.bodies)),
            np.concatenate(found.bodies),
            jnp.concatenate(found.wrenches),
            n,
            found.fixed,
        )
        return LengthsAndArms(found.lengths, arms)

    return evaluate


def _frame_forces(
    model: Model, items: Sequence[FrameForce], kinematics: Kinematics
) -> _LengthsAndWrenches:
    places, X = places_from_first_root(model, kinematics, [x.frame for x in items])

    def in_world(vectors: list[arguments.Parameter], axes: list[str]) -> Array:
        turned = np.array([x == "frame" for x in axes])[:, None]
        x = stacked(cast(vectors, model.dtype))
        return jnp.where(turned, rotate(X.R, x), x)

    force = in_world([x.force for x in items], [x.force_axes for x in items])
    moment = in_world([x.moment for x in items], [x.moment_axes for x in items])
    return _LengthsAndWrenches(
        jnp.zeros(len(items), model.dtype),
        [places.bodies],
        [wrenches_at_points(X.p, force, moment)],
    )


def _frame_displacements(
    model: Model, items: Sequence[FrameDisplacement], kinematics: Kinematics
) -> _LengthsAndWrenches:
    frames, references = [x.frame for x in items], [x.reference for x in items]
    places, X = places_from_first_root(model, kinematics, [*frames, *references])
    n = len(items)
    X_F, X_R = (
        jax.tree.map(lambda x, part=part: x[part], X) for part in (slice(n), slice(n, None))
    )
    direction, axis = (
        stacked(cast([getattr(x, k) for x in items], model.dtype)) for k in ("direction", "axis")
    )
    relative = inverse_compose(X_R, X_F)
    force, moment = rotate(X_R.R, direction), rotate(X_R.R, axis)
    movers = model.topology.movers(places.bodies)
    return _LengthsAndWrenches(
        jnp.sum(direction * relative.p + axis * so3.log(relative.R), axis=1),
        [places.bodies[:n], places.bodies[n:]],
        [wrenches_at_points(X_F.p, force, moment), -wrenches_at_points(X_R.p, force, moment)],
        fixed=movers[:n] & movers[n:],
    )


def _slider_cranks(
    model: Model, items: Sequence[SliderCrank], kinematics: Kinematics
) -> _LengthsAndWrenches:
    n = len(items)
    frames = [*(x.crank for x in items), *(x.slider for x in items)]
    places, X = places_from_first_root(model, kinematics, frames)
    rod, axis = stacked(cast([x.rod for x in items], model.dtype)), X.R[n:, :, 2]
    offset = X.p[:n] - X.p[n:]
    axial = jnp.sum(axis * offset, axis=1)
    square = axial * axial + rod * rod - jnp.sum(offset * offset, axis=1)
    reaches = square > 0
    root = jnp.sqrt(jnp.where(reaches, square, 1))
    # The derivatives of the length with respect to the offset and to the axis.
    share = jnp.where(reaches, 1 - axial / root, 1)[:, None]
    by_offset = axis * share + jnp.where(reaches[:, None], offset / root[:, None], 0)
    by_axis = offset * share
    nothing = jnp.zeros_like(by_axis)
    return _LengthsAndWrenches(
        axial - jnp.where(reaches, root, 0),
        [places.bodies[:n], places.bodies[n:]],
        [
            wrenches_at_points(X.p[:n], by_offset, nothing),
            wrenches_at_points(X.p[n:], -by_offset, cross(axis, by_axis)),
        ],
    )


def _ball_torques(
    model: Model, items: Sequence[BallTorque], kinematics: Kinematics
) -> LengthsAndArms:
    places = ball_indices(model, [x.joint for x in items])
    rotation = so3.quaternion_normalize(joint_coordinates(model, kinematics.q)[places.q])
    axis = stacked(cast([x.axis for x in items], model.dtype))
    length = jnp.sum(axis * so3.unit_quaternion_log(rotation), axis=1)
    in_child = so3.quaternion_rotate(so3.quaternion_conjugate(rotation), axis)
    axis = jnp.where(np.array([x.in_parent for x in items])[:, None], in_child, axis)
    rows = jnp.zeros((sum(model.joint_nvs), len(items)), model.dtype)
    rows = rows.at[places.v, np.arange(len(items))[:, None]].set(axis)
    return LengthsAndArms(length, independent_joint_force(model, kinematics.q, rows).T)


def _vector(x: Vector | None, name: str) -> arguments.Parameter:
    vector = parameters(x, name, np.zeros(3))
    arguments.require(vector, np.isfinite, name, "finite")
    return vector
