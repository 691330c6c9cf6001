"""`from_pinocchio`, and the maps between the coordinates of Pinocchio and of jaxrbd.

Every joint kind is tested on models built by hand. Real robots are tested in two ways: their
parameters are the parameters that `load_urdf` reads, and a few robots have Pinocchio's results.
"""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from jaxrbd.errors import ArgumentError, ModelError
from jaxrbd.io.pinocchio import coordinate_map, from_pinocchio
from support import oracles, pinocchio_kinds as kinds, real_robots
from support.pinocchio_models import load_oracle, pin, symmetric
from support.zoo import close

PARAMETERS = """
    inertia gravity armature friction lower_position_limit upper_position_limit velocity_limit
    effort_limit
""".split()
# Files with bounded joints without position limits: Pinocchio reads 0, `load_urdf` no limit.
WITHOUT_LIMITS = (
    "centauro_description/urdf/centauro.urdf",
    "quadruped_description/urdf/quadruped.urdf",
)
# A free-flyer on a robot of each size, and mimic joints; of the robots of the default run.
CASES = [
    ("double_pendulum_description/urdf/double_pendulum.urdf", None),
    ("panda_description/urdf/panda.urdf", "free_flyer"),
    ("tiago_description/robots/tiago.urdf", None),
]
CASES += [
    pytest.param(name, root, marks=pytest.mark.slow)
    for name in real_robots.ROBOTS
    for root in (None, "free_flyer")
    if (name, root) not in CASES
]

pytestmark = pytest.mark.filterwarnings("ignore::jaxrbd.InertiaWarning")


@functools.cache
def every_kind():
    """Both models of two alternating chains with every joint kind, and the map between them."""
    joints = kinds.kinds()
    pin_model = kinds.build(joints, kinds.alternating(len(joints)))
    model = from_pinocchio(pin_model)
    return pin_model, model, coordinate_map(pin_model, model)


@functools.partial(jax.jit, compiler_options=oracles.QUICKLY)
def quantities(model, q, v, a):
    kinematics = jaxrbd.forward_kinematics(model, q)
    return kinematics.X_WB, jaxrbd.crba(model, kinematics), jaxrbd.rnea(model, q, v, a)


def random_state(pin_model, seed):
    """A random state in the coordinates of Pinocchio."""
    rng = np.random.default_rng(seed)
    v, a, dq = rng.uniform(-2, 2, (3, pin_model.nv))
    return pin.integrate(pin_model, pin.neutral(pin_model), dq), v, a


def mass_matrix(pin_model, data, q):
    """M by inverse dynamics: `pinocchio.crba` supposes that joints are in depth-first order."""
    rest = np.zeros(pin_model.nv)
    bias = pin.rnea(pin_model, data, q, rest, rest).copy()
    columns = [pin.rnea(pin_model, data, q, rest, e) - bias for e in np.eye(pin_model.nv)]
    return np.transpose(columns)


def assert_same_dynamics(pin_model, model, coordinates, mass_matrix):
    data = pin_model.createData()
    for seed in range(2):
        q, v, a = random_state(pin_model, seed)
        imported = coordinates.q(q), *map(coordinates.v, (v, a))
        X_WB, M, tau = quantities(oracles.nameless(model), *imported)
        close(coordinates.v_pin(tau), pin.rnea(pin_model, data, q, v, a), 1e-12, "rnea")
        expected = mass_matrix(pin_model, data, q)
        close(coordinates.pinocchio_mass_matrix(M), expected, 1e-12, "M")
        close(coordinates.mass_matrix(expected), M, 1e-12, "M")
        pin.forwardKinematics(pin_model, data, q)
        oMi = np.array([X.homogeneous for X in data.oMi])
        close(coordinates.oMi(X_WB), oMi, 1e-12, "poses")
        if pin_model.njoints - 1 == model.nb:
            jax.tree.map(functools.partial(close, tolerance=1e-12), coordinates.X_WB(oMi), X_WB)


# ------------------------------------------------------------------------------- models by hand


def test_every_joint_kind_in_an_order_that_is_not_depth_first():
    pin_model, model, coordinates = every_kind()
    assert coordinates.v_index != tuple(range(model.nv))
    assert (model.name, model.nv) == ("hand built", pin_model.nv)
    assert_same_dynamics(pin_model, model, coordinates, mass_matrix)


