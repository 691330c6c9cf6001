"""The environments with the interfaces of Gymnasium, gymnax and Brax.

Gymnasium is imported inside of `gymnasium_vector`. The adapters for gymnax and Brax have the
methods and fields that these libraries use, and do not import the libraries.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..errors import ArgumentError
from ..model import arguments
from .batches import ResetNextStep, auto_reset, vectorize
from .environment import Env, Observation, Params, State, checked_env, checked_params


def gymnasium_vector(
    env: Env,
    size: int,
    params: Params = None,
    params_axes: Any = None,
    seed: int = 0,
    autoreset: str = "NextStep",
) -> Any:
    """A `gymnasium.vector.VectorEnv` with `size` environments, which run in one program.

    - `params`: the parameters (default: `env.default_params()`); `params_axes`: as in `vectorize`;
    - `seed`: the seed for a first reset without a seed; an integer of 0 or more, as in Gymnasium;
    - `autoreset`: when a new episode begins, a value of `gymnasium.vector.AutoresetMode`.
      "NextStep" (default, as in Gymnasium): the step after the end of an episode ignores the
      action, has the reward 0, and returns the first observation of a new episode. "SameStep": the
      last step of an episode returns the first observation of the new episode.
      `infos["final_obs"]` then has the last observations of the old episodes, and
      `infos["_final_obs"]` is true for their environments.

    The other infos are the reward terms by name. Actions are between -1 and 1. Observations and
    rewards are NumPy arrays; observations have the dtype of the model, rewards are float64. `reset`
    begins new episodes in all environments and has no options: it raises ArgumentError for them. An
    observation that is a dict has a `gymnasium.spaces.Dict`. Raises ArgumentError if the package
    gymnasium is not installed (`pip install gymnasium`), for a size below 1, for a seed that is
    no integer of 0 or more (64 bits), and for another value of `autoreset`.
    """
    try:
        import gymnasium  # pyright: ignore[reportMissingImports]
        from gymnasium.vector import AutoresetMode, VectorEnv  # pyright: ignore[reportMissingImports]
        from gymnasium.vector.utils import batch_space  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ArgumentError(
            "gymnasium_vector needs the package gymnasium 1.1 or later: pip install gymnasium"
        ) from error
    checked_env(env)
    arguments.require_counts(size=size)
    modes = {mode.value: mode for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)}
    mode = next((mode for name, mode in modes.items() if autoreset in (name, mode)), None)
    if mode is None:
        raise ArgumentError(f"autoreset is {autoreset!r}, expected one of {', '.join(modes)}")
    same_step = mode is AutoresetMode.SAME_STEP
    values = env.default_params() if params is None else checked_params(env, params)
    dtype = np.dtype(values.model.dtype)
    batch = vectorize(auto_reset(env) if same_step else ResetNextStep(env), params_axes)
    reset = jax.jit(lambda key: batch.reset(values, jax.random.split(key, size)))
    shapes = jax.eval_shape(reset, jax.random.key(0)).observation

    def space(x: Any) -> Any:
        """The space of the observation of one environment."""
        if isinstance(x, dict):
            return gymnasium.spaces.Dict({name: space(entry) for name, entry in x.items()})
        if isinstance(x, tuple | list):
            return gymnasium.spaces.Tuple([space(entry) for entry in x])
        return gymnasium.spaces.Box(-np.inf, np.inf, x.shape[1:], np.dtype(x.dtype).type)

    class JaxVectorEnv(VectorEnv):
        """The environments of jaxrbd as a vector environment of Gymnasium."""

        metadata = {  # noqa: RUF012 (Gymnasium reads a dict)
            "autoreset_mode": mode,
            "render_modes": [],
            "render_fps": round(1 / env.time_step),
        }

        def __init__(self):
            self.num_envs = size
            self.single_observation_space = space(shapes)
            self.single_action_space = gymnasium.spaces.Box(-1, 1, (env.action_size,), dtype.type)
            self.observation_space = batch_space(self.single_observation_space, size)
            self.action_space = batch_space(self.single_action_space, size)
            self._key = _seed_key(seed)
            self._step = jax.jit(lambda state, action: batch.step(values, state, action))
            self._state: State | None = None

        def reset(self, *, seed=None, options=None):
            if options:
                raise ArgumentError(f"options is {options!r}, expected None: reset has no options")
            if seed is not None:
                self._key = _seed_key(seed)
            super().reset(seed=None if seed is None else int(seed))
            self._key, key = jax.random.split(self._key)
            self._state = state = reset(key)
            return jax.tree.map(np.array, state.observation), {}

        def step(self, actions):
            if self._state is None:
                raise ArgumentError("step before reset")
            actions = arguments.real_array(actions, "actions", dtype)
            self._state = state = self._step(self._state, actions)
            infos = {name: np.array(x) for name, x in state.reward_terms.items()}
            done = np.array(state.done)
            if same_step and np.any(done):
                infos["final_obs"] = jax.tree.map(np.array, state.final_observation)
                infos["_final_obs"] = done
            return (
                jax.tree.map(np.array, state.observation),
                np.array(state.reward, np.float64),
                np.array(state.terminated),
                np.array(state.truncated),
                infos,
            )

    return JaxVectorEnv()


def _seed_key(seed: Any) -> Array:
    """The random key of a seed. Raises ArgumentError for a negative seed, as Gymnasium does."""
    arguments.require_counts(least=0, seed=seed)
    return arguments.random_key(seed)


@dataclasses.dataclass(frozen=True)
class Box:
    """A space of arrays with entries from `low` to `high`, as the `Box` of gymnax."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: Any

    def sample(self, key: Array) -> Array:
        """A random element. For a space without bounds, it is standard normal.

        Raises ArgumentError for another object than a random key.
        """
        key = arguments.typed_keys(key, "key", 0)
        if not np.isfinite([self.low, self.high]).all():
            return jax.random.normal(key, self.shape, self.dtype)
        return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)

    def contains(self, x: Array) -> Array:
        """Whether x has the shape of the space, and all entries are real and in their range."""
        x = arguments.as_array(x, "x")
        if x.shape != self.shape or jnp.iscomplexobj(x):
            return jnp.array(False)
        return jnp.all((x >= self.low) & (x <= self.high))


