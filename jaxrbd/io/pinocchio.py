"""Models of Pinocchio as models of jaxrbd, and maps between their coordinates.

`from_pinocchio` makes a `Model` from a `pinocchio.Model`. `coordinate_map` gives the maps between
the coordinates of the two models. The functions need Pinocchio: `pip install pin`.

The two libraries have the same conventions, with these differences:

- The angle of an unbounded revolute joint or of a planar joint is two coordinates (cos, sin) in
  Pinocchio, and one coordinate in jaxrbd.
- jaxrbd numbers the joints depth-first. Pinocchio numbers them in the order in which they were
  added. The two orders are equal for a model that Pinocchio read from a URDF file.
- A universal joint, a spherical ZYX joint or a composite joint `j` of Pinocchio is a chain of
  joints `j.1`, `j.2`, ... in jaxrbd, with massless bodies between them. Its coordinates and
  velocities are the same.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError, ModelError, installation
from ..joints import (
    FreeFlyer,
    Helical,
    Joint,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    Translation,
    subspace_rows,
)
from ..model import Model
from ..model.arguments import as_array, known, require_flag, robot
from ..model.builder import build_model
from ..model.description import Fixed, JointSpec, Link, Mimic, link_inertia
from ..model.editing import describe
from ..model.names import described
from ..spatial import Pose, pose_from_matrix, pose_matrix

__all__ = ["CoordinateMap", "coordinate_map", "from_pinocchio"]

# Kinds of Pinocchio, by `shortname()` without "JointModel". The axis of a joint with one dof is
# read from its motion subspace.
_UNBOUNDED = ("RUBX", "RUBY", "RUBZ", "RevoluteUnboundedUnaligned")
_ONE_DOF: dict[str, type[Joint]] = {
    **dict.fromkeys(("RX", "RY", "RZ", "RevoluteUnaligned", *_UNBOUNDED), Revolute),
    **dict.fromkeys(("PX", "PY", "PZ", "PrismaticUnaligned"), Prismatic),
    **dict.fromkeys(("HX", "HY", "HZ", "HelicalUnaligned"), Helical),
}
_OTHERS: dict[str, type[Joint]] = {
    "FreeFlyer": FreeFlyer,
    "Planar": Planar,
    "Spherical": Spherical,
    "Translation": Translation,
}
_UNLIMITED = float(np.finfo(float).max)  # Pinocchio's value for "no limit"


def from_pinocchio(pin_model: Any, *, strict: bool = False) -> Model:
    """The model of a robot that is given as a `pinocchio.Model`.

    - `strict`: as in `build_model`: raise ModelError in place of an InertiaWarning.

    Joints keep their names, and siblings keep their order. The result has the inertias, placements,
    armature, damping, friction, gravity and limits of `pin_model`. A mimic joint is a joint with
    `Mimic`. The largest float64 as a limit means that there is no limit. Limits of angles given as
    (cos, sin) and of quaternions are not read.

    The frames are all frames of `pin_model`, with two exceptions. "universe" is the world. The
    frame of a moving joint is not stored: `frame_index` accepts the name of the joint. A body of a
    moving joint has the name of the first BODY frame that coincides with the joint frame. Without
    such a frame the body has the name of the joint. If frames of several types have one name, a
    BODY frame keeps the name, and the other frames get their type as a suffix, such as "hand
    (fixed_joint)".

    These fields have no counterpart and are not read: `rotorInertia` and `rotorGearRatio` (the
    algorithms of Pinocchio use `armature` only), `positionLimitMargin` and
    `referenceConfigurations`. The inertia of the universe goes to the first frame that is fixed to
    the world. Without such a frame it is not read.

    Raises ModelError, which names the joint and its kind, for what a `Model` cannot hold: a kind of
    joint that jaxrbd does not have, an axis that is no unit vector, a mimic joint with scaling 0 or
    with a leader that does not have one dof, and limits or dry friction that differ in the two
    directions. Raises ArgumentError for a gravity with an angular part and if `pin_model` is no
    Pinocchio model, and ImportError without Pinocchio. The other errors and the warnings are those
    of `build_model`.
    """
    _check_type(pin_model)
    require_flag(strict, "strict")
    if np.any(pin_model.gravity.angular):
        raise ArgumentError(
            f"pin_model.gravity has the angular part {pin_model.gravity.angular}, expected zero"
        )
    links, joints = _description(pin_model)
    return build_model(
        links,
        joints,
        gravity=np.array(pin_model.gravity.linear),
        name=pin_model.name or "robot",
        strict=strict,
    )


def coordinate_map(pin_model: Any, model: Model) -> CoordinateMap:
    """The maps between the coordinates of a `pinocchio.Model` and a `Model` of the same robot.

    `model`: the result of `from_pinocchio`, or of `load_urdf` for the file from which Pinocchio
    made `pin_model`. The joints of the two models are matched by their names.

    Raises ArgumentError, which names the joint, if a joint is in only one of the models, has
    another kind or another axis, or follows another joint in only one of them. Raises ModelError as
    `from_pinocchio` does, and ImportError without Pinocchio.
    """
    _check_type(pin_model)
    stages = list(_stages(pin_model))
    by_name = {stage.name: stage for stage in stages}
    bodies = {name: body for body, name in enumerate(robot(model).joint_names)}
    for name in [*by_name, *bodies]:
        if name not in bodies or name not in by_name:
            places = ("pin_model", "model") if name in by_name else ("model", "pin_model")
            raise ArgumentError(f"joint {name!r} is in {places[0]}, but not in {places[1]}")
    specs = describe(model)[1][: model.nb]
    for spec in specs:
        if wrong := _mismatch(by_name[spec.name], spec):
            raise ArgumentError(f"joint {spec.name!r}: {wrong}")
    ordered = [by_name[spec.name] for spec in specs if spec.mimic is None]
    starts = np.cumsum([0, *(stage.kind.nq for stage in ordered)])
    last = {stage.joint: bodies[stage.name] for stage in stages}
    return CoordinateMap(
        q_index=_flatten(stage.q_start + np.arange(stage.kind.nq, dtype=int) for stage in ordered),
        v_index=_flatten(stage.v_start + np.arange(stage.kind.nv, dtype=int) for stage in ordered),
        angles=tuple(
            int(start) + stage.angle
            for start, stage in zip(starts, ordered)
            if stage.angle is not None
        ),
        bodies=tuple(last[j] for j in range(1, pin_model.njoints)),
        nb=model.nb,
    )


class CoordinateMap(eqx.Module):
    """The maps between the coordinates of Pinocchio and of jaxrbd for one robot.

    `coordinate_map` returns it. As in `MujocoCoordinates`, the names of methods are the names of
    their results: `q`, `v`, `mass_matrix` and `X_WB` are for jaxrbd, and `q_pin`, `v_pin`,
    `pinocchio_mass_matrix` and `oMi` are for Pinocchio. `v` and `v_pin` also map accelerations a
    and forces tau. The methods are pure functions in JAX of one state; `jax.vmap` applies them to a
    batch. Both directions take NumPy and JAX arrays. The functions of Pinocchio take NumPy arrays:
    use `np.asarray` on the results.

    - `q_index`: (nq,), the index in Pinocchio's q of each entry of jaxrbd's q. For an angle that
      Pinocchio stores as (cos, sin) it is the index of the cosine;
    - `v_index`: (nv,), the index in Pinocchio's v of each entry of jaxrbd's v;
    - `angles`: the indices in jaxrbd's q of the angles that Pinocchio stores as (cos, sin);
    - `bodies`: for joint j of Pinocchio, j = 1, 2, ..., the index of its body in jaxrbd;
    - `nb`: the number of bodies in jaxrbd.
    """

    q_index: tuple[int, ...] = eqx.field(static=True)
    v_index: tuple[int, ...] = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)
    bodies: tuple[int, ...] = eqx.field(static=True)
    nb: int = eqx.field(static=True)

    def q(self, q_pin: ArrayLike) -> Float[Array, " nq"]:
        """The configuration q of jaxrbd for the configuration `q_pin` (nq_pin,) of Pinocchio.

        Angles from (cos, sin) are in [-pi, pi]. Raises ArgumentError if a pair (cos, sin) is zero
        and `q_pin` is not traced.
        """
        q_pin = _shaped(q_pin, "q_pin", (len(self.q_index) + len(self.angles),))
        entries, angles = np.array(self.q_index, int), np.array(self.angles, int)
        q = q_pin[entries]
        if not self.angles:
            return q
        cosines = entries[angles]
        values = known(q_pin)
        if values is not None and not np.all(np.hypot(values[cosines], values[cosines + 1])):
            raise ArgumentError(
                "q_pin has (cos, sin) = (0, 0) for an angle, expected a point of the unit circle; "
                "start from pinocchio.neutral(pin_model)"
            )
        return q.at[angles].set(jnp.arctan2(q_pin[cosines + 1], q_pin[cosines]))

    def q_pin(self, q: ArrayLike) -> Float[Array, " nq_pin"]:
        """The configuration of Pinocchio for the configuration `q` (nq,) of jaxrbd."""
        q = _shaped(q, "q", (len(self.q_index),))
        entries, angles = np.array(self.q_index, int), np.array(self.angles, int)
        source = np.zeros(len(entries) + len(angles), int)
        source[entries] = np.arange(len(entries))
        cosines = entries[angles]
        source[cosines + 1] = angles
        q_pin = q[source]
        if not self.angles:
            return q_pin
        q_pin = q_pin.at[cosines].set(jnp.cos(q[angles]))
        return q_pin.at[cosines + 1].set(jnp.sin(q[angles]))

    def v(self, v_pin: ArrayLike) -> Float[Array, " nv"]:
        """The vector (nv,) of jaxrbd for a velocity, acceleration or force (nv,) of Pinocchio."""
        return _shaped(v_pin, "v_pin", (len(self.v_index),))[np.array(self.v_index, int)]

    def v_pin(self, v: ArrayLike) -> Float[Array, " nv"]:
        """The vector (nv,) of Pinocchio for a velocity, acceleration or force (nv,) of jaxrbd."""
        return _shaped(v, "v", (len(self.v_index),))[np.argsort(self.v_index)]

    def mass_matrix(self, M_pin: ArrayLike) -> Float[Array, "nv nv"]:
        """The mass matrix (nv, nv), or another matrix over the dofs, for a matrix of Pinocchio.

        `M_pin`: (nv, nv), a full matrix. Some functions of Pinocchio compute only the upper
        triangle of a symmetric matrix; fill the lower triangle before the call.
        """
        n = len(self.v_index)
        entries = np.array(self.v_index, int)
        return _shaped(M_pin, "M_pin", (n, n))[np.ix_(entries, entries)]

    def pinocchio_mass_matrix(self, M: ArrayLike) -> Float[Array, "nv nv"]:
        """Pinocchio's mass matrix (nv, nv), or another matrix over the dofs, for M (nv, nv)."""
        n = len(self.v_index)
        order = np.argsort(self.v_index)
        return _shaped(M, "M", (n, n))[np.ix_(order, order)]

    def X_WB(self, oMi: ArrayLike) -> Pose:
        """The poses `X_WB` (nb,) of the bodies in jaxrbd for the joint placements of Pinocchio.

        `oMi`: (njoints, 4, 4), `[X.homogeneous for X in data.oMi]` as one array. Raises
        ArgumentError if the robot has a joint that is a chain of several bodies in jaxrbd, because
        Pinocchio does not have the poses of the bodies inside this chain.
        """
        if len(self.bodies) != self.nb:
            raise ArgumentError(
                f"Pinocchio has the poses of {len(self.bodies)} bodies, the model has {self.nb} "
                f"bodies: compute the poses with jaxrbd.forward_kinematics"
            )
        oMi = _shaped(oMi, "oMi", (self.nb + 1, 4, 4))
        return pose_from_matrix(oMi[1 + np.argsort(self.bodies)])

    def oMi(self, X_WB: Pose) -> Float[Array, "njoints 4 4"]:
        """The placements `oMi` of Pinocchio as matrices, for the poses `X_WB` (nb,) of the bodies.

        The first matrix is the identity, which is the pose of the universe.
        """
        if not isinstance(X_WB, Pose):
            raise ArgumentError(f"X_WB is {described(X_WB)}, expected a Pose of (nb,) poses")
        H = _shaped(pose_matrix(X_WB), "the matrix of X_WB", (self.nb, 4, 4))
        moved = H[np.array(self.bodies, int)]
        return jnp.concatenate([jnp.eye(4, dtype=H.dtype)[None], moved])


