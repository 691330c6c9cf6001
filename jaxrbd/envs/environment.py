"""The interface of environments, and what all environments have in common.

An environment is a class that states how an episode starts, how the physics advances, what is
observed, what is rewarded and when an episode fails. `Env.reset` and `Env.step` count the steps,
truncate long episodes, weight the reward terms, and check the action. They are pure functions.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree

from .._math.cast import select
from .._math.rules import changed_leaves, custom_jvp
from ..errors import ArgumentError
from ..joints import Joint
from ..model import Model, arguments
from ..model.model import joint_kinds
from ..model.names import described

# The parameters and the physical state of an environment: pytrees, whose structure depends on the
# class of the environment.
Params = Any
Physics = Any

# What a policy gets: an array (n,), or a pytree of arrays, such as a dict of arrays.
Observation = PyTree[Float[Array, "..."]]

# The shapes that a field of the parameters may have.
Shapes = tuple[tuple[int, ...], ...]

# A leaf of the parameters: a float or a NumPy array at first, an array of JAX after
# `_math.cast.cast`.
Parameter = Any


class State(NamedTuple):
    """The state of an environment after a reset or a step.

    - `physics`: the physical state, a pytree; each environment states its content;
    - `observation`: what a policy gets: an array (n,), or a pytree of arrays, such as a dict with
      the entries "state" and "privileged_state";
    - `reward` (): the sum of `reward_terms`; zero after a reset;
    - `reward_terms`: the weighted reward terms of the step, by name, () each;
    - `terminated` (): whether the episode failed in this step. No reward follows a failure;
    - `truncated` (): whether the episode reached its number of steps and did not fail. Rewards
      would have followed, so a learning algorithm estimates their sum from `final_observation`;
    - `final_observation`: the observation after the step, before a reset by `auto_reset`. Without a
      reset, it is equal to `observation` up to rounding;
    - `diverged` (): whether the action, the physical state after it, the observation or a reward
      term has an entry that is not finite. Then `terminated` is true, too. After a reset, both are
      false. If the action or the physical state is not finite, `physics` is the state before the
      step. Entries of the observation and reward terms that are not finite are 0, also after a
      reset;
    - `steps` (): the number of steps of the episode up to now;
    - `key`: the random key of the environment. Each step uses this key and stores a new one.
    """

    physics: Physics
    observation: Observation
    reward: Float[Array, ""]
    reward_terms: dict[str, Float[Array, ""]]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    final_observation: Observation
    diverged: Bool[Array, ""]
    steps: Int[Array, ""]
    key: PRNGKeyArray

    @property
    def done(self) -> Bool[Array, "..."]:
        """Whether the episode ended in this step."""
        return self.terminated | self.truncated


# The names and the sizes of the arrays that make up an observation, in their order.
Parts = tuple[tuple[str, int], ...]


class Interface(NamedTuple):
    """What a controller on a robot needs besides a policy.

    A field is None if the environment does not state it.

    - `observation`: the names and the sizes of the arrays that make up an observation, in their
      order; if observations are dicts, a dict with such a tuple for each entry;
    - `actuators`: the n names of the joints or actuators, in the order of the action;
    - `command`: the meaning of the command of an actuator, with the unit, in words;
    - `center`, `scale` (n,): the command is `center + scale * action`;
    - `stiffness`, `damping`, `effort` (n,): the gains and the largest force of the PD control that
      the actuators apply, as in `actuators.PD`;
    - `pose`: the coordinates of each joint in the default pose, in the order of q;
    - `gait`: if the center follows a gait, what it depends on besides the command and the clock in
      the observation: the fields of `GaitPostures`, `period` () in s, `height` () of the steps in
      m, and `home` (n,), the positions of joints outside of the legs. `center` is then None.
    """

    observation: Parts | dict[str, Parts] | None = None
    actuators: tuple[str, ...] | None = None
    command: str | None = None
    center: Parameter | None = None
    scale: Parameter | None = None
    stiffness: Parameter | None = None
    damping: Parameter | None = None
    effort: Parameter | None = None
    pose: Mapping[str, Parameter] | None = None
    gait: Mapping[str, Parameter] | None = None


class Env(abc.ABC):
    """An environment: `reset` and `step` as pure functions of its parameters.

    An instance has static settings only, and it is hashable. All values of the physics and of the
    task are in `params`, a pytree: `default_params` returns the usual ones. Every leaf of `params`
    can be differentiated, and can have a batch axis for `vmap` (see `randomise`). `params` has a
    field `model`, the robot, and a field `weights`, one weight per reward term.

    An action (action_size,) has entries of the order of 1. The policies of `jaxrbd.learning` stay
    between -1 and 1. Actions outside this range are not clipped; the limits of the actuators act.

    - `episode_steps`: the number of steps after which an episode is truncated;
    - `action_size`: the number of entries of an action;
    - `time_step` in s: the duration of a step.

    A new environment is a frozen dataclass that defines these three values and the abstract methods
    below. It overrides `configuration` if its physical state has no field `q`, `shapes` so that
    wrong parameters are refused, `interface` if its policies control robots, and `settings` if a
    setting may differ between two machines.
    """

    episode_steps: int
    action_size: int
    time_step: float

    @abc.abstractmethod
    def default_params(self) -> Params:
        """The usual parameters, in JAX's default float dtype."""

    @abc.abstractmethod
    def initial(self, params: Params, key: PRNGKeyArray) -> Physics:
        """The physical state at the start of an episode."""

    @abc.abstractmethod
    def advance(
        self, params: Params, physics: Physics, action: Float[Array, " n"], key: PRNGKeyArray
    ) -> Physics:
        """The physical state after a step with an action."""

    @abc.abstractmethod
    def observe(self, params: Params, physics: Physics, key: PRNGKeyArray) -> Observation:
        """The observation of a physical state; `key` is for the noise of sensors."""

    @abc.abstractmethod
    def terms(
        self, params: Params, before: Physics, action: Float[Array, " n"], after: Physics
    ) -> dict[str, Float[Array, ""]]:
        """The reward terms of a step by name, without their weights."""

    @abc.abstractmethod
    def failed(self, params: Params, physics: Physics) -> Bool[Array, ""]:
        """Whether the episode ends in this physical state, because the task failed."""

    def configuration(self, physics: Physics) -> Float[Array, "... nq"]:
        """The configuration of the robot in a physical state, for pictures."""
        return physics.q

    def shapes(self, params: Params) -> Mapping[str, Shapes]:
        """The shapes that the fields of `params` may have, by name; `reset` and `step` check them.

        They do not check fields without an entry. By default there are no entries.
        """
        return {}

    def interface(self, params: Params) -> Interface:
        """What a controller on a robot needs besides a policy; by default, all fields are None."""
        return Interface()

    def settings(self) -> dict[str, Any]:
        """The static settings by name, as values of JSON, which checkpoints state and compare.

        These are the fields of the dataclass. Tuples and arrays become lists. A function becomes
        its name, and any other object the name of its class. So a comparison does not find a change
        of the content of such objects.
        """
        if not dataclasses.is_dataclass(self):
            return {}
        return {x.name: plain_setting(getattr(self, x.name)) for x in dataclasses.fields(self)}

    def reset(self, params: Params, key: Array) -> State:
        """The state at the start of an episode.

        `key`: a key of `jax.random.key`, or of `jax.random.PRNGKey`. The key of the state is of
        the first kind. Raises ArgumentError for another key, and as `step` for `params`.
        """
        _check_settings_and_params(self, params)
        key = arguments.typed_keys(key, "key", 0)
        key, start_key, sensor_key = jax.random.split(key, 3)
        physics = self.initial(params, start_key)
        observation = _finite_or_zero(_apply(self.observe, params, physics, sensor_key))
        action = jnp.zeros(self.action_size, params.model.dtype)
        zero = jnp.zeros((), params.model.dtype)
        shapes = jax.eval_shape(lambda: self._weighted_terms(params, physics, action, physics))
        false = jnp.zeros((), bool)
        return State(
            physics=physics,
            observation=observation,
            reward=zero,
            reward_terms=dict.fromkeys(shapes, zero),
            terminated=false,
            truncated=false,
            final_observation=observation,
            diverged=false,
            steps=jnp.zeros((), jnp.int32),
            key=key,
        )

    def step(self, params: Params, state: State, action: ArrayLike) -> State:
        """The state after one step.

        `action` (action_size,), in the dtype of the model. An entry of the action or of the result
        that is not finite terminates the episode; see `State.diverged`.

        Raises ArgumentError for an action of another shape or dtype, for params and states of
        another type, for a field of `params` of another shape than `shapes` states, and for weights
        that do not fit the reward terms.
        """
        _check_settings_and_params(self, params)
        arguments.require_type(state, "state", State)
        action = _checked_action(self, params.model, action)
        key = arguments.typed_keys(state.key, "state.key", 0)
        key, motion_key, sensor_key = jax.random.split(key, 3)
        action_finite = _finite(action)
        action = select(action_finite, action, jnp.zeros_like(action))
        physics = _apply(self.advance, params, state.physics, action, motion_key)
        physics_finite = action_finite & _finite(physics)
        physics = select(physics_finite, physics, state.physics)
        terms = _apply(self._weighted_terms, params, state.physics, action, physics)
        observation = _apply(self.observe, params, physics, sensor_key)
        diverged = ~(physics_finite & _finite((terms, observation)))
        terms, observation = _finite_or_zero((terms, observation))
        if set(terms) != set(state.reward_terms):
            raise ArgumentError(
                f"state has the reward terms {sorted(state.reward_terms)}, expected a state of "
                f"{type(self).__name__} with {sorted(terms)}"
            )
        failed = self.failed(params, physics)
        _check_number("the failure", failed)
        terminated = failed | diverged
        steps = state.steps + 1
        return State(
            physics=physics,
            observation=observation,
            reward=sum(terms.values(), start=jnp.zeros((), params.model.dtype)),
            reward_terms=terms,
            terminated=terminated,
            truncated=(steps >= self.episode_steps) & ~terminated,
            final_observation=observation,
            diverged=diverged,
            steps=steps,
            key=key,
        )

    def _weighted_terms(
        self, params: Params, before: Physics, action: Array, after: Physics
    ) -> dict[str, Array]:
        """The reward terms of a step by name, times their weights."""
        terms = self.terms(params, before, action, after)
        if set(terms) != set(params.weights):
            raise ArgumentError(
                f"params.weights has {sorted(params.weights)}, expected one weight per reward "
                f"term: {sorted(terms)}"
            )
        for name, term in terms.items():
            _check_number(f"the reward term {name!r}", term)
        return {name: params.weights[name] * term for name, term in terms.items()}


