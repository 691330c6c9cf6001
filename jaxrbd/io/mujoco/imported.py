"""Models of MuJoCo: from an MJCF file, or from a compiled model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..._math.cast import as_array
from ...actuators import AffineActuators, Delay, Filter
from ...constraints import Constraint
from ...contact import Scene
from ...errors import (
    ArgumentError,
    ContactWarning,
    InertiaWarning,
    ModelError,
    RobotFileError,
    listed,
)
from ...model import Model, arguments, build_model, place_frames
from ...model.joint_space import independent_index
from ...passive import PassiveForces
from ...sensors import RobotSensors
from ...spatial import Pose, compose, inverse
from ...tendons import Tendons
from .actuation import ReadActuators, read_actuators
from .bodies import MujocoBodies, read_bodies
from .coordinates import MujocoCoordinates, read_coordinates
from .equalities import FollowerRules, read_constraints, read_followers
from .geometry import read_scene
from .passive import read_passive
from .sensors import read_sensors
from .softness import soft_scene
from .source import Source, mujoco_module
from .tendons import read_tendons
from .tree import read_tree

MAX_FEATURES = 20  # in one message


class Keyframe(NamedTuple):
    """A keyframe: `q` (nq,), `v` (nv,), and `control` and `activation`, one value per actuator.

    The activation of an actuator without dynamics is zero. `mocap`: the pose of each mocap body,
    for `Imported.place_mocap`.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    control: Float[Array, " n"]
    activation: Float[Array, " n"]
    mocap: dict[str, Pose]