def _shaped(x: ArrayLike, name: str, shape: tuple[int, ...]) -> Array:
    """`x` as an array of floats. Raises ArgumentError for another shape or dtype."""
    x = as_array(x, name)
    if x.shape != shape:
        hint = "; batch with jax.vmap" if x.ndim > len(shape) else ""
        raise ArgumentError(f"{name} has shape {x.shape}, expected {shape}{hint}")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ArgumentError(f"{name} has dtype {x.dtype}, expected floats")
    return x


def _flatten(parts: Iterable[np.ndarray]) -> tuple[int, ...]:
    return tuple(np.concatenate([np.zeros(0, int), *parts]).tolist())


# ------------------------------------------------------------------------- joints of Pinocchio


@dataclasses.dataclass(frozen=True)
class _Stage:
    """One joint of jaxrbd: a joint of Pinocchio, or one joint of the chain that replaces it.

    - `joint`: the index of the joint of Pinocchio;
    - `placement`: (4, 4), pose in the previous stage, or in the parent joint for the first stage;
    - `angle`: the index, among the coordinates of the stage, of the angle that Pinocchio stores as
      (cos, sin), or None;
    - `q_start`, `v_start`: the first indices of the stage in Pinocchio's q and v;
    - `mimic`: the rule of a mimic joint, which has no entries in q and v, or None.
    """

    name: str
    joint: int
    kind: Joint
    placement: np.ndarray
    angle: int | None = None
    q_start: int = 0
    v_start: int = 0
    mimic: Mimic | None = None


