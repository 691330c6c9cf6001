"""Policies for tasks with a mirror symmetry: symmetric networks, or the better of two sides.

The action of a `Symmetric` policy for the mirror image of a state is the mirror image of its action
for the state. This is right for walking, where the two sides take turns. It is wrong where one side
must be chosen. For example, a swing-up to the left and one to the right are equally good at some
states, and there the best action changes abruptly. A continuous policy changes its action steeply
near some boundary, and the gradient through the physics does not move this boundary to the right
states. With the setting `mirror_observation` of `Shac`, the policy acts for the observation or for
its mirror image, whichever has the higher value of the critic. The training does not change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._math.ranks import times
from ..envs import Mirror
from ..errors import ArgumentError
from .networks import Layer, Network, PolicyNetwork, apply, network


def better_side(
    actions: Callable[[Array], Array],
    returns: Callable[[Array], Array],
    observation: Float[Array, "... m"],
    mirror_observation: tuple[int, ...],
    mirror_action: tuple[int, ...],
) -> Float[Array, "... k"]:
    """The actions for the observation, or the actions for its mirror image, mirrored back.

    The mirror image is used where the critic estimates a higher return for it. `actions`,
    `returns`: the policy, and the estimates of the critic, as functions of observations. The last
    two arguments are signs of the entries of the observation and of the action.
    """
    dtype = observation.dtype
    image = times(jnp.asarray(mirror_observation, dtype), observation)
    mirrored = times(jnp.asarray(mirror_action, dtype), actions(image))
    better = returns(observation) >= returns(image)
    return jnp.where(better[..., None], actions(observation), mirrored)


def check_mirror(algorithm: Any, size: int, action_size: int) -> None:
    """Raise ArgumentError for signs of a mirror that do not fit the environment."""
    for name in ("mirror_observation", "mirror_action"):
        if not isinstance(signs := getattr(algorithm, name), tuple | list):
            raise ArgumentError(f"{name} is {signs!r}, expected a tuple of signs 1 or -1")
    if not algorithm.mirror_observation and not algorithm.mirror_action:
        return
    for name in ("policy_observation", "critic_observation"):
        if (entry := getattr(algorithm, name)) is not None:
            raise ArgumentError(f"{name} is {entry!r}, expected None with a mirror")
    for name, count in (("mirror_observation", size), ("mirror_action", action_size)):
        signs = getattr(algorithm, name)
        if len(signs) != count or set(signs) - {1, -1}:
            raise ArgumentError(f"{name} is {signs}, expected {count} signs 1 or -1")


class SymmetricNetwork(eqx.Module):
    """A network from observations to actions that is symmetric; see `Symmetric`."""

    network: Any
    mirror: Mirror = eqx.field(static=True)

    def __call__(self, x: Float[Array, "... m"]) -> Float[Array, "... k"]:
        """The means of the actions before tanh, for normalised observations x."""
        image = self.mirror.action(apply(self.network, self.mirror.observation(x)))
        return (apply(self.network, x) + image) / 2

    def as_layers(self) -> Network:
        """The same function as a `Network`.

        Hidden layers have twice the width, one half for each side. Raises ArgumentError if the
        network of one side is not made of layers.
        """
        if not isinstance(self.network, tuple):
            raise ArgumentError(
                f"the network of one side is {type(self.network).__name__}, expected layers"
            )
        first, image = self.network[0], self.mirror.action
        mirrored = self.mirror.observation(jnp.eye(len(first.weight), dtype=first.weight.dtype))
        if len(self.network) == 1:
            weight = (first.weight + image(mirrored @ first.weight)) / 2
            return (Layer(weight, (first.bias + image(first.bias)) / 2),)
        _, *middle, last = self.network
        weight = jnp.concatenate([first.weight, mirrored @ first.weight], axis=1)
        twice = [Layer(weight, jnp.tile(first.bias, 2))]
        for layer in middle:
            weight = jnp.kron(jnp.eye(2, dtype=layer.weight.dtype), layer.weight)
            twice.append(Layer(weight, jnp.tile(layer.bias, 2)))
        weight = jnp.concatenate([last.weight, image(last.weight)]) / 2
        return (*twice, Layer(weight, (last.bias + image(last.bias)) / 2))


@dataclasses.dataclass(frozen=True)
class Symmetric:
    """The settings of a symmetric policy network, for `policy_network` of an algorithm.

    - `mirror`: the mirror image of observations and actions, such as `envs.mirror_image(env)`;
    - `network`: the function that makes the network f below (default: `networks.network`).

    The mean of the action before tanh, for a normalised observation x, is `(f(x) + A f(O x)) / 2`.
    O x is the mirror image of an observation x, and A u the mirror image of an action u. So the
    action for `O x` is the image of the action for x. The normalisation has the statistics of the
    observations of the training, which are symmetric only approximately.

    A call raises ArgumentError if the sizes of observations or actions are not those of the mirror.
    """

    mirror: Mirror
    network: PolicyNetwork = network

    def __call__(
        self, key: PRNGKeyArray, sizes: Sequence[int], dtype: Any, last: float = 1.0
    ) -> SymmetricNetwork:
        """The network with random weights; the arguments are as in `PolicyNetwork`."""
        found = tuple(len(x.signs) for x in self.mirror)
        if found != (sizes[0], sizes[-1]):
            raise ArgumentError(
                f"mirror is for {found[0]} observations and {found[1]} actions, expected "
                f"{sizes[0]} and {sizes[-1]}"
            )
        return SymmetricNetwork(self.network(key, sizes, dtype, last), self.mirror)
