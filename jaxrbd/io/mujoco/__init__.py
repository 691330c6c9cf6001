"""Read MJCF files and compiled models of MuJoCo: `pip install mujoco`.

MuJoCo reads and compiles the file, and this package converts the compiled model. So defaults,
includes, orientations and meshes have the meaning that they have in MuJoCo.
"""

from .bodies import MujocoBodies
from .coordinates import MujocoCoordinates, MujocoPose, mujoco_pose, pose_from_mujoco
from .imported import (
    Imported,
    Keyframe,
    from_mujoco,
    inspect_and_load_mjcf as inspect_and_load_mjcf,
    inspect_mjcf,
    is_mjcf,
    load_mjcf,
)

__all__ = [
    "Imported",
    "Keyframe",
    "MujocoBodies",
    "MujocoCoordinates",
    "MujocoPose",
    "from_mujoco",
    "inspect_mjcf",
    "is_mjcf",
    "load_mjcf",
    "mujoco_pose",
    "pose_from_mujoco",
]