def _stages(pin_model: Any) -> Iterator[_Stage]:
    """The joints of jaxrbd, in the order of the joints of Pinocchio."""
    neutral = _pinocchio().neutral(pin_model)
    # A mimic joint has the idx_v of its leader, which identifies the leader. The lists
    # `mimicking_joints` and `mimicked_joints` are not used: after `transformJointIntoMimic`, their
    # entries do not always belong together.
    leaders = {
        joint.idx_v: (joint, name)
        for joint, name in list(zip(pin_model.joints, pin_model.names))[1:]
        if joint.nv > 0
    }
    for j in range(1, pin_model.njoints):
        joint, name = pin_model.joints[j], pin_model.names[j]
        place = pin_model.jointPlacements[j].homogeneous
        if _kind(joint) == "Mimic":
            mimic = _mimic(joint, name, *leaders[joint.idx_v])
            kind = _one_dof(joint, name, neutral, joint.extract().scaling)
            yield _Stage(name, j, kind, place, mimic=mimic)
            continue
        stages = _stages_of_joint(joint, name, neutral, place)
        q, v = joint.idx_q, joint.idx_v
        for k, stage in enumerate(stages, start=1):
            stage_name = name if len(stages) == 1 else f"{name}.{k}"
            yield dataclasses.replace(stage, name=stage_name, joint=j, q_start=q, v_start=v)
            q += stage.kind.nq + (stage.angle is not None)
            v += stage.kind.nv


