"""A compiled MuJoCo model with names for all elements, and a list of unsupported features."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...errors import ArgumentError, installation


def mujoco_module() -> Any:
    """The module `mujoco`. Raises ArgumentError if it is not installed."""
    try:
        import mujoco
    except ImportError as error:
        raise ArgumentError(
            f"MJCF files need the package mujoco: {installation('mujoco')}"
        ) from error
    return mujoco


class Source:
    """A compiled model `m`, the module `mj`, and texts about features without a counterpart.

    - `bodies`, `joints`, `geoms`, `sites`, `actuators`, `equalities`, `keys`, `tendons`,
      `sensors`: the names of the elements by id. An element without a name is called by its kind
      and id, such as "joint3";
    - `omitted`: one text per feature that is not carried over. A text names the feature and the
      element.
    """

    def __init__(self, mj_model: Any):
        self.mj = mujoco_module()
        if not isinstance(mj_model, self.mj.MjModel):
            raise ArgumentError(
                f"mj_model is {type(mj_model).__name__!r}, expected a mujoco.MjModel"
            )
        self.m = mj_model
        self.omitted: list[str] = []
        m = mj_model
        self.bodies = self._names("body", m.nbody)
        self.joints = self._names("joint", m.njnt)
        self.geoms = self._names("geom", m.ngeom)
        self.sites = self._names("site", m.nsite)
        self.actuators = self._names("actuator", len(m.actuator_trntype))
        self.equalities = self._names("equality", m.neq)
        self.keys = self._names("key", m.nkey)
        self.tendons = self._names("tendon", m.ntendon)
        self.sensors = self._names("sensor", m.nsensor)
        # For each actuator the row of its first output in the fields with one row per output.
        self.outputs = self.field("actuator_outadr", np.arange(len(self.actuators)))

    def _names(self, kind: str, count: int) -> list[str]:
        object_type = getattr(self.mj.mjtObj, f"mjOBJ_{kind.upper()}")
        given = [self.mj.mj_id2name(self.m, object_type, i) for i in range(count)]
        taken = {name for name in given if name}
        return [name or fresh_name(f"{kind}{i}", taken) for i, name in enumerate(given)]

    def omit(self, text: str) -> None:
        """Add a text to `omitted`, once."""
        if text not in self.omitted:
            self.omitted.append(text)

    @functools.cached_property
    def geom_kinds(self) -> np.ndarray:
        """The kind of each geom, (ngeom,), such as "sphere"."""
        return np.array([self.kind("Geom", kind) for kind in self.m.geom_type], str)

    @functools.cached_property
    def geom_labels(self) -> list[str]:
        """Each geom and its body, for messages: "'foot' of body 'leg'"."""
        bodies = [self.bodies[body] for body in self.m.geom_bodyid]
        return [f"{geom!r} of body {body!r}" for geom, body in zip(self.geoms, bodies)]

    def geom_in_text(self, geom: int) -> str:
        """As `geom_labels`, but without the body for a geom that has a name in the file."""
        named = self.mj.mj_id2name(self.m, self.mj.mjtObj.mjOBJ_GEOM, geom)
        return repr(named) if named else self.geom_labels[geom]

    def disabled(self, *flags: str) -> bool:
        """Whether one of the flags `mjDSBL_...` is set. Versions of MuJoCo have different flags."""
        bits = [getattr(self.mj.mjtDisableBit, f"mjDSBL_{flag}", 0) for flag in flags]
        return any(int(bit) & self.m.opt.disableflags for bit in bits)

    @property
    def passive_disabled(self) -> bool:
        """Whether all passive forces are disabled: by PASSIVE, or by SPRING and DAMPER together."""
        return self.disabled("PASSIVE") or (self.disabled("SPRING") and self.disabled("DAMPER"))

    def enabled(self, flag: str) -> bool:
        """Whether the flag `mjENBL_...` is set."""
        bit = getattr(self.mj.mjtEnableBit, f"mjENBL_{flag}", 0)
        return bool(int(bit) & self.m.opt.enableflags)

    def field(self, name: str, default: Any = 0) -> np.ndarray:
        """A field of the compiled model; `default` if this version of MuJoCo lacks the field."""
        return np.asarray(getattr(self.m, name, default))

    def kind(self, enumeration: str, value: Any) -> str:
        """The name of a constant: `kind("Joint", 3)` is "hinge", from `mjtJoint.mjJNT_HINGE`."""
        constant = getattr(self.mj, f"mjt{enumeration}")(int(value))
        return constant.name.partition("_")[2].lower()

    def is_free(self, joint: int) -> bool:
        """Whether a joint is a free joint."""
        return self.kind("Joint", self.m.jnt_type[joint]) == "free"

    def is_scalar(self, joint: int) -> bool:
        """Whether a joint is a hinge or a slide, with one coordinate and one velocity."""
        return self.kind("Joint", self.m.jnt_type[joint]) in ("hinge", "slide")

    def transmission(self, actuator: int) -> str:
        """The kind of the transmission of an actuator, such as "joint" or "tendon"."""
        return self.kind("Trn", self.m.actuator_trntype[actuator])

    def driven_joint(self, actuator: int) -> int | None:
        """The hinge or slide that an actuator drives; None for every other transmission."""
        if self.transmission(actuator) in ("joint", "jointinparent"):
            joint = int(self.m.actuator_trnid[actuator, 0])
            return joint if self.is_scalar(joint) else None
        return None

    def gears(self, actuator: int) -> np.ndarray:
        """The six gear ratios of an actuator."""
        return np.array(self.m.actuator_gear[self.outputs[actuator]])

    def gear(self, actuator: int) -> float:
        """The first gear ratio of an actuator."""
        return float(self.gears(actuator)[0])

    def rotation(self, quaternion: np.ndarray) -> np.ndarray:
        """The matrix (3, 3) of a quaternion in MuJoCo's order, wxyz."""
        R = np.zeros(9)
        self.mj.mju_quat2Mat(R, np.asarray(quaternion, float))
        return R.reshape(3, 3)

    def pose(self, position: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
        """The pose (4, 4) with a position and a quaternion wxyz."""
        H = np.eye(4)
        H[:3, :3] = self.rotation(quaternion)
        H[:3, 3] = position
        return H

    def moving_bodies(self) -> np.ndarray:
        """Whether a joint moves each body, (nbody,). Mocap bodies do not move."""
        moves = np.array(self.m.body_jntnum) > 0
        for body in range(1, self.m.nbody):
            moves[body] |= moves[self.m.body_parentid[body]]
        return moves

    def check_numbers(self) -> None:
        """Raise ArgumentError, which names the element and the field, for a NaN in its fields.

        In the fields `_FINITE`, and for springref and qpos0, an infinite number is an error too.
        """
        elements = {
            "body": ("body", self.bodies),
            "jnt": ("joint", self.joints),
            "dof": ("joint", [self.joints[joint] for joint in self.m.dof_jntid]),
            "geom": ("geom", self.geoms),
            "pair": ("pair", self._names("pair", self.m.npair)),
            "site": ("site", self.sites),
            "tendon": ("tendon", self.tendons),
            "actuator": ("actuator", self.actuators),
            "eq": ("equality", self.equalities),
            "sensor": ("sensor", self.sensors),
            "key": ("key", self.keys),
        }
        for field in dir(self.m):
            prefix, _, rest = field.partition("_")
            kind, names = elements.get(prefix, ("", []))
            # MuJoCo computes the fields that end with 0 from the others.
            is_checked = names and rest != "user" and not rest.endswith("0")
            x = getattr(self.m, field) if is_checked else None
            if not isinstance(x, np.ndarray) or x.dtype.kind != "f" or len(x) != len(names):
                continue
            if field == "tendon_lengthspring":
                x = x[:, 0]  # the other length may be infinite
            is_wrong, expected = np.isnan(x), "numbers"
            if field in _FINITE:
                is_wrong, expected = ~np.isfinite(x), "finite numbers"
            wrong = np.flatnonzero(is_wrong.reshape(len(x), -1).any(axis=1))
            if len(wrong):
                name = names[wrong[0]]
                raise ArgumentError(
                    f"{kind} {name!r}: {field} is {x[wrong[0]]}, expected {expected}"
                )
        starts = [*self.m.jnt_qposadr, self.m.nq]
        for joint, start, end in zip(self.joints, starts, starts[1:]):
            if not np.all(np.isfinite(self.m.qpos0[start:end])):
                raise ArgumentError(
                    f"joint {joint!r}: qpos0 is {self.m.qpos0[start:end]}, expected finite numbers"
                )
        for joint in filter(self.is_scalar, range(self.m.njnt)):
            springref = self.m.qpos_spring[self.m.jnt_qposadr[joint]]
            if not np.isfinite(springref):
                raise ArgumentError(
                    f"joint {self.joints[joint]!r}: springref is {springref}, expected a finite "
                    f"number"
                )

    def limits(self, kind: str, index: int, name: str) -> list[float]:
        """The bounds [lower, upper] of a joint or a tendon: its range without the margins.

        MuJoCo's limit acts where the distance from an end of the range is less than the margin. A
        ball joint has no lower bound, because its range is only a largest angle. If the margins
        leave nothing of the range, the bounds are the whole range, and `omitted` gets a text.

        `kind`: "jnt" or "tendon"; `name`: what a message calls the element.
        """
        lower, upper = getattr(self.m, f"{kind}_range")[index].tolist()
        margin = float(getattr(self.m, f"{kind}_margin")[index])
        if kind == "jnt" and not self.is_scalar(index):
            lower, middle = -math.inf, 0.0
        else:
            middle = (lower + upper) / 2
        if upper - margin < middle:
            self.omit(f"{name}: a margin that leaves nothing of the range")
            return [lower, upper]
        return [lower + margin, upper - margin]

    @functools.cached_property
    def carriers(self) -> np.ndarray:
        """For each body, the mocap body that carries it, or 0. A mocap body carries itself."""
        carriers = np.where(self.m.body_mocapid >= 0, np.arange(self.m.nbody), 0)
        for body in range(1, self.m.nbody):
            carriers[body] = carriers[body] or carriers[self.m.body_parentid[body]]
        return carriers

    def static_pose(self, body: int) -> np.ndarray:
        """The pose (4, 4) in the world of a body that no joint moves."""
        H = np.eye(4)
        while body > 0:
            H = self.pose(self.m.body_pos[body], self.m.body_quat[body]) @ H
            body = int(self.m.body_parentid[body])
        return H


# The fields of MuJoCo's compiled model, besides qpos0 and springref, whose numbers must be finite.
_FINITE = (
    "actuator_biasprm",
    "actuator_gainprm",
    "actuator_gear",
    "body_gravcomp",
    "jnt_stiffness",
    "key_qpos",
    "key_qvel",
    "tendon_armature",
    "tendon_damping",
    "tendon_frictionloss",
    "tendon_lengthspring",
    "tendon_stiffness",
)


def fresh_name(name: str, taken: set[str]) -> str:
    """`name`, with underscores appended until it is not in `taken`; it is added to `taken`."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def translation(p: np.ndarray) -> np.ndarray:
    """The pose (4, 4) with the identity rotation."""
    H = np.eye(4)
    H[:3, 3] = p
    return H