class Imported(NamedTuple):
    """The parts of a model of MuJoCo.

    - `model`: the robot. Every body except the world, and every site, is a frame of the model;
    - `scene`: the ground, the shapes that can touch the ground, and the pairs of shapes that can
      touch each other. If nothing can touch, it is None or, from an import with `soft=True`, a
      scene without contacts, which has the softness of the joint limits;
    - `actuators`: joint forces, as functions of the state and the control;
    - `passive`: springs, gravity compensation, fluid forces, and the damping and the armature that
      `model` cannot state, as functions of the state;
    - `tendons`: all tendons of the file, then the limits of the rotations of ball joints.
      `tendons(model, q, v)` is the generalized force of their springs and their damping;
    - `delays` (n,): the delay of the control of each actuator in s, zero for most; `delay` makes a
      `Delay` from them. `delays_hold`: for each actuator, whether the delayed control is the newest
      control that is at least as old as the delay; otherwise it is interpolated;
    - `filter`: the activation dynamics of the actuators. `filter.push` returns the control for
      `actuators`. It does not change the control of an actuator without dynamics;
    - `sensors`: the sensors of the file by name; a call returns their readings. Sensors without a
      counterpart are in `sensors.left_out` with the reason, also if the import was strict, because
      they change no motion;
    - `constraints`: the equality constraints that are active at the start, without those that
      became joints that follow others (`mimic=True`);
    - `inactive_constraints`: the equality constraints that are not active at the start;
    - `pairs`: the names of the geoms of the pairs of `scene`, without the contacts with the ground.
      A scene without these pairs is faster: `scene.only_ground()`;
    - `keyframes`: the keyframes by name;
    - `sites`: for each site the name of its frame;
    - `q0` (nq,): the configuration that the file states, MuJoCo's `qpos0`;
    - `coordinates`: the map between the coordinates of MuJoCo and of the model;
    - `omitted`: one text per feature that is not carried over; empty if the import was strict. If
      more than four contacts have the same feature, one text states their count and the first
      geoms with their bodies;
    - `body_frames`: for body i + 1 of MuJoCo, entry i is the index of its frame in
      `model.frame_names`. So `frame_placements(model, q).p[np.array(body_frames)]` is `xpos[1:]`;
    - `site_frames`: for each site of MuJoCo, the index of its frame;
    - `mocap`: for each mocap body, the names of the frames of the bodies and sites that it carries.
      `place_mocap` places these bodies;
    - `bodies`: MuJoCo's `cinert`, `cvel` and `cfrc_ext` of its bodies.
    """

    model: Model
    scene: Scene | None
    actuators: AffineActuators
    delays: Float[np.ndarray, " n"]
    delays_hold: tuple[bool, ...]
    filter: Filter
    sensors: RobotSensors
    passive: PassiveForces
    tendons: Tendons
    constraints: tuple[Constraint, ...]
    inactive_constraints: tuple[Constraint, ...]
    pairs: tuple[tuple[str, str], ...]
    keyframes: dict[str, Keyframe]
    sites: dict[str, str]
    q0: Float[Array, " nq"]
    coordinates: MujocoCoordinates
    omitted: tuple[str, ...]
    body_frames: tuple[int, ...]
    site_frames: tuple[int, ...]
    mocap: dict[str, tuple[str, ...]]
    bodies: MujocoBodies

    def delay(self, dt: ArrayLike) -> Delay | None:
        """The delay of the controls for time steps of dt s, or None if no control has a delay. Use:

            past = delay.init(jnp.zeros(n))  # as MuJoCo starts
            past, delayed = delay.push(past, control)  # once per time step
            activation, filtered = filter.push(activation, delayed, dt)

        As the attribute `interp` of the file says, a delayed control is interpolated between two
        controls or, where `delays_hold` is true, is the newest control that is at least as old as
        the delay. Raises ArgumentError for a traced dt, and for a dt that is not positive and
        finite.
        """
        step = arguments.known(dt)
        if step is None or step.dtype == bool or np.ndim(step) or not 0 < step < np.inf:
            raise ArgumentError(f"dt is {dt}, expected a known finite number above 0")
        if not np.any(self.delays):
            return None
        lags = self.delays / float(step)
        # A delay that is a multiple of dt, except for rounding errors, has a lag of whole steps.
        lags = np.where(np.abs(lags - np.round(lags)) < 1e-4, np.round(lags), lags)
        lags = np.where(np.array(self.delays_hold, bool), np.ceil(lags), lags)
        return Delay(lags, max(1, int(np.ceil(np.max(lags)))))

    def place_mocap(self, poses: Mapping[str, Pose | ArrayLike]) -> Model:
        """The model with mocap bodies at these poses in the world, by the names of the bodies.

        A pose is a `Pose` or a matrix (4, 4). It may be traced, and results have derivatives with
        respect to it. `scene` and `constraints` name the frames of mocap bodies, so contacts and
        constraints with this model act where the bodies are. As in MuJoCo, a mocap body has no
        velocity. Raises ArgumentError for a name that is no mocap body, and as
        `model.place_frames`.
        """
        if not isinstance(poses, Mapping):
            raise ArgumentError(f"poses is {poses!r}, expected a mapping from names to poses")
        for name in poses:
            if name not in self.mocap:
                known = listed([repr(body) for body in self.mocap]) or "none"
                raise ArgumentError(f"{name!r} is no mocap body; the mocap bodies are: {known}")
        model, carried = place_frames(self.model, poses), {}
        for name in poses:
            before, after = (_frame_pose(x, name) for x in (self.model, model))
            moved = compose(after, inverse(before))
            carried |= {x: compose(moved, _frame_pose(model, x)) for x in self.mocap[name]}
        return place_frames(model, carried)


