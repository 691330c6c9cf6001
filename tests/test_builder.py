"""Building a model from a description: welding, expansion, numbering, editing, errors."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.joints import Custom, Helical, Prismatic, Revolute, Screw, Spherical
from jaxrbd.model.checks import inertia_faults
from support import zoo
from support.zoo import close

Z = Revolute((0, 0, 1))


def link(name, seed=0):
    return rbd.model.Link(name, zoo.random_inertia(np.random.default_rng(seed)))


def joint(name, parent, child, kind=Z, **fields):
    return rbd.model.JointSpec(name, kind, parent, child, **fields)


# -------------------------------------------------------------------------------- what is built


def test_bodies_are_numbered_depth_first_in_the_order_stated():
    links = [link(n) for n in "abcdef"]
    joints = [
        joint("j1", None, "a"),
        joint("j2", "a", "b"),
        joint("j3", "a", "c"),
        joint("j4", "b", "d"),
        joint("j5", "c", "e", rbd.model.Fixed()),
        joint("j6", "e", "f"),
    ]
    model = rbd.build_model(links, joints)
    assert model.body_names == ("a", "b", "d", "c", "f")
    assert model.joint_names == ("j1", "j2", "j4", "j3", "j6")
    assert model.topology.parents == (-1, 0, 1, 0, 3)
    assert model.frame_names == ("a", "b", "d", "c", "e", "f")


def test_welded_links_add_their_inertia_and_stay_as_frames():
    """A body of three welded links moves as three separate welded links, for any placements."""
    placements = [zoo.random_placement(np.random.default_rng(s)) for s in range(3)]
    links = [link("a", 1), link("b", 2), link("c", 3)]
    joints = [
        joint("j", None, "a", placement=placements[0]),
        joint("w1", "a", "b", rbd.model.Fixed(), placement=placements[1]),
        joint("w2", "b", "c", rbd.model.Fixed(), placement=placements[2]),
    ]
    welded = rbd.build_model(links, joints)
    assert (welded.nb, welded.nq) == (1, 1)
    moving = rbd.build_model(
        links, [dataclasses.replace(j, kind=Z if j.name == "j" else Spherical()) for j in joints]
    )
    q, q_moving = jnp.array([0.4]), rbd.neutral(moving).at[0].set(0.4)
    close(rbd.total_mass(welded), rbd.total_mass(moving))
    close(rbd.center_of_mass(welded, q), rbd.center_of_mass(moving, q_moving))
    close(rbd.crba(welded, q), rbd.crba(moving, q_moving)[:1, :1])
    for frame in "abc":
        X, expected = (
            rbd.frame_placement(m, x, frame) for m, x in ((welded, q), (moving, q_moving))
        )
        close(X.R, expected.R)
        close(X.p, expected.p)


def test_a_robot_without_joints():
    model = rbd.build_model([link("base")], [joint("weld", None, "base", rbd.model.Fixed())])
    assert (model.nb, model.nq, model.nv) == (0, 0, 0)
    none = jnp.zeros(0)
    assert rbd.rnea(model, none, none, none).shape == (0,)
    assert rbd.forward_dynamics(model, none, none, none).shape == (0,)
    assert rbd.aba(model, none, none, none).shape == (0,)
    assert rbd.crba(model, none).shape == rbd.minverse(model, none).shape == (0, 0)
    assert rbd.frame_jacobian(model, none, "base").shape == (6, 0)
    assert rbd.integrate(model, none, none).shape == (0,)
    close(rbd.frame_placement(model, none, "base").R, jnp.eye(3))
    close(rbd.frame_velocity(model, none, none, "base"), jnp.zeros(6))
    close(rbd.center_of_mass(model, none), jnp.zeros(3))
    close(rbd.kinetic_energy(model, none, none), 0.0)


def test_a_frame_on_the_world_does_not_move():
    links, joints = [link("base"), link("a")], [joint("w", None, "base", rbd.model.Fixed())]
    model = rbd.build_model(links, [*joints, joint("j", "base", "a")])
    q = v = jnp.ones(1)
    close(rbd.frame_jacobian(model, q, "base"), jnp.zeros((6, 1)))
    close(rbd.frame_acceleration(model, q, v, v, "base"), jnp.zeros(6))
    close(rbd.external_force(model, q, "base", jnp.ones(6)), jnp.zeros((1, 6)))


def test_compound_joints_become_chains():
    fields = {"lower": (-1, -2, -3), "upper": (1, 2, 3), "armature": (0.1, 0.2, 0.3)}
    model = rbd.build_model(
        [link("a")], [joint("ball", None, "a", rbd.model.euler("zyx"), **fields)]
    )
    assert model.joint_names == ("ball.1", "ball.2", "ball.3")
    assert model.body_names == ("ball.1", "ball.2", "a")
    close(model.lower_position_limit, jnp.array([-1.0, -2.0, -3.0]))
    close(model.armature, jnp.array([0.1, 0.2, 0.3]))
    angles = jnp.array([0.3, -0.5, 1.1])
    expected = rbd.so3.rotation_from_rpy(angles[::-1])
    close(rbd.frame_placement(model, angles, "a").R, expected, 1e-15)


@pytest.mark.parametrize("rule", ["Mimic", "Follow"])
def test_a_compound_joint_of_one_stage_leads_others(rule):
    rules = {
        "Mimic": rbd.model.Mimic("j1", 2.0, 0.5),
        "Follow": rbd.model.Follow(("j1",), lambda x: 2.0 * x[0] + 0.5),
    }
    kind = rbd.model.Compound((Z,))
    joints = [joint("j1", None, "a", kind), joint("j2", "a", "b", mimic=rules[rule])]
    model = rbd.build_model([link("a"), link("b")], joints)
    angle = 0.3 + (2.0 * 0.3 + 0.5)
    X = rbd.frame_placement(model, jnp.array([0.3]), "b")
    close(X.R, rbd.so3.rotation_from_rpy(jnp.array([0.0, 0.0, angle])))


def test_joints_without_coordinates_are_described_beside_followers():
    fixed = Custom(0, lambda q: rbd.Pose(jnp.eye(3, dtype=q.dtype), jnp.ones(3, q.dtype)))
    joints = [
        joint("j1", None, "a"),
        joint("j2", "a", "b", fixed),
        joint("j3", "b", "c", mimic=rbd.model.Mimic("j1")),
        joint("j4", "c", "d", fixed),
    ]
    model = rbd.build_model([link(name) for name in "abcd"], joints)
    described = rbd.model.describe(model)[1]
    assert [j.mimic for j in described] == [None, None, rbd.model.Mimic("j1"), None]


def test_limits_and_their_absence():
    model = rbd.build_model(
        [link("a"), link("b")],
        [joint("j", None, "a", lower=-1, upper=2, effort_limit=5), joint("k", "a", "b")],
    )
    close(model.lower_position_limit[0], -1.0)
    close(model.upper_position_limit[0], 2.0)
    assert model.upper_position_limit[1] == model.velocity_limit[0] == jnp.inf
    assert model.effort_limit.tolist() == [5.0, jnp.inf]


def test_numbers_are_of_the_default_float_and_can_be_cast():
    model = zoo.small()
    assert {x.dtype for x in jax.tree.leaves(model)} == {np.dtype("float64")}
    single = model.astype(jnp.float32)
    assert single.dtype == np.float32
    q = rbd.neutral(single)
    assert q.dtype == rbd.crba(single, q).dtype == np.float32
    assert repr(single) == "Model('robot', nb=3, nq=12, nv=10, frames=3, dtype=float32)"


def test_passive_force_opposes_the_motion():
    model = rbd.build_model(
        [link("a"), link("b")],
        [joint("j", None, "a", damping=0.5, friction=2), joint("k", "a", "b", damping=1)],
    )
    close(rbd.passive_force(model, jnp.zeros(2), jnp.array([3.0, -1.0])), jnp.array([-3.5, 1.0]))
    close(rbd.passive_force(model, jnp.zeros(2), jnp.zeros(2)), jnp.zeros(2))


# --------------------------------------------------------------------------------------- editing


@pytest.mark.parametrize("make", [zoo.connected, zoo.coupled, zoo.everywhere])
def test_a_description_builds_the_same_model(make):
    model = make()
    links, joints = rbd.model.describe(model)
    again = rbd.build_model(links, joints, gravity=np.array(model.gravity))
    chex.assert_trees_all_close(again, model, rtol=1e-14, atol=1e-14)


@pytest.mark.slow
def test_locking_joints_is_holding_them():
    """M of the locked robot is the block of the other joints in M; the frames do not move."""
    model = zoo.connected()
    q, _, _, _ = zoo.state(model)
    held = ["j1", "j4", "j9.1"]
    positions = {}
    keep_q, keep_v = np.ones(model.nq, bool), np.ones(model.nv, bool)
    for name in held:
        i = model.joint_names.index(name)
        q_of = model.topology.q_start[i] + np.arange(model.topology.nqs[i])
        v_of = model.topology.v_start[i] + np.arange(model.topology.nvs[i])
        positions[name], keep_q[q_of], keep_v[v_of] = q[q_of], False, False
    locked = rbd.model.lock_joints(model, positions)
    assert locked.joint_names == tuple(n for n in model.joint_names if n not in held)
    assert set(locked.frame_names) == set(model.frame_names)
    close(rbd.crba(locked, q[keep_q]), rbd.crba(model, q)[np.ix_(keep_v, keep_v)])
    for frame in model.frame_names[::4]:
        close(
            rbd.frame_placement(locked, q[keep_q], frame).p, rbd.frame_placement(model, q, frame).p
        )


@pytest.mark.slow
def test_locking_a_leader_locks_its_followers():
    model = zoo.coupled()
    q = zoo.state(model)[0]
    locked = rbd.model.lock_joints(model, {"j1": q[7]})
    assert locked.joint_names == ("j0", "j5", "j6", "j3")[:1] + tuple(
        n for n in model.joint_names[1:] if n not in ("j1", "j2", "j4")
    )
    rest = jnp.delete(q, 7)
    for frame in model.frame_names:
        close(rbd.frame_placement(locked, rest, frame).p, rbd.frame_placement(model, q, frame).p)


@pytest.mark.slow
def test_appending_mounts_one_robot_on_another():
    base, arm = zoo.connected(), zoo.coupled()
    mount = zoo.random_placement(np.random.default_rng(9))
    both = rbd.model.append_model(base, arm, "l5", mount, prefix="arm_")
    assert (both.nb, both.nq, both.nv) == (base.nb + arm.nb, base.nq + arm.nq, base.nv + arm.nv)
    q_base, q_arm = zoo.state(base)[0], zoo.state(arm)[0]
    q = dict(zip(base.joint_names, np.split(q_base, base.topology.q_start[1:])))
    q_of_arm = np.split(arm.coupling.position(q_arm), arm.topology.q_start[1:])
    q |= dict(zip((f"arm_{n}" for n in arm.joint_names), q_of_arm))
    q_both = jnp.concatenate(
        [
            jnp.asarray(q[name])
            for i, name in enumerate(both.joint_names)
            if both.topology.v_start[i] in both.coupling.v_independent
        ]
    )
    X_WM = rbd.spatial.compose(
        rbd.frame_placement(base, q_base, "l5"), rbd.spatial.pose_from_matrix(jnp.array(mount))
    )
    for frame in arm.frame_names[::2]:
        expected = rbd.spatial.compose(X_WM, rbd.frame_placement(arm, q_arm, frame))
        found = rbd.frame_placement(both, q_both, f"arm_{frame}")
        close(found.p, expected.p)
        close(found.R, expected.R)


EDITS = {
    "lock": lambda model: rbd.model.lock_joints(model, {"j5": (0, 0, 0, 1)}),
    "append": lambda model: rbd.model.append_model(
        model, dataclasses.replace(model, gravity=jnp.ones(3, model.dtype), name="x"), prefix="x_"
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dissipative", [False, True])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_robot_keeps_gravity_name_dissipation_and_dtype(edit, dissipative, dtype):
    model = dataclasses.replace(zoo.coupled(), gravity=jnp.array([1.0, -2, 3]), name="coupled")
    model = model.with_dissipation(dissipative).astype(dtype)
    edited = EDITS[edit](model)
    assert edited.dissipative == dissipative
    assert {x.dtype for x in jax.tree.leaves(edited)} == {np.dtype(dtype)}
    assert edited.gravity.tolist() == [1, -2, 3]
    assert edited.name == "coupled"


def test_appending_keeps_the_numbers_of_both():
    """Limits, damping, friction and armature are those of the joint's own robot."""
    fields = ("damping", "friction", "armature", "lower", "upper", "velocity_limit", "effort_limit")
    robots = []
    for k, name in enumerate("ab"):
        numbers = {field: 10 * k + i + 1.0 for i, field in enumerate(fields)}
        robots.append(rbd.build_model([link(name)], [joint(f"j{name}", None, name, **numbers)]))
    both = rbd.model.append_model(robots[0], robots[1])
    names = [
        field if "_" in field or len(field) > 5 else f"{field}_position_limit" for field in fields
    ]
    for i, field in enumerate(names):
        assert getattr(both, field).tolist() == [i + 1, 10 + i + 1]