def _stages_of_joint(
    joint: Any, name: str, neutral: np.ndarray, placement: np.ndarray
) -> list[_Stage]:
    """The stages of a joint, without their indices; `placement` is the pose of the first stage."""
    kind = _kind(joint)
    stage = functools.partial(_Stage, name, 0)
    if kind == "Composite":
        composite, stages = joint.extract(), []
        for inner, X in zip(composite.joints, composite.jointPlacements):
            stages += _stages_of_joint(inner, name, neutral, placement @ X.homogeneous)
            placement = np.eye(4)
        if not stages:
            raise ModelError(f"joint {name!r}: a composite joint without joints", joint=name)
        return stages
    if kind == "SphericalZYX":
        z, y, x = (Revolute(axis) for axis in np.eye(3)[::-1])
        return [stage(z, placement), stage(y, np.eye(4)), stage(x, np.eye(4))]
    if kind == "Universal":
        universal = joint.extract()
        first, second = Revolute(universal.axis1), Revolute(universal.axis2)
        return [stage(first, placement), stage(second, np.eye(4))]
    if kind in _ONE_DOF:
        angle = 0 if kind in _UNBOUNDED else None
        return [stage(_one_dof(joint, name, neutral, 1.0), placement, angle)]
    if kind in _OTHERS:
        return [stage(_OTHERS[kind](), placement, 2 if kind == "Planar" else None)]
    known_kinds = ", ".join([*_ONE_DOF, *_OTHERS, "SphericalZYX", "Universal", "Composite"])
    raise ModelError(
        f"joint {name!r}: jaxrbd has no joint of the kind {kind}; it has {known_kinds}, and mimic "
        f"joints outside of composite joints",
        joint=name,
    )


