"""Tasks that look the same in a mirror: the action for the better of two sides.

For example, a swing-up to the left and one to the right are equally good at some states, and there
the best action changes abruptly. A continuous policy changes its action steeply near some boundary,
and the gradient through the physics does not move this boundary to the right states. With a mirror,
the policy acts for the observation or for its mirror image, whichever has the higher value of the
critic. The training does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._math.ranks import times
from ..errors import ArgumentError


def better_side(
    actions: Callable[[Array], Array],
    returns: Callable[[Array], Array],
    observation: Float[Array, "... m"],
    mirror_observation: tuple[int, ...],
    mirror_action: tuple[int, ...],
) -> Float[Array, "... k"]:
    """The actions for the observation, or the actions for its mirror image, mirrored back.

    `actions`, `returns`: the policy, and the estimates of the critic, as functions of observations.
    The last two arguments are signs of the entries of the observation and of the action.
    """
    dtype = observation.dtype
    image = times(jnp.asarray(mirror_observation, dtype), observation)
    mirrored = times(jnp.asarray(mirror_action, dtype), actions(image))
    better = returns(observation) >= returns(image)
    return jnp.where(better[..., None], actions(observation), mirrored)


def check_mirror(algorithm: Any, size: int, action_size: int) -> None:
    """Raise ArgumentError for signs of a mirror that do not fit the environment."""
    if not algorithm.mirror_observation and not algorithm.mirror_action:
        return
    for name in ("policy_observation", "critic_observation"):
        if (entry := getattr(algorithm, name)) is not None:
            raise ArgumentError(f"{name} is {entry!r}, expected None with a mirror")
    for name, count in (("mirror_observation", size), ("mirror_action", action_size)):
        signs = getattr(algorithm, name)
        if len(signs) != count or set(signs) - {1, -1}:
            raise ArgumentError(f"{name} is {signs}, expected {count} signs 1 or -1")