def test_an_added_frame_is_a_welded_link_without_mass(tmp_path):
    """On a frame that is not the frame of its body, on a joint, and on the world."""
    model = zoo.small()
    X = zoo.random_placement(np.random.default_rng(8))
    tool = rbd.model.add_frame(model, "tool", "l2", X)
    added = rbd.model.add_frame(rbd.model.add_frame(tool, "tip", "tool", X), "knee", "j1")
    added = rbd.model.add_frame(added, "wall", placement=rbd.spatial.pose_from_matrix(jnp.array(X)))
    assert added.frame_names == (*model.frame_names, "tool", "tip", "knee", "wall")
    links, joints = rbd.model.describe(model)
    on = {"tool": ("l2", X), "tip": ("tool", X), "knee": ("l1", np.eye(4)), "wall": (None, X)}
    for name, (parent, placement) in on.items():
        links.append(rbd.model.Link(name))
        joints.append(joint(f"to {name}", parent, name, rbd.model.Fixed(), placement=placement))
    built = rbd.build_model(links, joints, gravity=np.array(model.gravity))
    for name in built.frame_names:
        i, k = built.frame_index(name), added.frame_index(name)
        assert built.frame_bodies[i] == added.frame_bodies[k]
        close(built.frame_pose.R[i], added.frame_pose.R[k], 1e-14)
        close(built.frame_pose.p[i], added.frame_pose.p[k], 1e-14)
    np.testing.assert_array_equal(added.inertia, model.inertia)
    np.testing.assert_array_equal(added.fixed_inertia[-1], np.zeros(10))
    rbd.io.save_model(added, tmp_path / "model.jaxrbd")
    chex.assert_trees_all_equal(rbd.io.load_model(tmp_path / "model.jaxrbd"), added)