def _one_dof(joint: Any, name: str, neutral: np.ndarray, scaling: float) -> Joint:
    """A joint with one dof; its axis and pitch are from its motion subspace, divided by `scaling`.

    Pinocchio's motion subspace of a mimic joint is for the velocity of the leader: `scaling` times
    the motion subspace for the velocity of the mimic joint.
    """
    data = joint.createData()
    joint.calc(data, neutral)
    linear, angular = np.split(np.ravel(data.S) / scaling, 2)
    kind: Any = _ONE_DOF.get(_kind(joint))
    if kind is None:  # a mimic joint
        kind = Revolute if np.any(angular) else Prismatic
        if kind is Revolute and _translates(joint, data, neutral):
            raise ModelError(
                f"joint {name!r}: it is helical and mimics another joint, and Pinocchio's motion "
                f"subspace of the kind Mimic lacks the pitch, expected a joint that mimics none",
                joint=name,
            )
    axis = linear if kind is Prismatic else angular
    if abs(np.linalg.norm(axis) - 1) > 1e-6:
        raise ModelError(
            f"joint {name!r}: the axis {axis} of the kind {_kind(joint)} has length "
            f"{np.linalg.norm(axis):g}, expected 1",
            joint=name,
        )
    return Helical(axis, float(linear @ angular)) if kind is Helical else kind(axis)


def _translates(joint: Any, data: Any, neutral: np.ndarray) -> bool:
    """Whether the position of a mimic joint depends on the configuration."""
    positions = []
    for change in (0.0, 1.0):
        q = neutral.copy()
        # The leader's coordinate, or the cosine of its angle. If the leader has (cos, sin),
        # Pinocchio allows no follower that translates.
        q[joint.idx_q] += change
        joint.calc(data, q)
        positions.append(np.array(data.M.translation))
    return not np.array_equal(*positions)