def test_parameters_are_at_the_entries_of_their_joint():
    pin_model, model, coordinates = every_kind()
    for field, theirs in {
        "armature": pin_model.armature,
        "damping": pin_model.damping,
        "friction": pin_model.friction,
        "velocity_limit": pin_model.upperVelocityLimit,
        "effort_limit": pin_model.upperEffortLimit,
    }.items():
        np.testing.assert_array_equal(coordinates.v_pin(getattr(model, field)), theirs)
    np.testing.assert_array_equal(model.gravity, pin_model.gravity.linear)
    unlimited = np.isinf(model.lower_position_limit)
    entries = np.array(coordinates.q_index)
    assert np.sum(unlimited) == 4 + 1 + 4 + 4 + 1 + 4 + 1  # the next test names the joints
    for field in ("lower", "upper"):
        ours = np.asarray(getattr(model, f"{field}_position_limit"))
        theirs = getattr(pin_model, f"{field}PositionLimit")[entries]
        np.testing.assert_array_equal(ours[~unlimited], theirs[~unlimited])
        assert np.array_equal(np.isinf(ours), unlimited)


def test_angles_and_quaternions_have_no_limits():
    pin_model, model, _ = every_kind()
    lower, upper = model.lower_position_limit, model.upper_position_limit
    assert np.all(np.isinf([lower[model.joint("RUBY").q], upper[model.joint("RUBY").q]]))
    for joint, bounded in {"FreeFlyer": 3, "Planar": 2, "Spherical": 0}.items():
        for limits, theirs in (
            (lower, pin_model.lowerPositionLimit),
            (upper, pin_model.upperPositionLimit),
        ):
            start = pin_model.joints[pin_model.getJointId(joint)].idx_q
            ours = np.asarray(limits[model.joint(joint).q])
            np.testing.assert_array_equal(ours[:bounded], theirs[start : start + bounded])
            assert np.all(np.isinf(ours[bounded:])), joint


def test_round_trips_are_exact():
    pin_model, _, coordinates = every_kind()
    q, v, _ = random_state(pin_model, 3)
    M = np.outer(v, 1 + v)
    close(coordinates.q_pin(coordinates.q(q)), q, 1e-15)
    np.testing.assert_array_equal(coordinates.v_pin(coordinates.v(v)), v)
    np.testing.assert_array_equal(coordinates.pinocchio_mass_matrix(coordinates.mass_matrix(M)), M)
    ours = coordinates.q(q)
    close(coordinates.q(coordinates.q_pin(ours)), ours, 1e-15)


@pytest.mark.slow
def test_maps_work_in_transformations():
    pin_model, _, coordinates = every_kind()
    qs = jnp.stack([random_state(pin_model, seed)[0] for seed in range(3)])
    imported = jax.jit(jax.vmap(coordinates.q))(qs)
    close(jax.vmap(coordinates.q_pin)(imported), qs, 1e-15)
    slope = jax.jacfwd(lambda q: coordinates.q(coordinates.q_pin(q)))
    close(slope(imported[0]), np.eye(imported.shape[1]), 1e-12)


def test_a_compound_joint_is_a_chain_of_joints():
    _, model, coordinates = every_kind()
    assert len(model.joint("Composite").bodies) == 6
    assert model.body_names[model.joint("Composite").bodies[-1]] == "Composite"
    assert model.joint("CompositeOfOne").bodies == (model.joint_names.index("CompositeOfOne"),)
    with pytest.raises(ArgumentError, match=r"24 bodies, the model has 32 bodies"):
        coordinates.X_WB(np.zeros((25, 4, 4)))


def with_mimics():
    """Each kind of joint with one dof, and a joint that follows it."""
    joints = {
        "screw": pin.JointModelHelicalUnaligned(kinds.AXIS, 0.25),
        "hinge": pin.JointModelRY(),
        "wheel": pin.JointModelRUBZ(),
        "slider": pin.JointModelPX(),
        "wheel's follower": pin.JointModelRUBX(),
        "hinge's follower": pin.JointModelRevoluteUnaligned(kinds.AXIS),
        "slider's follower": pin.JointModelPrismaticUnaligned(kinds.AXIS),
        "screw's follower": pin.JointModelPZ(),
    }
    pin_model = kinds.build(joints, [0, 1, 1, 2, 3, 4, 5, 4])
    for k, follower in enumerate([name for name in joints if "'" in name]):
        places = map(pin_model.getJointId, (follower.partition("'")[0], follower))
        pin_model = pin.transformJointIntoMimic(pin_model, *places, 0.5 - k, 0.3 + 0.2 * k)
    return pin_model


def test_mimic_joints():
    pin_model = with_mimics()
    model = from_pinocchio(pin_model)
    assert (model.nb, model.nq, model.nv) == (8, 4, 4)
    assert_same_dynamics(pin_model, model, coordinate_map(pin_model, model), mass_matrix)


