"""Proximal policy optimization (PPO): a policy gradient from samples, without differentiating the
simulation.

An update rolls n environments out for h steps with the old policy. p is the ratio of the
probability densities of an action for the new and the old policy, A is the advantage, e is the
setting `clip`, and V is the value of the critic. The loss is the negative of equation (9) of the
paper: the mean of the negative of the clipped objective (7), plus the error of the critic, minus
the entropy of the policy:

    L = mean(-min(p A, clip(p, 1 - e, 1 + e) A)) + critic_weight mean((V - R)^2) / 2
        - entropy_weight mean(entropy).

R is the TD(lambda) return of a step and `A = R - V` the generalised advantage estimate, equations
(11) and (12); A is scaled to the mean 0 and the variance 1. If an episode is truncated, R continues
with the critic's value of its last observation. The action is the tanh of a Gaussian variable; p is
the ratio of the densities of this variable, because both densities of the action have the same
factor from tanh. The entropy is of the Gaussian variable.

Source: Schulman, Wolski, Dhariwal, Radford and Klimov (2017), Proximal policy optimization
algorithms.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._math.ranks import plus, times
from ..envs import State, Vectorized
from ..envs.environment import Observation
from .networks import (
    Network,
    ObservationStatistics,
    Policy,
    PolicyNetwork,
    act,
    apply,
    network,
    new_policy,
    no_statistics,
    normalised,
    observation_size,
    values,
    with_observations,
)
from .optimiser import Adam
from .rollouts import (
    Episodes,
    Simulated,
    WindowAlgorithm,
    check_numbers,
    check_parts,
    empty_episodes,
    lambda_returns,
    metrics,
    roll,
    shuffled,
    start,
)

LOG_STD = -0.5  # the logarithm of the initial standard deviation of the noise of the actions


class PpoState(NamedTuple):
    """All that an update of PPO changes."""

    policy: Policy
    critic: Network
    optimiser: Any
    statistics: ObservationStatistics
    states: State
    episodes: Episodes
    key: PRNGKeyArray


class Samples(NamedTuple):
    """The steps of one update (h steps of n environments): the normalised observations of the
    policy and of the critic, the Gaussian variable behind the action, the logarithm of its density
    for the old policy, the return R and the advantage A."""

    x: Float[Array, "s m"]
    critic_x: Float[Array, "s c"]
    before_tanh: Float[Array, "s k"]
    log_density: Float[Array, " s"]
    returns: Float[Array, " s"]
    advantage: Float[Array, " s"]


@dataclasses.dataclass(frozen=True)
class Ppo(WindowAlgorithm):
    """The settings of PPO.

    - `batch`: the number n of environments; `horizon`: the number h of steps per environment and
      update;
    - `hidden`: sizes of the hidden layers of both networks;
    - `discount`, `gae_lambda`: gamma and lambda of the returns;
    - `clip` (e), `critic_weight`, `entropy_weight`: parameters of the loss L;
    - `learning_rate` falls linearly to `last_learning_rate` over `updates`;
    - `epochs`: the number of passes over the samples of an update; `minibatches`: the number of
      minibatches of a pass;
    - `policy_observation`, `critic_observation`: if an observation is a dict, the names of the
      arrays that the policy and the critic get (default: an observation is one array);
    - `policy_network`: the function that makes the network of the policy, such as a
      `JointAttention`; see `networks.PolicyNetwork` (default: a network with the layers `hidden`);
    - `reward_scale`: a factor of the rewards, so that returns are of the order of 1 to 10;
    - `updates`: the number of updates of the whole training.
    """

    batch: int = 256
    horizon: int = 32
    hidden: tuple[int, ...] = (64, 64)
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    critic_weight: float = 1.0
    entropy_weight: float = 1e-3
    learning_rate: float = 1e-3
    last_learning_rate: float = 1e-5
    epochs: int = 4
    minibatches: int = 8
    policy_observation: str | None = None
    critic_observation: str | None = None
    policy_network: PolicyNetwork | None = None
    reward_scale: float = 0.1
    updates: int = 500

    def __post_init__(self):
        check_parts(self, "minibatches", "epochs", "updates")
        check_numbers(self)

    def init(self, env: Vectorized, params: Any, key: PRNGKeyArray) -> PpoState:
        """The state before the first update. `params`: the parameters of the environments."""
        key, policy_key, critic_key, reset_key = jax.random.split(key, 4)
        states, dtype = start(env, params, reset_key, self.batch), params.model.dtype
        size = observation_size(self.policy_observation, states.observation, "policy_observation")
        sizes = size, *self.hidden, env.action_size
        policy = new_policy(policy_key, sizes, dtype, LOG_STD, self.policy_network)
        size = observation_size(self.critic_observation, states.observation, "critic_observation")
        critic = network(critic_key, (size, *self.hidden, 1), dtype)
        return PpoState(
            policy=policy,
            critic=critic,
            optimiser=self._adam().init((policy, critic)),
            statistics=no_statistics(states.observation),
            states=states,
            episodes=empty_episodes(self.batch, dtype),
            key=key,
        )

    def draw(self, env: Vectorized, state: PpoState) -> Float[Array, "h n k"]:
        """The noise of the actions."""
        _, noise_key, _ = jax.random.split(state.key, 3)
        shape = self.horizon, self.batch, env.action_size
        return jax.random.normal(noise_key, shape, state.policy.log_std.dtype)

    def simulate(
        self, env: Vectorized, params: Any, state: PpoState, draws: Float[Array, "h n k"]
    ) -> Simulated:
        """The window with the actions of the policy."""

        def actions(observation: Observation, noise: Array) -> Array:
            return act(state.policy, state.statistics, observation, noise, self.policy_observation)

        return Simulated(*roll(env, params, state.states, actions, draws))

    def learn(
        self, state: PpoState, draws: Float[Array, "h n k"], simulated: Simulated
    ) -> tuple[PpoState, dict[str, Float[Array, ""]]]:
        """The state after an update, and its metrics, from the window of all environments."""
        key, _, order_key = jax.random.split(state.key, 3)
        window = simulated.window
        scaled = window._replace(reward=self.reward_scale * window.reward)
        x, critic_x = (
            normalised(state.statistics, window.observation, name)
            for name in (self.policy_observation, self.critic_observation)
        )
        next_values = values(
            state.critic, state.statistics, window.final_observation, self.critic_observation
        )
        returns = lambda_returns(scaled, next_values, self.discount, self.gae_lambda)
        advantage = returns - apply(state.critic, critic_x)[..., 0]
        spread = jnp.std(advantage) + 1e-8
        mean, std = apply(state.policy.mean, x), jnp.exp(state.policy.log_std)
        samples = Samples(
            x=x,
            critic_x=critic_x,
            before_tanh=mean + times(std, draws),
            log_density=log_density(state.policy, draws),
            returns=returns,
            advantage=(advantage - jnp.mean(advantage)) / spread,
        )
        samples = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), samples)

        def loss(networks: tuple[Policy, Network], rows: Array) -> Array:
            return self.loss(networks, jax.tree.map(lambda x: x[rows], samples))

        rows = shuffled(order_key, self.update_steps, self.epochs, self.minibatches)
        networks = state.policy, state.critic
        found = self._adam().fit(loss, networks, state.optimiser, rows)
        ((policy, critic), optimiser), (costs, norms) = found
        episodes = state.episodes.add(window)
        statistics = with_observations(state.statistics, window.observation)
        after = PpoState(policy, critic, optimiser, statistics, simulated.states, episodes, key)
        return after, metrics(window, episodes, jnp.mean(costs), jnp.mean(norms))

    def loss(self, networks: tuple[Policy, Network], samples: Samples) -> Float[Array, ""]:
        """The loss L of the policy and the critic for some samples."""
        policy, critic = networks
        difference = samples.before_tanh - apply(policy.mean, samples.x)
        noise = times(difference, jnp.exp(-policy.log_std))
        ratio = jnp.exp(log_density(policy, noise) - samples.log_density)
        clipped = jnp.clip(ratio, 1 - self.clip, 1 + self.clip)
        gain = jnp.minimum(ratio * samples.advantage, clipped * samples.advantage)
        error = apply(critic, samples.critic_x)[..., 0] - samples.returns
        entropy = jnp.sum(policy.log_std)  # up to a constant
        critic_cost = self.critic_weight * jnp.mean(error * error) / 2
        return -jnp.mean(gain) + critic_cost - self.entropy_weight * entropy

    def _adam(self) -> Adam:
        steps = self.updates * self.epochs * self.minibatches
        return Adam(self.learning_rate, self.last_learning_rate, steps, largest=1.0)


def log_density(policy: Policy, noise: Float[Array, "... k"]) -> Float[Array, "..."]:
    """The logarithm of the density of `mean + std noise`, up to a constant."""
    return -jnp.sum(plus(noise * noise / 2, policy.log_std), axis=-1)
