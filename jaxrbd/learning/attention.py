"""A policy network with attention between the joints of a robot.

Each joint has a vector, its token. The first token is a linear map of the observations of the joint
and of the whole robot, plus a learned vector of the joint. Each block changes the tokens twice. By
attention, a weighted mean of linear maps of all tokens is added to each token; the weights depend
on the tokens. Then a small network maps each token to a vector, which is added to the token. All
joints share the linear maps and the network. Joints that a robot does not have get no weight. The
mean of the action of a joint before tanh is the scalar product of its last token, shifted and
scaled, and a second learned vector of the joint.

Sources: Vaswani et al. (2017), Attention is all you need, sections 3.1 to 3.3, with the
normalisation before each step; Gupta, Fan, Ganguli and Fei-Fei (2022), MetaMorph, for one policy
with one token per joint of different robots.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._math.ranks import plus, times
from ..errors import ArgumentError
from ..model import arguments
from .networks import Layer, apply, network

# A robot does not have a joint if the normalised entry of the mask is at most this value. With the
# mean m and the standard deviation s of the entry, the normalised entry is -m / s for a joint that
# the robot does not have, and (1 - m) / s otherwise. The latter is zero for a joint that all robots
# have.
ABSENT = -1e-3


class Block(NamedTuple):
    """The maps of one block, for tokens of width d.

    - `attention` (d, 3 d): the queries, keys and values of the heads, one after another;
    - `projection` (d, d): the map of the results of the heads;
    - `change`: the network with the sizes d, 2 d, d, whose result is added to each token.
    """

    attention: Layer
    projection: Layer
    change: tuple[Layer, ...]


class AttentionNetwork(eqx.Module):
    """A network from observations to one action per joint; see `JointAttention`.

    `places`: the vector of each joint; `start`: the linear map of the first tokens; `actions`: the
    weights of each action.
    """

    places: Float[Array, "n d"]
    start: Layer
    blocks: tuple[Block, ...]
    actions: Float[Array, "n d"]
    settings: JointAttention = eqx.field(static=True)

    def __call__(self, x: Float[Array, "... m"]) -> Float[Array, "... n"]:
        """The means of the actions before tanh, for normalised observations x."""
        batch, x = x.shape[:-1], x.reshape(-1, x.shape[-1])
        mask, each_joint, shared = self.settings.entries()
        robot_entries = jnp.broadcast_to(x[:, None, shared], (len(x), len(each_joint), len(shared)))
        tokens = jnp.concatenate([x[:, each_joint], robot_entries], axis=-1)
        tokens = plus(apply((self.start,), tokens), self.places)
        has_joint = jnp.ones(tokens.shape[:2], bool) if mask is None else x[:, mask] > ABSENT
        for block in self.blocks:
            tokens = tokens + self._attention(block, _normalised(tokens), has_joint)
            tokens = tokens + apply(block.change, _normalised(tokens))
        found = jnp.sum(times(_normalised(tokens), self.actions), axis=-1)
        return found.reshape(*batch, len(each_joint))

    def _attention(self, block: Block, tokens: Array, has_joint: Array) -> Array:
        """The change of the tokens (b, n, d) by attention to the joints that the robot has."""
        size, n, d = tokens.shape
        heads = apply((block.attention,), tokens)
        heads = heads.reshape(size, n, 3, self.settings.heads, d // self.settings.heads)
        query, key, value = (heads[:, :, i] for i in range(3))
        scores = jnp.einsum("bihd,bjhd->bhij", query, key) / float(np.sqrt(query.shape[-1]))
        # Not minus infinity, so that the weights of a robot without joints are no NaN.
        scores = jnp.where(has_joint[:, None, None, :], scores, -1e9)
        found = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), value)
        return apply((block.projection,), found.reshape(size, n, d))


@dataclasses.dataclass(frozen=True)
class JointAttention:
    """The settings of a policy network with attention, for `Shac(policy_network=...)`.

    - `parts`: the names and sizes of the parts of an observation, in their order, such as
      `env.interface(params).observation`;
    - `per_joint`: the names of the parts with one entry per joint, in the order of the actions. All
      other parts describe the whole robot, and the first token of each joint depends on them;
    - `mask`: the name of the part that is 1 for joints that the robot has, and 0 for others, such
      as "has_joint" of `envs.PaddedWalk` (default: the robot has all joints). Before the first
      update, the mean of this part is not known, and all joints have weights;
    - `width` d, `heads`, `blocks`: the size of a token, which is a multiple of the number of heads,
      and the number of blocks.

    Raises ArgumentError for names that are not in `parts` or that occur twice, and for parts per
    joint of different sizes.
    """

    parts: tuple[tuple[str, int], ...]
    per_joint: tuple[str, ...] = ("joint_positions_minus_pose", "joint_velocities", "last_action")
    mask: str | None = None
    width: int = 32
    heads: int = 2
    blocks: int = 2

    def __post_init__(self):
        arguments.require_counts(width=self.width, heads=self.heads, blocks=self.blocks)
        try:
            parts = tuple((str(name), operator.index(size)) for name, size in self.parts)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"parts is {self.parts!r}, expected pairs of a name and a size"
            ) from None
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "per_joint", tuple(self.per_joint))
        if self.width % self.heads:
            raise ArgumentError(f"width is {self.width}, expected a multiple of heads={self.heads}")
        sizes = dict(self.parts)
        names = self.per_joint if self.mask is None else (*self.per_joint, self.mask)
        if not self.per_joint:
            raise ArgumentError("per_joint is empty, expected at least one name of parts")
        for kind, given in (("parts", [name for name, _ in parts]), ("per_joint and mask", names)):
            if len(set(given)) < len(given):
                raise ArgumentError(f"{kind} has a name twice: {', '.join(map(repr, given))}")
        for name in names:
            if name not in sizes:
                raise ArgumentError(f"{name!r} is no part of {', '.join(map(repr, sizes))}")
            if sizes[name] != sizes[names[0]]:
                raise ArgumentError(
                    f"the part {name!r} has {sizes[name]} entries, expected {sizes[names[0]]} "
                    f"as {names[0]!r}"
                )

    def entries(self) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        """The indices of the mask (n,), of the parts of each joint (n, p), and of the other parts.

        The other parts contain the mask.
        """
        ends = np.cumsum([0, *(size for _, size in self.parts)])
        rows = {name: np.arange(i, i + n) for (name, n), i in zip(self.parts, ends)}
        each_joint = np.stack([rows.pop(name) for name in self.per_joint], axis=1)
        mask = None if self.mask is None else rows[self.mask]
        return mask, each_joint, np.concatenate([*rows.values(), np.arange(0)])

    def __call__(
        self, key: PRNGKeyArray, sizes: Sequence[int], dtype: Any, last: float
    ) -> AttentionNetwork:
        """A network with random weights, as `networks.network`; the hidden sizes are not used.

        Raises ArgumentError for observations or actions of another size than `parts`.
        """
        _, each_joint, shared = self.entries()
        total = sum(size for _, size in self.parts)
        if (sizes[0], sizes[-1]) != (total, len(each_joint)):
            raise ArgumentError(
                f"the environment has {sizes[0]} observations and {sizes[-1]} actions, expected "
                f"{total} and {len(each_joint)} as in parts of JointAttention"
            )
        d = self.width
        place_key, start_key, actions_key, *keys = jax.random.split(key, 3 + 3 * self.blocks)

        def layer(key: PRNGKeyArray, m: int, n: int) -> Layer:
            return network(key, (m, n), dtype)[0]

        blocks = tuple(
            Block(layer(k[0], d, 3 * d), layer(k[1], d, d), network(k[2], (d, 2 * d, d), dtype))
            for k in zip(keys[::3], keys[1::3], keys[2::3])
        )
        return AttentionNetwork(
            places=jax.random.normal(place_key, (len(each_joint), d), dtype),
            start=layer(start_key, each_joint.shape[1] + len(shared), d),
            blocks=blocks,
            actions=float(last / np.sqrt(d))
            * jax.random.normal(actions_key, (len(each_joint), d), dtype),
            settings=self,
        )


def _normalised(tokens: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """The tokens, shifted and scaled: the entries of each token get the mean 0 and variance 1."""
    tokens = tokens - jnp.mean(tokens, axis=-1, keepdims=True)
    return tokens / jnp.sqrt(jnp.mean(tokens * tokens, axis=-1, keepdims=True) + 1e-5)