def test_the_placement_of_an_added_frame_is_traced():
    model = zoo.small()
    q = zoo.state(model)[0]

    def place(x):
        X = rbd.Pose(jnp.eye(3), x)
        return rbd.frame_placement(rbd.model.add_frame(model, "camera", "l2", X), q, "camera").p

    rate = jax.jit(jax.jacfwd(place))(jnp.zeros(3))
    close(rate, rbd.frame_placement(model, q, "l2").R)


def gripper():
    """A robot with two links that are fixed to the world, and a finger on a slider."""
    pose = zoo.random_placement(np.random.default_rng(7))
    box = rbd.model.Geometry(rbd.collision.Box((0.05, 0.1, 0.15)))
    links = [dataclasses.replace(link(name, k), visuals=[box]) for k, name in enumerate("pcf")]
    fixed = rbd.model.Fixed()
    joints = [
        joint("weld", None, "p", fixed, placement=pose),
        joint("bolt", "p", "c", fixed, placement=pose),
        joint("slide", "c", "f", Prismatic((1, 0, 0)), damping=0.5, lower=-1, effort_limit=3),
    ]
    return rbd.build_model(links, joints)


def in_frame(pose, inertia):
    """The inertia in the frame in which its own frame has this pose (4, 4)."""
    X = rbd.spatial.pose_from_matrix(jnp.asarray(pose))
    return rbd.spatial.transform_inertia(X, jnp.asarray(inertia))


