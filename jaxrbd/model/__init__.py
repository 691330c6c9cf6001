"""Robots: their descriptions, and the `Model` that the algorithms take.

`build_model` makes a `Model` from `Link`s and `JointSpec`s. `describe` returns the `Link`s and
`JointSpec`s of a `Model`. `lock_joints`, `append_model`, `add_frame` and `place_frames` edit a
model. `load_urdf` and `load_robot` read files.
"""

from .builder import build_model
from .description import (
    Compound,
    Fixed,
    Follow,
    JointSpec,
    Link,
    Mimic,
    euler,
    link_inertia,
    placement_matrix,
    universal,
)
from .editing import add_frame, append_model, describe, lock_joints, place_frames
from .geometry import Geometry, LinkGeometry, Mesh, MeshFile
from .model import Model
from .names import JointPlace

__all__ = [
    "JointPlace",
    "Model",
    # descriptions of links and joints
    "Compound",
    "Fixed",
    "Follow",
    "JointSpec",
    "Link",
    "Mimic",
    "euler",
    "link_inertia",
    "placement_matrix",
    "universal",
    # visual and collision geometry
    "Geometry",
    "LinkGeometry",
    "Mesh",
    "MeshFile",
    # between descriptions and models
    "add_frame",
    "append_model",
    "build_model",
    "describe",
    "lock_joints",
    "place_frames",
]