@dataclasses.dataclass(frozen=True)
class GymnaxEnv:
    """An environment with the interface of gymnax 1.0: `reset(key, params)`, `step(key, ...)`.

    The state is a `State`. The random key of a step replaces the key in the state. `step` begins
    a new episode when an episode ends, as in gymnax; `step_env` does not. `info` has `terminated`,
    `truncated`, the `final_observation`, the reward terms, and `discount`, which is 0 after a
    failure and 1 otherwise.
    """

    env: Env

    def __post_init__(self):
        checked_env(self.env)

    @property
    def name(self) -> str:
        """The name of the class of the environment."""
        return type(self.env).__name__

    @property
    def num_actions(self) -> int:
        """The number of entries of an action."""
        return self.env.action_size

    @property
    def default_params(self) -> Params:
        """The usual parameters."""
        return self.env.default_params()

    def reset(self, key: Array, params: Params = None) -> tuple[Observation, State]:
        """The first observation and the state."""
        state = self.env.reset(self._params(params), key)
        return state.observation, state

    def step(
        self, key: Array, state: State, action: Array, params: Params = None
    ) -> tuple[Observation, State, Array, Array, Array, dict[str, Any]]:
        """The observation, the state, the reward, `terminated`, `truncated`, and the infos."""
        state = _with_key(state, key)
        after = auto_reset(self.env).step(self._params(params), state, action)
        info = self._info(after)
        return after.observation, after, after.reward, after.terminated, after.truncated, info

    def step_env(
        self, key: Array, state: State, action: Array, params: Params = None
    ) -> tuple[Observation, State, Array, Array, dict[str, Any]]:
        """As `step`, without a new episode and without `truncated`."""
        after = self.env.step(self._params(params), _with_key(state, key), action)
        return after.observation, after, after.reward, after.terminated, self._info(after)

    def action_space(self, params: Params = None) -> Box:
        """Actions between -1 and 1."""
        return Box(-1.0, 1.0, (self.env.action_size,), self._params(params).model.dtype)

    def observation_space(self, params: Params = None) -> Any:
        """Observations without bounds: a `Box`, or a pytree of `Box` for a pytree of arrays."""
        shapes = _observation(self.env, self._params(params))
        return jax.tree.map(lambda x: Box(-np.inf, np.inf, x.shape, x.dtype), shapes)

    def _params(self, params: Params) -> Params:
        return self.env.default_params() if params is None else checked_params(self.env, params)

    @staticmethod
    def _info(after: State) -> dict[str, Any]:
        return {
            **after.reward_terms,
            "discount": jnp.where(after.terminated, 0.0, 1.0).astype(after.reward.dtype),
            "terminated": after.terminated,
            "truncated": after.truncated,
            "final_observation": after.final_observation,
        }


