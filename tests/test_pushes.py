"""Random pushes of a robot with legs: how often, how fast, and which velocities they change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import envs
from jaxrbd.envs import legged
from test_padded_walk import Stool

ENV = Stool(3)
TILTED = jnp.array([0.0, 0.0, 2.0, 0.2, -0.4, 0.1, 0.9, 0.3, -0.2, 0.1])  # high above the ground
N = 4000


def changes(pushes):
    """The changes of the velocity (N, nv) by a step, with the base velocity in world axes."""
    q = TILTED.at[3:7].divide(jnp.linalg.norm(TILTED[3:7]))
    v = 0.1 * jnp.arange(9.0)
    keys = jax.random.split(jax.random.key(0), N)
    found = jax.vmap(lambda key: legged._pushed(jnp.array(pushes), q, v, key))(keys) - v
    R = rbd.so3.quaternion_to_matrix(q[3:7])
    return np.asarray(found.at[:, :3].set(found[:, :3] @ R.T))


def test_a_push_changes_the_horizontal_velocity_of_the_base():
    found = changes((0.5, 0.02))
    np.testing.assert_allclose(found[:, 2:], 0, atol=1e-15)
    assert np.all(np.any(found[:, :2] != 0, axis=1))
    for x in found[:, :2].T:
        assert np.all(np.abs(x) < 0.5)
        np.testing.assert_allclose(np.quantile(x, (0.25, 0.5, 0.75)), (-0.25, 0, 0.25), atol=0.03)
    assert abs(np.corrcoef(found[:, 0], found[:, 1])[0, 1]) < 0.06


def test_pushes_have_the_mean_time_between_them():
    pushed = np.any(changes((0.5, 0.1)) != 0, axis=1)
    assert abs(np.mean(pushed) - 0.2) < 0.03


@pytest.mark.slow
def test_a_step_with_a_push_starts_with_its_velocity():
    """In the air, the velocity after the step is changed by the push, but for the rotation."""
    params = ENV.default_params()
    state = ENV.reset(params, jax.random.key(1))
    physics = state.physics._replace(q=state.physics.q.at[2].add(2.0))
    action = jnp.zeros(3)

    @jax.jit
    def speed(pushes, key):
        after = ENV.advance(params._replace(pushes=pushes), physics, action, key)
        return rbd.so3.quaternion_rotate(after.q[3:7], after.v[:3]), after.q[:3]

    calm, place = speed(jnp.array([0.0, 0.02]), jax.random.key(2))
    fast, farther = speed(jnp.array([0.5, 0.02]), jax.random.key(2))
    np.testing.assert_allclose((fast - calm)[2], 0, atol=1e-6)
    assert 0.02 < np.linalg.norm(fast - calm) < 0.71
    np.testing.assert_allclose(farther - place, 0.02 * (fast - calm), rtol=1e-3, atol=1e-6)


def test_a_robot_is_not_pushed_by_default():
    assert ENV.default_params().pushes is None
    assert envs.QuadrupedTrot().default_params().pushes is None
