"""The structure of the kinematic tree: the parents of the bodies and the sizes of the joints.

A `Topology` is hashable, static data of a `Model`, so JAX compiles one program per topology. A
parent has a lower number than its children. The world is parent -1. Joint i moves body i. This
module uses NumPy and does not import JAX.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from .errors import ModelError


@dataclasses.dataclass(frozen=True, eq=False)
class Topology:
    """Parents and joint sizes of a tree of `nb` bodies.

    Fields: `parents[i]` is the parent of body i (-1 for the world); `nqs[i]` is the number of
    configuration coordinates of joint i, and `nvs[i]` the number of degrees of freedom that the
    joint adds to the tree (six for a `joints.Custom`).
    Raises ModelError where the three lengths differ or a parent does not precede its child.
    Source: Featherstone, Rigid Body Dynamics Algorithms, section 4.1.2 (regular numbering).
    """

    parents: tuple[int, ...]
    nqs: tuple[int, ...]
    nvs: tuple[int, ...]

    def __post_init__(self):
        if not len(self.parents) == len(self.nqs) == len(self.nvs):
            raise ModelError("parents, nqs and nvs must have one entry per body")
        for body, parent in enumerate(self.parents):
            if not -1 <= parent < body:
                raise ModelError(f"body {body} has parent {parent}: expected one in [-1, {body})")

    def __eq__(self, other):
        return self is other or (isinstance(other, Topology) and self._key == other._key)

    def __hash__(self):
        return self._hash

    @cached_property
    def _key(self):
        return (self.parents, self.nqs, self.nvs)

    @cached_property
    def _hash(self):
        return hash(self._key)

    @property
    def nb(self) -> int:
        """Number of moving bodies."""
        return len(self.parents)

    @cached_property
    def nq(self) -> int:
        """Number of configuration coordinates of all joints."""
        return sum(self.nqs)

    @cached_property
    def nv(self) -> int:
        """Number of degrees of freedom of the tree."""
        return sum(self.nvs)

    @cached_property
    def q_start(self) -> np.ndarray:
        """First configuration coordinate of each joint, (nb,)."""
        return np.cumsum([0, *self.nqs])[:-1].astype(int)

    @cached_property
    def v_start(self) -> np.ndarray:
        """First degree of freedom of each joint, (nb,)."""
        return np.cumsum([0, *self.nvs])[:-1].astype(int)

    @cached_property
    def dof_body(self) -> np.ndarray:
        """The body that each degree of freedom moves, (nv,)."""
        return np.repeat(np.arange(self.nb), self.nvs)

    @cached_property
    def dof_parent(self) -> np.ndarray:
        """Parent of each node of the dof tree, (nv,), or -1 for the world.

        The dof tree has one node per dof. A joint of n dofs is a chain of n nodes. The parent of
        the first node of the chain is the last node of the joint of the parent body.
        """
        last_node = {
            -1: -1,
            **{i: s + n - 1 for i, (s, n) in enumerate(zip(self.v_start, self.nvs))},
        }
        previous_node = np.arange(self.nv) - 1
        is_first = np.isin(np.arange(self.nv), self.v_start)
        parent_node = np.array([last_node[self.parents[b]] for b in self.dof_body], dtype=int)
        return np.where(is_first, parent_node, previous_node)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each body, in increasing order."""
        return tuple(
            tuple(i for i, parent in enumerate(self.parents) if parent == body)
            for body in range(self.nb)
        )

    @cached_property
    def root(self) -> np.ndarray:
        """The first body on the path from the world to each body, (nb,)."""
        root = np.arange(self.nb)
        for body, parent in enumerate(self.parents):
            if parent >= 0:
                root[body] = root[parent]
        return root

    @cached_property
    def supports(self) -> np.ndarray:
        """`supports[i, j]`: whether body i lies on the path from the world to body j, (nb, nb).

        The diagonal is True: a body supports itself.
        """
        supports = np.eye(self.nb, dtype=bool)
        for body, parent in enumerate(self.parents):
            if parent >= 0:
                supports[:, body] |= supports[:, parent]
        return supports

    def movers(self, bodies: np.ndarray) -> np.ndarray:
        """For each of the `bodies` (n,), which joints move it, (n, nb) of bool; -1 is the world."""
        if not len(self.supports):
            return np.zeros((len(bodies), 0), bool)
        return (self.supports[:, bodies] & (bodies >= 0)).T