class BraxState(NamedTuple):
    """A state with the fields of a state of Brax.

    - `pipeline_state`: the `State`; `obs`, `reward`: its observation and its reward;
    - `done`: 1 if the task failed in this step, and 0 otherwise;
    - `metrics`: the reward terms by name; `info`: a dict, which the wrappers of Brax extend.
    """

    pipeline_state: State
    obs: Observation
    reward: Array
    done: Array
    metrics: dict[str, Array]
    info: dict[str, Any]

    def replace(self, **fields: Any) -> BraxState:
        """The state with other values of some fields."""
        return self._replace(**fields)


@dataclasses.dataclass(frozen=True)
class BraxEnv:
    """An environment with the interface of Brax: `reset(rng)` and `step(state, action)`.

    `params`: the parameters (default: `env.default_params()`). As for every environment of Brax,
    the wrappers count the steps and end long episodes, so `done` is 1 for failures only. The
    `AutoResetWrapper` of Brax starts all episodes of an environment from its first state;
    `auto_reset` starts each episode from a new random state.
    """

    env: Env
    params: Params = None

    def __post_init__(self):
        checked_env(self.env)
        if self.params is not None:
            checked_params(self.env, self.params)

    @property
    def observation_size(self) -> Any:
        """The number of entries of an observation; a pytree of shapes for a pytree of arrays."""
        shapes = _observation(self.env, self._params())
        if isinstance(shapes, jax.ShapeDtypeStruct):
            return shapes.shape[0]
        return jax.tree.map(lambda x: x.shape, shapes)

    @property
    def action_size(self) -> int:
        """The number of entries of an action."""
        return self.env.action_size

    @property
    def backend(self) -> str:
        """The name of the physics."""
        return "jaxrbd"

    @property
    def dt(self) -> float:
        """The duration of a step in s."""
        return self.env.time_step

    @property
    def unwrapped(self) -> BraxEnv:
        """The environment itself."""
        return self

    def reset(self, rng: Array) -> BraxState:
        """The state at the start of an episode."""
        return self._state(self.env.reset(self._params(), rng), {}, {})

    def step(self, state: BraxState, action: Array) -> BraxState:
        """The state after one step; entries that wrappers added to `metrics` and `info` stay."""
        arguments.require_type(state, "state", BraxState)
        after = self.env.step(self._params(), state.pipeline_state, action)
        return self._state(after, state.metrics, state.info)

    def _params(self) -> Params:
        return self.env.default_params() if self.params is None else self.params

    @staticmethod
    def _state(state: State, metrics: dict[str, Array], info: dict[str, Any]) -> BraxState:
        done = state.terminated.astype(state.reward.dtype)
        metrics = {**metrics, **state.reward_terms}
        return BraxState(state, state.observation, state.reward, done, metrics, dict(info))


def _with_key(state: State, key: Array) -> State:
    """The state with the random key of the next step."""
    arguments.require_type(state, "state", State)
    return state._replace(key=arguments.typed_keys(key, "key", 0))


def _observation(env: Env, params: Params) -> Any:
    """The shapes and dtypes of an observation."""
    return jax.eval_shape(env.reset, params, jax.random.key(0)).observation
