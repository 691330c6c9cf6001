"""Joints that follow others: the map from independent coordinates to the coordinates of all joints.

The coordinate of a mimic joint is a linear function of one coordinate. The coordinate of a `Follow`
joint is a smooth function of several coordinates. Let `q_joint = gamma(q)` be the coordinates of
all joints, and J the derivative of gamma. Then the joint velocities are `J v` and the joint
accelerations are `J a + dJ/dt v`. The joint forces tau give the generalized force `J^T tau` on the
independent velocities (explicit constraints, Featherstone, section 3.2, where J is G). Followers
and their leaders have one dof each, so the velocity of a leader is the rate of its coordinate.
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
    """n joints that follow m leaders each, by one function with different parameters.

    - `function`: the function, with its arrays stacked over the n joints;
    - `q`, `v`: (n,), indices of the followers among the coordinates and velocities of all joints;
    - `q_leaders`, `v_leaders`: (n, m), indices of the leaders among the independent coordinates and
      velocities.
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
        """The derivative of each follower's coordinate in the leaders' coordinates, (n, m)."""
        return self._each(lambda f, x: jax.jacfwd(lambda x: jnp.reshape(f(x), ()))(x), q)

    def _each(self, evaluate: Callable, q: Array) -> Array:
        return jax.vmap(evaluate)(self.function, q[np.array(self.q_leaders)])


def independent_coordinates(
    leaders: Sequence[int], nqs: Sequence[int], nvs: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """The static fields of a `Coupling`: the independent coordinates and the leader of each joint.

    - `leaders[i]`: the independent joint that joint i follows (the first leader of a `Follow`), or
      i if joint i is independent;
    - `nqs`, `nvs`: number of coordinates and of velocities of each joint. A follower and its leader
      have the same numbers.
    """
    independent = np.asarray(leaders, int) == np.arange(len(leaders))
    fields: dict[str, tuple[int, ...]] = {}
    for space, widths in (("q", nqs), ("v", nvs)):
        starts = np.cumsum([0, *np.where(independent, widths, 0)])
        source = [starts[leader] + np.arange(n) for leader, n in zip(leaders, widths)]
        fields[f"{space}_source"] = tuple(np.concatenate([np.zeros(0, int), *source]).tolist())
        entries = np.flatnonzero(np.repeat(independent, widths))
        fields[f"{space}_independent"] = tuple(entries.tolist())
    return fields


class Coupling(eqx.Module):
    """The coordinates of all joints as functions of the independent coordinates.

    `q_joint = q_multiplier * q[q_source] + q_offset` and `v_joint = v_multiplier * v[v_source]`.
    For an independent coordinate the source is the coordinate itself, with multiplier 1 and
    offset 0. `followers` then set the coordinates of `Follow` joints, whose multiplier is 0.
    """

    q_multiplier: Float[Array, " nq_joint"]
    q_offset: Float[Array, " nq_joint"]
    v_multiplier: Float[Array, " nv_joint"]
    followers: tuple[Followers, ...]
    q_source: tuple[int, ...] = eqx.field(static=True)
    v_source: tuple[int, ...] = eqx.field(static=True)
    q_independent: tuple[int, ...] = eqx.field(static=True)
    v_independent: tuple[int, ...] = eqx.field(static=True)

    @property
    def velocity_dependence(self) -> np.ndarray:
        """`[i, j]`: whether velocity i of all joints depends on v_j, (nv_joint, nv) of bool."""
        depends = np.zeros((len(self.v_source), len(self.v_independent)), bool)
        depends[np.arange(len(self.v_source)), list(self.v_source)] = True
        for group in self.followers:
            depends[np.array(group.v)[:, None], np.array(group.v_leaders)] = True
        return depends

    def position(self, q: Array) -> Array:
        """The coordinates of all joints: `gamma(q)`, (nq_joint,)."""
        out = self.q_multiplier * q[np.array(self.q_source)] + self.q_offset
        for group in self.followers:
            out = out.at[np.array(group.q)].set(group.position(q))
        return out

    def velocity(self, q: Array, v: Array) -> Array:
        """The velocities of all joints: `J v`, (nv_joint,)."""
        out = self.v_multiplier * v[np.array(self.v_source)]
        for group in self.followers:
            rates = jnp.sum(group.slope(q) * v[np.array(group.v_leaders)], axis=1)
            out = out.at[np.array(group.v)].set(rates)
        return out

    def force(self, q: Array, tau: Array) -> Array:
        """Generalized force on the independent velocities: `J^T tau`, along the first axis."""
        columns = (1,) * (tau.ndim - 1)
        weighted = self.v_multiplier.reshape(-1, *columns) * tau
        out = jnp.zeros((len(self.v_independent), *tau.shape[1:]), tau.dtype)
        out = out.at[np.array(self.v_source)].add(weighted)
        for group in self.followers:
            slope = group.slope(q)
            shares = slope.reshape(*slope.shape, *columns) * tau[np.array(group.v)][:, None]
            out = out.at[np.array(group.v_leaders)].add(shares)
        return out
