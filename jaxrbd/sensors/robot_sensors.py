"""The readings of all sensors of a robot.

All sensors of one class with one quantity are one batch, so the size of the program depends on the
number of different quantities, and not on the number of sensors.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray

from .. import so3
from .._math.cast import cast, stacked
from .._math.clip import clip_within
from .._math.components import cross
from .._math.linear import matmul
from .._math.rows import rows_or_world, take_rows
from ..actuators import AffineActuators
from ..algorithms.kinematics import (
    Kinematics,
    first_root_centred,
    first_root_position,
    forward_kinematics,
    motions,
)
from ..algorithms.mass import kinetic_energy, potential_energy
from ..algorithms.places import Places, bodies_of, place_motions, places_from_first_root
from ..errors import ArgumentError, listed
from ..model import Model, arguments
from ..model.joint_indices import ball_indices
from ..model.joint_space import joint_coordinates, joint_rates
from ..model.joints_by_name import scalar_joints
from ..model.names import similar_names
from ..passive import PassiveForces
from ..spatial import (
    Pose,
    apply_inertia,
    from_linear,
    identity_pose,
    inertia_center_of_mass,
    inertial_force,
    inverse_compose,
    inverse_rotate,
    inverse_transform_force,
    rotate,
    transform_force,
    transform_inertia,
)
from ..tendons import Tendons
from .descriptions import (
    ActuatorSensor,
    FrameSensor,
    JointSensor,
    Sensor,
    StateSensor,
    SubtreeSensor,
    TendonSensor,
)


class RobotSensors(eqx.Module):
    """The sensors of a robot, by name.

    A call returns the readings of all sensors, one after another, as MuJoCo's `sensordata`:

        readings = sensors(model, q, v, a, actuators=actuators, control=control)
        sensors.by_name(readings)["gyro"]

    - `sensors`: `FrameSensor`s, `JointSensor`s, `TendonSensor`s, `ActuatorSensor`s,
      `SubtreeSensor`s and `StateSensor`s with different names;
    - `left_out`: for sensors of the robot that are not in `sensors`, pairs of the name and the
      reason. Messages about this name state the reason.

    Raises ArgumentError for another entry of `sensors` and for two sensors of the same name.
    """

    sensors: tuple[Sensor, ...]
    left_out: tuple[tuple[str, str], ...] = eqx.field(static=True)

    def __init__(self, sensors: Sequence[Sensor] = (), left_out: Sequence[tuple[str, str]] = ()):
        found = arguments.entries(sensors)
        if found is None:
            raise ArgumentError(f"sensors is {sensors!r}, expected a sequence of sensors")
        self.sensors, self.left_out = found, _pairs(left_out)
        for place, sensor in enumerate(self.sensors):
            if type(sensor) not in _READERS:
                raise ArgumentError(f"entry {place} of sensors is {sensor!r}, expected a sensor")
        name, count = next(iter(Counter(self.names).most_common(1)), ("", 0))
        if count > 1:
            raise ArgumentError(f"two sensors have the name {name!r}, expected different names")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sensors."""
        return tuple(sensor.name for sensor in self.sensors)

    @property
    def size(self) -> int:
        """The number of entries of all readings together."""
        return sum(sensor.width for sensor in self.sensors)

    def chosen(self, names: Sequence[str]) -> RobotSensors:
        """The sensors with these names, in the order of the names.

        The program for these sensors computes only what these sensors need. Raises ArgumentError
        for an unknown name, with the reason if the sensor was left out.
        """
        names = arguments.names(names, "names")
        known = dict(zip(self.names, self.sensors))
        for name in names:
            if name in known:
                continue
            if reason := dict(self.left_out).get(name):
                raise ArgumentError(f"sensor {name!r} was left out: {reason}")
            raise ArgumentError(
                f"there is no sensor {name!r}; the sensors are "
                f"{listed([repr(x) for x in self.names], 40) or 'none'}"
                f"{similar_names(name, self.names)}"
            )
        return RobotSensors([known[name] for name in names])

    def by_name(self, readings: Float[Array, "... size"]) -> dict[str, Float[Array, "... width"]]:
        """The readings of a call, by the names of the sensors.

        Raises ArgumentError for another number of readings.
        """
        readings = self._checked(readings)
        ends = np.cumsum([sensor.width for sensor in self.sensors])
        return {
            sensor.name: readings[..., end - sensor.width : end]
            for sensor, end in zip(self.sensors, ends)
        }

    def with_noise(
        self, key: PRNGKeyArray, readings: Float[Array, "... size"]
    ) -> Float[Array, "... size"]:
        """The readings with normal errors, whose standard deviations are `noise` of the sensors.

        - `key`: a key of `jax.random`, another one for each measurement;
        - `readings` (..., size): the result of a call, or the results of several calls.

        The shape and the dtype of the readings are checked, also while JAX traces. Their values are
        not checked: a reading that is NaN stays NaN. The standard deviations are static. Raises
        ArgumentError for another number of readings, for readings that are no floats, and for a
        key that is no key.
        """
        key = arguments.typed_keys(key, "key", 0)
        readings = self._checked(readings)
        if not jnp.issubdtype(readings.dtype, jnp.floating):
            raise ArgumentError(f"readings has dtype {readings.dtype}, expected floats")
        deviations = np.repeat(
            [sensor.noise for sensor in self.sensors], [sensor.width for sensor in self.sensors]
        )
        if not deviations.any():
            return readings
        errors = jax.random.normal(key, readings.shape, readings.dtype)
        return readings + jnp.asarray(deviations, readings.dtype) * errors

    def _checked(self, readings: ArrayLike) -> Array:
        try:
            readings = jnp.asarray(readings)
        except (TypeError, ValueError):  # such as lists of different lengths
            raise ArgumentError(f"readings is {readings!r}, expected an array") from None
        if readings.ndim < 1 or readings.shape[-1] != self.size:
            raise ArgumentError(f"readings has shape {readings.shape}, expected {self.size} values")
        return readings

    def __call__(
        self,
        model: Model,
        q: Array | Kinematics,
        v: ArrayLike,
        a: ArrayLike | None = None,
        f_ext: ArrayLike | None = None,
        *,
        actuators: AffineActuators | None = None,
        control: ArrayLike | None = None,
        tendons: Tendons | None = None,
        passive: PassiveForces | None = None,
        time: ArrayLike | None = None,
    ) -> Float[Array, " size"]:
        """The readings of all sensors in one state, one after another.

        - `q` (nq,) or its `Kinematics`, `v` (nv,);
        - `a` (nv,): the acceleration, as the result of `forward_dynamics` or, for a time step with
          contact, `(step.v - v) / dt`; for sensors of accelerations, forces and torques;
        - `f_ext` (nb, 6): external forces as for `rnea`, such as `ContactForce.f_ext`, for sensors
          of forces and torques (default: zero);
        - `actuators` and their `control` (n,): for sensors of actuators and of their forces;
        - `tendons`: for sensors of tendons and of energies; `passive`: for the potential energy;
        - `time` in s: for sensors of the time.

        Raises ArgumentError, which names the sensor, if an argument that it needs is missing, and
        for an unknown frame, joint, tendon or actuator.
        """
        given = {"a": a, "actuators": actuators, "control": control, "tendons": tendons}
        given |= {"passive": passive, "time": time}
        for name, kind in (
            ("actuators", AffineActuators),
            ("tendons", Tendons),
            ("passive", PassiveForces),
        ):
            if given[name] is not None and not isinstance(given[name], kind):
                raise ArgumentError(f"{name} is {given[name]!r}, expected {kind.__name__} or None")
        for sensor in self.sensors:
            for argument in _required_arguments(sensor):
                if given[argument] is None:
                    raise ArgumentError(
                        f"{argument} is missing, which sensor {sensor.name!r} needs to measure "
                        f"{sensor.quantity!r}"
                    )
        return _readings(
            model, self, q, v, a, f_ext, _Parts(actuators, tendons, passive), control, time
        )