def rigid_inertia(model):
    """The sum of the inertias of the links that are fixed to the world, in the world."""
    poses = rbd.spatial.pose_matrix(model.frame_pose)
    fixed = [k for k, body in enumerate(model.frame_bodies) if body < 0]
    moved = [in_frame(poses[k], I) for k, I in zip(fixed, model.fixed_inertia)]
    return sum(moved, jnp.zeros(10))


def locked_at(model, q):
    """The robot with all joints locked."""
    _, joints = rbd.model.describe(model)
    names = [x.name for x in joints[: model.nb] if x.mimic is None]
    return rbd.model.lock_joints(model, {name: q[model.joint(name).q] for name in names})


def test_a_joint_may_have_the_name_of_a_weld():
    """`describe` names welds by the frames; the names must differ from those of all joints."""
    joints = [joint("c (welded)", None, "a"), joint("w", "a", "c", rbd.model.Fixed())]
    frames = [link("c (welded)", 0), joint("x", "a", "c (welded)", rbd.model.Fixed())]
    model = rbd.build_model([A, link("c", 0), frames[0]], [*joints, frames[1]])
    welds = [x.name for x in rbd.model.describe(model)[1]]
    assert len(set(welds)) == len(welds) == 3
    again = rbd.build_model(*rbd.model.describe(model))
    assert again.joint_names == ("c (welded)",)
    assert again.frame_names == model.frame_names


def test_the_links_on_the_world_keep_their_inertia():
    model = gripper()
    assert model.frame_names == ("p", "c", "f")
    expected = [link("p", 0).inertia, link("c", 1).inertia]
    np.testing.assert_array_equal(model.fixed_inertia, expected)
    links, joints = rbd.model.describe(model)
    assert {x.name: float(x.inertia[0]) for x in links} == {
        name: float(link(name, k).inertia[0]) for k, name in enumerate("pcf")
    }
    again = rbd.build_model(links, joints)  # the frames are in another order
    assert again.frame_names == ("f", "p", "c")
    np.testing.assert_array_equal(again.fixed_inertia, expected)
    np.testing.assert_array_equal(again.inertia, model.inertia)
    assert float(rbd.total_mass(model)) == float(links[0].inertia[0])  # the finger only
    zero = jax.grad(rbd.total_mass)(model).fixed_inertia
    np.testing.assert_array_equal(zero, np.zeros((2, 10)))


EDITED = {
    "gripper": gripper,
    "small": zoo.small,
    "coupled": zoo.coupled,
    "following": zoo.following,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EDITED)
def test_edits_keep_masses_shapes_and_frames(name):
    """A locked robot on another robot has the mass, the inertia and M of a rigid payload."""
    other, arm = EDITED[name](), rbd.load_robot("arm7")
    q = zoo.state(other)[0]
    rigid = locked_at(other, q)
    assert rigid.nb == 0
    assert set(rigid.frame_names) == set(other.frame_names)
    I, mount = rigid_inertia(rigid), zoo.random_placement(np.random.default_rng(9))
    whole = rbd.total_mass(other) + jnp.sum(other.fixed_inertia[:, 0])
    close(I[0], whole)
    moment = rbd.total_mass(other) * rbd.center_of_mass(other, q)
    close(I[1:4], moment + rigid_inertia(other)[1:4])
    expected = arm.inertia.at[-1].add(
        in_frame(rbd.spatial.pose_matrix(arm.frame_pose)[arm.frame_index("tool")] @ mount, I)
    )
    held = rbd.model.append_model(arm, rigid, "tool", mount, prefix="x_")
    close(held.inertia, expected)
    both = rbd.model.append_model(arm, other, "tool", mount, prefix="x_")
    for edited in (held, both):
        close(rbd.total_mass(edited) - rbd.total_mass(arm), whole)
        assert {f"x_{frame}" for frame in other.frame_names} < set(edited.frame_names)
        assert len(edited.frame_names) == len(arm.frame_names) + len(other.frame_names)
        for kind in ("visuals", "collisions"):
            shapes = getattr(edited.geometry, kind)
            parts = getattr(arm.geometry, kind), getattr(other.geometry, kind)
            assert sum(map(len, shapes.values())) == sum(
                len(x) for part in parts for x in part.values()
            )
    assert sorted(both.damping.tolist()) == sorted([*arm.damping.tolist(), *other.damping.tolist()])
    # M at corresponding configurations, where the other robot does not move.
    q_arm = zoo.state(arm)[0]
    q_both = rbd.neutral(both)
    for joint_name in other.joint_names:
        q_both = q_both.at[both.joint(f"x_{joint_name}").q].set(q[other.joint(joint_name).q])
    rows = []
    for joint_name in arm.joint_names:
        q_both = q_both.at[both.joint(joint_name).q].set(q_arm[arm.joint(joint_name).q])
        rows += [*range(both.nv)[both.joint(joint_name).v]]
    M = rbd.crba(both, q_both)[np.ix_(rows, rows)]
    close(M, rbd.crba(held, q_arm))
    payload = held.with_payload(f"x_{other.frame_names[0]}", 2.0)
    close(rbd.total_mass(payload), rbd.total_mass(held) + 2)