def test_frames():
    pin_model = pin.Model()
    at = pin.SE3(np.eye(3), np.array([0.1, 0.2, 0.3]))
    hip = pin_model.addJoint(0, pin.JointModelRX(), at, "hip")
    knee = pin_model.addJoint(hip, pin.JointModelRX(), at, "knee")
    for joint in (hip, knee):
        pin_model.appendBodyToJoint(joint, pin.Inertia.Random(), pin.SE3.Identity())
        pin_model.addJointFrame(joint)
    types = pin.FrameType
    for name, joint, X, kind in (
        ("ground", 0, pin.SE3.Identity(), types.BODY),
        ("thigh", hip, pin.SE3.Identity(), types.BODY),
        ("second thigh", hip, pin.SE3.Identity(), types.BODY),
        ("knee", knee, at, types.BODY),  # it is away from the joint "knee"
        ("foot", knee, at, types.FIXED_JOINT),
        ("thigh", knee, at, types.OP_FRAME),
        ("imu", hip, at, types.SENSOR),
    ):
        pin_model.addFrame(pin.Frame(name, joint, 0, X, kind))
    model = from_pinocchio(pin_model)
    assert model.body_names == ("thigh", "knee (body)")
    found = dict(zip(model.frame_names, model.frame_bodies))
    names = ["ground", "thigh", "second thigh", "knee", "knee (body)", "foot", "thigh (op_frame)"]
    assert found == dict(zip([*names, "imu"], [-1, 0, 0, 1, 1, 1, 1, 0]))
    positions = dict(zip(model.frame_names, np.asarray(model.frame_pose.p).tolist()))
    apart = {name for name, p in positions.items() if p == [0.1, 0.2, 0.3]}
    assert apart == {"knee", "foot", "thigh (op_frame)", "imu"}
    assert model.frame_index("hip") == model.frame_index("thigh")


def test_the_inertia_of_the_universe_is_not_part_of_the_model():
    pin_model = kinds.build({"j": pin.JointModelRX()}, [0])
    mass = pin_model.inertias[1].mass
    pin_model.appendBodyToJoint(0, pin.Inertia.Random(), pin.SE3.Random())
    close(jaxrbd.total_mass(from_pinocchio(pin_model)), mass)


def test_links_on_the_universe_keep_their_inertia():
    """Pinocchio has the sum of their inertias, which the first of these links gets."""
    pin_model = kinds.build({"j": pin.JointModelRX()}, [0])
    inertia, pose = pin.Inertia.Random(), pin.SE3.Random()
    pin_model.appendBodyToJoint(0, inertia, pose)
    pin_model.addBodyFrame("base", 0, pin.SE3.Random(), 0)
    pin_model.addBodyFrame("bolt", 0, pin.SE3.Random(), 0)
    model = from_pinocchio(pin_model)
    fixed = [name for name, body in zip(model.frame_names, model.frame_bodies) if body < 0]
    assert fixed == ["base", "bolt"]
    base = pin_model.frames[pin_model.getFrameId("base")].placement
    moved = base.actInv(pose.act(inertia))
    expected = jaxrbd.model.link_inertia(moved.mass, moved.lever, moved.inertia)
    close(model.fixed_inertia, np.array([expected, np.zeros(10)]))


# ------------------------------------------------------------------------------------ real robots


@pytest.mark.parametrize("name", real_robots.mostly_slow())
def test_the_model_is_the_model_of_the_file(name):
    mimic = name in real_robots.MIMIC and name not in real_robots.LEADER_COMES_LATER
    pin_model = load_oracle(name, "free_flyer", mimic)
    model, expected = from_pinocchio(pin_model), real_robots.load(name, "free_flyer", mimic)
    for field in ("joint_names", "body_names", "topology", "joint_bodies"):
        assert getattr(model, field) == getattr(expected, field), field
    for field in PARAMETERS:
        ours, theirs = (np.array(getattr(m, field)) for m in (model, expected))
        if "position" in field:
            absent = np.isfinite(ours) & np.isinf(theirs)
            assert np.any(absent) == (name in WITHOUT_LIMITS)
            assert np.all(ours[absent] == 0)
            ours[absent] = theirs[absent]
        np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-14, err_msg=field)
    independent = np.zeros(len(model.damping), bool)
    independent[... if model.coupling is None else [*model.coupling.v_independent]] = True
    ours, theirs = np.asarray(model.damping), np.asarray(expected.damping)
    close(ours[independent], theirs[independent], 1e-14)
    assert not np.any(ours[~independent]), "Pinocchio has no damping of mimic joints"
    for part in ("placement", "joints", "coupling"):
        for ours, theirs in zip(*(jax.tree.leaves(getattr(m, part)) for m in (model, expected))):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14, err_msg=part)
    places = np.array([model.frame_names.index(frame) for frame in expected.frame_names])
    assert tuple(np.array(model.frame_bodies)[places].tolist()) == expected.frame_bodies
    for ours, theirs in zip(model.frame_pose, expected.frame_pose):
        np.testing.assert_allclose(np.asarray(ours)[places], theirs, rtol=0, atol=1e-14)
    coordinates = coordinate_map(pin_model, expected)
    assert coordinates.bodies == tuple(range(model.nb))
    q = random_state(pin_model, 0)[0]
    close(jax.jit(lambda q: coordinates.q_pin(coordinates.q(q)))(q), q, 1e-15)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "root_joint"), CASES)