class Wrapper:
    """An object that contains an environment, and has its sizes, time step and parameters."""

    env: Any

    @property
    def episode_steps(self) -> int:
        """The number of steps after which an episode is truncated."""
        return self.env.episode_steps

    @property
    def action_size(self) -> int:
        """The number of entries of the action of one environment."""
        return self.env.action_size

    @property
    def time_step(self) -> float:
        """The duration of a step in s."""
        return self.env.time_step

    def default_params(self) -> Params:
        """The usual parameters of one environment."""
        return self.env.default_params()


def checked_env(env: Any) -> Env:
    """The environment. Raises ArgumentError if it is no `Env`, for example an `AutoReset`."""
    if not isinstance(env, Env):
        raise ArgumentError(f"env is {described(env)}, expected an Env without auto_reset")
    return env


def require_joint_kinds(model: Model, *kinds: type[Joint]) -> None:
    """Raise ArgumentError unless the joints of `params.model` have these kinds, in this order."""
    found = joint_kinds(model)
    if found != [*kinds]:
        given, expected = (", ".join(x.__name__ for x in names) for names in (found, kinds))
        raise ArgumentError(
            f"params.model is {model!r} with the joints {given or 'none'}, expected {expected}"
        )


def checked_params(env: Env, params: Any) -> Params:
    """The parameters. Raises ArgumentError if they have no model or no weights."""
    if not isinstance(getattr(params, "model", None), Model) or not hasattr(params, "weights"):
        raise ArgumentError(
            f"params is {described(params)}, expected parameters with the fields `model` and "
            f"`weights`, such as default_params() of {type(env).__name__}"
        )
    return params