def _mimic(joint: Any, name: str, leader: Any, leader_name: str) -> Mimic:
    extracted = joint.extract()
    if extracted.scaling == 0:
        raise ModelError(
            f"joint {name!r}: a joint of the kind Mimic with scaling 0 does not have an axis, "
            f"expected another scaling",
            joint=name,
        )
    if joint.nvExtended != 1 or _kind(leader) not in _ONE_DOF:
        raise ModelError(
            f"joint {name!r}: it mimics joint {leader_name!r} of the kind {_kind(leader)}, "
            f"expected one of {', '.join(_ONE_DOF)}",
            joint=name,
        )
    return Mimic(leader_name, extracted.scaling, extracted.offset)


def _kind(joint: Any) -> str:
    return joint.shortname().removeprefix("JointModel")


def _mismatch(stage: _Stage, spec: JointSpec) -> str | None:
    """The difference of a joint in the two models, in words, or None."""
    kind = spec.kind
    if type(stage.kind) is not type(kind):
        kinds = type(stage.kind).__name__, type(kind).__name__
        return f"its kind is {kinds[0]} in pin_model, but {kinds[1]} in model"
    assert isinstance(kind, Joint)
    found, expected = subspace_rows(kind), subspace_rows(stage.kind)
    if not np.allclose(found, expected, rtol=0, atol=1e-6):
        return f"its motion subspace is {expected.tolist()} in pin_model, {found.tolist()} in model"
    if (stage.mimic is None) != (spec.mimic is None):
        where = "pin_model" if spec.mimic is None else "model"
        return f"it follows another joint in {where} only"
    return None


# -------------------------------------------------------------------------------- description


def _description(pin_model: Any) -> tuple[list[Link], list[JointSpec]]:
    """The links and joints of the robot, for `build_model`."""
    body_names, frames = _frame_names(pin_model)
    parameters = _parameters(pin_model)
    links, joints = [], []
    for j, group in itertools.groupby(_stages(pin_model), key=lambda stage: stage.joint):
        *inner, last = group
        inertia = pin_model.inertias[j]
        links += [Link(stage.name) for stage in inner]
        links.append(
            Link(body_names[j], link_inertia(inertia.mass, inertia.lever, inertia.inertia))
        )
        parent = body_names[pin_model.parents[j]] if pin_model.parents[j] else None
        for stage in [*inner, last]:
            joint = JointSpec(
                name=stage.name,
                kind=stage.kind,
                parent=parent,
                child=body_names[j] if stage is last else stage.name,
                placement=stage.placement,
                mimic=stage.mimic,
                **_stage_parameters(parameters, stage),
            )
            joints.append(joint)
            parent = joint.child
    taken = {joint.name for joint in joints}
    # Pinocchio has one inertia for all links fixed to the world. The first fixed frame gets it.
    fixed = next((frame for _, frame in frames if frame.parentJoint == 0), None)
    for name, frame in frames:
        inertia = np.zeros(10)
        if frame is fixed:
            moved = frame.placement.actInv(pin_model.inertias[0])
            inertia = link_inertia(moved.mass, moved.lever, moved.inertia)
        links.append(Link(name, inertia))
        weld = _unique(f"{name} (welded)", taken, "joint")
        body = body_names[frame.parentJoint] if frame.parentJoint else None
        joints.append(JointSpec(weld, Fixed(), body, name, frame.placement.homogeneous))
    return links, joints


def _frame_names(pin_model: Any) -> tuple[list[str], list[tuple[str, Any]]]:
    """The name of the body of each joint, and the other frames with their names in the model.

    The first name, "", is in the place of the universe and is not used.
    """
    frames = [frame for frame in pin_model.frames if str(frame.type) != "JOINT"][1:]
    body_frames = [frame for frame in frames if str(frame.type) == "BODY"]
    taken = {frame.name for frame in body_frames}
    names = [""]
    at_joints = set()
    for j in range(1, pin_model.njoints):
        coincident = (
            frame
            for frame in body_frames
            if frame.parentJoint == j and np.array_equal(frame.placement.homogeneous, np.eye(4))
        )
        frame = next(coincident, None)
        if frame is not None:
            at_joints.add(frame.name)
        names.append(_unique(pin_model.names[j], taken, "body") if frame is None else frame.name)
    others = []
    for frame in frames:
        if str(frame.type) == "BODY":
            if frame.name not in at_joints:
                others.append((frame.name, frame))
        else:
            others.append((_unique(frame.name, taken, str(frame.type).lower()), frame))
    return names, others