def test_dynamics_of_real_robots(name, root_joint):
    mimic = name in real_robots.MIMIC and name not in real_robots.LEADER_COMES_LATER
    pin_model = load_oracle(name, root_joint, mimic)
    model = from_pinocchio(pin_model)
    coordinates = coordinate_map(pin_model, model)
    oracles.make_room(model)
    assert_same_dynamics(
        pin_model, model, coordinates, lambda *arguments: symmetric(pin.crba(*arguments))
    )


# ---------------------------------------------------------------------------------------- errors


def one_joint(joint, name="elbow"):
    pin_model = pin.Model()
    j = pin_model.addJoint(0, joint, pin.SE3.Identity(), name)
    pin_model.appendBodyToJoint(j, pin.Inertia.Random(), pin.SE3.Identity())
    return pin_model


def followed(scaling, leader=None, follower=None):
    joints = {"hinge": leader or pin.JointModelRX(), "elbow": follower or pin.JointModelRY()}
    return pin.transformJointIntoMimic(kinds.build(joints, [0, 1]), 1, 2, scaling, 0.0)


def with_armature(armature):
    pin_model = one_joint(pin.JointModelRX())
    pin_model.armature = np.array([armature])
    return pin_model


def with_limits(field, lower, upper):
    pin_model = one_joint(pin.JointModelRX())
    setattr(pin_model, f"lower{field}Limit", np.array([lower]))
    setattr(pin_model, f"upper{field}Limit", np.array([upper]))
    return pin_model


