"""A small environment, whose programs compile quickly: a point on a line."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd import envs


class PointParams(NamedTuple):
    """A mass, which the friction acts on, and the weights."""

    model: rbd.Model
    friction: jax.Array
    weights: dict


@dataclasses.dataclass(frozen=True)
class Point(envs.Env):
    """A point on a line, which fails beyond 1. It is small, so its programs compile quickly."""

    episode_steps: int = 6
    action_size: ClassVar[int] = 1
    time_step: ClassVar[float] = 0.1

    def default_params(self):
        model = rbd.load_robot("pendulum")
        one = jnp.ones((), model.dtype)
        return PointParams(model, 0.1 * one, {"place": one, "effort": 0.5 * one})

    def initial(self, params, key):
        return jax.random.uniform(key, (1,), params.model.dtype, -0.1, 0.1)

    def advance(self, params, physics, action, key):
        return (1 - params.friction) * physics + action

    def observe(self, params, physics, key):
        return physics

    def terms(self, params, before, action, after):
        return {"place": after[0], "effort": -(action[0] ** 2)}

    def failed(self, params, physics):
        return physics[0] > 1


class PointWithSecrets(Point):
    """A point whose observation has an entry for the policy and one for the critic."""

    def observe(self, params, physics, key):
        secret = jnp.concatenate([physics, params.friction[None]])
        return {"state": physics, "privileged_state": secret}


class PointWithDraws(Point):
    """A point whose states and observations are random numbers, which show the keys."""

    def initial(self, params, key):
        return draws(key)

    def advance(self, params, physics, action, key):
        return draws(key)

    def observe(self, params, physics, key):
        return draws(key)

    def terms(self, params, before, action, after):
        return {"place": after[0], "effort": after[2]}


def draws(key):
    """The random numbers (4,) of a key and of three keys split from it, between 0 and 1."""
    keys = jnp.concatenate([key[None], jax.random.split(key, 3)])
    return jax.vmap(jax.random.uniform)(keys)


@dataclasses.dataclass(frozen=True)
class PointWithTwoNumbers(Point):
    """A point with a second number, either of which is infinite after an action above 0.5."""

    broken: str = "place"

    def initial(self, params, key):
        return {"first": jnp.zeros(1), "place": super().initial(params, key), "rest": jnp.zeros(1)}

    def advance(self, params, physics, action, key):
        after = physics | {"place": super().advance(params, physics["place"], action, key)}
        return after | {self.broken: jnp.where(action > 0.5, jnp.inf, after[self.broken])}

    def observe(self, params, physics, key):
        return physics["place"]

    def terms(self, params, before, action, after):
        return super().terms(params, before["place"], action, after["place"])

    def failed(self, params, physics):
        return super().failed(params, physics["place"])


def arrays(tree):
    """The leaves of a pytree as arrays of NumPy; random keys as their data."""
    leaves = jax.tree.leaves(tree)
    keys = [jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in leaves]
    return [np.asarray(jax.random.key_data(x) if k else x) for x, k in zip(leaves, keys)]
