"""Every URDF file of example-robot-data has the same values here and in Pinocchio."""

import importlib.metadata
import pathlib
import warnings

import numpy as np
import pytest

from jaxrbd.errors import InertiaWarning, LimitWarning, RobotFileError
from jaxrbd.io.urdf import load_urdf, validate_urdf
from support.real_robots import DOUBTFUL_LIMITS, SINGULAR

pin = pytest.importorskip("pinocchio")

# Files that are refused, with the message.
REFUSED = {
    # A robot without name and links. Pinocchio refuses it, too.
    "ur_description/urdf/ur3.urdf": "<robot> has no attribute 'name'",
    # Fingers mimic joints that do not exist. Pinocchio refuses them, too, unless mimic=False.
    "alex_description/urdf/alex_psyonic_hands.urdf": "no joint has this name; mimic=False skips it",
}
# Files that Pinocchio refuses, because a joint comes before the joint that it mimics.
FOLLOWER_BEFORE_LEADER = {
    "romeo_description/urdf/romeo.urdf",
    "talos_data/robots/talos_full_v2.urdf",
    "talos_data/robots/talos_full_v2_box.urdf",
}
# The numbers of links with inertias that no rigid body can have.
UNPHYSICAL = {
    "alex_description/urdf/alex_psyonic_hands.urdf": 4,
    "allegro_hand_description/urdf/allegro_left_hand.urdf": 4,
    "allegro_hand_description/urdf/allegro_right_hand.urdf": 4,
    "anymal_b_simple_description/robots/anymal-kinova.urdf": 1,
    "anymal_b_simple_description/robots/anymal.urdf": 1,
    "anymal_c_simple_description/urdf/anymal.urdf": 5,
    "b1_description/urdf/b1-z1.urdf": 1,
    "b1_description/urdf/b1.urdf": 1,
    "bolt_description/robots/bolt.urdf": 2,
    "go1_description/urdf/go1.urdf": 1,
    "hyq_description/robots/hyq_no_sensors.urdf": 5,
    "pr2_description/urdf/pr2.urdf": 2,
    "romeo_description/urdf/romeo_laas_small.urdf": 5,
    "romeo_description/urdf/romeo_small.urdf": 2,
    "tiago_description/robots/tiago.urdf": 2,
    "tiago_description/robots/tiago_dual.urdf": 2,
    "tiago_description/robots/tiago_no_hand.urdf": 2,
}
# Some revolute joints have a <limit> without bounds: free here, from 0 to 0 in Pinocchio.
WITHOUT_BOUNDS = {
    "centauro_description/urdf/centauro.urdf",
    "quadruped_description/urdf/quadruped.urdf",
}
# Moments of 1e-17 to 1e-35 kg m^2 of either sign. Rounding decides whether they are possible.
NOISE = {"icub_description/robots/icub.urdf", "icub_description/robots/icub_reduced.urdf"}


def robot_files() -> dict[str, pathlib.Path]:
    """The files by their path in the folder of all robots."""
    try:
        files = importlib.metadata.files("example-robot-data") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    paths = [pathlib.Path(str(file.locate())) for file in files if file.suffix == ".urdf"]
    return {path.as_posix().rpartition("/example-robot-data/robots/")[2]: path for path in paths}


FILES = robot_files()
in_every_file = pytest.mark.parametrize("file", sorted({*FILES} - {"ur_description/urdf/ur3.urdf"}))


def load(file, **options):
    """The model of a file. Only the files of the lists may warn about inertias and limits."""
    with warnings.catch_warnings():
        if file in {*UNPHYSICAL, *NOISE, *SINGULAR}:
            warnings.simplefilter("ignore", InertiaWarning)
        if file in DOUBTFUL_LIMITS:
            warnings.simplefilter("ignore", LimitWarning)
        return load_urdf(FILES[file], **options)


def test_all_robots_are_there():
    assert len(FILES) >= 69
    assert {*REFUSED, *FOLLOWER_BEFORE_LEADER, *UNPHYSICAL, *NOISE, *WITHOUT_BOUNDS} <= {*FILES}


@pytest.mark.parametrize("file", REFUSED)
def test_what_is_refused_is_refused_by_pinocchio(file):
    with pytest.raises(RobotFileError, match=REFUSED[file]):
        load(file)
    with pytest.raises(ValueError, match=r"valid URDF|mimic"):
        pin.buildModelFromUrdf(str(FILES[file]), True)


@pytest.mark.parametrize("file", UNPHYSICAL)
def test_unphysical_inertias_are_reported(file):
    faults = validate_urdf(FILES[file])
    assert sum("principal moments" in f or "mass 0" in f for f in faults) == UNPHYSICAL[file]
    singular = sum("has inertia along its motion" in f for f in faults)
    assert (singular > 0) == (file in SINGULAR)
    assert file in REFUSED or len(faults) == UNPHYSICAL[file] + singular


def stacked(*rows):
    return [np.array(column) for column in zip(*rows)]


def assert_same_bodies(model, oracle):
    assert model.joint_names == tuple(oracle.names)[1:]
    assert model.topology.parents == tuple(parent - 1 for parent in oracle.parents[1:])
    if model.nb == 0:
        return
    R, p = stacked(*((X.rotation, X.translation) for X in oracle.jointPlacements[1:]))
    inertia = np.array([inertia.toDynamicParameters() for inertia in oracle.inertias[1:]])
    np.testing.assert_allclose(model.placement.R, R, atol=1e-15)
    np.testing.assert_allclose(model.placement.p, p, atol=1e-15)
    np.testing.assert_allclose(model.inertia, inertia, rtol=1e-13, atol=1e-15)


