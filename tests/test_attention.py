"""Policies with attention between joints: symmetries, joints that a robot lacks, trainings."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import envs, learning
from jaxrbd.errors import ArgumentError, SavedFileError
from jaxrbd.io import _sealed
from jaxrbd.learning import checkpoint
from support.point import Point

JOINTS = 4
PARTS = (("positions", JOINTS), ("command", 3), ("rates", JOINTS), ("has_joint", JOINTS))
SETTINGS = learning.JointAttention(PARTS, ("positions", "rates"), "has_joint", 8, 2, 2)
SIZE = sum(size for _, size in PARTS)
POSITIONS, COMMAND, RATES, MASK = 0, 4, 7, 11  # where the parts start
actions = jax.jit(lambda net, x: net(x))

ENV = Point(episode_steps=5)
POINT = learning.JointAttention((("place", 1),), ("place",), width=4, heads=2, blocks=1)
ALGORITHMS = {
    "shac": learning.Shac(4, 3, (6,), critic_epochs=1, critic_minibatches=1, updates=2),
    "apg": learning.Apg(4, 3, (6,), updates=2),
    "ppo": learning.Ppo(4, 3, (6,), epochs=1, minibatches=1, updates=2),
}


@pytest.fixture(scope="module")
def net():
    return SETTINGS(jax.random.key(0), (SIZE, 64, JOINTS), jnp.float64, 1.0)


@pytest.fixture
def x():
    """Observations (5, n) of a robot with all joints."""
    x = np.random.default_rng(0).normal(size=(5, SIZE))
    x[:, MASK:] = 0.0  # an entry that is always 1 is 0 after the normalisation
    return x


@functools.cache
def trained():
    """A training by APG, whose programs are the smallest, after its two updates."""
    algorithm = dataclasses.replace(ALGORITHMS["apg"], policy_network=POINT)
    training = learning.Training(algorithm, ENV)
    return training, list(training.run())


def joint_by_joint(order):
    """The entries of an observation for joints in another order."""
    index = np.arange(SIZE)
    for start in (POSITIONS, RATES, MASK):
        index[start : start + JOINTS] = start + np.asarray(order)
    return index


def test_joints_in_another_order_have_the_same_actions(net, x):
    order = [2, 0, 3, 1]
    moved = tuple(x[np.array(order)] for x in (net.places, net.actions))
    other = eqx.tree_at(lambda net: (net.places, net.actions), net, moved)
    found = actions(other, x[:, joint_by_joint(order)])
    np.testing.assert_allclose(found, actions(net, x)[:, order], atol=1e-13)
    assert np.ptp(actions(net, x), axis=0).min() > 0.1


def test_the_place_of_a_joint_matters(net, x):
    net = eqx.tree_at(lambda net: net.actions, net, 0 * net.actions + net.actions[0])
    equal = eqx.tree_at(lambda net: net.places, net, jnp.zeros_like(net.places))
    same = x.copy()
    same[:, 1], same[:, RATES + 1] = same[:, 0], same[:, RATES]
    found = actions(equal, same)
    np.testing.assert_allclose(found[:, 0], found[:, 1], atol=1e-13)
    found = actions(net, same)
    assert np.abs(found[:, 0] - found[:, 1]).min() > 1e-3


@pytest.mark.parametrize("start", [POSITIONS, RATES])
def test_a_joint_that_the_robot_lacks_changes_nothing(net, x, start):
    x[:, MASK + 2] = -0.03  # as one robot of a thousand without the joint
    changed = x.copy()
    changed[:, start + 2] += 1.0
    before, after = actions(net, x), actions(net, changed)
    kept = [0, 1, 3]
    np.testing.assert_array_equal(before[:, kept], after[:, kept])
    x[:, MASK + 2] = changed[:, MASK + 2] = 0.03
    before, after = actions(net, x), actions(net, changed)
    assert np.abs(before - after)[:, kept].max() > 1e-3


def test_each_joint_sees_the_whole_robot_and_each_block_acts(net, x):
    """A change of the command, of another joint, or of a block changes all actions."""
    before = actions(net, x)
    for entry in (COMMAND, POSITIONS + 3, RATES + 3):
        changed = x.copy()
        changed[:, entry] += 1.0
        assert np.abs(actions(net, changed) - before).min() > 1e-6
    for k in range(2):
        for part in ("attention", "projection"):
            layer = getattr(net.blocks[k], part)
            silent = eqx.tree_at(
                lambda net, k=k, part=part: getattr(net.blocks[k], part).weight,
                net,
                0 * layer.weight,
            )
            assert np.abs(actions(silent, x) - before).min() > 0


def test_attention_by_its_definition(net, x):
    """The actions of one robot, computed joint by joint and head by head."""
    x = np.array(x[0])
    x[MASK + 2] = -1.0

    def affine(layer, y):
        return y @ np.asarray(layer.weight) + np.asarray(layer.bias)

    def normalised(y):
        return (y - y.mean()) / np.sqrt(y.var() + 1e-5)

    robot = [*x[COMMAND : COMMAND + 3], *x[MASK:]]
    tokens = [
        affine(net.start, np.array([x[i], x[RATES + i], *robot])) + np.asarray(net.places)[i]
        for i in range(JOINTS)
    ]
    for block in net.blocks:
        query, key, value = np.split(
            affine(block.attention, np.array([normalised(token) for token in tokens])), 3, axis=1
        )
        for i in range(JOINTS):
            results = []
            for head in (slice(0, 4), slice(4, 8)):
                scores = np.array([query[i, head] @ key[j, head] / 2 for j in (0, 1, 3)])
                weights = np.exp(scores) / np.exp(scores).sum()
                results.append(sum(w * value[j, head] for w, j in zip(weights, (0, 1, 3))))
            tokens[i] = tokens[i] + affine(block.projection, np.concatenate(results))
            hidden = affine(block.change[0], normalised(tokens[i]))
            hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)))
            tokens[i] = tokens[i] + affine(block.change[1], hidden)
    expected = [weights @ normalised(token) for weights, token in zip(net.actions, tokens)]
    np.testing.assert_allclose(actions(net, x), expected, atol=1e-12)


def test_leading_axes_and_one_observation(net, x):
    many = actions(net, x.reshape(5, 1, SIZE))
    np.testing.assert_array_equal(many[:, 0], actions(net, x))
    np.testing.assert_allclose(actions(net, x[1]), actions(net, x)[1], atol=1e-13)


def test_weights_of_the_action_have_the_last_factor():
    small = SETTINGS(jax.random.key(0), (SIZE, JOINTS), jnp.float64, 0.1)
    large = SETTINGS(jax.random.key(0), (SIZE, JOINTS), jnp.float64, 1.0)
    np.testing.assert_allclose(10 * small.actions, large.actions, rtol=1e-14)
    single = SETTINGS(jax.random.key(0), (SIZE, JOINTS), jnp.float32, 1.0)
    assert {x.dtype for x in jax.tree.leaves(single)} == {np.dtype("float32")}


def test_no_weight_is_lost_and_gradients_are_finite(net, x):
    """Also for a robot without joints, whose attention has no joint to look at."""
    x[0, MASK:] = -1.0
    gradient = jax.jit(jax.grad(lambda net: jnp.sum(net(x) ** 2)))(net)
    for leaf in jax.tree.leaves(gradient):
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max() > 0


def test_wrong_settings_name_the_part():
    make = functools.partial(learning.JointAttention, PARTS)
    with pytest.raises(ArgumentError, match=r"'speeds' is no part of 'positions', 'command'"):
        make(("positions", "speeds"))
    with pytest.raises(ArgumentError, match=r"part 'command' has 3 entries, expected 4 as 'posi"):
        make(("positions", "command"))
    with pytest.raises(ArgumentError, match=r"part 'command' has 3 entries"):
        make(("positions",), "command")
    for wrong in (None, {"state": PARTS}, ("positions",), (("positions", 4.5),)):
        with pytest.raises(ArgumentError, match="expected pairs of a name and a size"):
            learning.JointAttention(wrong)
    with pytest.raises(
        ArgumentError, match="per_joint and mask has a name twice: 'rates', 'rates'"
    ):
        make(("rates", "rates"))
    with pytest.raises(ArgumentError, match="parts has a name twice"):
        learning.JointAttention((*PARTS, ("command", 1)), ("positions",))
    with pytest.raises(ArgumentError, match="per_joint is empty"):
        make(())
    with pytest.raises(ArgumentError, match="width is 9, expected a multiple of heads=2"):
        make(("positions",), width=9)
    with pytest.raises(ArgumentError, match="blocks is 0"):
        make(("positions",), blocks=0)
    with pytest.raises(ArgumentError, match=r"16 observations and 4 actions, expected 15 and 4"):
        SETTINGS(jax.random.key(0), (16, JOINTS), jnp.float64, 1.0)
    with pytest.raises(ArgumentError, match=r"15 observations and 5 actions"):
        SETTINGS(jax.random.key(0), (SIZE, 5), jnp.float64, 1.0)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_has_the_network(name):
    algorithm = dataclasses.replace(ALGORITHMS[name], policy_network=POINT)
    batch, params = envs.vectorize(envs.auto_reset(ENV)), ENV.default_params()

    def updated(key):
        return algorithm.update(batch, params, algorithm.init(batch, params, key))[0]

    found = jax.eval_shape(updated, jax.random.key(0)).policy.mean
    assert isinstance(found, learning.AttentionNetwork)
    assert found.places.shape == (1, 4)


def test_a_training_changes_all_weights():
    training, records = trained()
    assert len(records) == 2
    found = training.state.policy.mean
    first = learning.Training(training.algorithm, ENV).state.policy.mean
    for before, after in zip(jax.tree.leaves(first), jax.tree.leaves(found)):
        assert np.isfinite(after).all()
        assert before.shape == after.shape
    assert np.abs(first.actions - found.actions).max() > 1e-6
    observation = np.array([[0.2], [-0.1]])
    normalised = training.state.statistics.normalise(observation)
    np.testing.assert_allclose(
        training.policy()(observation), np.tanh(found(normalised)), rtol=1e-12
    )


def test_checkpoints_state_the_network(tmp_path):
    training, _ = trained()
    training.save(tmp_path / "file")
    found = learning.load_training(tmp_path / "file", ENV)
    assert found.algorithm == training.algorithm
    for x, y in zip(jax.tree.leaves(found.state.policy), jax.tree.leaves(training.state.policy)):
        np.testing.assert_array_equal(x, y)
    wider = dataclasses.replace(POINT, width=8)
    other = dataclasses.replace(training.algorithm, policy_network=wider)
    with pytest.raises(SavedFileError, match="setting policy_network is"):
        learning.Training(other, ENV).load(tmp_path / "file")


class Linear(eqx.Module):
    """A network of a user: one matrix."""

    weight: jax.Array

    def __call__(self, x):
        return x @ self.weight


def linear(key, sizes, dtype, last):
    return Linear(last * jax.random.normal(key, (sizes[0], sizes[-1]), dtype))


def test_a_network_of_a_user(tmp_path):
    algorithm = dataclasses.replace(ALGORITHMS["apg"], policy_network=linear)
    training = learning.Training(algorithm, ENV, seed=3)
    training.save(tmp_path / "file")
    again = learning.Training(algorithm, ENV, seed=3)
    again.state = learning.Training(algorithm, ENV, seed=4).state
    again.load(tmp_path / "file")
    np.testing.assert_array_equal(again.state.policy.mean.weight, training.state.policy.mean.weight)
    with pytest.raises(SavedFileError, match="its policy network is 'linear', expected 'JointAtt"):
        learning.load_training(tmp_path / "file", ENV)
    for refused in (learning.policy_arrays, learning.policy_description):
        with pytest.raises(ArgumentError, match="network of the policy is Linear, expected layers"):
            refused(training)


def test_older_checkpoints_have_the_default_of_a_newer_setting(tmp_path):
    training = learning.Training(ALGORITHMS["apg"], ENV)
    training.save(tmp_path / "file")
    header, body = _sealed.read_sealed(tmp_path / "file", "checkpoint", checkpoint.VERSION)
    del header["about"]["settings"]["policy_network"]
    _sealed.write_sealed(tmp_path / "file", "checkpoint", checkpoint.VERSION, header, body)
    learning.Training(ALGORITHMS["apg"], ENV).load(tmp_path / "file")
    assert learning.load_training(tmp_path / "file", ENV).algorithm == ALGORITHMS["apg"]
    del header["about"]["settings"]["updates"]
    header["about"]["settings"]["learning_rate"] = 0.5
    _sealed.write_sealed(tmp_path / "file", "checkpoint", checkpoint.VERSION, header, body)
    with pytest.raises(SavedFileError, match=r"setting learning_rate is 0\.5"):
        learning.Training(ALGORITHMS["apg"], ENV).load(tmp_path / "file")