REFUSED = {
    "ellipsoid": (lambda: one_joint(pin.JointModelEllipsoid(0.1, 0.2, 0.3)), "Ellipsoid"),
    "ellipsoid in a composite joint": (
        lambda: one_joint(
            kinds.composite((pin.JointModelEllipsoid(0.1, 0.2, 0.3), pin.SE3.Identity()))
        ),
        "Ellipsoid",
    ),
    "empty composite joint": (lambda: one_joint(kinds.composite()), "without joints"),
    "long axis": (
        lambda: one_joint(pin.JointModelPrismaticUnaligned(np.array([0.0, 0.0, 2.0]))),
        "length 2, expected 1",
    ),
    "mimic of a screw": (
        lambda: followed(2.0, leader=pin.JointModelRX(), follower=pin.JointModelHX(0.1)),
        "helical and mimics",
    ),
    "mimic without axis": (lambda: followed(0.0), "scaling 0"),
    "effort limits": (lambda: with_limits("Effort", -1, 2), "RX: its effort limits -1 and 2"),
    "velocity limits": (lambda: with_limits("Velocity", -1, 2), "RX: its velocity limits -1 and 2"),
    "friction": (lambda: with_limits("DryFriction", -1, 2), "RX: its dry friction limits -1 and 2"),
    "negative armature": (
        lambda: with_armature(-1.0),
        "armature .* is negative",
    ),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_carried_is_refused_by_name(make, words):
    with pytest.raises(ModelError, match=f"joint 'elbow'.*{words}") as error:
        from_pinocchio(make())
    assert error.value.joint == "elbow"


def test_a_joint_after_a_free_flyer_is_named():
    pin_model = kinds.build(
        {"base": pin.JointModelFreeFlyer(), "elbow": pin.JointModelRX()}, [0, 1]
    )
    for side, sign in (("lower", -1.0), ("upper", 1.0)):
        limits = np.full(7, sign)
        limits[6] *= 2 + sign
        setattr(pin_model, f"{side}EffortLimit", limits)
    with pytest.raises(ModelError, match=r"joint 'elbow'.*effort limits -1 and 3"):
        from_pinocchio(pin_model)


def test_strict_refuses_an_inertia_that_no_body_has():
    pin_model = pin.Model()
    j = pin_model.addJoint(0, pin.JointModelRX(), pin.SE3.Identity(), "elbow")
    inertia = pin.Inertia(1.0, np.zeros(3), np.diag([1.0, 1.0, 5.0]))
    pin_model.appendBodyToJoint(j, inertia, pin.SE3.Identity())
    with pytest.raises(ModelError, match="triangle inequality"):
        from_pinocchio(pin_model, strict=True)
    with pytest.raises(ArgumentError, match="strict is 'no', expected True or False"):
        from_pinocchio(pin_model, strict="no")


def test_wrong_arguments():
    with pytest.raises(ArgumentError, match=r"pin_model is 'str', expected a pinocchio\.Model"):
        from_pinocchio("robot.urdf")
    pin_model = one_joint(pin.JointModelRX())
    pin_model.gravity.angular = np.array([0.0, 1.0, 0.0])
    with pytest.raises(ArgumentError, match="gravity has the angular part"):
        from_pinocchio(pin_model)


def test_arrays_of_wrong_shapes_and_angles_without_direction():
    pin_model, model, coordinates = every_kind()
    n, nq, nv = pin_model.nq, model.nq, model.nv
    for method, shape, words in (
        (coordinates.q, (nq,), f"q_pin has shape ({nq},), expected ({n},)"),
        (coordinates.q_pin, (2, nq), f"expected ({nq},); batch with jax.vmap"),
        (coordinates.v, (nv + 1,), f"v_pin has shape ({nv + 1},), expected ({nv},)"),
        (coordinates.v_pin, (nv - 1,), f"v has shape ({nv - 1},), expected ({nv},)"),
        (coordinates.mass_matrix, (nv,), f"M_pin has shape ({nv},), expected ({nv}, {nv})"),
        (coordinates.pinocchio_mass_matrix, (nv,), f"M has shape ({nv},), expected ({nv}, {nv})"),
    ):
        with pytest.raises(ArgumentError) as error:
            method(np.zeros(shape))
        assert words in str(error.value)
    # An angle in an array of integers would be rounded.
    with pytest.raises(ArgumentError, match="q_pin has dtype int64, expected floats"):
        coordinates.q(np.ones(n, np.int64))
    with pytest.raises(ArgumentError, match="v is None, expected an array"):
        coordinates.v_pin(None)
    with pytest.raises(ArgumentError, match=r"\(cos, sin\) = \(0, 0\)"):
        coordinates.q(np.zeros(n))
    with pytest.raises(ArgumentError, match=r"the matrix of X_WB has shape \(1, 4, 4\)"):
        coordinates.oMi(jax.tree.map(lambda x: x[:1], model.placement))


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        (pin.JointModelRX(), pin.JointModelPX(), "its kind is Revolute in pin_model, but Prism"),
        (pin.JointModelRX(), pin.JointModelRY(), "its motion subspace is .* in pin_model, "),
        (pin.JointModelHX(0.1), pin.JointModelHX(0.2), "its motion subspace is"),
    ],
)
def test_joints_that_differ_have_no_map(theirs, ours, words):
    with pytest.raises(ArgumentError, match=f"joint 'elbow': {words}"):
        coordinate_map(one_joint(theirs), from_pinocchio(one_joint(ours)))


def test_robots_that_differ_have_no_map():
    one, other = (one_joint(pin.JointModelRX(), name) for name in ("elbow", "knee"))
    with pytest.raises(ArgumentError, match="joint 'elbow' is in pin_model, but not in model"):
        coordinate_map(one, from_pinocchio(other))
    both = kinds.build(dict.fromkeys(("elbow", "knee"), pin.JointModelRX()), [0, 1])
    with pytest.raises(ArgumentError, match="joint 'knee' is in model, but not in pin_model"):
        coordinate_map(one, from_pinocchio(both))
    free = kinds.build({"hinge": pin.JointModelRX(), "elbow": pin.JointModelRY()}, [0, 1])
    for pair in ((free, followed(2.0), "model"), (followed(2.0), free, "pin_model")):
        with pytest.raises(ArgumentError, match=f"'elbow': it follows .* in {pair[2]} only"):
            coordinate_map(pair[0], from_pinocchio(pair[1]))


def test_without_pinocchio_the_error_has_the_command_for_pip(monkeypatch):
    monkeypatch.setitem(sys.modules, "pinocchio", None)
    with pytest.raises(ImportError, match="pip install pin"):
        from_pinocchio(None)
