"""Small neural networks as tuples of arrays, Gaussian policies, and statistics of observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._math.ranks import plus, same_rank, times
from ..envs.environment import Observation
from ..errors import ArgumentError
from ..model import arguments


class Layer(NamedTuple):
    """An affine map: weight (m, n), bias (n,)."""

    weight: Float[Array, "m n"]
    bias: Float[Array, " n"]


Network = tuple[Layer, ...]

# A function that makes the network of a policy, with the arguments of `network`. It returns a
# `Network`, or a pytree of arrays that is a function from (..., m) to (..., n), such as a
# `JointAttention` or a module of Equinox.
PolicyNetwork = Callable[[PRNGKeyArray, Sequence[int], Any, float], Any]


def network(key: PRNGKeyArray, sizes: Sequence[int], dtype: Any, last: float = 1.0) -> Network:
    """A network with random weights of variance 1 / m, for m inputs of a layer, and zero biases.

    `sizes`: the sizes of the input, of the hidden layers and of the output; `last`: a factor of the
    weights of the last layer.
    """
    keys = jax.random.split(key, len(sizes) - 1)
    factors = [1.0] * (len(sizes) - 2) + [last]
    return tuple(
        Layer(
            float(factor / np.sqrt(m)) * jax.random.normal(key, (m, n), dtype),
            jnp.zeros(n, dtype),
        )
        for key, m, n, factor in zip(keys, sizes, sizes[1:], factors)
    )


def apply(layers: Any, x: Float[Array, "... m"]) -> Float[Array, "... n"]:
    """The output of a network.

    `layers`: a `Network`, with the activation function elu between its layers, or another network
    that a `PolicyNetwork` makes.
    """
    # A network of a `PolicyNetwork` may be a tuple too, so `__call__` decides.
    if callable(layers):
        return cast("Callable[[Array], Array]", layers)(x)
    for layer in layers[:-1]:
        x = jax.nn.elu(plus(x @ layer.weight, layer.bias))
    return plus(x @ layers[-1].weight, layers[-1].bias)


class Statistics(NamedTuple):
    """The mean and the variance of all observations up to now, (n,) each, and their number.

    The statistics start with the mean 0 and the variance 1, as if from 1e-4 observations. So the
    first observations replace them.
    """

    samples: Float[Array, ""]
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]

    def add(self, x: Float[Array, "... n"]) -> Statistics:
        """The statistics with more observations. Source: Chan, Golub and LeVeque (1979)."""
        x = x.reshape(-1, x.shape[-1])
        more = jnp.asarray(x.shape[0], self.samples.dtype)
        mean, variance = jnp.mean(x, axis=0), jnp.var(x, axis=0)
        samples, change = self.samples + more, mean - self.mean
        share = more / samples
        spread = (1 - share) * self.variance + share * variance
        return Statistics(
            samples, self.mean + share * change, spread + share * (1 - share) * change**2
        )

    def normalise(self, x: Float[Array, "... n"]) -> Float[Array, "... n"]:
        """The observations, shifted and scaled to the mean 0 and the variance 1."""
        x = arguments.as_array(x, "observation")
        if x.shape[-1:] != self.mean.shape:
            n = self.mean.size
            raise ArgumentError(f"observation has shape {x.shape}, expected (..., {n})")
        x, mean, scale = same_rank(x, self.mean, self.scale)
        return (x - mean) / scale

    @property
    def scale(self) -> Float[Array, " n"]:
        """The divisor (n,) of `normalise`: about the standard deviation, and never zero."""
        return jnp.sqrt(self.variance + 1e-5)


# The statistics of each array of an observation: a pytree of `Statistics`.
ObservationStatistics = Any


def no_statistics(observation: Observation) -> ObservationStatistics:
    """The statistics before the first observation, for each of its arrays: mean 0, variance 1."""

    def start(x: Float[Array, "... n"]) -> Statistics:
        size, dtype = x.shape[-1], x.dtype
        return Statistics(jnp.full((), 1e-4, dtype), jnp.zeros(size, dtype), jnp.ones(size, dtype))

    return jax.tree.map(start, observation)


def with_observations(
    statistics: ObservationStatistics, observation: Observation
) -> ObservationStatistics:
    """The statistics with more observations, for each array of an observation."""
    return jax.tree.map(
        lambda found, x: found.add(x),
        statistics,
        observation,
        is_leaf=lambda x: isinstance(x, Statistics),
    )


def entry(name: str | None, x: Any) -> Any:
    """The array of an observation that a network gets, or the statistics of this array.

    `name`: the entry of an observation that is a dict; None if the observation is one array.
    """
    return x if name is None else x[name]


def normalised(
    statistics: ObservationStatistics, observation: Observation, name: str | None
) -> Float[Array, "... m"]:
    """The input of a network for observations, shifted and scaled; `name`: as in `entry`."""
    return entry(name, statistics).normalise(entry(name, observation))


def observation_size(name: str | None, observation: Observation, setting: str) -> int:
    """The size of the input of a network, from a batch of observations.

    `name`: as in `entry`; `setting`: the setting of the algorithm that states `name`. Raises
    ArgumentError, which names the setting, if the observation has no such array.
    """
    found = observation
    if isinstance(observation, dict):
        if name not in observation:
            names = ", ".join(map(repr, observation))
            raise ArgumentError(
                f"{setting} is {name!r}, expected an entry of observations: {names}"
            )
        found = observation[name]
    elif name is not None:
        raise ArgumentError(f"{setting} is {name!r}, expected None: observation is no dict")
    if not isinstance(found, Array) or found.ndim != 2:
        raise ArgumentError(f"{setting} is {name!r}, expected an array (n,) in each observation")
    return found.shape[1]


class Policy(NamedTuple):
    """A random policy: the action is `tanh(mean(x) + exp(log_std) noise)`.

    x is the normalised observation. `mean`: a `Network`, or another network that a `PolicyNetwork`
    makes.
    """

    mean: Any
    log_std: Float[Array, " n"]


def new_policy(
    key: PRNGKeyArray,
    sizes: Sequence[int],
    dtype: Any,
    log_std: float = -1.0,
    policy_network: PolicyNetwork | None = None,
) -> Policy:
    """A policy with random weights; the actions are near zero at first.

    `policy_network`: the function that makes the network (default: `network`). Raises ArgumentError
    for a network with leaves that are not arrays of `dtype`, for a network that fails, and for
    results of another size than the action.
    """
    mean = (policy_network or network)(key, sizes, dtype, 0.1)
    for leaf in jax.tree.leaves(mean):
        if not arguments.is_array(leaf):
            raise ArgumentError(
                f"policy_network makes a network with the leaf {leaf!r}, expected arrays only"
            )
        if jnp.result_type(leaf) != dtype:
            raise ArgumentError(
                f"policy_network makes a network with a leaf of {jnp.result_type(leaf)}, expected "
                f"{jnp.dtype(dtype)}, the dtype of the environment"
            )
    two_observations = jax.ShapeDtypeStruct((2, sizes[0]), dtype)
    try:
        found = jax.tree.map(jnp.shape, jax.eval_shape(apply, mean, two_observations))
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ArgumentError(
            f"policy_network makes a network that fails for observations "
            f"{two_observations.shape}: {reason}"
        ) from error
    if found != (2, sizes[-1]):
        raise ArgumentError(
            f"policy_network makes a network that returns the shape {found} for observations "
            f"{two_observations.shape}, expected {(2, sizes[-1])}"
        )
    return Policy(mean, jnp.full(sizes[-1], log_std, dtype))


def policy_layers(policy: Policy) -> Network:
    """The layers of the network of a policy, also of a `SymmetricNetwork`.

    Raises ArgumentError for another network.
    """
    if hasattr(policy.mean, "as_layers"):
        return policy.mean.as_layers()
    if callable(policy.mean) or not isinstance(policy.mean, tuple):
        raise ArgumentError(
            f"the network of the policy is {type(policy.mean).__name__}, expected layers: a "
            "training without policy_network"
        )
    return policy.mean


def act(
    policy: Policy,
    statistics: ObservationStatistics,
    observation: Observation,
    noise: Float[Array, "... n"],
    name: str | None = None,
) -> Float[Array, "... n"]:
    """The actions for observations.

    `noise`: standard normal, or 0 for the deterministic policy; `name`: as in `entry`.
    """
    mean = apply(policy.mean, normalised(statistics, observation, name))
    return jnp.tanh(plus(mean, times(jnp.exp(policy.log_std), noise)))


def values(
    critic: Network,
    statistics: ObservationStatistics,
    observation: Observation,
    name: str | None = None,
) -> Float[Array, "..."]:
    """The estimates of the critic for the returns from observations; `name`: as in `entry`."""
    return apply(critic, normalised(statistics, observation, name))[..., 0]