def load_mjcf(
    path_or_text: str | os.PathLike[str],
    strict: bool = True,
    *,
    mimic: bool = False,
    soft: bool = False,
) -> Imported:
    """The robot, its actuators and its surroundings from an MJCF file, read by MuJoCo.

    `path_or_text`: a path, or the text of the file: a string that starts with '<'. The other
    arguments, the result and the errors are as in `from_mujoco`; the page "MJCF files" of the
    documentation has a table of features. Needs the package mujoco: `pip install mujoco`.

    Raises RobotFileError, which starts with the name of the file, for a file that MuJoCo cannot
    read, for a file whose outermost element is not `<mujoco>`, and for features that cannot be
    carried over. Source: the XML reference of MuJoCo, as compiled by MuJoCo.
    """
    mujoco = mujoco_module()
    if path_or_text == "" or not isinstance(path_or_text, str | os.PathLike):
        raise ArgumentError(f"path_or_text is {path_or_text!r}, expected a path or a text")
    if isinstance(path_or_text, str):
        path_or_text = path_or_text.removeprefix("\ufeff")  # a byte order mark
    file, read = "<string>", mujoco.MjModel.from_xml_string
    text = path_or_text if isinstance(path_or_text, str) else ""
    if not text.lstrip().startswith("<"):
        file, read = os.fspath(path_or_text), mujoco.MjModel.from_xml_path
    root, fault = _outermost_element(path_or_text)
    if root != "mujoco":
        raise fault or RobotFileError(
            f"expected <mujoco> as the outermost element, found {root!r}", file=file
        )
    try:
        compiled = read(os.fspath(path_or_text))
    except ValueError as error:
        message = f"MuJoCo cannot read the file: {error}"
        if fault is not None:
            text = str(fault).removeprefix(f"{file}:{fault.line}: ")
            raise RobotFileError(f"{text}; {message}", file=file, line=fault.line) from error
        raise RobotFileError(message, file=file) from error
    try:
        found, warned = _import(compiled, strict, mimic, soft)
    except ModelError as error:
        raise RobotFileError(str(error), file=file, link=error.link, joint=error.joint) from error
    for text in warned:
        warnings.warn(f"{file}: {text}", ContactWarning, stacklevel=2)
    return found


def is_mjcf(path: str | os.PathLike[str]) -> bool:
    """Whether the outermost element of a file is `<mujoco>`."""
    try:
        return _outermost_element(path)[0] == "mujoco"
    except RobotFileError:
        return False


def inspect_mjcf(
    path: str | os.PathLike[str],
) -> tuple[list[RobotFileError], list[RobotFileError]]:
    """The errors of `load_mjcf`, and warnings about left-out features, inertias and contacts.

    Raises ArgumentError if mujoco is not installed.
    """
    faults, doubts, _ = inspect_and_load_mjcf(path)
    return faults, doubts


def inspect_and_load_mjcf(
    path: str | os.PathLike[str],
) -> tuple[list[RobotFileError], list[RobotFileError], Imported | None]:
    """The results of `inspect_mjcf`, and of its call of `load_mjcf`, with strict=False.

    The last result is None for a file with errors. Raises ArgumentError as `inspect_mjcf`.
    """
    with warnings.catch_warnings(record=True) as caught:
        for category in (InertiaWarning, ContactWarning):
            warnings.simplefilter("always", category)
        try:
            found = load_mjcf(path, strict=False)
        except RobotFileError as error:
            return [error], [], None
    texts = [f"no counterpart for {feature}" for feature in found.omitted]
    file = os.fspath(path)
    texts += [str(warning.message).removeprefix(f"{file}: ") for warning in caught]
    return [], [RobotFileError(f"warning: {text}", file=file) for text in texts], found


