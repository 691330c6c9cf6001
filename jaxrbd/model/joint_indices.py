"""Indices of the coordinates and velocities of spherical joints and free-flyers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ArgumentError
from .joints_by_name import JointIndices
from .model import Model, joint_kinds


def ball_indices(model: Model, joints: Sequence[str]) -> JointIndices:
    """The indices of the quaternions (n, 4) and of the angular velocities (n, 3).

    Raises ArgumentError for an unknown joint, and for one that is neither spherical nor a
    free-flyer.
    """
    q, v = [], []
    for name in joints:
        body, q_start, v_start = _start(model, name)
        kind = joint_kinds(model)[body]
        if kind.quaternion is None or kind.angular is None:
            raise ArgumentError(f"joint {name!r} is no spherical joint and no free-flyer")
        q.append(q_start + kind.quaternion)
        v.append(v_start + kind.angular)
    return _indices(q, 4, v, 3)


def free_indices(model: Model, joints: Sequence[str]) -> JointIndices:
    """The indices of the coordinates (n, 7) and of the velocities (n, 6) of free-flyers.

    Raises ArgumentError for an unknown joint, and for one of another kind.
    """
    q, v = [], []
    for name in joints:
        body, q_start, v_start = _start(model, name)
        if not is_free(model, body):
            raise ArgumentError(f"joint {name!r} is no free-flyer")
        q.append(q_start)
        v.append(v_start)
    return _indices(q, 7, v, 6)


def is_free(model: Model, body: int) -> bool:
    """Whether the joint of a body is a free-flyer."""
    kind = joint_kinds(model)[body]
    return (kind.nq, kind.nv, kind.quaternion, kind.angular) == (7, 6, 3, 3)


def _start(model: Model, name: str) -> tuple[int, int, int]:
    """The body of a joint, and the indices of the joint's first coordinate and velocity.

    The indices are among the coordinates and velocities of all joints.
    """
    body = model.joint(name).bodies[0]
    v_start = np.cumsum([0, *model.joint_nvs])
    return body, int(model.topology.q_start[body]), int(v_start[body])


def _indices(q: list[int], nq: int, v: list[int], nv: int) -> JointIndices:
    return JointIndices(
        np.array(q, int)[:, None] + np.arange(nq), np.array(v, int)[:, None] + np.arange(nv)
    )
