"""Batches of environments, and new episodes at the end of old ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from jax.typing import ArrayLike

from .._math.cast import select
from ..errors import ArgumentError
from ..model import arguments
from ..model.names import described
from ..sharding import over_devices
from .environment import Env, Params, State, Wrapper, checked_env


@dataclasses.dataclass(frozen=True)
class _Resetting(Wrapper):
    """An environment whose steps also compute the start of a new episode."""

    env: Env

    def reset(self, params: Params, key: Array) -> State:
        """The state at the start of an episode; see `Env.reset`."""
        return self.env.reset(params, key)

    def _after_and_new(
        self, params: Params, state: State, action: ArrayLike
    ) -> tuple[State, State]:
        """The state after one step, and the state at the start of a new episode."""
        key, reset_key = jax.random.split(state.key)
        after = self.env.step(params, state._replace(key=key), action)
        return after, self.env.reset(params, reset_key)


@dataclasses.dataclass(frozen=True)
class AutoReset(_Resetting):
    """An environment that begins a new episode in the step in which an episode ends.

    `auto_reset` returns it. Of an `Env` it has `reset`, `step`, `default_params`, `episode_steps`,
    `action_size` and `time_step`.
    """

    def step(self, params: Params, state: State, action: ArrayLike) -> State:
        """The state after one step; see `auto_reset`."""
        after, new = self._after_and_new(params, state, action)
        return after._replace(
            physics=select(after.done, new.physics, after.physics),
            observation=select(after.done, new.observation, after.observation),
            steps=select(after.done, new.steps, after.steps),
            key=select(after.done, new.key, after.key),
        )


@dataclasses.dataclass(frozen=True)
class ResetNextStep(_Resetting):
    """An environment whose step after the last step of an episode is a reset."""

    def step(self, params: Params, state: State, action: ArrayLike) -> State:
        """The state after one step; the start of a new episode if `state` is the end of one."""
        after, new = self._after_and_new(params, state, action)
        return select(state.done, new, after)


@dataclasses.dataclass(frozen=True, eq=False)
class Vectorized(Wrapper):
    """A batch of n environments of one kind; `vectorize` returns it.

    `reset` and `step` are `jax.vmap` of the methods of the environment. All arrays of a state have
    a first axis of size n. With a `mesh`, this axis is split over the devices.
    """

    env: Env | AutoReset | ResetNextStep
    params_axes: Any
    mesh: Mesh | None = None

    def __post_init__(self):
        if not isinstance(self.env, Env | _Resetting):
            raise ArgumentError(f"env is {described(self.env)}, expected an environment")
        if self.mesh is not None:
            arguments.require_type(self.mesh, "mesh", Mesh)

    def reset(self, params: Params, keys: Array) -> State:
        """The states (n) at the start of episodes.

        `keys`: n keys of `jax.random.key`, or of `jax.random.PRNGKey` as an array with n rows.
        """
        keys = arguments.typed_keys(keys, "keys", 1)
        self._check_rows(params, len(keys))
        return self._mapped(self.env.reset)(params, keys)

    def step(self, params: Params, state: State, action: ArrayLike) -> State:
        """The states (n) after one step with the actions (n, action_size)."""
        if not isinstance(state, State) or state.steps.ndim != 1:
            found = "one state" if isinstance(state, State) else described(state)
            raise ArgumentError(f"state is {found}, expected a batch of states, such as of reset")
        action, n = arguments.as_array(action, "action"), state.steps.size
        if action.shape != (n, self.action_size):
            raise ArgumentError(
                f"action has shape {action.shape}, expected {(n, self.action_size)}: one action "
                f"per environment"
            )
        self._check_rows(params, n)
        return self._mapped(self.env.step)(params, state, action)

    def _check_rows(self, params: Params, n: int) -> None:
        """Raise ArgumentError unless each leaf with an axis in `params_axes` has n rows on it."""

        def check(path: Any, axis: int | None, part: Any) -> None:
            if axis is None:
                return
            for x in jax.tree.leaves(part):
                shape = np.shape(x)
                if not (axis < len(shape) and shape[axis] == n):
                    name = jax.tree_util.keystr(path).removeprefix(".")
                    raise ArgumentError(
                        f"{name or 'an array'} of params has shape {shape}, expected {n} rows on "
                        f"axis {axis}: one for each environment of the batch"
                    )

        try:
            jax.tree_util.tree_map_with_path(check, self.params_axes, params, is_leaf=_is_none)
        except ArgumentError:
            raise
        except (TypeError, ValueError):
            raise ArgumentError(
                f"params_axes is {self.params_axes!r}, expected the axes of envs.randomise for "
                f"{described(params)}"
            ) from None

    def _mapped(self, function: Callable[..., State]) -> Callable[..., State]:
        """`jax.vmap` of a function of the parameters and of arguments with one row per environment.

        With a mesh, each device computes the rows of its environments.
        """
        axes, mesh = self.params_axes, self.mesh

        def run(params: Params, *rows: Any) -> State:
            in_axes = (axes, *(0 for _ in rows))
            if mesh is None:
                return jax.vmap(function, in_axes)(params, *rows)
            varied, shared = (_selected(axes, params, with_rows) for with_rows in (True, False))

            def one(varied: Params, shared: Params, *rows: Any) -> State:
                return function(_joined(axes, varied, shared), *rows)

            in_axes = (0, None, *(0 for _ in rows))
            return over_devices(one, mesh, in_axes)(varied, shared, *rows)

        return run


def _selected(axes: Any, params: Params, with_rows: bool) -> Any:
    """The leaves with one row per environment, or all other leaves; None in place of the rest.

    The first axis of a leaf with rows is the axis of its rows.
    """

    def selected(axis: int | None, x: Any) -> Any:
        if (axis is not None) != with_rows:
            return None
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), x) if axis else x

    return jax.tree.map(selected, axes, params, is_leaf=_is_none)


def _joined(axes: Any, varied: Any, shared: Any) -> Params:
    """The parameters with the leaves of both results of `_selected`."""
    return jax.tree.map(
        lambda axis, x, y: y if axis is None else x, axes, varied, shared, is_leaf=_is_none
    )


def _is_none(x: Any) -> bool:
    return x is None


def auto_reset(env: Env | AutoReset) -> AutoReset:
    """The environment that begins a new episode in the step in which an episode ends.

    If the step ends the episode, the result has the `physics`, the `observation` and the `steps` of
    a new episode. The reward, `terminated`, `truncated` and `final_observation` belong to the
    old episode. Each episode starts from `env.reset` with another random key. Derivatives of a new
    episode with respect to the state and the action before it are zero. Raises ArgumentError if env
    is no `Env`, for example an `AutoReset`.
    """
    return AutoReset(checked_env(env))


def vectorize(
    env: Env | AutoReset | ResetNextStep, params_axes: Any = None, mesh: Mesh | None = None
) -> Vectorized:
    """A batch of environments of one kind, whose size is the number of keys of `reset`.

    - `params_axes`: which leaves of the parameters have one row per environment, as `in_axes` of
      `jax.vmap` for `params`. None (default): all environments share the parameters. `randomise`
      returns the axes of its result; 0 means that every leaf has rows;
    - `mesh`: the devices over which the environments are split, as in `sharding.over_devices`
      (default: no split).
    """
    return Vectorized(env, params_axes, mesh)