def from_mujoco(
    mj_model: Any, strict: bool = True, *, mimic: bool = False, soft: bool = False
) -> Imported:
    """The robot, its actuators and its surroundings from a compiled model of MuJoCo.

    - `mj_model`: a `mujoco.MjModel`;
    - `strict`: whether to raise ModelError for features that cannot be carried over. Otherwise the
      result is without these features, and `omitted` has texts about them;
    - `mimic`: whether an active equality of two joints makes the first joint follow the second
      joint, with a `Mimic` or a `Follow`. Otherwise the equality is one of `constraints`, as it is
      if its first joint follows or leads another joint already, or its second joint follows one;
    - `soft`: whether contacts and position limits of hinges and slides are soft as in MuJoCo.
      `scene` then has a `Softness` with a row per contact, one with a row per joint velocity, and
      MuJoCo's inverse inertias at `qpos0`. Otherwise they are rigid. Limits of ball joints and
      tendons, equality constraints and dry friction are rigid in both cases.

    The forces and the acceleration of MuJoCo without contacts and constraints are, with the fields
    of the result,

        activation, filtered = filter.push(activation, control, dt)
        tau = actuators(model, q, v, filtered) + passive(model, q, v)
        a = tendon_dynamics(model.with_dissipation(), tendons, q, v, tau)

    if no joint has `frictionloss`. Without tendons, `forward_dynamics` gives this acceleration. The
    parameters of MuJoCo become the following ones:

    - `Model.friction` is MuJoCo's `frictionloss`. MuJoCo treats it as a soft constraint, and jaxrbd
      as Coulomb friction, `-friction sign(v)`, in `passive_force`;
    - `Model.effort_limit` is the largest absolute value of `actuatorfrcrange`. `actuators` hold
      both bounds of the range. The range of a joint that follows another one clips only the forces
      of the actuators on this joint; MuJoCo also counts the forces of tendons and sites;
    - equality constraints are soft in MuJoCo and hard in `jaxrbd.constraints`;
    - `Material` has the friction and the margin of MuJoCo and, with `soft`, the softness.

    Raises ArgumentError for an argument of another type, and ModelError, which names the features
    and their elements, for features that cannot be carried over. Warns with a `ContactWarning`,
    which names the geoms, for each of these cases:

    - a mesh whose hull was replaced by one with fewer vertices, with the error;
    - a robot with a free joint that no contact can support, because contacts of its geoms were left
      out.
    """
    found, warned = _import(mj_model, strict, mimic, soft)
    for text in warned:
        warnings.warn(text, ContactWarning, stacklevel=2)
    return found


def _import(
    mj_model: Any, strict: bool, mimic: bool, soft: bool
) -> tuple[Imported, tuple[str, ...]]:
    """The result of `from_mujoco`, and the texts of its warnings about contacts."""
    for name, value in (("strict", strict), ("mimic", mimic), ("soft", soft)):
        arguments.require_flag(value, name)
    source = Source(mj_model)
    _omit_unsupported(source)
    followers = read_followers(source) if mimic else FollowerRules({}, set())
    gravity = np.zeros(3) if source.disabled("GRAVITY") else np.array(source.m.opt.gravity)
    name = source.m.names[: source.m.names.find(b"\0")].decode() or "robot"
    try:
        source.check_numbers()
        tree = read_tree(source, followers.rules)
        tendons = read_tendons(source, tree.sites)
        drives = read_actuators(source, tendons, tree.sites)
        passive = read_passive(source)
        sensors = read_sensors(source, tree.sites, drives.actuators.names, bool(followers.rules))
        active, inactive = read_constraints(source, followers.equalities, tree.sites, tendons)
        scene, pairs, warned = read_scene(source, soft)
        model = build_model(tree.links, tree.joints, gravity=gravity, name=name)
        if soft:
            scene = soft_scene(source, model, scene)
    except ArgumentError as error:
        raise ModelError(
            "; ".join([f"a value is out of its range: {error}", *source.omitted])
        ) from error
    if strict and source.omitted:
        raise ModelError(
            f"no counterpart for {listed(source.omitted, MAX_FEATURES, '; ')} (strict=False leaves "
            f"this out)"
        )
    coordinates = read_coordinates(source, model)
    keyframes = {
        key: _keyframe(source, model, coordinates, i, drives) for i, key in enumerate(source.keys)
    }
    frames = {name: index for index, name in enumerate(model.frame_names)}
    q0 = _configuration(model, coordinates, source.m.qpos0)
    body_frames = tuple(frames[name] for name in source.bodies[1:])
    found = Imported(
        model=model,
        scene=scene,
        actuators=drives.actuators,
        delays=drives.delays,
        delays_hold=drives.holds,
        filter=drives.filter,
        passive=passive,
        sensors=sensors,
        tendons=tendons,
        constraints=active,
        inactive_constraints=inactive,
        pairs=pairs,
        keyframes=keyframes,
        sites=tree.sites,
        q0=q0,
        coordinates=coordinates,
        omitted=tuple(source.omitted),
        body_frames=body_frames,
        site_frames=tuple(frames[tree.sites[name]] for name in source.sites),
        mocap=tree.mocap,
        bodies=read_bodies(source, tree.links, body_frames),
    )
    return found, warned