def assert_same_frames(model, oracle):
    frames = [
        oracle.frames[oracle.getFrameId(name, pin.FrameType.BODY)] for name in model.frame_names
    ]
    assert model.frame_bodies == tuple(frame.parentJoint - 1 for frame in frames)
    R, p = stacked(*((f.placement.rotation, f.placement.translation) for f in frames))
    np.testing.assert_allclose(model.frame_pose.R, R, atol=1e-15)
    np.testing.assert_allclose(model.frame_pose.p, p, atol=1e-15)


def assert_same_limits(model, oracle, file):
    np.testing.assert_array_equal(model.damping, oracle.damping)
    np.testing.assert_array_equal(model.friction, oracle.upperDryFrictionLimit)
    np.testing.assert_array_equal(model.effort_limit, oracle.upperEffortLimit)
    np.testing.assert_array_equal(model.velocity_limit, oracle.upperVelocityLimit)
    first = [joint.idx_q for joint in oracle.joints[1:]]
    lower, upper = oracle.lowerPositionLimit[first], oracle.upperPositionLimit[first]
    # Pinocchio has cos and sin of a continuous joint, with the bound 1.01.
    free = np.array([joint.nq == 2 for joint in oracle.joints[1:]], dtype=bool)
    if file in WITHOUT_BOUNDS:
        free |= (lower == 0) & (upper == 0)
    lower, upper = np.where(free, -np.inf, lower), np.where(free, np.inf, upper)
    np.testing.assert_array_equal(model.lower_position_limit, lower)
    np.testing.assert_array_equal(model.upper_position_limit, upper)


@in_every_file
def test_a_fixed_robot_is_pinocchios(file):
    model = load(file, mimic=False)
    oracle = pin.buildModelFromUrdf(str(FILES[file]), False)
    assert (model.name, model.nv) == (oracle.name, oracle.nv)
    assert_same_bodies(model, oracle)
    assert_same_frames(model, oracle)
    assert_same_limits(model, oracle, file)


@in_every_file
def test_a_flying_robot_is_pinocchios(file):
    model = load(file, mimic=False, root_joint="free_flyer")
    oracle = pin.buildModelFromUrdf(str(FILES[file]), pin.JointModelFreeFlyer(), False)
    assert model.nv == oracle.nv
    assert_same_bodies(model, oracle)
    assert_same_frames(model, oracle)


MIMIC_FILES = [
    file
    for file, path in sorted(FILES.items())
    if b"<mimic" in path.read_bytes() and file not in REFUSED
]


@pytest.mark.parametrize("file", MIMIC_FILES)
def test_mimic_joints_follow_as_in_pinocchio(file):
    model = load(file)
    if file in FOLLOWER_BEFORE_LEADER:
        with pytest.raises(ValueError, match="not in the kinematic tree"):
            pin.buildModelFromUrdf(str(FILES[file]), True)
        assert model.nv < load(file, mimic=False).nv
        return
    oracle = pin.buildModelFromUrdf(str(FILES[file]), True)
    assert model.nv == oracle.nv
    assert_same_bodies(model, oracle)
    followers = {i - 1: oracle.joints[i].extract() for i in oracle.mimicking_joints}
    assert (model.coupling is None) == (not followers)  # <mimic> may be on fixed joints only
    for i, mimic in followers.items():
        assert model.coupling.v_multiplier[i] == mimic.scaling
        assert model.coupling.q_offset[i] == mimic.offset
        assert model.coupling.v_source[i] == mimic.idx_v


def two_links(inside: str, kind: str) -> str:
    inertial = (
        '<inertial><origin xyz="1 2 3" rpy="1 2 3"/><mass value="2"/>'
        '<inertia ixx="1" ixy="0.1" ixz="0.2" iyy="1.5" iyz="0.3" izz="2"/></inertial>'
    )
    return (
        f'<robot name="r" version="1.2"><link name="a"/><link name="b">{inertial}</link>'
        f'<joint name="j" type="{kind}"><parent link="a"/><child link="b"/>{inside}</joint></robot>'
    )


ORIGIN = '<origin xyz="1 2 3" rpy="0.1 0.2 0.3"/>'


@pytest.mark.parametrize(
    ("kind", "inside", "joint"),
    [
        ("floating", ORIGIN, "JointModelFreeFlyer"),
        ("planar", ORIGIN, "JointModelPlanar"),
        ("planar", ORIGIN + '<axis xyz="0 0 1"/>', "JointModelPlanar"),
        ("continuous", ORIGIN + '<axis xyz="0 1 0"/>', "JointModelRUBY"),
        ("continuous", '<origin quat_xyzw="0.1 0.2 0.3 0.4"/>', "JointModelRUBX"),
    ],
)
def test_what_no_robot_of_the_collection_has(kind, inside, joint):
    text = two_links(inside, kind)
    model, oracle = load_urdf(text), pin.buildModelFromXML(text)
    assert oracle.joints[1].shortname() == joint
    assert model.nv == oracle.nv
    assert_same_bodies(model, oracle)
    assert_same_frames(model, oracle)
