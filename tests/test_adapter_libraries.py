"""The adapters of environments inside of Brax and gymnax, where these packages are installed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import envs
from support.point import Point, PointWithSecrets

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def as_these_libraries_need(monkeypatch):
    """They mix dtypes, and Brax 0.14 calls a function that JAX 0.10 does not have."""

    def replicated(tree, devices):
        return jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * len(devices)), tree)

    monkeypatch.setattr(jax, "device_put_replicated", replicated, raising=False)
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.parametrize("env", [Point(), PointWithSecrets()])
def test_wrappers_of_brax(env):
    """Episodes of five steps begin anew, and the metrics of an evaluation are sums."""
    training = pytest.importorskip("brax.envs.wrappers.training")
    wrapped = training.EvalWrapper(training.wrap(envs.BraxEnv(env), episode_length=5))
    state = jax.jit(wrapped.reset)(jax.random.split(jax.random.PRNGKey(0), 3))
    rewards = 0
    for i in range(7):
        state = jax.jit(wrapped.step)(state, jnp.full((3, 1), 0.1))
        assert jnp.all(state.done == (i == 4))
        rewards = rewards + state.reward * (i < 5)
    found = state.info["eval_metrics"].episode_metrics
    np.testing.assert_allclose(found["reward"], rewards, rtol=1e-6)
    np.testing.assert_allclose(found["place"] + found["effort"], rewards, rtol=1e-6)
    assert jnp.all(state.info["eval_metrics"].episode_steps == 5)


def test_a_training_of_brax():
    """PPO of Brax with its default evaluation pushes the point forward."""
    ppo = pytest.importorskip("brax.training.agents.ppo.train")
    networks = pytest.importorskip("brax.training.agents.ppo.networks")
    progress = {}
    with jax.enable_x64(False):
        ppo.train(
            environment=envs.BraxEnv(Point()),
            num_timesteps=20_000,
            episode_length=6,
            num_envs=64,
            num_eval_envs=16,
            batch_size=16,
            num_minibatches=8,
            unroll_length=6,
            num_evals=3,
            learning_rate=1e-2,
            normalize_observations=True,
            network_factory=functools.partial(
                networks.make_ppo_networks,
                policy_hidden_layer_sizes=(16,),
                value_hidden_layer_sizes=(16,),
            ),
            progress_fn=lambda steps, metrics: progress.update({steps: metrics}),
        )
    returns = [float(metrics["eval/episode_reward"]) for metrics in progress.values()]
    assert np.all(np.isfinite(returns))
    assert returns[-1] > returns[0] + 0.2


def test_a_rollout_of_gymnax():
    """The wrapper of gymnax that rolls a batch of episodes out reads the spaces and the infos."""
    purerl = pytest.importorskip("gymnax.wrappers")
    env = purerl.LogWrapper(envs.GymnaxEnv(Point(episode_steps=5)))
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    params = env.default_params
    observation, state = jax.vmap(env.reset, (0, None))(keys, params)
    for i in range(6):
        action = jnp.full((4, 1), 0.1)
        observation, state, _, terminated, truncated, _ = jax.vmap(env.step, (0, 0, 0, None))(
            keys, state, action, params
        )
        assert not jnp.any(terminated)
        assert jnp.all(truncated == (i == 4))
    assert jnp.all(state.returned_episode_lengths == 5)
    assert observation.shape == (4, 1)