def test_an_edit_twice_keeps_the_links_on_the_world():
    """A robot of fixed links, mounted on the world, keeps them for the next mount."""
    stand = rbd.model.append_model(gripper(), gripper(), prefix="x_")
    assert len(stand.fixed_inertia) == 4
    locked = rbd.model.lock_joints(stand, {"slide": 0.3})
    assert len(locked.fixed_inertia) == 5
    arm = rbd.load_robot("arm7")
    added = rbd.total_mass(rbd.model.append_model(arm, locked, "tool")) - rbd.total_mass(arm)
    close(added, 2 * sum(link(name, k).inertia[0] for k, name in enumerate("pcf")))


def test_an_inertia_on_the_world_beyond_the_range_is_named():
    links = [rbd.model.Link("base", np.array([1e200, *np.zeros(9)])), link("a")]
    joints = [joint("w", None, "base", rbd.model.Fixed()), joint("j", "base", "a")]
    with (
        jax.enable_x64(False),
        pytest.raises(
            rbd.ModelError, match="link 'base': its inertia is beyond the range of float32"
        ),
    ):
        rbd.build_model(links, joints)


@pytest.mark.parametrize("values", [(1e300, 1.0), (1.0, 1e300)])
def test_a_screw_beyond_the_range_is_named(values):
    with (
        jax.enable_x64(False),
        pytest.raises(rbd.ModelError, match=r"joint 'j': its (turn|advance) is beyond the range"),
    ):
        rbd.build_model([A], [joint("j", None, "a", Screw((0, 0, 1), *values))])


def test_editing_does_not_warn_again():
    """Loading has already warned of wrong inertias."""
    links, joints = [rbd.model.Link("a"), link("b")], [joint("j", None, "a"), joint("k", None, "b")]
    with pytest.warns(rbd.InertiaWarning, match="joint 'j'"):
        model = rbd.build_model(links, joints)
    assert rbd.model.lock_joints(model, {"k": 0.0}).nv == 1
    assert rbd.model.append_model(model, model, prefix="x").nv == 4


# ------------------------------------------------------------------------ changing numbers by hand

REPLACE = """
import dataclasses, json, sys
import jax, jax.numpy as jnp
import jaxrbd as rbd
model = rbd.load_robot("double_pendulum")
for field, change in {
    "gravity": jnp.zeros(2),
    "inertia": jnp.zeros((3, 10)),
    "armature": jnp.zeros(1),
    "damping": jnp.zeros((2, 1)),
    "friction": 0 * model.friction[0],
    "lower_position_limit": jnp.zeros(3),
    "velocity_limit": [1.0, 2.0],
    "placement": rbd.Pose(model.placement.R, jnp.zeros((1, 3))),
    "frame_pose": rbd.Pose(model.frame_pose.R[:1], model.frame_pose.p),
    "joint_names": ("a", "b", "c"),
    "frame_bodies": (0,),
}.items():
    try:
        dataclasses.replace(model, **{field: change})
    except rbd.ModelError as error:
        print(json.dumps([field, str(error)]))
    else:
        print(json.dumps([field, "accepted"]))
# A batch of robots, and the axes of a vmap, are no faults.
batch = dataclasses.replace(model, inertia=jnp.ones((5, 2, 10)), gravity=jnp.ones((5, 3)))
batch = batch.with_dissipation().with_dissipation(False)
axes = dataclasses.replace(jax.tree.map(lambda _: None, model), inertia=0, gravity=0)
energies = jax.vmap(rbd.potential_energy, (axes, None))(batch, jnp.zeros(2))
assert energies.shape == (5,)
try:
    model.astype("float64")
except rbd.ArgumentError as error:
    print(json.dumps(["astype", str(error)]))
for dtype in ("float32", jnp.float32):
    assert model.astype(dtype).dtype == "float32"
for wrong in (["shoulder"], {"shoulder": "x"}):
    try:
        rbd.model.lock_joints(model, wrong)
    except rbd.ArgumentError as error:
        print(json.dumps([str(wrong), str(error)]))
try:
    rbd.model.append_model(model, None)
except rbd.ArgumentError as error:
    print(json.dumps(["append_model", str(error)]))
"""


