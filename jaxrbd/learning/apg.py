"""Analytic policy gradients (APG): the gradient of the rewards in a window, without a critic.

An update rolls n environments out for h steps, from where the last update ended. The loss is the
negative mean reward of the window, and JAX differentiates it through the physics. Rewards after the
window have no weight, so APG suits tasks in which an action changes the reward soon, such as
following a reference.

A few environments, such as robots that are about to fall, can have gradients that are larger than
those of all others. With `action_limit`, the gradient with respect to each action is limited before
JAX sums the gradients of all actions into the gradient of the policy. Then the norm of the sum is
limited. The limit of single actions and the decrease of the noise (`last_noise`) are not in the
paper.

Source: Wiedemann, Wuest, Loquercio, Mueller, Floreano and Scaramuzza (2023), Training efficient
controllers via analytic policy gradient, equation (4).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from ..envs import State, Vectorized
from ..envs.environment import Observation
from ..model import arguments
from . import rollouts
from .networks import (
    ObservationStatistics,
    Policy,
    PolicyNetwork,
    act,
    new_policy,
    no_statistics,
    observation_size,
    with_observations,
)
from .optimiser import Adam, with_limited_gradient
from .rollouts import (
    Episodes,
    Simulated,
    Window,
    check_numbers,
    draw_noise,
    empty_episodes,
    roll,
    start,
)


class ApgState(NamedTuple):
    """All that an update of APG changes."""

    policy: Policy
    optimiser: Any
    statistics: ObservationStatistics
    states: State
    episodes: Episodes
    key: PRNGKeyArray


@dataclasses.dataclass(frozen=True)
class Apg(rollouts.WindowAlgorithm):
    """The settings of APG.

    - `batch`: the number n of environments; `horizon`: the number h of steps of a window;
    - `hidden`: sizes of the hidden layers of the policy;
    - `learning_rate` falls linearly to `last_learning_rate` over `updates`;
    - `betas`: the two decay rates of Adam;
    - `log_std`: the logarithm of the initial standard deviation of the noise of the actions;
    - `last_noise`: as in `Shac`;
    - `policy_observation`, `policy_network`: as in `Ppo`;
    - `action_limit`: the largest norm of the gradient of the sum of the rewards of a window with
      respect to one action of one environment. Larger gradients are scaled (default: no limit);
    - `updates`: the number of updates of the whole training.
    """

    batch: int = 64
    horizon: int = 32
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 2e-3
    last_learning_rate: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.999)
    log_std: float = -2.0
    last_noise: float = 1.0
    action_limit: float | None = None
    policy_observation: str | None = None
    policy_network: PolicyNetwork | None = None
    updates: int = 500

    def __post_init__(self):
        arguments.require_counts(batch=self.batch, horizon=self.horizon, updates=self.updates)
        check_numbers(self)
        betas = arguments.parameter(self.betas, "betas", (2,))
        arguments.require(betas, lambda x: (x >= 0) & (x < 1), "betas", "numbers from 0 to below 1")

    def init(self, env: Vectorized, params: Any, key: PRNGKeyArray) -> ApgState:
        """The state before the first update."""
        key, policy_key, reset_key = jax.random.split(key, 3)
        states, dtype = start(env, params, reset_key, self.batch), params.model.dtype
        size = observation_size(self.policy_observation, states.observation, "policy_observation")
        sizes = size, *self.hidden, env.action_size
        policy = new_policy(policy_key, sizes, dtype, self.log_std, self.policy_network)
        return ApgState(
            policy=policy,
            optimiser=self._adam().init(policy),
            statistics=no_statistics(states.observation),
            states=states,
            episodes=empty_episodes(self.batch, dtype),
            key=key,
        )

    def draw(self, env: Vectorized, state: ApgState) -> Float[Array, "h n k"]:
        """The noise of the actions."""
        _, noise_key = jax.random.split(state.key)
        shape = self.horizon, self.batch, env.action_size
        progress = self._adam().progress(state.optimiser)
        return draw_noise(noise_key, shape, state.policy.log_std.dtype, self.last_noise, progress)

    def simulate(
        self, env: Vectorized, params: Any, state: ApgState, draws: Float[Array, "h n k"]
    ) -> Simulated:
        """The window with the actions of the policy, the loss and its gradient."""

        def loss(policy: Policy) -> tuple[Array, tuple[State, Window]]:
            return self.loss(env, params, policy, state, draws)

        (cost, (states, window)), gradient = jax.value_and_grad(loss, has_aux=True)(state.policy)
        return Simulated(states, window, cost, gradient)

    def learn(
        self, state: ApgState, draws: Float[Array, "h n k"], simulated: Simulated
    ) -> tuple[ApgState, dict[str, Float[Array, ""]]]:
        """The state after an update, and its metrics, from the window of all environments."""
        states, window, cost, gradient = simulated
        key, _ = jax.random.split(state.key)
        step = self._adam().step(gradient, state.optimiser, state.policy)
        episodes = state.episodes.add(window)
        metrics = rollouts.metrics(window, episodes, cost, step.gradient_norm)
        statistics = with_observations(state.statistics, window.observation)
        return ApgState(step.params, step.state, statistics, states, episodes, key), metrics

    def loss(
        self,
        env: Vectorized,
        params: Any,
        policy: Policy,
        state: ApgState,
        noise: Float[Array, "h n k"],
    ) -> tuple[Float[Array, ""], tuple[State, Window]]:
        """The loss of the policy, the states after the window, and the window."""

        steps = noise.shape[0] * noise.shape[1]

        def actions(observation: Observation, noise: Array) -> Array:
            found = act(policy, state.statistics, observation, noise, self.policy_observation)
            if self.action_limit is None:
                return found
            return with_limited_gradient(found, self.action_limit / steps)

        states, window = roll(env, params, state.states, actions, noise)
        return -jnp.mean(window.reward), (states, window)

    def _adam(self) -> Adam:
        b1, b2 = self.betas
        return Adam(self.learning_rate, self.last_learning_rate, self.updates, b1=b1, b2=b2)
