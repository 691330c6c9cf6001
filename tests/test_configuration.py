"""Configurations: statistics of random ones; neutral, integrate and difference of robots."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import joints
from support import zoo
from support.zoo import close

COUNT = 20_000
# The mean of COUNT independent values of variance s^2 has an error above OFF * s in one of 10^7
# cases. The key is fixed, so the result is always the same.
OFF = 5.5 / np.sqrt(COUNT)


@pytest.fixture(scope="module")
def drawn():
    """Samples of a robot with two joints of each kind: coordinates by joint, (COUNT, nq)."""
    names = ["revolute", "spherical", "free_flyer", "prismatic", "planar", "translation", "helical"]
    kinds = [*names, *names]
    model = zoo.build(kinds, range(-1, len(kinds) - 1), seed=11)
    keys = jax.random.split(jax.random.key(3), COUNT)
    q = np.asarray(jax.jit(jax.vmap(rbd.random_configuration, (None, 0)))(model, keys))
    return model, names, np.split(q, model.topology.q_start[1:], axis=1)


def numbers(model, names, q):
    """The coordinates with a uniform distribution, scaled to -1 .. 1; (COUNT, n)."""
    found = []
    for i, coordinates in enumerate(q):
        n = {"spherical": 0, "free_flyer": 3}.get(names[i % len(names)], coordinates.shape[1])
        rows = model.topology.q_start[i] + np.arange(n)
        lower, upper = (
            np.asarray(limit)[rows]
            for limit in (model.lower_position_limit, model.upper_position_limit)
        )
        found.append((2 * coordinates[:, :n] - lower - upper) / (upper - lower))
    return np.concatenate(found, axis=1)


def quaternions(names, q):
    return [
        own[:, -4:] for own, name in zip(q, [*names, *names]) if name in ("spherical", "free_flyer")
    ]


def test_coordinates_are_uniform_between_their_limits(drawn):
    x = numbers(*drawn)
    assert np.all(np.abs(x) <= 1)
    for power, mean in enumerate((0, 1 / 3, 0, 1 / 5, 0, 1 / 7), start=1):
        np.testing.assert_allclose(np.mean(x**power, axis=0), mean, atol=OFF / np.sqrt(3))


def test_rotations_are_uniform(drawn):
    """Moments of order 2 and 4 of unit quaternions with a uniform distribution."""
    for quaternion in quaternions(*drawn[1:]):
        np.testing.assert_allclose(np.linalg.norm(quaternion, axis=1), 1, atol=1e-14)
        np.testing.assert_allclose(np.mean(quaternion, axis=0), 0, atol=OFF / 2)
        second = np.einsum("ni,nj->ij", quaternion, quaternion) / COUNT
        np.testing.assert_allclose(second, np.eye(4) / 4, atol=OFF * np.sqrt(1 / 8 - 1 / 16))
        squares = quaternion**2
        fourth = np.einsum("ni,nj->ij", squares, squares) / COUNT
        expected = (1 + 2 * np.eye(4)) / 24
        deviation = np.sqrt(7 / 128 - 1 / 64)  # of a fourth power, E x^8 = 7 / 128
        np.testing.assert_allclose(fourth, expected, atol=OFF * deviation)


def test_the_joints_are_independent(drawn):
    """No correlation between coordinates, between their squares, or between two rotations."""
    x = np.concatenate([numbers(*drawn), *quaternions(*drawn[1:])], axis=1)
    owner = np.concatenate(
        [np.arange(numbers(*drawn).shape[1]), *([100 + i] * 4 for i in range(4))]
    )
    apart = owner[:, None] != owner
    for y in (x, x**2):
        correlation = np.corrcoef(y.T)
        assert np.max(np.abs(correlation[apart])) < OFF


def test_without_limits_angles_are_within_a_turn_and_lengths_within_a_metre():
    model = rbd.build_model(
        [
            rbd.model.Link(f"l{i}", rbd.model.link_inertia(1.0, (0, 0, 1), np.eye(3)))
            for i in range(4)
        ],
        [
            rbd.model.JointSpec("j0", joints.Revolute((0, 0, 1)), None, "l0"),
            rbd.model.JointSpec("j1", joints.Prismatic((0, 0, 1)), "l0", "l1", upper=-4),
            rbd.model.JointSpec("j2", joints.FreeFlyer(), "l1", "l2"),
            rbd.model.JointSpec("j3", joints.Planar(), "l2", "l3", lower=(0, -3, 2)),
        ],
    )
    keys = jax.random.split(jax.random.key(0), 2000)
    q = np.asarray(jax.vmap(rbd.random_configuration, (None, 0))(model, keys))
    ranges = {
        0: (-np.pi, np.pi),
        1: (-5, -4),
        **dict.fromkeys(range(2, 5), (-1, 1)),
        9: (0, 1),
        10: (-3, 1),
        11: (2, 2 + np.pi),
    }
    for i, (low, high) in ranges.items():
        assert low <= q[:, i].min() < low + 0.02 * (high - low), i
        assert high >= q[:, i].max() > high - 0.02 * (high - low), i


def test_another_key_is_another_configuration():
    model = zoo.small()
    found = [rbd.random_configuration(model, jax.random.key(seed)) for seed in range(4)]
    for a, b in itertools.combinations(found, 2):
        assert float(jnp.min(jnp.abs(a - b))) > 1e-6


def test_interpolation_goes_from_the_first_to_the_second():
    model = zoo.small()
    q0, q1 = (zoo.state(model, seed)[0] for seed in range(2))
    for alpha in (0.0, 0.3, 1.0):
        found = rbd.interpolate(model, q0, q1, alpha)
        close(rbd.difference(model, q0, found), alpha * rbd.difference(model, q0, q1), 1e-13)
