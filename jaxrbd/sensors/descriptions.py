"""Descriptions of the sensors of a robot: what each sensor measures, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from ..model import arguments
from ..model.joints_by_name import parameters
from ..model.shapes import Vector
from ..spatial import Pose

# Readings of unit length, which have no cutoff.
_UNCLIPPED = ("rotation", "x_axis", "y_axis", "z_axis")


class Sensor(eqx.Module):
    """The fields of all sensors.

    - `name`: the name of the sensor;
    - `quantity`: the measured quantity. The keys of `widths` are the quantities that a sensor of
      this class can measure; its values are the numbers of entries of their readings;
    - `cutoff`: the largest absolute value of each entry of a reading; larger values are clipped
      (default: infinite);
    - `noise`: the standard deviation of the errors (default 0). Readings are exact;
      `RobotSensors.with_noise` adds the errors. For a standard deviation that is traced or has a
      derivative, use `Noise`.

    Raises ArgumentError for a name that is no text, a cutoff that is not positive, a finite cutoff
    of a rotation or an axis, and a noise that is negative or not finite.
    """

    name: str = eqx.field(static=True)
    quantity: str = eqx.field(static=True)
    cutoff: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    widths: ClassVar[dict[str, int]] = {}

    def _describe(self, name: str, quantity: str, cutoff: float, noise: float) -> None:
        """Set the fields of all sensors. Raises ArgumentError, which names the sensor."""
        if not isinstance(quantity, str) or quantity not in self.widths:
            raise ArgumentError(
                f"quantity of sensor {name!r} is {quantity!r}, expected one of "
                f"{', '.join(self.widths)}"
            )
        cutoff, noise = (
            _number(x, f"{what} of sensor {name!r}")
            for what, x in (("cutoff", cutoff), ("noise", noise))
        )
        if not cutoff > 0:
            raise ArgumentError(f"cutoff of sensor {name!r} is {cutoff}, expected more than 0")
        if quantity in _UNCLIPPED and np.isfinite(cutoff):
            raise ArgumentError(
                f"cutoff of sensor {name!r} is {cutoff}, expected infinite for {quantity!r}"
            )
        if not 0 <= noise < np.inf:
            raise ArgumentError(f"noise of sensor {name!r} is {noise}, expected finite, 0 or more")
        self.name, self.quantity = arguments.text(name, "name"), quantity
        self.cutoff, self.noise = cutoff, noise

    @property
    def width(self) -> int:
        """The number of entries of a reading."""
        return self.widths[self.quantity]


class FrameSensor(Sensor):
    """A sensor at a place P, which is fixed to a link.

    - `frame`: the name of a frame of the model, or None for the world; `X_FP`: the pose of P in
      this frame, or its position (3,) in m (default: the identity);
    - `reference`, `X_RO`: the frame and the pose of a second place O, given in the same way
      (default: the world frame);
    - `magnetic_field` (3,): the flux of the magnetic field in world axes, for a magnetometer.

    | quantity | reading |
    |---|---|
    | `position` (3,) in m | position of P in the axes of O, relative to O |
    | `rotation` (4,) | unit quaternion wxyz of P relative to O, up to its sign |
    | `x_axis`, `y_axis`, `z_axis` (3,) | an axis of P in the axes of O |
    | `linear_velocity` (3,) in m/s | time derivative of `position` |
    | `angular_velocity` (3,) in rad/s | angular velocity of P relative to O, in the axes of O |
    | `linear_acceleration` (3,) in m/s^2 | acceleration of P minus gravity, in world axes |
    | `angular_acceleration` (3,) in rad/s^2 | angular acceleration of P, in world axes |
    | `velocimeter` (3,) in m/s | velocity of P in the axes of P |
    | `gyroscope` (3,) in rad/s | angular velocity of P in the axes of P |
    | `accelerometer` (3,) in m/s^2 | acceleration of P minus gravity, in the axes of P |
    | `magnetometer` (3,) | the magnetic field in the axes of P |

    Only the first seven quantities can have a reference. Raises ArgumentError for another quantity,
    for a reference of one of the last six quantities, for a pose that is no rigid pose, for a
    magnetometer without a `magnetic_field` and for another sensor with one, and as `Sensor`.
    Source: MuJoCo, XML reference, sensor.
    """

    frame: str | None = eqx.field(static=True)
    X_FP: Pose
    reference: str | None = eqx.field(static=True)
    X_RO: Pose | None
    magnetic_field: Float[arguments.Parameter, "3"] | None
    widths: ClassVar[dict[str, int]] = {
        "position": 3,
        "rotation": 4,
        "x_axis": 3,
        "y_axis": 3,
        "z_axis": 3,
        "linear_velocity": 3,
        "angular_velocity": 3,
        "linear_acceleration": 3,
        "angular_acceleration": 3,
        "velocimeter": 3,
        "gyroscope": 3,
        "accelerometer": 3,
        "magnetometer": 3,
    }

    def __init__(
        self,
        name: str,
        quantity: str,
        frame: str | None,
        X_FP: Pose | Vector | None = None,
        *,
        reference: str | None = None,
        X_RO: Pose | Vector | None = None,
        magnetic_field: Vector | None = None,
        cutoff: float = np.inf,
        noise: float = 0.0,
    ):
        self._describe(name, quantity, cutoff, noise)
        relative = [*self.widths][:7]
        if quantity not in relative and not (reference is None and X_RO is None):
            raise ArgumentError(
                f"sensor {name!r} measures {quantity!r} and has a reference, which only "
                f"{', '.join(relative)} can have"
            )
        if (magnetic_field is None) == (quantity == "magnetometer"):
            found = "no" if magnetic_field is None else "a"
            raise ArgumentError(
                f"sensor {name!r} measures {quantity!r} and has {found} magnetic_field, expected "
                "one for a magnetometer and None for other sensors"
            )
        self.frame = _frame(frame, "frame", name)
        self.reference = _frame(reference, "reference", name)
        self.X_FP = _pose(X_FP, "X_FP", name)
        self.X_RO = None if X_RO is None else _pose(X_RO, "X_RO", name)
        self.magnetic_field = None
        if magnetic_field is not None:
            self.magnetic_field = parameters(magnetic_field, "magnetic_field", np.zeros(3))
            arguments.require(self.magnetic_field, np.isfinite, "magnetic_field", "finite")


class JointSensor(Sensor):
    """A sensor of one joint; `joint` is the name of the joint.

    | quantity | joint | reading |
    |---|---|---|
    | `position` (1,) in rad or m | with one degree of freedom | its coordinate |
    | `velocity` (1,) in rad/s or m/s | with one degree of freedom | its velocity |
    | `actuator_force` (1,) in N m or N | one dof, follows no joint | the force of all actuators |
    | `rotation` (4,) | spherical or free-flyer | unit quaternion wxyz of the joint |
    | `angular_velocity` (3,) in rad/s | spherical or free-flyer | in the axes of the child link |

    Raises ArgumentError for another quantity, and as `Sensor`.
    """

    joint: str = eqx.field(static=True)
    widths: ClassVar[dict[str, int]] = {
        "position": 1,
        "velocity": 1,
        "actuator_force": 1,
        "rotation": 4,
        "angular_velocity": 3,
    }

    def __init__(
        self, name: str, quantity: str, joint: str, *, cutoff: float = np.inf, noise: float = 0.0
    ):
        self._describe(name, quantity, cutoff, noise)
        self.joint = arguments.text(joint, "joint")


class TendonSensor(Sensor):
    """A sensor of one tendon; `tendon` is the name of the tendon.

    | quantity | reading |
    |---|---|
    | `length` (1,) in m | the length |
    | `rate` (1,) in m/s | the time derivative of the length |
    | `actuator_force` (1,) in N | the sum of the forces of the actuators of the tendon |

    Raises ArgumentError for another quantity, and as `Sensor`.
    """

    tendon: str = eqx.field(static=True)
    widths: ClassVar[dict[str, int]] = {"length": 1, "rate": 1, "actuator_force": 1}

    def __init__(
        self, name: str, quantity: str, tendon: str, *, cutoff: float = np.inf, noise: float = 0.0
    ):
        self._describe(name, quantity, cutoff, noise)
        self.tendon = arguments.text(tendon, "tendon")


class ActuatorSensor(Sensor):
    """A sensor of one actuator of `AffineActuators`; `actuator` is the name of the actuator.

    `AffineActuators.states` defines the quantities `length`, `rate` and `force` (1,). Raises
    ArgumentError for another quantity, and as `Sensor`.
    """

    actuator: str = eqx.field(static=True)
    widths: ClassVar[dict[str, int]] = {"length": 1, "rate": 1, "force": 1}

    def __init__(
        self, name: str, quantity: str, actuator: str, *, cutoff: float = np.inf, noise: float = 0.0
    ):
        self._describe(name, quantity, cutoff, noise)
        self.actuator = arguments.text(actuator, "actuator")


class SubtreeSensor(Sensor):
    """A sensor of a link and of all links that it carries.

    - `frame`: the name of a frame of the link, or None for the whole robot with all links that are
      fixed to the world;
    - `X_FP`: the pose in this frame of the place P of a force sensor (default: the identity);
    - `inertia` (10,), `carried`: only for a link L that is fixed to another moving link. Both links
      belong to one body of the model, and these arguments select the part of the body that L
      carries. `inertia` is the inertia of L and of the links that are fixed to L, in `frame`, as in
      `Model.inertia`. `carried` are the names of the links that joints connect to L or to these
      links. By default the link is the whole body of the frame.

    | quantity | reading |
    |---|---|
    | `center_of_mass` (3,) in m | position in the world; without mass, the origin of the frame |
    | `linear_velocity` (3,) in m/s | the velocity of the center of mass in world axes |
    | `angular_momentum` (3,) in kg m^2/s | about the center of mass, in world axes |
    | `force` (3,) in N | the force on the link from the link that carries it, in the axes of P |
    | `torque` (3,) in N m | the moment of this force about P, in the axes of P |

    External forces `f_ext` on the body of the frame count as forces on the link. Forces of
    constraints and of tendons count as forces from the link that carries it, unless they are in
    `f_ext`. `inertia` does not change with the inertias of the model. Raises ArgumentError for
    another quantity, for a pose that is no rigid pose, for an inertia that is not finite, if only
    one of `inertia` and `carried` is given, and as `Sensor`. Source: MuJoCo, XML reference, sensor.
    """

    frame: str | None = eqx.field(static=True)
    X_FP: Pose
    inertia: Float[arguments.Parameter, "10"] | None
    carried: tuple[str, ...] | None = eqx.field(static=True)
    widths: ClassVar[dict[str, int]] = {
        "center_of_mass": 3,
        "linear_velocity": 3,
        "angular_momentum": 3,
        "force": 3,
        "torque": 3,
    }

    def __init__(
        self,
        name: str,
        quantity: str,
        frame: str | None,
        X_FP: Pose | Vector | None = None,
        *,
        inertia: ArrayLike | Sequence | None = None,
        carried: Sequence[str] | None = None,
        cutoff: float = np.inf,
        noise: float = 0.0,
    ):
        self._describe(name, quantity, cutoff, noise)
        if carried is not None:
            carried = arguments.names(carried, f"carried of sensor {name!r}")
        if (inertia is None) != (carried is None):
            missing = "inertia" if inertia is None else "carried"
            raise ArgumentError(f"{missing} of sensor {name!r} is missing, expected both or none")
        self.frame = _frame(frame, "frame", name)
        self.X_FP = _pose(X_FP, "X_FP", name)
        self.inertia, self.carried = None, carried
        if inertia is not None:
            self.inertia = parameters(inertia, "inertia", np.zeros(10))
            arguments.require(self.inertia, np.isfinite, "inertia", "finite")


class StateSensor(Sensor):
    """A sensor of the whole robot.

    | quantity | reading |
    |---|---|
    | `time` (1,) in s | the argument `time` |
    | `kinetic_energy` (1,) in J | of all bodies, and of the armature of joints and tendons |
    | `potential_energy` (1,) in J | of gravity, for all links, and of springs |

    The springs are those of the joints (`PassiveForces.springs`) and of the tendons. Raises
    ArgumentError for another quantity, and as `Sensor`.
    """

    widths: ClassVar[dict[str, int]] = {"time": 1, "kinetic_energy": 1, "potential_energy": 1}

    def __init__(self, name: str, quantity: str, *, cutoff: float = np.inf, noise: float = 0.0):
        self._describe(name, quantity, cutoff, noise)


def _number(x: Any, what: str) -> float:
    """A static parameter as a float. Raises ArgumentError for a traced value and other objects."""
    if isinstance(x, Tracer):
        raise ArgumentError(f"{what} is traced, expected a known number")
    if not isinstance(x, int | float | np.number | Array) or np.shape(x):
        raise ArgumentError(f"{what} is {x!r}, expected a number")
    return float(arguments.parameter(x, what, ()))


def _pose(X: Pose | Vector | None, name: str, sensor: str) -> Pose:
    R, p = (X.R, X.p) if isinstance(X, Pose) else (None, X)
    rotation: Any = parameters(R, f"{name}.R", np.eye(3))
    position: Any = parameters(p, f"{name}.p", np.zeros(3))
    return arguments.pose_parameter(Pose(rotation, position), name, f"of sensor {sensor!r}")


def _frame(x: str | None, what: str, sensor: str) -> str | None:
    if x is not None and not isinstance(x, str):
        raise ArgumentError(f"{what} of sensor {sensor!r} is {x!r}, expected a name or None")
    return x
