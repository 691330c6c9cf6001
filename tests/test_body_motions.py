"""Quantities of all bodies and all frames at once: velocities, joint forces, placements."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import spatial
from jaxrbd.model.joint_space import generalized_force, relative_velocities
from support import finite_differences, nightly, zoo
from support.zoo import close

MODELS = [zoo.small, zoo.coupled, zoo.following]
robots = pytest.mark.parametrize(
    "make", nightly.all_but([zoo.small], MODELS), ids=lambda make: make.__name__
)


@robots
def test_bodies_move_as_their_frames(make):
    model = make()
    q, v, a, _ = zoo.state(model)
    V, A = rbd.body_motions(model, q, v, a)
    bodies = np.array(model.frame_bodies)

    def frames(index):
        return (
            rbd.frame_velocity(model, q, v, index, "local"),
            rbd.frame_acceleration(model, q, v, a, index, "local"),
        )

    for index in np.flatnonzero(bodies >= 0)[::2]:
        X_BF = jax.tree.map(lambda x: x[index], model.frame_pose)
        found = frames(int(index))
        for of_body, of_frame in zip((V, A), found):
            close(spatial.inverse_transform_motion(X_BF, of_body[bodies[index]]), of_frame, 1e-12)


@robots
def test_joint_wrenches_carry_the_bodies(make):
    """Newton and Euler, body by body: its joint, its children's joints, gravity and f_ext."""
    model = make()
    q, v, a, f_ext = zoo.state(model)
    W = rbd.joint_wrenches(model, q, v, a, f_ext)
    kinematics = rbd.forward_kinematics(model, q)
    V, A = rbd.body_motions(model, kinematics, v, a)
    weight = jnp.concatenate([model.gravity, jnp.zeros(3)])
    for body in range(model.nb):
        X_WB, I = (jax.tree.map(lambda x: x[body], x) for x in (kinematics.X_WB, model.inertia))
        g = spatial.inverse_transform_motion(spatial.Pose(X_WB.R, 0 * X_WB.p), weight)
        needed = spatial.apply_inertia(I, A[body] - g)
        needed = needed + spatial.cross_force(V[body], spatial.apply_inertia(I, V[body]))
        given = W[body] + f_ext[body]
        for child in model.topology.children[body]:
            X_BC = jax.tree.map(lambda x: x[child], kinematics.X_PB)
            given = given - spatial.transform_force(X_BC, W[child])
        close(given, needed, 1e-10)


@pytest.mark.slow
@robots
def test_joint_wrenches_drive_the_joints(make):
    """Their power over the joints is the power of tau, but for the armature's."""
    model = make()
    q, v, a, f_ext = zoo.state(model)
    W = rbd.joint_wrenches(model, q, v, a, f_ext)
    power = jnp.sum(W * relative_velocities(model, q, v))
    close(power, generalized_force(model, q, W) @ v, 1e-10)
    bare = dataclasses.replace(model, armature=0 * model.armature)
    close(power, rbd.rnea(bare, q, v, a, f_ext) @ v, 1e-10)


@pytest.mark.parametrize("make", [*MODELS, lambda: rbd.load_robot("arm7")])
def test_all_frames_are_placed_as_each(make):
    model = make()

    @jax.jit
    def placed(q):
        kinematics = rbd.forward_kinematics(model, q)
        frames = range(len(model.frame_names))
        each = [rbd.frame_placement(model, kinematics, index) for index in frames]
        return rbd.frame_placements(model, q), jax.tree.map(lambda *x: jnp.stack(x), *each)

    chex.assert_trees_all_close(*placed(zoo.state(model)[0]), rtol=0, atol=1e-13)


def test_children_are_those_whose_parent_it_is():
    topology = zoo.everywhere().topology
    for body, children in enumerate(topology.children):
        assert list(children) == [i for i, p in enumerate(topology.parents) if p == body]
    assert sum(map(len, topology.children)) == sum(p >= 0 for p in topology.parents)


def test_the_bias_acceleration_of_a_joint():
    """The rate of the velocity across a joint whose subspace depends on q, at constant v."""
    model = zoo.serial(
        [rbd.joints.Custom(2, zoo.crank)], np.random.default_rng(0), {}, lambda _: {}
    )
    q, v = jnp.array([0.4, -0.7]), jnp.array([1.2, 0.5])

    @jax.jit
    def found(t):
        _, _, velocity, bias = rbd.algorithms.joint_calc(model, q + t * v, v, "j0")
        return velocity, bias

    close(found(jnp.zeros(()))[1], finite_differences.slope(lambda t: found(t)[0]), 1e-8)


@robots
def test_each_joint_by_its_name(make):
    """M and the placement make the pose in the parent; S, v and c the motion across the joint."""
    model = make()
    q, v, _, _ = zoo.state(model)
    kinematics = rbd.forward_kinematics(model, q)

    def moved(name):
        def velocity(t):
            q_moved = rbd.integrate(model, q, t * v)
            return rbd.algorithms.joint_calc(model, q_moved, v, name).v

        return jax.jvp(velocity, (0.0,), (1.0,))

    for body, name in enumerate(model.joint_names):
        M, S, velocity, bias = rbd.algorithms.joint_calc(model, kinematics, v, name)
        X_PJ, X_PB = (
            jax.tree.map(lambda x: x[body], X) for X in (model.placement, kinematics.X_PB)
        )
        chex.assert_trees_all_close(spatial.compose(X_PJ, M), X_PB, rtol=0, atol=1e-13)
        place = model.joint(name)
        if place.v.stop > place.v.start:
            close(velocity, v[place.v] @ S, 1e-12)
        close(moved(name)[0], velocity, 1e-12)
        close(moved(name)[1], bias, 1e-11)
    with pytest.raises(rbd.ArgumentError, match="no joint 'elbow'"):
        rbd.algorithms.joint_calc(model, q, v, "elbow")
