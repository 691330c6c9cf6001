"""The real robots of the comparisons: every URDF file of example-robot-data.

The lists below name all files that are special, with the reason. The tests fail if a file is not as
these lists say.
"""

import functools
import importlib.metadata
import pathlib
import re
import warnings
from collections.abc import Iterable, Mapping

import pytest

import jaxrbd
from support import nightly

# Files that neither Pinocchio nor jaxrbd reads.
UNREADABLE = {
    "ur_description/urdf/ur3.urdf": "a xacro file that was never expanded: it states no robot",
}

# Robots whose mass matrix is singular at every configuration: their forward dynamics is undefined,
# and `load_urdf` warns.
# (The mass matrix of icub is singular only at the neutral configuration.)
SINGULAR = {
    "romeo_description/urdf/romeo.urdf": "no link of a finger has mass",
    "romeo_description/urdf/romeo_laas_small.urdf": "neither gripper has mass",
}

# Files whose joints mimic others. Pinocchio reads the first three only without mimic joints,
# because a joint comes before the joint that it mimics.
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

# Files that both libraries read only without mimic joints.
UNREADABLE_MIMIC = {
    "alex_description/urdf/alex_psyonic_hands.urdf": "they mimic joints that the file has not",
}

# Files for which `load_urdf` warns: no rigid body has the inertia of at least one link.
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

# Files for which `load_urdf` warns of limits: velocity limits of 0, and in the first and the third
# file also equal lower and upper limits. Without mimic joints, romeo has more such joints.
DOUBTFUL_LIMITS = (
    "double_pendulum_description/urdf/double_pendulum.urdf",
    "double_pendulum_description/urdf/double_pendulum_continuous.urdf",
    "double_pendulum_description/urdf/double_pendulum_simple.urdf",
    "iris_description/robots/iris.urdf",
    "romeo_description/urdf/romeo.urdf",
)

PANDA = "panda_description/urdf/panda.urdf"
GO2 = "go2_description/urdf/go2.urdf"

# The robots of the default run, one for each structure, with their root joints: two continuous
# joints, an arm with prismatic fingers, a quadruped, a humanoid, wheels with a lift and two arms.
EXAMPLES = {
    "double_pendulum_description/urdf/double_pendulum_continuous.urdf": None,
    PANDA: None,
    GO2: "free_flyer",
    "g1_description/urdf/g1_29dof_rev_1_0.urdf": "free_flyer",
    "tiago_pro_description/robots/tiago_pro.urdf": "free_flyer",
}

# For long tests.
ONE_EXAMPLE = {GO2: EXAMPLES[GO2]}
TWO_EXAMPLES = {name: EXAMPLES[name] for name in (PANDA, GO2)}

# The robots that are compared with MuJoCo.
VARIED = {
    "alex_description/urdf/alex_sake_hands.urdf": "half a humanoid with grippers",
    "baxter_description/urdf/baxter.urdf": "two arms, prismatic fingers",
    "centauro_description/urdf/centauro.urdf": "four legs with wheels and two arms",
    "double_pendulum_description/urdf/double_pendulum_continuous.urdf": "two continuous joints",
    "g1_description/urdf/g1_29dof_rev_1_0.urdf": "a humanoid",
    "go2_description/urdf/go2.urdf": "a quadruped",
    "iris_description/robots/iris.urdf": "four rotors",
    "kinova_description/robots/kinova.urdf": "an arm with continuous joints",
    "panda_description/urdf/panda.urdf": "an arm with prismatic fingers",
    "tiago_pro_description/robots/tiago_pro.urdf": "wheels, a lift, two arms",
}

EXCEPTIONS = (UNREADABLE, SINGULAR, MIMIC, UNREADABLE_MIMIC, UNPHYSICAL, DOUBTFUL_LIMITS)


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
    """The approximate number of moving joints. Joints in comments count, too."""
    types = rb"""type=["'](?:revolute|continuous|prismatic)"""
    return len(re.findall(types, path_of(name).read_bytes()))


def path_of(name: str) -> pathlib.Path:
    return ROOT / name


ROOT = _root()
# The names of all files, relative to the folder of robots.
FILES = sorted(file.relative_to(ROOT).as_posix() for file in ROOT.rglob("*.urdf")) if ROOT else []
# Small robots first, so that robots with the same tree, which share programs, are neighbors.
ROBOTS = sorted((name for name in FILES if name not in UNREADABLE), key=_moving_joints)


def mostly_slow() -> list:
    """All robots as parameters of a test; it is marked slow for those not in `EXAMPLES`."""
    return nightly.all_but(EXAMPLES, ROBOTS)


def with_both_bases(names: Iterable[str], by_default: Mapping[str, str | None] = EXAMPLES) -> list:
    """Robots, each with a fixed base and on a free-flyer, as parameters of a test.

    The robots of `by_default`, with the given root joints, run by default. All other parameters are
    marked slow.
    """
    return [
        pytest.param(
            name,
            root_joint,
            marks=() if by_default.get(name, "none") == root_joint else pytest.mark.slow,
            id=f"{name}-{root_joint or 'fixed'}",
        )
        for name in names
        for root_joint in (None, "free_flyer")
    ]


@functools.cache
def load(name: str, root_joint: str | None, mimic: bool = False) -> jaxrbd.Model:
    """The model of a file, after a check that its warnings are as the lists above state."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = jaxrbd.load_urdf(path_of(name), root_joint=root_joint, mimic=mimic)
    expected = [jaxrbd.InertiaWarning] * ((name in UNPHYSICAL) + (name in SINGULAR))
    expected += [jaxrbd.LimitWarning] * (name in DOUBTFUL_LIMITS)
    assert [w.category for w in caught] == expected, f"{name}: warnings {[*map(str, caught)]}"
    return model
