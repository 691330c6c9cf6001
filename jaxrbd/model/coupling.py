"""Joints that follow others: the map from the independent coordinates to those of every joint.

A mimic joint follows one coordinate linearly; a `Follow` joint is any smooth function of some.
With `q_joint = gamma(q)` and G its derivative, velocities are `G v`, accelerations `G a + dG/dt v`
and forces `G^T tau`: the explicit constraints of Featherstone's section 3.2. Followers and their
leaders have one dof each, so that a leader's velocity is the rate of its coordinate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float


class Followers(eqx.Module):
    """n joints whose coordinates are functions of one form of m leading coordinates each.

    `function`: its arrays stacked over the joints; the static fields say which coordinates of all
    joints it gives, (n,), and of which independent ones, (n, m).
    """

    function: Callable[[Array], Array]
    q: tuple[int, ...] = eqx.field(static=True)
    v: tuple[int, ...] = eqx.field(static=True)
    q_leaders: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    v_leaders: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def position(self, q: Array) -> Array:
        """The followers' coordinates (n,)."""
        return self._each(lambda f, x: jnp.reshape(f(x), ()), q)

    def slope(self, q: Array) -> Array:
        """The derivative of each follower's coordinate in its leaders', (n, m)."""
        return self._each(lambda f, x: jax.jacfwd(lambda x: jnp.reshape(f(x), ()))(x), q)

    def _each(self, evaluate: Callable, q: Array) -> Array:
        return jax.vmap(evaluate)(self.function, q[np.array(self.q_leaders)])


def independent_coordinates(
    leaders: Sequence[int], nqs: Sequence[int], nvs: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """The static fields of a `Coupling`: which coordinates are independent, and who follows which.

    `leaders[i]` is the independent joint whose coordinates joint i follows, i itself where it is
    independent; `nqs`, `nvs` are the joints' widths, a follower's being those of its leader.
    """
    own = np.asarray(leaders, int) == np.arange(len(leaders))
    fields: dict[str, tuple[int, ...]] = {}
    for space, widths in (("q", nqs), ("v", nvs)):
        starts = np.cumsum([0, *np.where(own, widths, 0)])
        source = [starts[leader] + np.arange(n) for leader, n in zip(leaders, widths)]
        fields[f"{space}_source"] = tuple(np.concatenate([np.zeros(0, int), *source]).tolist())
        fields[f"{space}_independent"] = tuple(np.flatnonzero(np.repeat(own, widths)).tolist())
    return fields


class Coupling(eqx.Module):
    """How the joints' coordinates follow the independent ones.

    `q_joint = multiplier * q[q_source] + offset`, `v_joint = v_multiplier * v[v_source]`: an
    independent coordinate is its own source, with multiplier 1 and offset 0. The coordinates that
    `followers` give are set by them (their multiplier is 0).
    """

    q_multiplier: Float[Array, " nq_joint"]
    q_offset: Float[Array, " nq_joint"]
    v_multiplier: Float[Array, " nv_joint"]
    followers: tuple[Followers, ...]
    q_source: tuple[int, ...] = eqx.field(static=True)
    v_source: tuple[int, ...] = eqx.field(static=True)
    q_independent: tuple[int, ...] = eqx.field(static=True)
    v_independent: tuple[int, ...] = eqx.field(static=True)

    def position(self, q: Array) -> Array:
        """The coordinates of all joints: `gamma(q)`, (nq_joint,)."""
        out = self.q_multiplier * q[np.array(self.q_source)] + self.q_offset
        for group in self.followers:
            out = out.at[np.array(group.q)].set(group.position(q))
        return out

    def velocity(self, q: Array, v: Array) -> Array:
        """The velocities of all joints: `G v`, (nv_joint,)."""
        out = self.v_multiplier * v[np.array(self.v_source)]
        for group in self.followers:
            rates = jnp.sum(group.slope(q) * v[np.array(group.v_leaders)], axis=1)
            out = out.at[np.array(group.v)].set(rates)
        return out

    def force(self, q: Array, tau: Array) -> Array:
        """Generalised force on the independent coordinates: `G^T tau`, along the first axis."""
        columns = (1,) * (tau.ndim - 1)
        weighted = self.v_multiplier.reshape(-1, *columns) * tau
        out = jnp.zeros((len(self.v_independent), *tau.shape[1:]), tau.dtype)
        out = out.at[np.array(self.v_source)].add(weighted)
        for group in self.followers:
            slope = group.slope(q)
            shares = slope.reshape(*slope.shape, *columns) * tau[np.array(group.v)][:, None]
            out = out.at[np.array(group.v_leaders)].add(shares)
        return out
