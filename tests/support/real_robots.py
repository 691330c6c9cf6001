"""The real robots that the oracles are asked about: every URDF file of example-robot-data.

What is special about a file is named here, with the reason; whatever is not named is ordinary, and
the tests fail where a file is not what this module says it is.
"""

import functools
import importlib.metadata
import pathlib
import re
import warnings

import pytest

import jaxrbd

# Files that neither Pinocchio nor jaxrbd reads.
UNREADABLE = {
    "ur_description/urdf/ur3.urdf": "a xacro file that was never expanded: it states no robot",
}

# Robots whose mass matrix is singular at every configuration: their forward dynamics is undefined,
# and `load_urdf` warns.
# (That of icub is singular at its neutral configuration, but not at random ones.)
SINGULAR = {
    "romeo_description/urdf/romeo.urdf": "no link of a finger has mass",
    "romeo_description/urdf/romeo_laas_small.urdf": "neither gripper has mass",
}

# Files whose joints mimic others. The first three Pinocchio reads without its mimic joints only: it
# wants a joint numbered before those that mimic it.
LEADER_COMES_LATER = (
    "romeo_description/urdf/romeo.urdf",
    "talos_data/robots/talos_full_v2.urdf",
    "talos_data/robots/talos_full_v2_box.urdf",
)
MIMIC = (
    *LEADER_COMES_LATER,
    "baxter_description/urdf/baxter.urdf",
    "panda_description/urdf/panda.urdf",
    "panda_description/urdf/panda_collision.urdf",
    "pr2_description/urdf/pr2.urdf",
    "tiago_pro_description/robots/tiago_pro.urdf",
)

# Files that both read without their mimic joints only.
UNREADABLE_MIMIC = {
    "alex_description/urdf/alex_psyonic_hands.urdf": "they mimic joints that the file has not",
}

# Files for which `load_urdf` warns: at least one link's inertia is none that a rigid body can have.
UNPHYSICAL = (
    "alex_description/urdf/alex_psyonic_hands.urdf",
    "allegro_hand_description/urdf/allegro_left_hand.urdf",
    "allegro_hand_description/urdf/allegro_right_hand.urdf",
    "anymal_b_simple_description/robots/anymal-kinova.urdf",
    "anymal_b_simple_description/robots/anymal.urdf",
    "anymal_c_simple_description/urdf/anymal.urdf",
    "b1_description/urdf/b1-z1.urdf",
    "b1_description/urdf/b1.urdf",
    "bolt_description/robots/bolt.urdf",
    "go1_description/urdf/go1.urdf",
    "hyq_description/robots/hyq_no_sensors.urdf",
    "pr2_description/urdf/pr2.urdf",
    "romeo_description/urdf/romeo_laas_small.urdf",
    "romeo_description/urdf/romeo_small.urdf",
    "tiago_description/robots/tiago.urdf",
    "tiago_description/robots/tiago_dual.urdf",
    "tiago_description/robots/tiago_no_hand.urdf",
)

# What long sweeps ask about where time is short: a toy, an arm, a quadruped, a mobile manipulator.
SOME = (
    "double_pendulum_description/urdf/double_pendulum.urdf",
    "panda_description/urdf/panda.urdf",
    "hyq_description/robots/hyq_no_sensors.urdf",
    "tiago_description/robots/tiago.urdf",
)

EXCEPTIONS = (UNREADABLE, SINGULAR, MIMIC, UNREADABLE_MIMIC, UNPHYSICAL)


def _root() -> pathlib.Path | None:
    try:
        files = importlib.metadata.files("example-robot-data") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    marker = "example-robot-data/robots/"
    for file in files:
        if marker in file.as_posix():
            inside = file.as_posix().split(marker)[1]
            path = pathlib.Path(file.locate()).resolve()
            return path.parents[inside.count("/")]
    return None


def _moving_joints(name: str) -> int:
    """Their number, roughly: comments are not read."""
    types = rb"""type=["'](?:revolute|continuous|prismatic)"""
    return len(re.findall(types, path_of(name).read_bytes()))


def path_of(name: str) -> pathlib.Path:
    return ROOT / name


ROOT = _root()
# The names of all files, relative to the folder of robots.
FILES = sorted(file.relative_to(ROOT).as_posix() for file in ROOT.rglob("*.urdf")) if ROOT else []
# Small robots first, so that those of the same tree, which share their programs, come in a row.
ROBOTS = sorted((name for name in FILES if name not in UNREADABLE), key=_moving_joints)


def mostly_slow() -> list:
    """All robots as parameters of a test; it is marked slow for those that are not in `SOME`."""
    return [pytest.param(name, marks=() if name in SOME else pytest.mark.slow) for name in ROBOTS]


@functools.cache
def load(name: str, root_joint: str | None, mimic: bool = False) -> jaxrbd.Model:
    """The model of a file, once it has warned exactly as UNPHYSICAL and SINGULAR say."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = jaxrbd.load_urdf(path_of(name), root_joint=root_joint, mimic=mimic)
    expected = [jaxrbd.InertiaWarning] * ((name in UNPHYSICAL) + (name in SINGULAR))
    assert [w.category for w in caught] == expected, f"{name}: warnings {[*map(str, caught)]}"
    return model