def _outermost_element(
    path_or_text: str | os.PathLike[str],
) -> tuple[str | None, RobotFileError | None]:
    """The tag of the outermost element of an XML file, and the error if it is not well-formed.

    MuJoCo reads some files that are not well-formed, for example with "--" in a comment. Raises
    RobotFileError for a file that cannot be read, is empty, or has a DOCTYPE, as `load_urdf` does.
    """
    from .._xml import NotWellFormedError, first_tag, parse_document, written_name

    try:
        return written_name(parse_document(path_or_text).root), None
    except NotWellFormedError as error:
        return first_tag(path_or_text), error


def _configuration(
    model: Model, coordinates: MujocoCoordinates, qpos: np.ndarray
) -> Float[Array, " nq"]:
    """As `coordinates.q`, in NumPy, so JAX compiles nothing."""
    all_joints = qpos[np.array(coordinates.q_index, int)]
    return as_array(all_joints[independent_index(model, "q")], model.dtype)


def _velocity(
    source: Source,
    model: Model,
    coordinates: MujocoCoordinates,
    qpos: np.ndarray,
    qvel: np.ndarray,
) -> Float[Array, " nv"]:
    """As `coordinates.v` with `qpos`, in NumPy, so JAX compiles nothing."""
    qvel = np.array(qvel)
    for joint in filter(source.is_free, range(source.m.njnt)):
        position, linear = source.m.jnt_qposadr[joint], source.m.jnt_dofadr[joint]
        quaternion = np.array(qpos[position + 3 : position + 7])
        source.mj.mju_normalize4(quaternion)
        axes = slice(linear, linear + 3)
        qvel[axes] = source.rotation(quaternion).T @ qvel[axes]
    all_joints = qvel[np.array(coordinates.v_index, int)]
    return as_array(all_joints[independent_index(model, "v")], model.dtype)


def _keyframe(
    source: Source, model: Model, coordinates: MujocoCoordinates, key: int, drives: ReadActuators
) -> Keyframe:
    m = source.m
    q = _configuration(model, coordinates, m.key_qpos[key])
    v = _velocity(source, model, coordinates, m.key_qpos[key], m.key_qvel[key])
    control = m.key_ctrl[key][drives.controls]
    activation = np.append(m.key_act[key], 0)[drives.activations]  # 0 for the index -1
    mocap = {}
    for body in np.flatnonzero(m.body_mocapid >= 0).tolist():
        place = m.body_mocapid[body]
        H = source.pose(
            m.key_mpos[key].reshape(-1, 3)[place], m.key_mquat[key].reshape(-1, 4)[place]
        )
        R, p = (as_array(x, model.dtype) for x in (H[:3, :3], H[:3, 3]))
        mocap[source.bodies[body]] = Pose(R, p)
    control, activation = (as_array(x, model.dtype) for x in (control, activation))
    return Keyframe(q, v, control, activation, mocap)


def _frame_pose(model: Model, name: str) -> Pose:
    index = model.frame_index(name)
    return jax.tree.map(lambda x: x[index], model.frame_pose)


def _omit_unsupported(source: Source) -> None:
    """Add a text to `source.omitted` for each unsupported feature of the whole model.

    The other readers do so for the features of their elements.
    """
    m = source.m
    if source.enabled("OVERRIDE"):
        source.omit("option flag override (parameters of contacts)")
    for kind, count in (("flex", m.nflex), ("plugin", m.nplugin)):
        object_type = getattr(source.mj.mjtObj, f"mjOBJ_{kind.upper()}")
        for i in range(count):
            source.omit(f"{kind} {source.mj.mj_id2name(m, object_type, i) or f'{kind}{i}'!r}")
