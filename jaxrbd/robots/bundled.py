"""The bundled robots: URDF files in this folder."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..algorithms.kinematics import frame_placements
from ..configuration import neutral
from ..errors import ArgumentError
from ..io.urdf import load_urdf
from ..model import Model
from ..model.names import similar_names

_ROOT_JOINT = {
    "pendulum": None,
    "double_pendulum": None,
    "cart_pole": None,
    "arm7": None,
    "quadruped": "free_flyer",
    "humanoid": "free_flyer",
}


def robot_names() -> tuple[str, ...]:
    """The names of the bundled robots, smallest first."""
    return tuple(_ROOT_JOINT)


def robot_path(name: str) -> Path:
    """The URDF file of a bundled robot. Raises `ArgumentError` for an unknown name."""
    if name not in [*_ROOT_JOINT]:
        hint = similar_names(str(name), robot_names())
        raise ArgumentError(f"name: expected one of {', '.join(_ROOT_JOINT)}; found {name!r}{hint}")
    return Path(__file__).with_name(f"{name}.urdf")


def load_robot(name: str) -> Model:
    """Load a bundled robot; `robot_names` lists the names.

    The quadruped and the humanoid have a free-flyer as root joint; the other robots are welded to
    the world. Raises `ArgumentError` for an unknown name.
    """
    return load_urdf(robot_path(name), root_joint=_ROOT_JOINT[name])


# Joint angles in rad, by the end of the joint's name; all other joints are at 0.
_HOME = {
    "arm7": {"joint_2": 0.5, "joint_4": -1.5, "joint_6": 1.0},
    "quadruped": {"_thigh_joint": 0.7, "_knee_joint": -1.4},
    "humanoid": {"_hip_pitch": -0.3, "_knee": 0.6, "_ankle_pitch": -0.3, "_elbow": -0.5},
}
# The end of the names of the foot frames, and the height in m of these frames in `home_posture`.
_SOLES = {"quadruped": ("_foot", 0.02), "humanoid": ("_sole", 0.0)}


def home_posture(name: str) -> Float[Array, " nq"]:
    """A typical initial configuration (nq,) of a bundled robot, within the joint limits.

    The quadruped and the humanoid stand on the plane z = 0 with bent knees; `q[2]` is the height of
    the frame of the root link in m. The elbow of the arm is bent. For the other robots, the posture
    is the neutral configuration: the pendulum and the double pendulum hang, the pole of the
    cart-pole points up. Raises `ArgumentError` for an unknown name.
    """
    model = load_robot(name)
    angles = np.zeros(model.nq, model.dtype)
    for end, angle in _HOME.get(name, {}).items():
        for joint in model.joint_names:
            if joint.endswith(end):
                angles[model.joint(joint).q] = angle
    q = neutral(model) + angles
    if name not in _SOLES:
        return q
    end, clearance = _SOLES[name]
    soles = [i for i, frame in enumerate(model.frame_names) if frame.endswith(end)]
    return q.at[2].set(clearance - jnp.min(frame_placements(model, q).p[np.array(soles), 2]))
