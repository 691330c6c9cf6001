"""Environments with other observations: hidden parts, the last observations, and what stays."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import envs, learning
from jaxrbd.envs.environment import Interface
from jaxrbd.errors import ArgumentError, SavedFileError
from support.point import Point, PointWithSecrets


class NoisyPoint(Point):
    """A point whose observation is its place, two random numbers, and the place plus one."""

    def observe(self, params, physics, key):
        return jnp.concatenate([physics, jax.random.uniform(key, (2,)), physics + 1])

    def configuration(self, physics):
        return physics

    def interface(self, params):
        return Interface(observation=(("place", 1), ("noise", 2), ("next", 1)), command="force")


class PointOfParts(PointWithSecrets):
    """A point with two entries of the observation, each with its parts."""

    def interface(self, params):
        return Interface({"state": (("x", 1),), "privileged_state": (("x", 1), ("friction", 1))})


ENV, PARAMS = NoisyPoint(), NoisyPoint().default_params()


def episode(env, steps, action=0.05):
    """The states of an episode from its start, with one action."""
    state, step = env.reset(PARAMS, jax.random.key(3)), jax.jit(env.step)
    states = [state]
    for _ in range(steps):
        states.append(step(PARAMS, states[-1], jnp.full(1, action)))
    return states


def test_hidden_parts_are_for_the_critic_only():
    env = envs.Asymmetric(ENV, hidden=("noise",))
    for state, same in zip(episode(env, 2), episode(ENV, 2)):
        whole = same.observation
        np.testing.assert_array_equal(state.observation["privileged_state"], whole)
        np.testing.assert_array_equal(state.observation["state"], whole[np.array([0, 3])])
        np.testing.assert_array_equal(state.physics, same.physics)
        assert state.reward == same.reward
    shown = (("place", 1), ("next", 1))
    whole = ("place", 1), ("noise", 2), ("next", 1)
    found = env.interface(PARAMS)
    assert found.observation == {"state": shown, "privileged_state": whole}
    assert found.command == "force"
    assert envs.Asymmetric(ENV, hidden="noise") == env


def test_a_history_has_the_last_observations_with_their_noise():
    env = envs.History(ENV, 3)
    states = episode(env, 4)
    rows = [np.asarray(state.observation).reshape(3, 4) for state in states]
    assert np.all(rows[0] == rows[0][0])
    for before, after, state in zip(rows, rows[1:], states[1:]):
        np.testing.assert_array_equal(after[1:], before[:-1])
        assert after[0, 0] == state.physics.physics[0]
        assert not np.any(after[0] == before[0])  # the place, and the noise of another key
    place = states[-1].physics.physics[0]
    np.testing.assert_allclose(states[-1].reward, place - 0.5 * 0.05**2, rtol=1e-12)
    assert env.interface(PARAMS).observation == (
        *(("place", 1), ("noise", 2), ("next", 1)),
        *(("place[-1]", 1), ("noise[-1]", 2), ("next[-1]", 1)),
        *(("place[-2]", 1), ("noise[-2]", 2), ("next[-2]", 1)),
    )
    np.testing.assert_array_equal(env.configuration(states[-1].physics), states[-1].physics.physics)


def test_the_history_of_a_new_episode_has_no_observation_of_the_old_one():
    env = envs.auto_reset(envs.History(dataclasses.replace(ENV, episode_steps=2), 3))
    last = episode(env, 2)[-1]
    assert last.truncated
    rows = np.asarray(last.observation).reshape(3, 4)
    assert np.all(rows == rows[0])
    old = np.asarray(last.final_observation).reshape(3, 4)
    assert not np.any(old[0] == rows[0])


def test_an_episode_of_a_history_fails_as_without_it():
    states = episode(envs.History(ENV, 2), 3, action=0.6)
    assert [bool(state.terminated) for state in states] == [False, False, True, True]


def test_a_history_of_one_entry_keeps_the_others():
    env = envs.History(PointOfParts(), 2, entry="state")
    before, after = episode(env, 1)
    assert after.observation["state"].shape == (2,)
    place = after.physics.physics[0]
    assert after.observation["state"][0] == place
    assert after.observation["state"][1] == before.observation["state"][0]
    np.testing.assert_array_equal(
        after.observation["privileged_state"], jnp.stack([place, PARAMS.friction])
    )
    assert env.interface(PARAMS).observation == {
        "state": (("x", 1), ("x[-1]", 1)),
        "privileged_state": (("x", 1), ("friction", 1)),
    }


def test_the_entries_of_a_history_have_one_noise():
    env = envs.History(envs.Asymmetric(ENV, hidden=("next",)), 2, entry="state")
    before, after = episode(env, 1)
    for state in (before, after):
        found = state.observation
        np.testing.assert_array_equal(found["state"][:3], found["privileged_state"][:3])
    assert not np.any(after.observation["state"][1:3] == before.observation["state"][1:3])


def test_an_observation_that_is_not_finite_ends_one_step_of_a_history():
    """The robot moves on, and the history has 0 in place of the entry."""

    class Blinking(type(ENV)):
        def observe(self, params, physics, key):
            found = super().observe(params, physics, key)
            return found.at[0].set(jnp.where(jax.random.uniform(key) < 0.5, jnp.nan, found[0]))

    env = envs.History(Blinking(episode_steps=50), 2)
    params = env.default_params()
    state, step = env.reset(params, jax.random.key(0)), jax.jit(env.step)
    assert jnp.all(jnp.isfinite(state.observation))
    diverged, places = [], []
    for _ in range(20):
        before, m = state.observation, len(state.observation) // 2
        state = step(params, state, jnp.ones(env.action_size))
        assert jnp.all(jnp.isfinite(state.observation))
        np.testing.assert_array_equal(state.observation[m:], before[:m])
        assert bool(state.diverged) == (float(state.observation[0]) == 0)
        diverged.append(bool(state.diverged))
        places.append(np.asarray(env.configuration(state.physics)))
        assert m * 2 == len(state.observation)
    assert 4 < sum(diverged) < 16
    assert np.all(np.any(np.diff(places, axis=0) != 0, axis=1))


def test_a_training_uses_both_and_its_file_states_them(tmp_path):
    def training(hidden):
        env = envs.History(envs.Asymmetric(ENV, hidden), 2, entry="state")
        shac = learning.Shac(
            batch=4,
            horizon=2,
            hidden=(3,),
            updates=1,
            policy_observation="state",
            critic_observation="privileged_state",
        )
        return learning.Training(shac, env)

    one = training(("noise",))
    assert one.state.policy.mean[0].weight.shape[0] == 4
    settings = {"env": {"name": "NoisyPoint", "settings": {"episode_steps": 6}}}
    assert one.env.settings() == {
        "env": {"name": "Asymmetric", "settings": settings | {"hidden": ["noise"]}},
        "length": 2,
        "entry": "state",
    }
    one.save(tmp_path / "file")
    training(("noise",)).load(tmp_path / "file")
    with pytest.raises(SavedFileError, match="its environment setting env is"):
        training(("noise", "next")).load(tmp_path / "file")


@dataclasses.dataclass(frozen=True)
class Reshaped(type(ENV)):
    """The environment with another form of its observations."""

    form: Any = None

    def observe(self, params, physics, key):
        return self.form(super().observe(params, physics, key))


def test_wrong_settings_are_named():
    several = PointOfParts()
    for message, make in {
        "env is 'AutoReset', expected an Env": lambda: envs.History(envs.auto_reset(ENV), 2),
        "env is 'float', expected an Env": lambda: envs.Asymmetric(1.0, "noise"),
        "length is 0": lambda: envs.History(ENV, 0),
        "entry is 'state', expected None": lambda: envs.History(ENV, 2, "state"),
        "entry is 1, expected the name of an entry": lambda: envs.History(several, 2, 1),
        "the observation of env has shape \\(4, 1\\) and dtype float64, expected": lambda: (
            envs.History(Reshaped(form=lambda x: x[:, None]), 2)
        ),
        "the observation of env is 'tuple', expected a vector": lambda: envs.History(
            Reshaped(form=lambda x: (x,)), 2
        ),
        "entry is None, expected privileged_state, state": lambda: envs.History(several, 2),
        "entry is 'x', expected privileged_state": lambda: envs.History(several, 2, "x"),
        "'nois', expected some of place, noise, next": lambda: envs.Asymmetric(ENV, "nois"),
        "hidden has all parts": lambda: envs.Asymmetric(ENV, ("place", "noise", "next")),
        "the interface of Point states no parts": lambda: envs.Asymmetric(Point(), "place"),
        "the interface of PointOfParts states no parts": lambda: envs.Asymmetric(several, "x"),
    }.items():
        with pytest.raises(ArgumentError, match=message):
            make()
