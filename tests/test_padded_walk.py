"""One environment of several robots: each moves and is rewarded as in its own environment."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import envs, learning
from jaxrbd.actuators import PD
from jaxrbd.contact import Scene
from jaxrbd.envs import legged
from jaxrbd.model import JointSpec, Link, link_inertia, placement_matrix
from support.zoo import close

WEIGHTS = {
    "alive": 0.5,
    "upright": 1.0,
    "posture": 0.1,
    "joint_velocity": 0.01,
    "action_rate": 0.3,
    "velocity": 2.0,
    "turning": 1.0,
    "bounce": 0.1,
    "gait": 0.4,
}


@dataclasses.dataclass(frozen=True)
class Stool(legged.LeggedEnv):
    """A body on legs of one hinge each, which end in a sphere."""

    legs: int
    stroke: float = 0.5
    episode_steps: int = 500
    smoothing: float | None = 0.01
    weights: tuple[str, ...] = tuple(WEIGHTS)
    base = "body"

    @property
    def action_size(self):
        return self.legs

    @property
    def phases(self):
        return tuple(0.1 * (i + self.legs) for i in range(self.legs))

    def default_params(self):
        inertia = link_inertia(2.0 + self.legs, (0.0, 0.0, 0.0), 0.1 * np.eye(3))
        links, joints = (
            [Link("body", inertia)],
            [JointSpec("base", rbd.joints.FreeFlyer(), None, "body")],
        )
        for i in range(self.legs):
            angle = 2 * np.pi * i / self.legs
            links.append(Link(f"leg{i}", link_inertia(0.3, (0, 0, -0.2), 0.01 * np.eye(3))))
            place = placement_matrix((0.3 * np.cos(angle), 0.3 * np.sin(angle), 0))
            hinge = rbd.joints.Revolute((0, 1, 0))
            joints.append(JointSpec(f"hip{i}", hinge, "body", f"leg{i}", place, damping=0.1))
        model = rbd.build_model(links, joints).with_dissipation()
        feet = model.body_names[1:]
        scene = Scene(feet, 0.05, [(0, 0, -0.4)] * self.legs)
        control = PD.for_joints(model, model.joint_names[1:], 40.0, 1.0, 20.0)
        home = rbd.neutral(model).at[2].set(0.45)
        weights = {name: WEIGHTS[name] for name in self.weights}
        terms = home, 0.2, weights, (0.5, 0.2, 0.1)
        params = legged.default_params(model, scene, control, *terms)
        return params._replace(stroke=jnp.full_like(params.stroke, self.stroke))


STOOLS = Stool(3), Stool(5)


@functools.cache
def both():
    return envs.PaddedWalk(STOOLS, smoothing=0.01)


def own_physics(i, physics):
    """The part of a padded physical state that belongs to robot i."""
    robots, legs = both().robots(), slice(0, STOOLS[i].legs)
    joints = robots.v_index[i][6:] - 6
    return physics._replace(
        q=physics.q[robots.q_index[i]],
        v=physics.v[robots.v_index[i]],
        past=physics.past[:, joints],
        action=physics.action[joints],
        last_action=physics.last_action[joints],
        distance=physics.distance[legs],
    )


@pytest.mark.slow
def test_each_robot_moves_and_is_rewarded_as_in_its_own_environment():
    env, robots = both(), both().robots()
    assert env.action_size == 5
    assert robots.model.nv == 11
    params, axes = env.params_of_all(3)
    batch = envs.vectorize(env, axes)
    start = batch.reset(params, jax.random.split(jax.random.key(0), 3))
    action = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (3, 5)))
    step = jax.jit(batch.step)
    after = step(params, step(params, start, action), action[::-1])
    for i, own in enumerate(STOOLS[:1]):  # the other robot has all joints of the tree
        joints = robots.v_index[i][6:] - 6
        given = own.default_params()
        state = own.reset(given, jax.random.key(1))
        state = state._replace(physics=own_physics(i, jax.tree.map(lambda x: x[i], start.physics)))
        # The lowest point of the robot is on the ground; spheres of padding do not count.
        close(jnp.min(state.physics.distance), 0.0, 1e-10)
        move = jax.jit(own.step)
        found = move(given, state, action[i, joints])
        found = move(given, found, action[2 - i, joints])
        expected = own_physics(i, jax.tree.map(lambda x: x[i], after.physics))
        jax.tree.map(lambda x, y: close(x, y, 1e-8), expected, found.physics)
        for name, term in found.reward_terms.items():
            close(after.reward_terms[name][i], term, 1e-7, name)
        close(after.reward[i], found.reward, 1e-7)
        has = np.zeros(5)
        has[joints] = 1
        close(after.observation[i][-5:], has)
        close(after.observation[i][9:14][has == 0], np.zeros(5 - has.sum().astype(int)))


def test_robots_take_turns_and_the_first_is_the_default():
    env = both()
    params, axes = env.params_of_all(3)
    assert {*jax.tree.leaves(axes)} == {0}
    close(params.stroke[0], params.stroke[2], 0)
    assert [*np.count_nonzero(params.stroke, axis=1)] == [3, 5, 3]
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[0], y), params, env.default_params())
    with pytest.raises(rbd.ArgumentError, match="size is 0"):
        env.params_of_all(0)


def test_settings_and_the_interface_state_the_robots():
    found = both().settings()["walkers"]
    assert [walker["name"] for walker in found] == ["Stool", "Stool"]
    assert [walker["settings"]["legs"] for walker in found] == [3, 5]
    observed = both().interface(both().default_params()).observation
    assert observed[-1] == ("has_joint", 5)
    mask, each_joint, shared = learning.JointAttention(observed, mask="has_joint").entries()
    size = sum(size for _, size in observed)
    np.testing.assert_array_equal(mask, np.arange(size - 5, size))
    assert each_joint.shape == (5, 3)
    assert sorted([*each_joint.ravel(), *shared]) == [*range(size)]
    assert {*mask} < {*shared}


FAULTS = {
    "none": ((), "walkers is empty"),
    "another environment": ((Stool(3), envs.CartPoleSwingUp()), r"walkers\[1\] is CartPole"),
    "a joint without stroke": (
        (Stool(3), Stool(4, stroke=0.0)),
        "the robot 'robot' has the stroke 0.0, expected more than 0",
    ),
    "no sequence": (3, "walkers is 3, expected a sequence of environments"),
    "another gait": ((Stool(3), envs.QuadrupedStand()), "differ in having a gait"),
    "other rewards": (
        (Stool(3), Stool(4, weights=("alive", "gait"))),
        "the robot 'robot' has the reward terms .'alive', 'gait'., expected .'action_rate'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault):
    walkers, message = FAULTS[fault]
    with pytest.raises(rbd.ArgumentError, match=message):
        envs.PaddedWalk(walkers)
