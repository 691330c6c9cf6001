"""The real robots in Pinocchio, and conversions of its results. Skips tests without Pinocchio."""

import functools

import numpy as np
import pytest

from support import real_robots

pin = pytest.importorskip("pinocchio", reason="Pinocchio has no wheel for this platform")

REFERENCES = {
    "local": pin.ReferenceFrame.LOCAL,
    "world": pin.ReferenceFrame.WORLD,
    "local_world_aligned": pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}
ROOT_JOINTS = {
    "free_flyer": pin.JointModelFreeFlyer,
    "planar": pin.JointModelPlanar,
    "spherical": pin.JointModelSpherical,
    "translation": pin.JointModelTranslation,
}


@functools.cache
def load_oracle(name, root_joint, mimic=False):
    root = [ROOT_JOINTS[root_joint]()] if root_joint else []
    return pin.buildModelFromUrdf(str(real_robots.path_of(name)), *root, mimic=mimic)


def configuration(joints, q):
    """Pinocchio's configuration: (cos, sin) in place of the angle of a continuous joint."""
    parts, start = [np.zeros(0)], 0
    for joint in joints:
        turns = (joint.nq, joint.nv) in {(2, 1), (4, 3)} and "Spherical" not in joint.shortname()
        part = q[start : start + joint.nq - turns]
        start += len(part)
        parts.append([*part[:-1], np.cos(part[-1]), np.sin(part[-1])] if turns else part)
    assert start == len(q)
    return np.concatenate(parts)


def symmetric(upper):
    return np.triu(upper) + np.triu(upper, 1).T


def frame_id(oracle, name):
    return oracle.getFrameId(name, pin.FrameType.BODY)