def default_settings(env: Env) -> dict[str, Any]:
    """The defaults of the static settings that have one, as values of JSON.

    If an older file does not state a setting, its reader uses this default.
    """
    fields = dataclasses.fields(env) if dataclasses.is_dataclass(env) else ()
    given = {x.name: x.default for x in fields if x.default is not dataclasses.MISSING}
    return {name: plain_setting(value) for name, value in given.items()}


def name_and_settings(env: Env) -> dict[str, Any]:
    """The record of an environment in a file: the name of its class, and `Env.settings`."""
    return {"name": type(env).__name__, "settings": env.settings()}


def plain_setting(x: Any) -> Any:
    """A static setting as a value of JSON; see `Env.settings`."""
    if isinstance(x, tuple | list):
        return [plain_setting(y) for y in x]
    if isinstance(x, Mapping):
        return {str(key): plain_setting(y) for key, y in x.items()}
    if isinstance(x, np.ndarray | Array):
        return np.asarray(x).tolist()
    if isinstance(x, np.generic):
        return x.item()
    if x is None or isinstance(x, bool | int | float | str):
        return x
    return getattr(x, "__qualname__", type(x).__qualname__)


@functools.partial(custom_jvp, nondiff_argnums=(0,))
def _apply(function: Callable[..., Any], *operands: Any) -> Any:
    """The result of a function. If it is not finite, its derivatives in reverse mode are zero.

    `Env.step` then selects another result. The selection alone is not enough: in reverse mode, the
    derivatives of a step that diverges would be zero times infinity.
    """
    return _arrays(function, *operands)