def _pairs(left_out: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The names and the reasons as a tuple. Raises ArgumentError for other values."""
    pairs = arguments.entries(left_out)
    if pairs is None:
        raise ArgumentError(f"left_out is {left_out!r}, expected a sequence of pairs")
    for pair in pairs:
        texts = isinstance(pair, tuple | list) and all(isinstance(x, str) for x in pair)
        if not texts or len(pair) != 2:
            raise ArgumentError(f"left_out has the entry {pair!r}, expected a name and a reason")
    return tuple((name, reason) for name, reason in pairs)


def _required_arguments(sensor: Sensor) -> tuple[str, ...]:
    """The arguments of a call that a sensor needs, besides the state."""
    quantity = sensor.quantity
    if isinstance(sensor, ActuatorSensor) or quantity == "actuator_force":
        return "actuators", "control"
    if isinstance(sensor, TendonSensor):
        return ("tendons",)
    if quantity in ("accelerometer", "force", "torque") or quantity.endswith("acceleration"):
        return ("a",)
    return ("time",) if quantity == "time" else ()


class _Parts(NamedTuple):
    """The parts of a robot besides its model."""

    actuators: AffineActuators | None
    tendons: Tendons | None
    passive: PassiveForces | None


class _State:
    """The state of a robot, with quantities that are computed once, if a sensor needs them."""

    def __init__(
        self,
        model: Model,
        kinematics: Kinematics,
        v: Array,
        a: Array | None,
        f_ext: Array | None,
        parts: _Parts,
        control: ArrayLike | None,
        time: ArrayLike | None,
    ):
        self.model, self.kinematics, self.v, self.a, self.f_ext = model, kinematics, v, a, f_ext
        self.parts, self.control, self.time = parts, control, time

    @functools.cached_property
    def motions(self) -> tuple[Array, Array]:
        """The velocities of the bodies, and the accelerations minus gravity, in the body frames.

        An upward acceleration of the world adds the negative gravity to the acceleration of each
        body.
        """
        a = jnp.zeros_like(self.v) if self.a is None else self.a
        return motions(self.model, self.kinematics, self.v, a, from_linear(-self.model.gravity))

    def motions_at(self, places: Places) -> tuple[Array, Array]:
        """The velocities and the accelerations minus gravity of n places, (n, 6), in their axes."""
        V, A = self.motions
        upwards = from_linear(-self.model.gravity)
        return place_motions(places, V), place_motions(places, A, upwards)

    @functools.cached_property
    def actuator_states(self):
        """As `AffineActuators.states`."""
        actuators = self.parts.actuators
        assert actuators is not None
        assert self.control is not None
        return actuators.states(self.model, self.kinematics, self.v, self.control)

    @functools.cached_property
    def actuator_torques(self) -> Array:
        """The generalized force (nv,) of the actuators."""
        assert self.parts.actuators is not None
        assert self.control is not None
        return self.parts.actuators(self.model, self.kinematics, self.v, self.control)


@arguments.compiled(arrays=("q", "v", "a", "f_ext"))
def _readings(
    model: Model,
    sensors: RobotSensors,
    q: Array | Kinematics,
    v: Array,
    a: Array | None = None,
    f_ext: Array | None = None,
    parts: _Parts | None = None,
    control: ArrayLike | None = None,
    time: ArrayLike | None = None,
) -> Float[Array, " size"]:
    """See `RobotSensors.__call__`."""
    kinematics = forward_kinematics.unchecked(model, q)
    parts = parts or _Parts(None, None, None)
    state = _State(model, kinematics, v, a, f_ext, parts, control, time)
    # The entries in the order of classes and quantities, and the index of each entry in the result.
    found, order = [jnp.zeros(0, model.dtype)], [np.zeros(0, int)]
    starts = np.cumsum([0, *(sensor.width for sensor in sensors.sensors)])
    for kind, read in _READERS.items():
        for quantity, width in kind.widths.items():
            index = [
                i
                for i, sensor in enumerate(sensors.sensors)
                if type(sensor) is kind and sensor.quantity == quantity
            ]
            if index:
                values = read(state, [sensors.sensors[i] for i in index], quantity)
                found.append(jnp.reshape(values, -1))
                order.append((starts[index][:, None] + np.arange(width)).reshape(-1))
    readings = take_rows(jnp.concatenate(found), np.argsort(np.concatenate(order)))
    cutoff = np.repeat(
        [sensor.cutoff for sensor in sensors.sensors], [sensor.width for sensor in sensors.sensors]
    )
    if np.isfinite(cutoff).any():
        limit = jnp.asarray(cutoff, model.dtype)
        readings = clip_within(readings, -limit, limit)
    return readings


# ----------------------------------------------------------------------------------- frames


class _Placed(NamedTuple):
    """n places P, and their references O.

    - `X_P`, `X_O`: the poses in axes of the world, with positions relative to the first root;
    - `motion`, `reference_motion`: functions without arguments that return the velocities and the
      accelerations minus gravity of P and O, (n, 6), in the axes of the places;
    - `sensors`: the sensors at the places P.
    """

    X_P: Pose
    X_O: Pose
    motion: Callable[[], tuple[Array, Array]]
    reference_motion: Callable[[], tuple[Array, Array]]
    sensors: Sequence[FrameSensor]


def _read_frames(state: _State, sensors: Sequence[Any], quantity: str) -> Array:
    for sensor in sensors:
        with _named(sensor):
            bodies_of(state.model, [sensor.frame, sensor.reference])

    def placed(frames: list[str | None], X: list[Pose | None]) -> tuple[Places, Pose]:
        return places_from_first_root(state.model, state.kinematics, frames, _stack(X, state.model))

    places_P, X_P = placed([x.frame for x in sensors], [x.X_FP for x in sensors])
    places_O, X_O = placed([x.reference for x in sensors], [x.X_RO for x in sensors])
    return _FRAME_QUANTITIES[quantity](
        _Placed(
            X_P,
            X_O,
            lambda: state.motions_at(places_P),
            lambda: state.motions_at(places_O),
            sensors,
        )
    )


def _axis(index: int) -> Callable[[_Placed], Array]:
    return lambda x: inverse_rotate(x.X_O.R, x.X_P.R[:, :, index])


def _linear_velocity(x: _Placed) -> Array:
    V, V_O = x.motion()[0], x.reference_motion()[0]
    relative = rotate(x.X_P.R, V[:, :3]) - rotate(x.X_O.R, V_O[:, :3])
    turning = cross(rotate(x.X_O.R, V_O[:, 3:]), x.X_P.p - x.X_O.p)
    return inverse_rotate(x.X_O.R, relative - turning)


def _angular_velocity(x: _Placed) -> Array:
    V, V_O = x.motion()[0], x.reference_motion()[0]
    return inverse_rotate(x.X_O.R, rotate(x.X_P.R, V[:, 3:])) - V_O[:, 3:]


def _classical_acceleration(x: _Placed) -> Array:
    """The acceleration of the points P minus gravity, in the axes of P."""
    V, A = x.motion()
    return A[:, :3] + cross(V[:, 3:], V[:, :3])


def _magnetic_field(x: _Placed) -> Array:
    fields = [jnp.asarray(sensor.magnetic_field, x.X_P.p.dtype) for sensor in x.sensors]
    return inverse_rotate(x.X_P.R, jnp.stack(fields))


_FRAME_QUANTITIES: Mapping[str, Callable[[_Placed], Array]] = {
    "position": lambda x: inverse_rotate(x.X_O.R, x.X_P.p - x.X_O.p),
    "rotation": lambda x: _wxyz(so3.quaternion_from_matrix(inverse_compose(x.X_O, x.X_P).R)),
    "x_axis": _axis(0),
    "y_axis": _axis(1),
    "z_axis": _axis(2),
    "linear_velocity": _linear_velocity,
    "angular_velocity": _angular_velocity,
    "linear_acceleration": lambda x: rotate(x.X_P.R, _classical_acceleration(x)),
    "angular_acceleration": lambda x: rotate(x.X_P.R, x.motion()[1][:, 3:]),
    "velocimeter": lambda x: x.motion()[0][:, :3],
    "gyroscope": lambda x: x.motion()[0][:, 3:],
    "accelerometer": _classical_acceleration,
    "magnetometer": _magnetic_field,
}

# ---------------------------------------------------------------------- joints, tendons, actuators


def _read_joints(state: _State, sensors: Sequence[Any], quantity: str) -> Array:
    model, joints = state.model, [sensor.joint for sensor in sensors]
    is_scalar = quantity not in ("rotation", "angular_velocity")
    find = scalar_joints if is_scalar else ball_indices
    for sensor in sensors:
        with _named(sensor):
            find(model, [sensor.joint])
    if quantity == "actuator_force":
        dofs = [_dof(model, sensor) for sensor in sensors]
        return take_rows(state.actuator_torques, np.array(dofs, int))
    places = find(model, joints)
    if quantity in ("velocity", "angular_velocity"):
        return joint_rates(model, state.kinematics.q, state.v)[places.v]
    coordinates = joint_coordinates(model, state.kinematics.q)[places.q]
    return coordinates if is_scalar else _wxyz(so3.quaternion_normalize(coordinates))


def _dof(model: Model, sensor: JointSensor) -> int:
    """The index in v of a joint with one degree of freedom that follows no other joint."""
    dofs = model.joint(sensor.joint).v
    if dofs.start == dofs.stop:
        raise ArgumentError(
            f"joint {sensor.joint!r} of sensor {sensor.name!r} follows others, so it has no force"
        )
    return dofs.start


def _read_tendons(state: _State, sensors: Sequence[Any], quantity: str) -> Array:
    names = [sensor.tendon for sensor in sensors]
    if quantity == "actuator_force":
        actuators = state.parts.actuators
        assert actuators is not None
        first = len(actuators.driven_joints)
        driven_names = [x.name for x in actuators.tendons]
        others = () if state.parts.tendons is None else state.parts.tendons.names
        for sensor in sensors:
            _index_of(sensor, sensor.tendon, [*dict.fromkeys([*driven_names, *others])], "tendon")
        # For each actuator the name of its tendon, or None.
        driven = [
            driven_names[i - first] if first <= i < first + len(driven_names) else None
            for i in actuators.outputs
        ]
        members = np.array([[x == name for x in driven] for name in names])
        return jnp.sum(jnp.where(members, state.actuator_states.force, 0), axis=1)
    tendons = state.parts.tendons
    assert tendons is not None
    places = [_index_of(sensor, sensor.tendon, tendons.names, "tendon") for sensor in sensors]
    chosen = Tendons([tendons.tendons[i] for i in places])
    if quantity == "length":
        return chosen.lengths(state.model, state.kinematics)
    return chosen.rates(state.model, state.kinematics, state.v)


def _read_actuators(state: _State, sensors: Sequence[Any], quantity: str) -> Array:
    assert state.parts.actuators is not None
    names = state.parts.actuators.names
    places = [_index_of(sensor, sensor.actuator, names, "actuator") for sensor in sensors]
    return take_rows(getattr(state.actuator_states, quantity), np.array(places, int))


def _index_of(sensor: Sensor, name: str, names: Sequence[str], what: str) -> int:
    if name not in names:
        known = listed([repr(x) for x in names], 40) or "none"
        raise ArgumentError(
            f"sensor {sensor.name!r}: there is no {what} {name!r}; expected one of: {known}"
            f"{similar_names(name, names)}"
        )
    if [*names].count(name) > 1:
        raise ArgumentError(
            f"sensor {sensor.name!r}: there are several {what}s {name!r}, expected different names"
        )
    return [*names].index(name)


@contextlib.contextmanager
def _named(sensor: Sensor) -> Iterator[None]:
    """Adds the name of the sensor to the message of an ArgumentError."""
    try:
        yield
    except ArgumentError as error:
        raise ArgumentError(f"sensor {sensor.name!r}: {error}") from error


# ------------------------------------------------------------------------------------- subtrees


def _read_subtrees(state: _State, sensors: Sequence[Any], quantity: str) -> Array:
    model, kinematics = state.model, state.kinematics
    for sensor in sensors:
        with _named(sensor):
            bodies_of(model, [sensor.frame, *(sensor.carried or ())])
    X_B = first_root_centred(model, kinematics)
    links, X_L = places_from_first_root(model, kinematics, [x.frame for x in sensors])
    bodies = links.bodies.tolist()
    members, link_inertias = zip(
        *(_members(model, sensor, b) for sensor, b in zip(sensors, bodies))
    )
    members, link_inertia = np.array(members, bool), jnp.stack(link_inertias)

    def total(body_values: Array, link_values: Array) -> Array:
        """The values of the bodies in each subtree and of its other links, added up.

        The values are in axes of the world, about the first root.
        """
        return matmul(jnp.asarray(members, model.dtype), body_values) + link_values

    inertia = total(transform_inertia(X_B, model.inertia), transform_inertia(X_L, link_inertia))
    # A subtree without mass is at the origin of its link.
    center = jnp.where(inertia[:, :1] > 0, inertia_center_of_mass(inertia), X_L.p)
    if quantity == "center_of_mass":
        return center + first_root_position(model, kinematics)
    (V, A), (V_L, A_L) = state.motions, state.motions_at(links)
    if quantity in ("force", "torque"):
        forces = inertial_force(model.inertia, V, A)
        link_forces = transform_force(X_L, inertial_force(link_inertia, V_L, A_L))
        if state.f_ext is not None:
            forces = forces - state.f_ext
            # For a link that is a part of a body, the external force on the body acts on the link.
            is_part_of_body = np.array([sensor.carried is not None for sensor in sensors])[:, None]
            on_body = rows_or_world(
                transform_force(X_B, state.f_ext), links.bodies, jnp.zeros(6, model.dtype)
            )
            link_forces = link_forces - jnp.where(is_part_of_body, on_body, 0)
        _, X_P = places_from_first_root(
            model, kinematics, [x.frame for x in sensors], _stack([x.X_FP for x in sensors], model)
        )
        wrench = inverse_transform_force(X_P, total(transform_force(X_B, forces), link_forces))
        return wrench[:, :3] if quantity == "force" else wrench[:, 3:]
    momentum = total(
        transform_force(X_B, apply_inertia(model.inertia, V)),
        transform_force(X_L, apply_inertia(link_inertia, V_L)),
    )
    if quantity == "angular_momentum":
        return momentum[:, 3:] - cross(center, momentum[:, :3])
    mass = inertia[:, :1]
    return jnp.where(mass > 0, momentum[:, :3] / jnp.where(mass > 0, mass, 1), 0)


def _members(model: Model, sensor: SubtreeSensor, body: int) -> tuple[np.ndarray, Array]:
    """Whether each body is in the subtree, (nb,), and the inertia (10,) of the remaining links.

    A body is in the subtree if all of its links are. The remaining links of the subtree are a part
    of another body, or they are fixed to the world. The inertia is in the frame of the sensor.
    """
    supports = np.array(model.topology.supports, bool)
    if sensor.carried is not None:
        bodies = [b for b in bodies_of(model, sensor.carried) if b >= 0]
        members = np.sum(supports[np.array(bodies, int)], axis=0) > 0
        return members, jnp.asarray(sensor.inertia, model.dtype)
    if body >= 0:
        return supports[body], jnp.zeros(10, model.dtype)
    if sensor.frame is not None:
        raise ArgumentError(
            f"frame {sensor.frame!r} of sensor {sensor.name!r} is fixed to the world, expected a "
            "frame of a moving link, None for the whole robot, or inertia and carried"
        )
    return np.ones(model.nb, bool), _fixed_inertia(model)


def _fixed_inertia(model: Model) -> Float[Array, "10"]:
    """The inertia of the links that are fixed to the world, in the frame of the world."""
    fixed = np.flatnonzero(np.array(model.frame_bodies, int) < 0)
    poses = jax.tree.map(lambda x: take_rows(x, fixed), model.frame_pose)
    return jnp.sum(transform_inertia(poses, model.fixed_inertia), axis=0)


# ------------------------------------------------------------------------------------- the state


def _read_state(state: _State, sensors: Sequence[Any], quantity: str) -> Array:
    model, kinematics, parts = state.model, state.kinematics, state.parts
    if quantity == "time":
        assert state.time is not None
        value = arguments.number(model, state.time, "time")
    elif quantity == "kinetic_energy":
        value = kinetic_energy.unchecked(model, kinematics, state.v)
        if parts.tendons is not None and parts.tendons.armature is not None:
            rates = parts.tendons.rates(model, kinematics, state.v)
            armature = jnp.asarray(parts.tendons.armature, model.dtype)
            value = value + jnp.sum(armature * rates * rates) / 2
    else:
        value = potential_energy.unchecked(model, kinematics)
        value = value - jnp.sum(_fixed_inertia(model)[1:4] * model.gravity)
        if parts.passive is not None and parts.passive.springs is not None:
            value = value + parts.passive.springs.energy(model, kinematics.q)
        if parts.tendons is not None:
            value = value + parts.tendons.energy(model, kinematics)
    return jnp.broadcast_to(value, (len(sensors),))


# For each class, the function that reads all sensors of the class with one quantity.
_READERS: Mapping[type[Sensor], Callable[[_State, Sequence[Any], str], Array]] = {
    FrameSensor: _read_frames,
    JointSensor: _read_joints,
    TendonSensor: _read_tendons,
    ActuatorSensor: _read_actuators,
    SubtreeSensor: _read_subtrees,
    StateSensor: _read_state,
}


def _wxyz(quaternions: Array) -> Array:
    """Quaternions (n, 4) in the order wxyz, from the order xyzw."""
    return jnp.roll(quaternions, 1, axis=-1)


def _stack(poses: Sequence[Pose | None], model: Model) -> Pose:
    """The poses (n,), with the identity for None."""
    identity = identity_pose(model.dtype)
    given = [identity if X is None else X for X in poses]
    return stacked(cast(given, model.dtype))