def test_wrong_types_shapes_and_dtypes_are_errors_that_name_the_field():
    """In a separate process, without the tests' type checker, in single precision."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    command = [sys.executable, "-c", REPLACE]
    root = pathlib.Path(__file__).parents[1]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=root, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = dict(map(json.loads, done.stdout.splitlines()))
    robot = "Model('double_pendulum', nb=2, nq=2, nv=2)"
    assert said.pop("astype").startswith(
        "dtype is float64, which JAX has switched off: call jax.co"
    )
    assert said.pop("append_model") == (
        "the second argument is None, expected the Model of a robot"
    )
    assert said.pop("['shoulder']") == (
        "configuration is a 'list', expected a mapping from joint names to coordinates, such as "
        "{'shoulder': 0.0}"
    )
    assert said.pop("{'shoulder': 'x'}") == (
        "joint 'shoulder': configuration is 'x', expected numbers (1,)"
    )
    assert said == {
        "gravity": f"gravity has shape (2,), expected (3,) for {robot}",
        "inertia": f"inertia has shape (3, 10), expected (2, 10) for {robot}",
        "armature": f"armature has shape (1,), expected (2,) for {robot}",
        "damping": f"damping has shape (2, 1), expected (2,) for {robot}",
        "friction": f"friction has shape (), expected (2,) for {robot}",
        "lower_position_limit": f"lower_position_limit has shape (3,), expected (2,) for {robot}",
        "velocity_limit": "velocity_limit is a list, expected an array (2,)",
        "placement": f"placement.p has shape (1, 3), expected (2, 3) for {robot}",
        "frame_pose": f"frame_pose.R has shape (1, 3, 3), expected (3, 3, 3) for {robot}",
        "joint_names": f"joint_names has 3 entries, expected 2 for {robot}",
        "frame_bodies": f"frame_bodies has 1 entries, expected 3 for {robot}",
    }


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex128", "float6"])
def test_a_model_is_cast_to_floats_only(dtype):
    with pytest.raises(rbd.ArgumentError, match=r"dtype is .*, expected float32 or float64"):
        zoo.small().astype(dtype)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: rbd.model.lock_joints(m, {"nope": 0.0}), "no joint 'nope'"),
        (lambda m: rbd.model.lock_joints(m, {"J5": 0.0}), "did you mean 'j5'"),
        (
            lambda m: rbd.model.lock_joints(m, {"j1": np.nan}),
            r"'j1': configuration \[nan\] is not finite",
        ),
        (
            lambda m: rbd.model.append_model(m, m, placement=np.eye(3)),
            r"shape \(3, 3\) .* expected \(4, 4",
        ),
        (lambda m: rbd.model.append_model(m, m.with_dissipation()), "other has dissipation on"),
        (lambda m: rbd.model.append_model(m.with_dissipation(), m), "model has dissipation on"),
        (lambda m: rbd.model.lock_joints(m, {"j2": 0.0}), r"'j2' follows \['j1'\]"),
        (
            lambda m: rbd.model.lock_joints(m, {"j5": [0.0, 1.0]}),
            "shape \\(2,\\), expected \\(4,\\)",
        ),
        (lambda m: rbd.model.append_model(m, m, "nope"), "no frame 'nope'"),
        (lambda m: rbd.model.append_model(m, m, "l1"), "used twice"),
        (
            lambda m: rbd.model.add_frame(m, "l1", "l2"),
            "name is 'l1', which is a frame of",
        ),
        (
            lambda m: rbd.model.add_frame(m, "j1", "l2"),
            "name is 'j1', which is a joint of",
        ),
        (lambda m: rbd.model.add_frame(m, "", "l2"), "name is ''"),
        (lambda m: rbd.model.add_frame(m, "tip", "nope"), "no frame 'nope'"),
        (
            lambda m: rbd.model.add_frame(m, "tip", "l2", np.diag([1.0, 1.0, -1.0, 1.0])),
            r"(?s)placement.R of the frame 'tip' .*expected a rotation",
        ),
        (lambda m: rbd.model.add_frame(m, "tip", "l2", np.ones((4, 4))), "of the frame 'tip'"),
        (lambda m: rbd.model.add_frame(m, "tip", "l2", np.eye(3)), r"'tip' has shape \(3, 3\)"),
    ],
)
def test_bad_edits(edit, message):
    with pytest.raises((rbd.ArgumentError, rbd.ModelError), match=message):
        edit(zoo.coupled())


# --------------------------------------------------------------------------- what is refused

A, B = link("a"), link("b")
ON_WORLD, ON_A = joint("j", None, "a"), joint("k", "a", "b")
NAN = float("nan")


def heavy(**changes):
    inertia = np.array([1.0, 0, 0, 0, 1, 0, 1, 0, 0, 1])
    for index, value in changes.items():
        inertia[int(index[1:])] = value
    return rbd.model.Link("a", inertia)


def with_j(**fields):
    return [A], [dataclasses.replace(ON_WORLD, **fields)]


def with_k(**fields):
    return [A, B], [ON_WORLD, dataclasses.replace(ON_A, **fields)]


CARDAN = rbd.model.universal((1, 0, 0), (0, 1, 0))
REFUSED = {
    "unknown parent": (with_k(parent="x"), "joint 'k': parent link 'x' is unknown"),
    "unknown child": (with_k(child="x"), "joint 'k': child link 'x' is unknown"),
    "two links of a name": (([A, A], [ON_WORLD]), "link name 'a' is empty or used twice"),
    "empty link name": (([A, link("")], [ON_WORLD]), "link name '' is empty"),
    "two joints of a name": (with_k(name="j"), "joint 'j': its name is empty or used twice"),
    "empty joint name": (with_k(name=""), "joint '': its name is empty"),
    "two parents": (([A, B], [ON_WORLD, ON_A, joint("l", None, "b")]), "already the child of 'k'"),
    "a loose link": (([A, B], [ON_WORLD]), "link 'b' is the child of no joint"),
    "a cycle": (([A, B], [joint("j", "b", "a"), ON_A]), "links form a cycle: \\['a', 'b'\\]"),
    "a joint on itself": (([A], [joint("j", "a", "a")]), "links form a cycle: \\['a'\\]"),
    "negative mass": (([heavy(_0=-1.0)], [ON_WORLD]), "link 'a': mass -1 is negative"),
    "NaN inertia": (([heavy(_5=NAN)], [ON_WORLD]), "link 'a': inertia is not finite"),
    "inertia of a wrong shape": (
        ([rbd.model.Link("a", np.eye(3))], [ON_WORLD]),
        "shape \\(3, 3\\)",
    ),
    "inertia of a text": (([rbd.model.Link("a", "heavy")], [ON_WORLD]), "'a': inertia is 'heavy'"),
    "a class as a kind": (with_j(kind=Revolute), "joint 'j': kind is <class .*expected an object"),
    "a link as a parent": (with_k(parent=A), "(?s)joint 'k': parent is Link.* expected a name"),
    "a text as a placement": (with_j(placement="here"), "joint 'j': placement is 'here'"),
    "a text as a limit": (with_j(lower="low"), "joint 'j': lower is 'low', expected"),
    "a complex damping": (with_j(damping=1j), "joint 'j': damping is 1j, expected"),
    "a text as a mimic": (with_k(mimic="j"), "joint 'k': mimic is 'j', expected a Mimic"),
    "a number as a leader": (with_k(mimic=rbd.model.Mimic(0)), "joint 'k': mimic.joint is 0"),
    "a text as a multiplier": (
        with_k(mimic=rbd.model.Mimic("j", "twice")),
        "joint 'k': mimic.multiplier is 'twice'",
    ),
    "a stage with the name of a link": (
        (
            [A, link("j.1")],
            [joint("j", None, "a", CARDAN), joint("k", "a", "j.1")],
        ),
        "joint 'j': its stage 'j.1' has the name of another joint or of a link",
    ),
    "a stage with the name of a joint": (
        ([A, B], [joint("j", None, "a", CARDAN), joint("j.1", "a", "b")]),
        "joint 'j': its stage 'j.1' has the name of another joint or of a link",
    ),
    "zero axis": (with_j(kind=Revolute((0, 0, 0))), "joint 'j': axis is zero"),
    "NaN axis": (with_j(kind=Prismatic((0, NAN, 1))), "joint 'j': axis .* not finite"),
    "short axis": (with_j(kind=Revolute((0, 1))), "axis has shape \\(2,\\), expected \\(3,\\)"),
    "two pitches": (with_j(kind=Helical((0, 0, 1), [1.0, 2.0])), "pitch has shape \\(2,\\)"),
    "two turns": (with_j(kind=Screw((0, 0, 1), [1.0, 2.0], 0.0)), "turn has shape \\(2,\\)"),
    "half a dof": (
        with_j(kind=Custom(2.5, lambda q: None)),
        "joint 'j': nv is 2.5, expected an int",
    ),
    "NaN placement": (with_j(placement=np.full((4, 4), NAN)), "placement is not finite"),
    "small placement": (with_j(placement=np.eye(3)), "placement has shape \\(3, 3\\)"),
    "a mirror": (with_j(placement=np.diag([1.0, 1, -1, 1])), "no rigid pose"),
    "a stretch": (with_j(placement=np.diag([2.0, 1, 1, 1])), "no rigid pose"),
    "inverted limits": (with_j(lower=1, upper=-1), "lower limit .* above upper limit"),
    "NaN limit": (with_j(lower=NAN), "lower is NaN"),
    "limits of a wrong size": (with_j(upper=(1, 2)), "upper has shape \\(2,\\)"),
    "negative damping": (with_j(damping=-1), "damping .* is negative"),
    "infinite friction": (with_j(friction=np.inf), "friction .* is not finite"),
    "negative armature": (with_j(armature=-1), "armature .* is negative"),
    "negative effort": (with_j(effort_limit=-1), "effort_limit .* is negative"),
    "mimic of nothing": (with_k(mimic=rbd.model.Mimic("x")), "joint 'k': mimics unknown joint 'x'"),
    "mimic of itself": (with_k(mimic=rbd.model.Mimic("k")), "ring: \\['k'\\]"),
    "mimic NaN": (with_k(mimic=rbd.model.Mimic("j", NAN)), "joint 'k': mimic is not finite"),
    "a ball that mimics": (with_k(kind=Spherical(), mimic=rbd.model.Mimic("j")), "has 3"),
    "mimic of a ball": (
        (
            [A, B],
            [joint("j", None, "a", Spherical()), joint("k", "a", "b", mimic=rbd.model.Mimic("j"))],
        ),
        "mimics joint 'j', which does not have one dof",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_bad_description_is_refused_by_name(fault):
    (links, joints), message = REFUSED[fault]
    with pytest.raises(rbd.ModelError, match=message):
        rbd.build_model(links, joints)


@pytest.mark.parametrize("gravity", [(0, 0), (0, 0, NAN), np.array(["d", "o", "w"]), 9.81])
def test_bad_gravity(gravity):
    with pytest.raises(rbd.ArgumentError, match="gravity"):
        rbd.build_model([A], [ON_WORLD], gravity=gravity)


@pytest.mark.parametrize("stages", [None, (rbd.model.Fixed(),), (CARDAN,), CARDAN.stages[0]])
def test_a_compound_has_joints_as_stages(stages):
    with pytest.raises(rbd.ModelError, match=r"stages of a Compound are .*, expected a tuple of"):
        rbd.model.Compound(stages)


def test_an_inertia_may_be_a_list():
    inertia = [1.0, 0, 0, 0, 1, 0, 1, 0, 0, 1]
    model = rbd.build_model(iter([rbd.model.Link("a", inertia)]), iter([ON_WORLD]))
    np.testing.assert_array_equal(model.inertia[0], inertia)


def test_a_compound_without_stages_is_refused():
    with pytest.raises(rbd.ModelError, match="Compound has no stages"):
        rbd.model.Compound(())


def test_a_joint_with_a_dot_in_its_name_is_no_stage():
    links = [A, B, link("c")]
    joints = [joint("j.1", None, "a"), joint("k", "a", "b"), joint("j.2", "b", "c")]
    model = rbd.build_model(links, joints)
    assert model.joint("j").q == slice(0, 1)
    assert model.joint("j.2").q == slice(2, 3)
    cardan = rbd.build_model([A], [joint("j", None, "a", CARDAN)])
    assert cardan.joint("j").q == slice(0, 2)


@pytest.mark.parametrize("sequence", ["", "xyw", 3, ["x"]])
def test_bad_euler_sequence(sequence):
    with pytest.raises(rbd.ModelError, match="Euler sequence"):
        rbd.model.euler(sequence)


UNPHYSICAL = {
    "triangle": (heavy(_4=5.0), "triangle inequality violated"),
    "indefinite": (heavy(_5=3.0), "inertia not positive semidefinite"),
    "negative": (heavy(_4=-1.0, _6=-1.0, _9=-1.0), "inertia not positive semidefinite"),
    "massless": (heavy(_0=0.0), "mass 0 with rotational inertia"),
}


@pytest.mark.parametrize("fault", UNPHYSICAL)
def test_an_impossible_inertia_warns_or_with_strict_is_refused(fault):
    heavy_link, message = UNPHYSICAL[fault]
    with pytest.warns(rbd.InertiaWarning, match=f"1 links .*'a': {message}"):
        rbd.build_model([heavy_link], [ON_WORLD])
    with pytest.raises(rbd.ModelError, match=message):
        rbd.build_model([heavy_link], [ON_WORLD], strict=True)


@pytest.mark.parametrize(("excess", "possible"), [(1e-7, True), (1e-5, False), (1e-3, False)])
def test_the_digits_that_are_left_to_files(excess, possible):
    """Principal moments may violate the triangle inequality, or be negative, by 1e-6, relative."""
    for moments, message in (((1, 1, 2 * (1 + excess)), "triangle"), ((1, 1, -excess), "positive")):
        part = rbd.model.Link("a", rbd.model.link_inertia(1.0, (0.1, 0.2, 0.3), np.diag(moments)))
        faults = inertia_faults([part])
        assert (faults == {}) == possible
        assert possible or message in faults["a"]


def test_a_point_mass_anywhere_is_possible(rng):
    for _ in range(200):
        point = rbd.model.Link(
            "a", rbd.model.link_inertia(rng.uniform(0.1, 10), 3 * rng.normal(size=3))
        )
        rbd.build_model([point], [ON_WORLD], strict=True)


@pytest.mark.slow
def test_a_long_chain_and_a_wide_star_are_built():
    """The builder does not recurse, and its time is linear in the number of links."""
    n = 1000
    links = [link(f"l{i}") for i in range(n)]
    for parents in (range(-1, n - 1), [-1] + [0] * (n - 1)):
        joints = [
            joint(f"j{i}", None if p < 0 else f"l{p}", f"l{i}") for i, p in enumerate(parents)
        ]
        assert rbd.build_model(links, joints).nb == n


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rbd.model.link_inertia(1.0, (0, 0)), "com has shape"),
        (lambda: rbd.model.link_inertia(1.0, (0, 0, 1), np.ones(3)), "inertia_com has shape"),
        (
            lambda: rbd.model.link_inertia(1.0, (0, 0, 1), np.eye(3), np.ones(3)),
            "rotation has shape",
        ),
        (lambda: rbd.model.placement_matrix((0, 0)), "xyz has shape"),
        (lambda: rbd.model.placement_matrix((0, 0, 0), np.eye(3)), "rpy has shape"),
    ],
)
def test_numbers_of_wrong_shape_are_named(call, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        call()
