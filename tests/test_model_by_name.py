"""A robot's joints, motors and masses by their names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import joints
from jaxrbd.model import JointSpec, Link, Mimic, euler, link_inertia
from support import zoo
from support.zoo import close


@pytest.mark.slow
def test_a_joint_moves_what_its_slices_say():
    """Velocity on the slice of a joint moves its child relative to its parent, and nothing else."""
    model = zoo.everywhere()
    q = zoo.state(model)[0]
    for body, name in enumerate(model.joint_names):
        place = model.joint(name)
        assert place.bodies == (body,)
        v = jnp.zeros(model.nv).at[place.v].set(0.3)
        after = rbd.integrate(model, q, v)
        moved = np.flatnonzero(np.abs(after - q) > 1e-9)
        assert set(moved) <= set(range(model.nq)[place.q])
        V = rbd.body_motions(model, q, v, 0 * v).velocity
        expected = model.topology.supports[body] if place.v.start != place.v.stop else False
        assert np.all((np.abs(V).max(axis=1) > 1e-12) == expected)
    assert model.joint(model.joint_names[-1]).q.stop == model.nq


def test_compound_and_following_joints():
    links = [Link(name, link_inertia(1.0, (0.0, 0.1, 0.2), np.eye(3))) for name in "abc"]
    hinge = joints.Revolute((0.0, 0.0, 1.0))
    specs = [
        JointSpec("base", hinge, None, "a"),
        JointSpec("wrist", euler("zyx"), "a", "b"),
        JointSpec("tail", hinge, "b", "c", mimic=Mimic("base", 2.0)),
    ]
    model = rbd.build_model(links, specs)
    assert model.joint("wrist")[:2] == (slice(1, 4), slice(1, 4))
    assert [model.body_names[i] for i in model.joint("wrist").bodies] == ["wrist.1", "wrist.2", "b"]
    assert model.joint("wrist.2")[:2] == (slice(2, 3), slice(2, 3))
    tail = model.joint("tail")
    assert tail.q.start == tail.q.stop
    assert model.body_names[tail.bodies[-1]] == "c"
    with pytest.raises(rbd.ArgumentError, match=r"no joint 'elbow'.*joints: .*'base'"):
        model.joint("elbow")


def test_motors():
    cart = rbd.load_robot("cart_pole")
    np.testing.assert_array_equal(cart.actuated, [True, False])
    np.testing.assert_array_equal(cart.selection_matrix, [[1.0], [0.0]])
    quadruped = rbd.load_robot("quadruped")
    np.testing.assert_array_equal(quadruped.actuated, np.arange(quadruped.nv) >= 6)
    B = quadruped.selection_matrix
    np.testing.assert_array_equal(B, np.eye(quadruped.nv)[:, 6:])
    assert rbd.load_robot("arm7").actuated.all()
    planar = rbd.load_urdf(rbd.robots.robot_path("arm7"), root_joint="planar")
    np.testing.assert_array_equal(planar.actuated, np.arange(planar.nv) >= 3)
    floating = zoo.small()
    assert not floating.actuated[floating.joint("j0").v].any()

    with pytest.raises(rbd.ArgumentError, match="effort_limit is traced"):
        jax.jit(lambda model: model.selection_matrix @ model.armature[:1])(cart)


def test_another_mass_of_the_same_shape():
    model = zoo.small()
    i = 1
    heavy = model.with_mass(model.body_names[i], 7.0)
    close(heavy.inertia[i], model.inertia[i] * 7.0 / model.inertia[i, 0], 1e-15)
    others = np.arange(model.nb) != i
    np.testing.assert_array_equal(heavy.inertia[others], model.inertia[others])
    by_mass = jax.grad(lambda m: rbd.total_mass(model.with_mass(model.body_names[i], m)))(2.0)
    close(by_mass, 1.0, 1e-15)
    with pytest.raises(rbd.ArgumentError, match="no body 'nothing'"):
        model.with_mass("nothing", 1.0)
    massless = model.with_mass(model.body_names[i], 0.0)
    with pytest.raises(rbd.ArgumentError, match="no mass that could be scaled"):
        massless.with_mass(model.body_names[i], 1.0)


def test_a_payload_is_a_body_welded_to_the_frame(rng):
    """Against the inverse dynamics of a robot with one more link."""
    arm = rbd.load_robot("arm7")
    frame = arm.frame_names[-1]
    com, I_com = rng.normal(size=3), np.diag([0.02, 0.03, 0.04])
    name, (links, specs) = arm.name, rbd.model.describe(arm)
    link = Link("payload", link_inertia(1.5, com, I_com))
    weld = JointSpec("holds", rbd.model.Fixed(), frame, "payload")
    welded = rbd.build_model([*links, link], [*specs, weld], name=name)
    loaded = arm.with_payload(frame, 1.5, com, I_com)
    q, v, a, _ = zoo.state(arm)
    close(rbd.rnea(loaded, q, v, a), rbd.rnea(welded, q, v, a), 1e-12)
    point = arm.with_payload(frame, 1.5)
    close(rbd.total_mass(point), rbd.total_mass(arm) + 1.5, 1e-14)
    with pytest.raises(rbd.ArgumentError, match="fixed to the world"):
        arm.with_payload(arm.frame_names[0], 1.0)
    with pytest.raises(rbd.ArgumentError, match="no frame 'hook'"):
        arm.with_payload("hook", 1.0)
    with pytest.raises(rbd.ArgumentError, match=r"center_of_mass has shape \(2,\) .* expected"):
        arm.with_payload(frame, 1.0, (0.1, 0.2))
    with pytest.raises(rbd.ArgumentError, match=r"mass has shape \(1,\) .* expected \(\)"):
        arm.with_mass(arm.body_names[0], jnp.ones(1))


@pytest.mark.slow
def test_the_frame_of_a_joint_is_the_frame_of_its_child():
    """In every function that takes a frame by name; as the frames of joints in Pinocchio."""
    model = zoo.everywhere()
    q, v, _, _ = zoo.state(model)
    for body, joint in enumerate(model.joint_names):
        assert model.frame_index(joint) == model.frame_names.index(model.body_names[body])
    joint, link = model.joint_names[-1], model.body_names[-1]
    assert joint != link
    for function in (rbd.frame_placement, rbd.frame_jacobian):
        by_joint, by_link = function(model, q, joint), function(model, q, link)
        jax.tree.map(np.testing.assert_array_equal, by_joint, by_link)
    state = rbd.frames.State(model, q, v)
    twist = state.relative_twist(joint)
    np.testing.assert_array_equal(twist.array, state.relative_twist(link).array)
    assert twist.body == joint
    loaded = model.with_payload(joint, 1.0)
    np.testing.assert_array_equal(loaded.inertia, model.with_payload(link, 1.0).inertia)


def test_joint_frames_of_compound_joints_and_of_equal_names():
    links = [Link(name, link_inertia(1.0, (0.0, 0.1, 0.2), np.eye(3))) for name in "abc"]
    hinge = joints.Revolute((0.0, 0.0, 1.0))
    specs = [
        JointSpec("b", hinge, None, "a"),  # the name of the next link
        JointSpec("wrist", euler("zyx"), "a", "b"),
        JointSpec("tail", hinge, "b", "c"),
    ]
    model = rbd.build_model(links, specs)
    frames = {name: model.frame_names[model.frame_index(name)] for name in ("b", "wrist", "tail")}
    assert frames == {"b": "b", "wrist": "b", "tail": "c"}
    assert model.frame_names[model.frame_index("wrist.2")] == "wrist.2"
    mounted = rbd.model.append_model(model, rbd.load_robot("pendulum"), "tail", prefix="on_")
    (pendulum, *_) = mounted.joint(f"on_{rbd.load_robot('pendulum').joint_names[0]}").bodies
    parent = mounted.topology.parents[pendulum]
    assert mounted.body_names[parent] == "c"
    with pytest.raises(rbd.ArgumentError, match=r"no frame 'tial'.*did you mean 'tail'.*frames: "):
        model.frame_index("tial")
    with pytest.raises(rbd.ArgumentError, match=r"no joint 'wirst'.*did you mean 'wrist.3'"):
        model.joint("wirst")
    with pytest.raises(rbd.ArgumentError, match=r"no body 'B'.*did you mean 'b'.*bodies: "):
        model.with_mass("B", 1.0)
