"""Windows of steps in a batch of environments, noise, targets for critics, returns of episodes."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from ..envs import State, Vectorized
from ..envs.environment import Observation
from ..errors import ArgumentError
from ..model import arguments
from .networks import act


class Window(NamedTuple):
    """h steps of n environments; each array has the first axes (h, n).

    - `observation`: the observation before the step; `noise`: the noise of the action; `reward`:
      the reward of the step;
    - `terminated`, `truncated`, `final_observation`, `diverged`: as in `envs.State`, after the
      step.
    """

    observation: Observation
    noise: Float[Array, "h n k"]
    reward: Float[Array, "h n"]
    terminated: Bool[Array, "h n"]
    truncated: Bool[Array, "h n"]
    final_observation: Observation
    diverged: Bool[Array, "h n"]

    @property
    def done(self) -> Bool[Array, "h n"]:
        """Whether an episode ended in the step."""
        return self.terminated | self.truncated

    @property
    def diverged_steps(self) -> Float[Array, ""]:
        """The number of steps that diverged, as in `envs.State`."""
        return jnp.sum(self.diverged, dtype=self.reward.dtype)

    @property
    def last(self) -> Bool[Array, "h n"]:
        """Whether the step is the last of an episode or of the window."""
        return self.done.at[-1].set(True)


def start(env: Vectorized, params: Any, key: PRNGKeyArray, size: int) -> State:
    """The states at the start of `size` episodes, whose numbers of steps are random.

    So the first episodes end at different times, and each window has samples from all parts of the
    episodes.
    """
    reset_key, steps_key = jax.random.split(key)
    states = env.reset(params, jax.random.split(reset_key, size))
    steps = jax.random.randint(steps_key, (size,), 0, env.episode_steps, states.steps.dtype)
    return states._replace(steps=steps)


def check_parts(algorithm: Any, name: str, *counts: str) -> None:
    """Raise ArgumentError if the samples of a window cannot be divided into equal parts.

    `name`: the name of the setting with the number of parts; `counts`: the names of settings which,
    like `batch` and `horizon`, must be integers of 1 or more.
    """
    names = "batch", "horizon", *counts
    arguments.require_counts(**{name: getattr(algorithm, name) for name in names})
    batch, horizon, parts = algorithm.batch, algorithm.horizon, getattr(algorithm, name)
    if not arguments.is_integer(parts):
        raise ArgumentError(f"{name} is {parts!r}, expected an integer")
    count = batch * horizon
    if parts < 1 or count % parts:
        divisors = [n for n in range(1, count + 1) if count % n == 0]
        below = max((n for n in divisors if n < parts), default=divisors[0])
        above = min((n for n in divisors if n > parts), default=divisors[-1])
        raise ArgumentError(
            f"{name} is {parts}, expected a divisor of the number of samples of a window, batch * "
            f"horizon = {batch} * {horizon} = {count}, such as {below} or {above}"
        )


# The conditions on the settings of algorithms that are numbers.
_FINITE = arguments.Requirement("a finite number", np.isfinite)
_NUMBERS = {
    "discount": arguments.FRACTION,
    "gae_lambda": arguments.FRACTION,
    "td_lambda": arguments.FRACTION,
    "target_share": arguments.FRACTION,
    "learning_rate": arguments.FINITE_NOT_NEGATIVE,
    "critic_learning_rate": arguments.FINITE_NOT_NEGATIVE,
    "last_learning_rate": arguments.FINITE_NOT_NEGATIVE,
    "critic_weight": arguments.FINITE_NOT_NEGATIVE,
    "entropy_weight": arguments.FINITE_NOT_NEGATIVE,
    "last_noise": arguments.FINITE_NOT_NEGATIVE,
    "clip": arguments.POSITIVE,
    "reward_scale": arguments.POSITIVE,
    "action_limit": arguments.POSITIVE,
    "log_std": _FINITE,
}


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool):
        raise ArgumentError(f"{name} is {value}, expected a number")
    arguments.parameter(value, name, ())
    _NUMBERS[name](name, np.asarray(value))


def check_numbers(algorithm: Any) -> None:
    """Raise ArgumentError if a number or a size of a layer of an algorithm is out of its range."""
    for field in dataclasses.fields(algorithm):
        name, value = field.name, getattr(algorithm, field.name)
        left_out = value is None and field.default is None
        if name in _NUMBERS and not left_out:
            _check_number(name, value)
    maker = algorithm.policy_network
    if maker is not None:
        arguments.require_function(maker, "policy_network", "a function that makes a network")
    sizes = arguments.entries(algorithm.hidden)
    if sizes is None:
        raise ArgumentError(f"hidden is {algorithm.hidden!r}, expected the sizes of the layers")
    arguments.require_counts(**{f"hidden[{i}]": size for i, size in enumerate(sizes)})


def shuffled(key: PRNGKeyArray, count: int, epochs: int, minibatches: int) -> Int[Array, "m k"]:
    """The indices of `count` samples in a random order per epoch, one row per minibatch."""
    keys = jax.random.split(key, epochs)
    rows = jax.vmap(lambda key: jax.random.permutation(key, count))(keys)
    return rows.reshape(epochs * minibatches, -1)


def draw_noise(
    key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any, last: float, progress: Float[Array, ""]
) -> Array:
    """Noise of actions: normal random numbers with a factor.

    The factor falls linearly from 1 to `last`; `progress` is the completed share of the training.
    """
    return (1 - (1 - last) * progress) * jax.random.normal(key, shape, dtype)


def roll(
    env: Vectorized,
    params: Any,
    states: State,
    actions: Callable[[Observation, Array], Array],
    noise: Float[Array, "h n k"],
) -> tuple[State, Window]:
    """The states after h steps, and the window. `actions(observation, noise)` is the policy."""

    def step(states: State, noise: Array) -> tuple[State, Window]:
        after = env.step(params, states, actions(states.observation, noise))
        return after, Window(
            states.observation,
            noise,
            after.reward,
            after.terminated,
            after.truncated,
            after.final_observation,
            after.diverged,
        )

    return lax.scan(step, states, noise)


def lambda_returns(
    window: Window, next_values: Float[Array, "h n"], discount: float, trace: float
) -> Float[Array, "h n"]:
    """The TD(lambda) estimates of the returns from each step of a window.

    `next_values`: the values of `final_observation`. With the reward r, the discount c and the
    trace parameter l, the return of step t is

        R_t = r_t + c ((1 - l) V_{t+1} + l R_{t+1}),

    with `R_{t+1} = V_{t+1}` at the end of an episode or of the window. After a step that
    terminated, both are 0. Source: Sutton and Barto (2018), section 12.1.
    """

    def step(later: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        reward, value, terminated, last = row
        later = jnp.where(last, value, (1 - trace) * value + trace * later)
        found = reward + discount * jnp.where(terminated, 0, later)
        return found, found

    rows = window.reward, next_values, window.terminated, window.last
    return lax.scan(step, jnp.zeros_like(next_values[0]), rows, reverse=True)[1]


class Simulated(NamedTuple):
    """A simulated window: the states after it, and the window.

    - `loss` (), `gradient`: the loss of the policy and its gradient, a pytree like the policy, of
      an algorithm that differentiates the simulation. Both are means over the environments. None
      for the other algorithms.
    """

    states: State
    window: Window
    loss: Any = None
    gradient: Any = None


class WindowAlgorithm(abc.ABC):
    """The base of the algorithms, which simulate n environments for h steps per update.

    An update has three parts: `draw`, `simulate` and `learn`. Only `simulate` can also be called
    for some of the environments.
    """

    batch: int
    horizon: int
    policy_observation: str | None

    @abc.abstractmethod
    def draw(self, env: Vectorized, state: Any) -> Any:
        """The random numbers of an update: arrays whose second axis is the environments."""

    @abc.abstractmethod
    def simulate(self, env: Vectorized, params: Any, state: Any, draws: Any) -> Simulated:
        """The simulated window of the environments of `state.states` and `draws`."""

    @abc.abstractmethod
    def learn(
        self, state: Any, draws: Any, simulated: Simulated
    ) -> tuple[Any, dict[str, Float[Array, ""]]]:
        """The state after an update, and its metrics, from the window of all environments."""

    def update(
        self, env: Vectorized, params: Any, state: Any
    ) -> tuple[Any, dict[str, Float[Array, ""]]]:
        """The state after one update, and its metrics. `params`: as for `init`."""
        draws = self.draw(env, state)
        return self.learn(state, draws, self.simulate(env, params, state, draws))

    @property
    def update_steps(self) -> int:
        """The number of steps of all environments in one update."""
        return self.batch * self.horizon

    def deterministic(self, state: Any, observation: Observation) -> Float[Array, "... k"]:
        """The actions of the policy without noise; `state`: the state of the algorithm."""
        noise = jnp.zeros_like(state.policy.log_std)
        return act(state.policy, state.statistics, observation, noise, self.policy_observation)


class Episodes(NamedTuple):
    """The returns of the current episodes up to now (n,), and the mean return of ended episodes.

    `mean` is the mean over the episodes that ended in the last window in which an episode ended.
    Before the first end, it is minus infinity, not NaN, because of `jax_debug_nans`.
    """

    current: Float[Array, " n"]
    mean: Float[Array, ""]

    def add(self, window: Window) -> Episodes:
        """The returns after a window."""

        def step(current: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            reward, done = row
            current = current + reward
            return jnp.where(done, 0, current), current

        current, totals = lax.scan(step, self.current, (window.reward, window.done))
        ended = jnp.sum(window.done).astype(totals.dtype)
        mean = jnp.sum(jnp.where(window.done, totals, 0)) / jnp.maximum(ended, 1)
        return Episodes(current, jnp.where(ended > 0, mean, self.mean))


def metrics(
    window: Window, episodes: Episodes, loss: Array, gradient_norm: Array, **more: Array
) -> dict[str, Float[Array, ""]]:
    """The metrics of an update; `episodes`: after the window; `more`: of one algorithm only."""
    return {
        "return": episodes.mean,
        "reward": jnp.mean(window.reward),
        "loss": loss,
        "gradient_norm": gradient_norm,
        "diverged": window.diverged_steps,
        **more,
    }


def empty_episodes(size: int, dtype: Any) -> Episodes:
    """The returns before the first step."""
    return Episodes(jnp.zeros(size, dtype), jnp.full((), -jnp.inf, dtype))
