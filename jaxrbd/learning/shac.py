"""Short-horizon actor-critic (SHAC): policy gradients through the simulation.

An update simulates n environments for h steps, the window, from the states at the end of the last
update. The loss of the actor is minus the sum of the discounted rewards in the window and of the
discounted value V of the last observation, per step and environment; equation (5) of the paper:

    L = -1 / (n h) sum over environments ( sum_t c^(t - t0) r_t + c^(t1 - t0) V(s_t1) ).

Here c is the discount, t0 the first step of an episode in the window, and t1 the step after its
last step in the window. If an episode ends in the window, a new sum starts with t0 at the next
step. V is added if the episode was truncated or the window ended, not if it terminated.

JAX differentiates L through the physics. The window is short, so the gradient does not grow as it
does over whole episodes; the critic V accounts for the later rewards. The critic is fitted to
TD(lambda) returns, equations (6) and (7), where lambda is the parameter `td_lambda`. A target
critic gives the values in L and in the returns. After each update, its parameters become the
weighted mean of its parameters and the critic's, with the weights `target_share` and
`1 - target_share`.

Source: Xu, Makoviychuk, Narang, Ramos, Matusik, Garg and Macklin (2022), Accelerated policy
learning with parallel differentiable simulation, algorithm 1. The defaults are the settings of the
paper for its cart-pole.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from ..envs import State, Vectorized
from ..envs.environment import Observation
from . import networks, rollouts
from .mirror import better_side, check_mirror
from .networks import Network, Policy, act, apply, normalised, values
from .optimiser import Adam
from .rollouts import (
    Episodes,
    Simulated,
    Window,
    draw_noise,
    empty_episodes,
    lambda_returns,
    roll,
    start,
)


class ShacState(NamedTuple):
    """All that an update of SHAC changes."""

    policy: Policy
    critic: Network
    target_critic: Network
    policy_optimiser: Any
    critic_optimiser: Any
    statistics: networks.ObservationStatistics
    states: State
    episodes: Episodes
    key: PRNGKeyArray


@dataclasses.dataclass(frozen=True)
class Shac(rollouts.WindowAlgorithm):
    """The settings of SHAC.

    - `batch`: the number n of environments; `horizon`: the number h of steps of a window;
    - `hidden`: sizes of the hidden layers of both networks;
    - `discount`: the factor c per step; `td_lambda`: the parameter lambda of TD(lambda);
    - `learning_rate`, `critic_learning_rate`: fall linearly to `last_learning_rate` over `updates`;
    - `critic_epochs`: the number of passes over the samples of a window; `critic_minibatches`: the
      number of minibatches of a pass;
    - `target_share`: the share of the old target critic that remains after an update;
    - `log_std`: the logarithm of the initial standard deviation of the noise of the actions;
    - `last_noise`: the noise of the actions has a factor, which falls linearly from 1 to this value
      over all updates. With 0, the training ends near the policy that `deterministic` returns;
    - `policy_observation`, `critic_observation`, `policy_network`: as in `Ppo`;
    - `mirror_observation`, `mirror_action`: for a task that looks the same in a mirror, the signs 1
      or -1 of the entries of the observation and of the action in the mirror (default: no mirror).
      They change only `deterministic`: it acts for the observation or for its mirror image,
      whichever has the higher value of the critic. The training does not change;
    - `updates`: the number of updates of the whole training.
    """

    batch: int = 64
    horizon: int = 32
    hidden: tuple[int, ...] = (64, 64)
    discount: float = 0.99
    td_lambda: float = 0.95
    learning_rate: float = 1e-2
    critic_learning_rate: float = 1e-3
    last_learning_rate: float = 1e-5
    critic_epochs: int = 16
    critic_minibatches: int = 4
    target_share: float = 0.2
    log_std: float = -1.0
    last_noise: float = 1.0
    policy_observation: str | None = None
    critic_observation: str | None = None
    policy_network: networks.PolicyNetwork | None = None
    mirror_observation: tuple[int, ...] = ()
    mirror_action: tuple[int, ...] = ()
    updates: int = 500

    def __post_init__(self):
        rollouts.check_parts(self, "critic_minibatches", "critic_epochs", "updates")
        rollouts.check_numbers(self)

    def init(self, env: Vectorized, params: Any, key: PRNGKeyArray) -> ShacState:
        """The state before the first update.

        Raises ArgumentError for signs of a mirror that do not fit the environment.
        """
        key, policy_key, critic_key, reset_key = jax.random.split(key, 4)
        states, dtype = start(env, params, reset_key, self.batch), params.model.dtype

        def size(name: str) -> int:
            return networks.observation_size(getattr(self, name), states.observation, name)

        check_mirror(self, size("policy_observation"), env.action_size)
        sizes = size("policy_observation"), *self.hidden, env.action_size
        policy = networks.new_policy(policy_key, sizes, dtype, self.log_std, self.policy_network)
        critic = networks.network(critic_key, (size("critic_observation"), *self.hidden, 1), dtype)
        return ShacState(
            policy=policy,
            critic=critic,
            target_critic=critic,
            policy_optimiser=self._adam().init(policy),
            critic_optimiser=self._critic_adam().init(critic),
            statistics=networks.no_statistics(states.observation),
            states=states,
            episodes=empty_episodes(self.batch, dtype),
            key=key,
        )

    def draw(self, env: Vectorized, state: ShacState) -> Float[Array, "h n k"]:
        """The noise of the actions."""
        _, noise_key, _ = jax.random.split(state.key, 3)
        shape = self.horizon, self.batch, env.action_size
        progress = self._adam().progress(state.policy_optimiser)
        return draw_noise(noise_key, shape, state.policy.log_std.dtype, self.last_noise, progress)

    def simulate(
        self, env: Vectorized, params: Any, state: ShacState, draws: Float[Array, "h n k"]
    ) -> Simulated:
        """The window with the actions of the policy, the loss of the actor and its gradient."""

        def loss(policy: Policy) -> tuple[Array, tuple[State, Window]]:
            return self.actor_loss(env, params, policy, state, draws)

        (cost, (states, window)), gradient = jax.value_and_grad(loss, has_aux=True)(state.policy)
        return Simulated(states, window, cost, gradient)

    def learn(
        self, state: ShacState, draws: Float[Array, "h n k"], simulated: Simulated
    ) -> tuple[ShacState, dict[str, Float[Array, ""]]]:
        """The state after an update, and its metrics, from the window of all environments."""
        states, window, cost, gradient = simulated
        key, _, critic_key = jax.random.split(state.key, 3)

        # The actor: one step of Adam with the gradient through the physics.
        actor = self._adam().step(gradient, state.policy_optimiser, state.policy)

        # The critic: regression to TD(lambda) returns.
        next_values = values(
            state.target_critic, state.statistics, window.final_observation, self.critic_observation
        )
        returns = lambda_returns(window, next_values, self.discount, self.td_lambda)
        critic, critic_optimiser, error = self._fit_critic(
            state, window.observation, returns, critic_key
        )
        share = self.target_share
        target = jax.tree.map(
            lambda old, new: share * old + (1 - share) * new, state.target_critic, critic
        )
        episodes = state.episodes.add(window)
        return ShacState(
            policy=actor.params,
            critic=critic,
            target_critic=target,
            policy_optimiser=actor.state,
            critic_optimiser=critic_optimiser,
            statistics=networks.with_observations(state.statistics, window.observation),
            states=states,
            episodes=episodes,
            key=key,
        ), rollouts.metrics(window, episodes, cost, actor.gradient_norm, critic_loss=error)

    def actor_loss(
        self,
        env: Vectorized,
        params: Any,
        policy: Policy,
        state: ShacState,
        noise: Float[Array, "h n k"],
    ) -> tuple[Float[Array, ""], tuple[State, Window]]:
        """The loss L of the actor, the states after the window, and the window."""

        def actions(observation: Observation, noise: Array) -> Array:
            return act(policy, state.statistics, observation, noise, self.policy_observation)

        states, window = roll(env, params, state.states, actions, noise)

        def next_weight(weight: Array, done: Array) -> tuple[Array, Array]:
            return jnp.where(done, 1, self.discount * weight), weight

        # c^(t - t0), where t0 is the first step of the episode in the window.
        weights = lax.scan(next_weight, jnp.ones_like(window.reward[0]), window.done)[1]
        later = values(
            state.target_critic, state.statistics, window.final_observation, self.critic_observation
        )
        later = jnp.where(window.last & ~window.terminated, later, 0)
        total = jnp.sum(weights * (window.reward + self.discount * later))
        return -total / window.reward.size, (states, window)

    def deterministic(self, state: ShacState, observation: Observation) -> Float[Array, "... k"]:
        """The actions of the policy without noise; with a mirror, as in `mirror.better_side`."""
        actions = partial(super().deterministic, state)
        if not self.mirror_observation:
            return actions(observation)
        returns = partial(values, state.critic, state.statistics)
        signs = self.mirror_observation, self.mirror_action
        return better_side(actions, returns, observation, *signs)

    def _fit_critic(
        self, state: ShacState, observation: Observation, returns: Array, key: PRNGKeyArray
    ) -> tuple[Network, Any, Array]:
        """The critic, its optimiser and the last loss, after a fit to the returns (h, n)."""
        x = normalised(state.statistics, observation, self.critic_observation)
        x, y = x.reshape(-1, x.shape[-1]), returns.reshape(-1)

        def loss(critic: Network, rows: Array) -> Array:
            return jnp.mean((apply(critic, x[rows])[..., 0] - y[rows]) ** 2)

        rows = rollouts.shuffled(key, y.size, self.critic_epochs, self.critic_minibatches)
        found = self._critic_adam().fit(loss, state.critic, state.critic_optimiser, rows)
        (critic, optimiser), (errors, _) = found
        return critic, optimiser, errors[-1]

    def _adam(self) -> Adam:
        return Adam(self.learning_rate, self.last_learning_rate, self.updates, b1=0.7, b2=0.95)

    def _critic_adam(self) -> Adam:
        steps = self.updates * self.critic_epochs * self.critic_minibatches
        return Adam(self.critic_learning_rate, self.last_learning_rate, steps, b1=0.7, b2=0.95)
