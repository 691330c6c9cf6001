"""Environments that change the observations of the environment that they contain.

A robot measures fewer quantities than a simulation. For example, most robots with legs cannot
measure the velocity of their base. With `Asymmetric`, only the critic of the training, which does
not run on the robot, gets such values. With `History`, a policy gets the last observations, from
which it can estimate quantities that are not measured.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..errors import ArgumentError
from ..model import arguments
from ..model.names import described
from .environment import Env, Observation, Parts, Physics, Wrapper, checked_env, name_and_settings

POLICY_ENTRY, CRITIC_ENTRY = "state", "privileged_state"


class _OtherObservations(Wrapper, Env):  # pyright: ignore[reportIncompatibleVariableOverride]
    """An environment that changes only the observations of the environment `env`."""

    env: Env

    def shapes(self, params):
        return self.env.shapes(params)

    def settings(self):
        """The static settings, with those of the environment `env`."""
        return super().settings() | {"env": name_and_settings(self.env)}


@dataclasses.dataclass(frozen=True)
class Asymmetric(_OtherObservations):
    """An environment whose policy observes less than its critic.

    - `env`: the environment, whose observations are arrays;
    - `hidden`: the names of the parts of its observation that the policy does not get, as in
      `Interface.observation`, such as "linear_velocity" of a robot with legs;
    - observation: a dict. "state" is the observation of `env` without these parts, and
      "privileged_state" is the whole observation. The algorithms of `jaxrbd.learning` use them with
      `policy_observation="state"` and `critic_observation="privileged_state"`;
    - physics, parameters, actions and rewards: those of `env`.

    Raises ArgumentError for an environment that does not state the parts of its observation, for an
    unknown part, and if all parts are hidden.
    """

    env: Env
    hidden: tuple[str, ...]
    parts: Parts = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        checked_env(self.env)
        parts = self.env.interface(self.env.default_params()).observation
        if not isinstance(parts, tuple):
            raise ArgumentError(
                f"the interface of {type(self.env).__name__} states no parts of its observation, "
                "expected their names and sizes"
            )
        alone = isinstance(self.hidden, str)
        hidden = (self.hidden,) if alone else arguments.names(self.hidden, "hidden")
        names = [name for name, _ in parts]
        for name in hidden:
            if name not in names:
                raise ArgumentError(f"hidden has {name!r}, expected some of {', '.join(names)}")
        if set(names) <= set(hidden):
            raise ArgumentError("hidden has all parts of the observation, expected fewer")
        object.__setattr__(self, "hidden", hidden)
        object.__setattr__(self, "parts", parts)

    def initial(self, params, key):
        return self.env.initial(params, key)

    def advance(self, params, physics, action, key):
        return self.env.advance(params, physics, action, key)

    def terms(self, params, before, action, after):
        return self.env.terms(params, before, action, after)

    def failed(self, params, physics):
        return self.env.failed(params, physics)

    def configuration(self, physics):
        return self.env.configuration(physics)

    def observe(self, params, physics, key):
        observation = self.env.observe(params, physics, key)
        shown = np.concatenate([np.full(n, name not in self.hidden) for name, n in self.parts])
        return {POLICY_ENTRY: observation[np.flatnonzero(shown)], CRITIC_ENTRY: observation}

    def interface(self, params):
        shown = tuple(part for part in self.parts if part[0] not in self.hidden)
        observation = {POLICY_ENTRY: shown, CRITIC_ENTRY: self.parts}
        return self.env.interface(params)._replace(observation=observation)

    def settings(self):
        found = super().settings()
        del found["parts"]  # they follow from `env`
        return found


class HistoryPhysics(NamedTuple):
    """The physical state of an environment with a history.

    - `physics`: the physical state of the environment that it contains;
    - `newest`: the last observation of this environment, with noise;
    - `past` (length, m): its last observations, the newest one first. If observations are dicts,
      only their entry `History.entry`;
    - `finite`: whether each value of the last observation was finite, a pytree of the structure of
      `newest`. Values that were not finite are 0 in `newest` and in `past`.
    """

    physics: Physics
    newest: Observation
    past: Float[Array, "length m"]
    finite: Any


@dataclasses.dataclass(frozen=True)
class History(_OtherObservations):
    """An environment whose observation contains the last observations of another environment.

    - `env`: the environment;
    - `length`: the number of observations, the newest one included;
    - `entry`: if the observations of `env` are dicts, the entry that gets the history. The other
      entries stay as they are;
    - observation (length m,): the observations (m,) one after another, the newest one first. At the
      start of an episode, all are the first one. In `interface`, the part "x" of the observation
      k steps ago has the name "x[-k]";
    - physics: a `HistoryPhysics`; parameters, actions and rewards: those of `env`.

    An observation keeps its noise while it is in the history. If observations are dicts, the noise
    of all entries is drawn once per step. A value that is not finite ends the episode, as in `env`,
    and is 0 in the history. Raises ArgumentError for a length below 1, for an entry that the
    observations do not have, and for an observation or entry that is no vector of floats.
    """

    env: Env
    length: int
    entry: str | None = None

    def __post_init__(self):
        checked_env(self.env)
        arguments.require_counts(length=self.length)
        if self.entry is not None and not isinstance(self.entry, str):
            raise ArgumentError(f"entry is {self.entry!r}, expected the name of an entry, or None")
        params = self.env.default_params()
        state = jax.eval_shape(self.env.reset, params, jax.random.key(0))
        newest = self._newest(state.observation)
        is_array = isinstance(newest, jax.ShapeDtypeStruct)
        if not is_array or newest.ndim != 1 or not jnp.issubdtype(newest.dtype, jnp.floating):
            part = "the observation" if self.entry is None else f"the entry {self.entry!r}"
            found = f"is {described(newest)}"
            if is_array:
                found = f"has shape {newest.shape} and dtype {newest.dtype}"
            raise ArgumentError(f"{part} of env {found}, expected a vector of floats")

    def _newest(self, observation):
        """The part of an observation of `env` that gets the history."""
        if self.entry is None and not isinstance(observation, dict):
            return observation
        if isinstance(observation, dict) and self.entry in observation:
            return observation[self.entry]
        expected = ", ".join(sorted(observation)) if isinstance(observation, dict) else "None"
        raise ArgumentError(f"entry is {self.entry!r}, expected {expected}")

    def initial(self, params, key):
        key, sensor_key = jax.random.split(key)
        physics = self.env.initial(params, key)
        observation = self.env.observe(params, physics, sensor_key)
        finite, observation = _without_nan(observation)
        first = self._newest(observation)
        past = jnp.broadcast_to(first, (self.length, *first.shape))
        return HistoryPhysics(physics, observation, past, finite)

    def advance(self, params, physics, action, key):
        key, sensor_key = jax.random.split(key)
        after = self.env.advance(params, physics.physics, action, key)
        observation = self.env.observe(params, after, sensor_key)
        finite, observation = _without_nan(observation)
        past = jnp.concatenate([self._newest(observation)[None], physics.past[:-1]])
        return HistoryPhysics(after, observation, past, finite)

    def observe(self, params, physics, key):
        # `Env.step` ends the episode of an observation with NaN.
        newest = _filled(physics.newest, physics.finite, jnp.nan)
        past = jnp.concatenate([self._newest(newest)[None], physics.past[1:]]).ravel()
        if self.entry is None:
            return past
        return {**newest, self.entry: past}

    def terms(self, params, before, action, after):
        return self.env.terms(params, before.physics, action, after.physics)

    def failed(self, params, physics):
        return self.env.failed(params, physics.physics)

    def configuration(self, physics):
        return self.env.configuration(physics.physics)

    def interface(self, params):
        found = self.env.interface(params)
        if found.observation is None:
            return found
        ages = ["", *(f"[-{k}]" for k in range(1, self.length))]
        newest = self._newest(found.observation)
        parts = tuple((name + age, n) for age in ages for name, n in newest)
        if isinstance(found.observation, dict) and self.entry is not None:
            parts = {**found.observation, self.entry: parts}
        return found._replace(observation=parts)


def _without_nan(observation: Observation) -> tuple[Any, Observation]:
    """Whether each value of an observation is finite, and the observation with 0 elsewhere."""
    finite = jax.tree.map(jnp.isfinite, observation)
    return finite, _filled(observation, finite, 0)


def _filled(observation: Observation, finite: Any, value: float) -> Observation:
    """The observation with `value` in place of each float that is not `finite`."""

    def filled(x: Array, finite: Array) -> Array:
        return jnp.where(finite, x, value) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(filled, observation, finite)
