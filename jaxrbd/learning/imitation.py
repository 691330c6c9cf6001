"""Imitation: a policy, the student, learns the actions of another policy, the teacher.

The student learns in states that it reaches itself. It can have another network than the teacher,
or other observations. An update simulates n environments for h steps. In the first half of the
training, the teacher controls some of the environments: each one with a probability that falls
linearly from 1 to 0. The student controls the other environments. Then the student is fitted to the
actions of the teacher for all observations of the window, also where the student controlled the
environment. The loss is

    L = mean over samples ( sum_j w_j (a_j - b_j)^2 / sum_j w_j ),

with the actions a of the student and b of the teacher without noise, and weights w.

Source: Ross, Gordon and Bagnell (2011), A reduction of imitation learning and structured prediction
to no-regret online learning, algorithm 3.1 (DAgger). Algorithm 3.1 fits the student to the samples
of all windows; here each fit uses the samples of the last window, and starts from the last student.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from ..envs import State, Vectorized
from ..envs.environment import Observation
from ..errors import ArgumentError
from ..model import arguments
from . import networks, rollouts
from .networks import Policy, PolicyNetwork, act, new_policy, no_statistics, with_observations
from .optimiser import Adam
from .rollouts import (
    Episodes,
    Simulated,
    check_numbers,
    check_parts,
    empty_episodes,
    roll,
    shuffled,
    start,
)


class ImitationState(NamedTuple):
    """All that an update of the imitation changes."""

    policy: Policy
    optimiser: Any
    statistics: networks.ObservationStatistics
    states: State
    episodes: Episodes
    key: PRNGKeyArray


@dataclasses.dataclass(frozen=True)
class Imitation(rollouts.WindowAlgorithm):
    """The settings of an imitation.

    - `teacher`: a function from observations (..., m) to actions (..., k), such as the `policy()`
      of a `Training`;
    - `weights`: a function from observations to the weights (..., k) of the squared errors of the
      actions, 0 or more (default: 1). For `envs.PaddedWalk`, use the mask at the end of an
      observation, which is 0 for the joints that a robot does not have;
    - `batch`: the number n of environments; `horizon`: the number h of steps of a window;
    - `hidden`, `policy_observation`, `policy_network`: as in `Ppo`, for the student;
    - `learning_rate` falls linearly to `last_learning_rate` over `updates`;
    - `epochs`, `minibatches`: as in `Ppo`;
    - `log_std`: the logarithm of the standard deviation of the noise with which the student acts;
    - `updates`: the number of updates of the whole training.
    """

    teacher: Callable[[Observation], Array]
    weights: Callable[[Observation], Array] | None = None
    batch: int = 64
    horizon: int = 32
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 2e-3
    last_learning_rate: float = 1e-5
    epochs: int = 2
    minibatches: int = 4
    log_std: float = -2.0
    policy_observation: str | None = None
    policy_network: PolicyNetwork | None = None
    updates: int = 500

    def __post_init__(self):
        for name, function in (("teacher", self.teacher), ("weights", self.weights)):
            if name == "teacher" or function is not None:
                arguments.require_function(function, name, "a function of observations")
        check_parts(self, "minibatches", "epochs", "updates")
        check_numbers(self)

    def init(self, env: Vectorized, params: Any, key: PRNGKeyArray) -> ImitationState:
        """The state before the first update.

        Raises ArgumentError if the teacher has another number of actions than the environment.
        """
        key, policy_key, reset_key = jax.random.split(key, 3)
        states, dtype = start(env, params, reset_key, self.batch), params.model.dtype
        for name in ("teacher", "weights"):
            if getattr(self, name) is not None:  # for the check of the result
                self._result(name, states.observation, (self.batch, env.action_size))
        size = networks.observation_size(
            self.policy_observation, states.observation, "policy_observation"
        )
        sizes = size, *self.hidden, env.action_size
        policy = new_policy(policy_key, sizes, dtype, self.log_std, self.policy_network)
        return ImitationState(
            policy=policy,
            optimiser=self._adam().init(policy.mean),
            statistics=no_statistics(states.observation),
            states=states,
            episodes=empty_episodes(self.batch, dtype),
            key=key,
        )

    def draw(self, env: Vectorized, state: ImitationState) -> tuple[Array, Array]:
        """The noise of the actions (h, n, k), and whether the teacher controls (1, n, 1)."""
        _, noise_key, control_key, _ = jax.random.split(state.key, 4)
        dtype, k = state.policy.log_std.dtype, env.action_size
        noise = jax.random.normal(noise_key, (self.horizon, self.batch, k), dtype)
        # The expected share of the environments that the teacher controls.
        share = jnp.maximum(1 - 2 * self._adam().progress(state.optimiser), 0)
        return noise, (jax.random.uniform(control_key, (self.batch, 1), dtype) < share)[None]

    def simulate(
        self, env: Vectorized, params: Any, state: ImitationState, draws: tuple[Array, Array]
    ) -> Simulated:
        """The window with the actions of the student and of the teacher."""
        noise, teacher_controls = draws
        _, n, k = noise.shape

        def actions(observation: Observation, noise: Array) -> Array:
            name = self.policy_observation
            student_actions = act(state.policy, state.statistics, observation, noise, name)
            teacher_actions = self._result("teacher", observation, (n, k))
            return jnp.where(teacher_controls[0], teacher_actions, student_actions)

        return Simulated(*roll(env, params, state.states, actions, noise))

    def learn(
        self, state: ImitationState, draws: tuple[Array, Array], simulated: Simulated
    ) -> tuple[ImitationState, dict[str, Float[Array, ""]]]:
        """The state after an update, and its metrics, from the window of all environments.

        The metric `loss` is L of the last minibatch. The metric `weights`, if the algorithm has
        weights, is their mean; it is NaN if a weight is negative or not finite. Raises
        ArgumentError for a result of the teacher or of `weights` that does not have one row per
        observation.
        """
        key, _, _, order_key = jax.random.split(state.key, 4)
        dtype, k = state.policy.log_std.dtype, state.policy.log_std.size
        states, window, *_ = simulated
        observations = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), window.observation)
        statistics = with_observations(state.statistics, window.observation)
        shape = self.update_steps, k
        targets = lax.stop_gradient(self._result("teacher", observations, shape))
        weights, reported = jnp.ones_like(targets), {}
        if self.weights is not None:
            weights = self._result("weights", observations, shape)
            valid = jnp.all((weights >= 0) & jnp.isfinite(weights))
            reported = {"weights": jnp.where(valid, jnp.mean(weights), jnp.nan)}
            weights = jnp.where(valid, weights, 0)  # so no other metric is NaN

        def loss(mean: Any, rows: Array) -> Array:
            policy = state.policy._replace(mean=mean)
            samples = jax.tree.map(lambda x: x[rows], observations)
            no_noise = jnp.zeros((len(rows), k), dtype)
            found = act(policy, statistics, samples, no_noise, self.policy_observation)
            w, error = weights[rows], (found - targets[rows]) ** 2
            # If all weights of a sample are 0, its error is 0, not NaN.
            total = jnp.maximum(jnp.sum(w, axis=1), jnp.finfo(dtype).tiny)
            return jnp.mean(jnp.sum(w * error, axis=1) / total)

        rows = shuffled(order_key, len(targets), self.epochs, self.minibatches)
        found = self._adam().fit(loss, state.policy.mean, state.optimiser, rows)
        (mean, optimiser), (errors, norms) = found
        episodes = state.episodes.add(window)
        return ImitationState(
            policy=state.policy._replace(mean=mean),
            optimiser=optimiser,
            statistics=statistics,
            states=states,
            episodes=episodes,
            key=key,
        ), rollouts.metrics(window, episodes, errors[-1], norms[-1], **reported)

    def _result(self, name: str, observation: Observation, shape: tuple[int, int]) -> Array:
        """The result of `teacher` or `weights`, one row per observation."""
        found = arguments.as_array(getattr(self, name)(observation), f"the result of {name}")
        if found.shape != shape:
            raise ArgumentError(
                f"{name} gives an array of the shape {found.shape} for {shape[0]} observations, "
                f"expected {shape}"
            )
        return found

    def _adam(self) -> Adam:
        steps = self.updates * self.epochs * self.minibatches
        return Adam(self.learning_rate, self.last_learning_rate, steps)