def _unique(name: str, taken: set[str], suffix: str) -> str:
    """The name; if `taken` has it, with the suffix in parentheses. Adds the result to `taken`."""
    name = f"{name} ({suffix})" if name in taken else name
    taken.add(name)
    return name


def _parameters(pin_model: Any) -> dict[str, np.ndarray]:
    """The parameters of all joints, by field of a JointSpec, in the order of Pinocchio."""
    return {
        "lower": _limit(pin_model.lowerPositionLimit),
        "upper": _limit(pin_model.upperPositionLimit),
        "velocity_limit": _limit(_symmetric(pin_model, "velocity", "VelocityLimit")),
        "effort_limit": _limit(_symmetric(pin_model, "effort", "EffortLimit")),
        "friction": _symmetric(pin_model, "dry friction", "DryFrictionLimit"),
        "damping": np.array(pin_model.damping),
        "armature": np.array(pin_model.armature),
    }


def _limit(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) >= _UNLIMITED, np.copysign(np.inf, x), x)


def _symmetric(pin_model: Any, words: str, field: str) -> np.ndarray:
    """The limit in both directions. Raises ModelError, which names a joint, if they differ.

    Before version 4, Pinocchio has one field for both directions. Some functions of version 4 store
    the lower limit without its sign.
    """
    if not hasattr(pin_model, f"upper{field}"):
        old = {"VelocityLimit": "velocityLimit", "EffortLimit": "effortLimit"}
        return np.array(getattr(pin_model, old.get(field, "friction")))
    lower, upper = (np.array(getattr(pin_model, f"{side}{field}")) for side in ("lower", "upper"))
    for i in np.flatnonzero(np.abs(lower) != np.abs(upper)):
        joint = next(
            j
            for j in range(1, pin_model.njoints)
            if 0 <= i - pin_model.joints[j].idx_v < pin_model.joints[j].nv
        )
        name = pin_model.names[joint]
        raise ModelError(
            f"joint {name!r} of the kind {_kind(pin_model.joints[joint])}: its {words} limits "
            f"{lower[i]:g} and {upper[i]:g} differ in the two directions, expected equal values",
            joint=name,
        )
    return upper


def _stage_parameters(parameters: dict[str, np.ndarray], stage: _Stage) -> dict[str, Any]:
    """The parameters of one stage; none for a mimic joint, for which Pinocchio has none."""
    if stage.mimic is not None:
        return {}
    kind = stage.kind
    v = stage.v_start + np.arange(kind.nv, dtype=int)
    chosen: dict[str, Any] = {
        field: x[v] for field, x in parameters.items() if field not in ("lower", "upper")
    }
    # Only the coordinates before an angle as (cos, sin), or before a quaternion, have limits.
    ends = [end for end in (stage.angle, kind.quaternion) if end is not None]
    bounded = min([kind.nq, *ends])
    for field, unlimited in (("lower", -np.inf), ("upper", np.inf)):
        limits = np.full(kind.nq, unlimited)
        limits[:bounded] = parameters[field][stage.q_start : stage.q_start + bounded]
        chosen[field] = limits
    return chosen


def _check_type(pin_model: Any) -> None:
    if not isinstance(pin_model, _pinocchio().Model):
        raise ArgumentError(f"pin_model is {described(pin_model)}, expected a pinocchio.Model")


def _pinocchio() -> Any:
    """The module of Pinocchio. Raises ImportError if it is not installed."""
    try:
        return importlib.import_module("pinocchio")
    except ImportError as error:
        message = f"this function needs {error.name}: {installation('pinocchio')}"
        raise ImportError(message, name=error.name) from error