def _apply_derivative(
    function: Callable[..., Any], primals: tuple, tangents: tuple
) -> tuple[Any, Any]:
    leaves, changes, with_values = changed_leaves(primals, tangents)
    after, derivative = jax.linearize(
        lambda leaves: _arrays(function, *with_values(leaves)), leaves
    )
    zeros = jax.tree.map(jnp.zeros_like, changes)
    return after, derivative(select(_finite(after), changes, zeros))


_apply.defjvp(_apply_derivative, symbolic_zeros=True)


def _arrays(function: Callable[..., Any], *operands: Any) -> Any:
    """The result of a function, whose entries, such as a float of Python, become arrays."""
    name = f"an entry of the result of {function.__name__}"
    return jax.tree.map(lambda x: arguments.as_array(x, name), function(*operands))


def _finite(tree: Any) -> Bool[Array, ""]:
    """Whether all floats of a pytree are finite."""
    floats = (x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating))
    finite = (jnp.all(jnp.isfinite(x)) for x in floats)
    return functools.reduce(jnp.logical_and, finite, jnp.asarray(True))


def _finite_or_zero(tree: Any) -> Any:
    """The pytree with 0 in place of floats that are not finite."""

    def entries(x: Array) -> Array:
        floats = jnp.issubdtype(x.dtype, jnp.floating)
        return jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x)) if floats else x

    return jax.tree.map(entries, tree)


def repeat(step: Callable[[Any], Any], state: Any, count: int) -> Any:
    """The state after `count` applications of `step`."""
    return lax.scan(lambda state, _: (step(state), None), state, length=count)[0]


def sizes(arrays: Callable[[], Mapping[str, Array]]) -> Parts:
    """The names and the sizes of the arrays (n,) that a function returns, in their order.

    The arrays are not computed.
    """
    found: list[tuple[str, int]] = []
    # The result of `eval_shape` would be a dict in the order of the alphabet.
    jax.eval_shape(lambda: found.extend((name, x.shape[0]) for name, x in arrays().items()))
    return tuple(found)


def pose_by_joint(model: Model, q: Parameter) -> dict[str, Parameter]:
    """The coordinates of each joint in a configuration, for `Interface.pose`."""
    return {name: q[model.joint(name).q] for name in model.joint_names}


def uniform(key: PRNGKeyArray, width: Array) -> Array:
    """Values drawn uniformly from -width to width, each entry independently."""
    return width * jax.random.uniform(key, width.shape, width.dtype, -1, 1)


def _check_settings_and_params(env: Env, params: Params) -> None:
    """Raise ArgumentError for wrong static settings of an environment, or wrong parameters."""
    arguments.require_counts(episode_steps=env.episode_steps)
    smoothing = getattr(env, "smoothing", None)
    if smoothing is not None:
        arguments.parameter(smoothing, "smoothing", ())
        arguments.POSITIVE("smoothing", np.asarray(smoothing))
    checked_params(env, params)
    if not isinstance(params.weights, dict):
        raise ArgumentError(
            f"params.weights is {described(params.weights)}, expected a dict of weights"
        )
    for name, weight in params.weights.items():
        _check_number(f"params.weights[{name!r}]", weight)
    for name, shapes in env.shapes(params).items():
        if not hasattr(params, name):
            raise ArgumentError(
                f"params is {described(params)} without {name!r}, expected parameters such as "
                f"default_params() of {type(env).__name__}"
            )
        value = getattr(params, name)
        if not arguments.is_array(value):
            raise ArgumentError(f"params.{name} is {described(value)}, expected an array")
        found = np.shape(value)
        if found not in shapes:
            expected = " or ".join(map(str, shapes))
            raise ArgumentError(f"params.{name} has shape {found}, expected {expected}")


def _check_number(name: str, x: ArrayLike) -> None:
    """Raise ArgumentError unless x is an array of shape () or a number."""
    if not arguments.is_array(x):
        raise ArgumentError(f"{name} is {described(x)}, expected a number")
    if np.shape(x) != ():
        raise ArgumentError(f"{name} has shape {np.shape(x)}, expected a number")


def _checked_action(env: Env, model: Model, action: ArrayLike) -> Array:
    """The action as an array. Raises ArgumentError for another shape or dtype."""
    action = arguments.as_array(action, "action")
    if action.shape != (env.action_size,):
        hint = "; batch with jaxrbd.envs.vectorize" if action.ndim > 1 else ""
        raise ArgumentError(
            f"action has shape {action.shape}, expected ({env.action_size},) for "
            f"{type(env).__name__}{hint}"
        )
    if action.dtype != model.dtype:
        raise ArgumentError(
            f"action has dtype {action.dtype}, expected {model.dtype}, the dtype of the model"
        )
    return action
