"""Sensors of a compiled MuJoCo model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...model import link_inertia
from ...sensors import (
    ActuatorSensor,
    FrameSensor,
    JointSensor,
    RobotSensors,
    Sensor,
    StateSensor,
    SubtreeSensor,
    TendonSensor,
)
from ...spatial import Pose
from .source import Source

# The quantities of the sensors by their kinds in MuJoCo, for each class of sensors.
_FRAMES = {
    "framepos": "position",
    "framequat": "rotation",
    "framexaxis": "x_axis",
    "frameyaxis": "y_axis",
    "framezaxis": "z_axis",
    "framelinvel": "linear_velocity",
    "frameangvel": "angular_velocity",
    "framelinacc": "linear_acceleration",
    "frameangacc": "angular_acceleration",
    "velocimeter": "velocimeter",
    "gyro": "gyroscope",
    "accelerometer": "accelerometer",
    "magnetometer": "magnetometer",
}
_JOINTS = {
    "jointpos": "position",
    "jointvel": "velocity",
    "jointactfrc": "actuator_force",
    "ballquat": "rotation",
    "ballangvel": "angular_velocity",
}
_TENDONS = {"tendonpos": "length", "tendonvel": "rate", "tendonactfrc": "actuator_force"}
_ACTUATORS = {"actuatorpos": "length", "actuatorvel": "rate", "actuatorfrc": "force"}
_SUBTREES = {
    "subtreecom": "center_of_mass",
    "subtreelinvel": "linear_velocity",
    "subtreeangmom": "angular_momentum",
    "force": "force",
    "torque": "torque",
}
_STATES = {"clock": "time", "e_kinetic": "kinetic_energy", "e_potential": "potential_energy"}


def read_sensors(
    source: Source, sites: Mapping[str, str], actuators: Sequence[str], follows: bool
) -> RobotSensors:
    """The sensors of the file, and the reasons why some sensors are left out.

    `sites`: the frame of each site; `actuators`: the names of the read actuators; `follows`:
    whether joints follow others. A sensor changes no motion, so a sensor without a counterpart is
    no reason to refuse a file.
    """
    sensors, left_out = [], []
    for index, name in enumerate(source.sensors):
        try:
            if source.disabled("SENSOR"):
                raise _NoCounterpartError("the file disables all sensors")
            sensor = _sensor(source, index, name, sites)
            if isinstance(sensor, ActuatorSensor) and sensor.actuator not in actuators:
                raise _NoCounterpartError(f"the actuator {sensor.actuator!r} was left out")
            if follows and isinstance(sensor, JointSensor) and sensor.quantity == "actuator_force":
                raise _NoCounterpartError(
                    "joints follow others, so the force of the actuators of one joint is not known"
                )
            sensors.append(sensor)
        except _NoCounterpartError as error:
            left_out.append((name, str(error)))
    return RobotSensors(sensors, left_out)


class _NoCounterpartError(Exception):
    """The reason why jaxrbd has no such sensor."""


def _sensor(source: Source, index: int, name: str, sites: Mapping[str, str]) -> Sensor:
    """The sensor with this index. Raises _NoCounterpartError if jaxrbd has no such sensor."""
    m, kind = source.m, source.kind("Sensor", source.m.sensor_type[index])
    for field in ("delay", "interval"):
        if np.any(source.field(f"sensor_{field}", np.zeros(m.nsensor))[index]):
            raise _NoCounterpartError(f"it has the attribute {field}")
    cutoff = float(m.sensor_cutoff[index])
    options: dict[str, Any] = {
        "cutoff": cutoff if cutoff > 0 else np.inf,
        "noise": float(m.sensor_noise[index]),
    }
    element = int(m.sensor_objid[index])
    if kind in _FRAMES:
        frame, X = _place(source, sites, int(m.sensor_objtype[index]), element)
        if kind == "magnetometer":
            options["magnetic_field"] = np.array(m.opt.magnetic)
        elif m.sensor_refid[index] >= 0:
            reference, X_RO = _place(
                source, sites, int(m.sensor_reftype[index]), int(m.sensor_refid[index])
            )
            options |= {"reference": reference, "X_RO": X_RO}
        return FrameSensor(name, _FRAMES[kind], frame, X, **options)
    if kind in _JOINTS:
        if kind == "jointactfrc" and source.field("jnt_actgravcomp", np.zeros(m.njnt))[element]:
            raise _NoCounterpartError("the force of the joint's actuator includes actuatorgravcomp")
        return JointSensor(name, _JOINTS[kind], source.joints[element], **options)
    if kind in _TENDONS:
        return TendonSensor(name, _TENDONS[kind], source.tendons[element], **options)
    if kind in _ACTUATORS:
        return ActuatorSensor(name, _ACTUATORS[kind], source.actuators[element], **options)
    if kind in _STATES:
        return StateSensor(name, _STATES[kind], **options)
    if kind not in _SUBTREES:
        raise _NoCounterpartError(f"jaxrbd has no sensor of the kind {kind!r}")
    if not kind.startswith("subtree"):  # a force or torque sensor at a site
        H = source.pose(m.site_pos[element], m.site_quat[element])
        options["X_FP"], element = _pose(H), int(m.site_bodyid[element])
    return _subtree(source, element, name, _SUBTREES[kind], options)


def _place(
    source: Source, sites: Mapping[str, str], object_type: int, element: int
) -> tuple[str | None, Pose | None]:
    """The frame of an element (a body, geom, site or camera), and its pose in this frame."""
    m, kind = source.m, source.kind("Obj", object_type)
    if kind == "site":
        return sites[source.sites[element]], None
    if kind == "xbody":
        return (source.bodies[element], None) if element else (None, None)
    if kind == "camera" and source.kind("CamLight", m.cam_mode[element]) != "fixed":
        raise _NoCounterpartError("its camera is not fixed to a body")
    if kind == "body":  # the principal axes of the body, at its center of mass
        body, H = element, source.pose(m.body_ipos[element], m.body_iquat[element])
    elif kind == "geom":
        body, H = m.geom_bodyid[element], source.pose(m.geom_pos[element], m.geom_quat[element])
    else:
        body, H = m.cam_bodyid[element], source.pose(m.cam_pos[element], m.cam_quat[element])
    return (source.bodies[body] if body else None), _pose(H)


def _subtree(
    source: Source, body: int, name: str, quantity: str, options: dict[str, Any]
) -> SubtreeSensor:
    """The sensor of a body and of all bodies below it.

    If no joint moves the body in its parent, the sensor needs the inertia of all bodies that are
    fixed to the body, and the names of the moving bodies on them.
    """
    m = source.m
    if body == 0:
        return SubtreeSensor(name, quantity, None, **options)
    if m.body_jntnum[body]:
        return SubtreeSensor(name, quantity, source.bodies[body], **options)
    inertia, carried = np.zeros(10), []
    poses = {body: np.eye(4)}  # of the bodies that are fixed to the body
    for child in range(body, m.nbody):
        if child > body:
            parent = int(m.body_parentid[child])
            if parent not in poses:
                continue
            if m.body_jntnum[child]:
                carried.append(source.bodies[child])
                continue
            H = source.pose(m.body_pos[child], m.body_quat[child])
            poses[child] = poses[parent] @ H
        H = poses[child] @ source.pose(m.body_ipos[child], m.body_iquat[child])
        inertia += link_inertia(
            m.body_mass[child], H[:3, 3], np.diag(m.body_inertia[child]), H[:3, :3]
        )
    frame = source.bodies[body]
    return SubtreeSensor(name, quantity, frame, inertia=inertia, carried=carried, **options)


def _pose(H: np.ndarray) -> Pose:
    R: Any = H[:3, :3].copy()
    p: Any = H[:3, 3].copy()
    return Pose(R, p)
