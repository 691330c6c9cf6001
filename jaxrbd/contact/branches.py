"""The partition of the dofs of a robot into a trunk and branches, for Newton's method.

A branch is a set of dofs below the trunk, for example a leg. The Hessian of the convex function of
a contact step couples the dofs of a branch with each other and with the dofs of the trunk. It
couples the dofs of two branches only if a contact acts between the branches; such branches become
one branch. So the dofs of each branch can be eliminated independently of the other branches. Then a
system in the dofs of the trunk remains. For a quadruped with a free-flyer and legs of three dofs,
three steps on four small matrices replace twelve of the eighteen steps on the whole matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..topology import Topology


class Partition(NamedTuple):
    """A partition of nv dofs into b branches of up to m dofs and a trunk of t dofs.

    Several small branches may share one column. In this class, they count as one branch.

    - `branches` (m, b): the dofs of the branches, padded with nv;
    - `trunk` (t,): the dofs of the trunk;
    - `contacts` (k, b): the indices of the contacts of each branch, padded with the number of all
      contacts. A contact moves only with the dofs of its branch and of the trunk.
    """

    branches: np.ndarray
    trunk: np.ndarray
    contacts: np.ndarray

    @property
    def order(self) -> np.ndarray:
        """The dofs in the order of the solver, (m b + t,).

        The rows of `branches`, with the padding, come first, then the trunk.
        """
        return np.concatenate([self.branches.ravel(), self.trunk])

    @property
    def columns(self) -> np.ndarray:
        """The dofs of each branch and of the trunk, (b, m + t)."""
        trunk = np.broadcast_to(self.trunk, (self.branches.shape[1], len(self.trunk)))
        return np.concatenate([self.branches.T, trunk], axis=1)

    @property
    def cost(self) -> int:
        """An estimate of the number of multiplications in one iteration of Newton's method."""
        (m, b), t, k = self.branches.shape, len(self.trunk), len(self.contacts)
        width = m + t + 1
        rows = 3 * k * b
        elimination = m * m * b * width + t * t * (t + 1)
        return elimination + rows * m * width + (rows + m * b) * t * (t + 1)


def whole(nv: int, contacts: int) -> Partition:
    """The partition with all dofs in the trunk."""
    return Partition(
        np.zeros((0, 1), int), np.arange(nv), np.arange(contacts, dtype=int).reshape(-1, 1)
    )


def partition(topology: Topology, contact_bodies: list[list[int]]) -> Partition:
    """The partition for which one iteration costs least.

    `contact_bodies`: the bodies of each contact; -1 is the world. There is one candidate per size
    of a subtree of dofs: the largest subtrees up to this size are branches, and all other dofs are
    in the trunk. Branches whose dofs move the same contact are merged.
    """
    nv, parent = topology.nv, np.asarray(topology.dof_parent)
    # [i, j]: i is j or an ancestor of j in the tree of dofs (`topology.dof_parent`).
    is_ancestor = np.eye(nv, dtype=bool)
    for j in range(nv):
        if parent[j] >= 0:
            is_ancestor[:, j] |= is_ancestor[:, parent[j]]
    moving = topology.supports[np.asarray(topology.dof_body, int)]
    moved = [_dofs(moving, bodies) for bodies in contact_bodies]
    sizes = is_ancestor.sum(axis=1)
    found = [whole(nv, len(moved))]
    for largest in np.unique(sizes[sizes < nv]):
        in_trunk = sizes > largest
        roots = [i for i in range(nv) if not in_trunk[i] and (parent[i] < 0 or in_trunk[parent[i]])]
        branches = [set(np.flatnonzero(is_ancestor[i]).tolist()) for i in roots]
        for dofs in moved:
            touched = [b for b in branches if b.intersection(dofs)]
            branches = [b for b in branches if not b.intersection(dofs)]
            branches += [set().union(*touched)] if touched else []
        found.append(_packed(branches, np.flatnonzero(in_trunk), moved, nv))
    return min(found, key=lambda found: found.cost)


def _dofs(moving: np.ndarray, bodies: list[int]) -> set[int]:
    """The dofs that move one of the bodies; `moving` [i, j]: dof i moves body j."""
    return {int(i) for body in bodies if body >= 0 for i in np.flatnonzero(moving[:, body])}


def _packed(
    branches: list[set[int]], trunk: np.ndarray, moved: list[set[int]], nv: int
) -> Partition:
    """The partition in which small branches share one column of `Partition.branches`."""
    ordered = sorted((sorted(b) for b in branches), key=lambda b: (-len(b), b))
    m = len(ordered[0])
    bins: list[list[int]] = []
    for branch in ordered:
        fitting = [dofs for dofs in bins if len(dofs) + len(branch) <= m]
        if fitting:
            fitting[0].extend(branch)
        else:
            bins.append(list(branch))
    contacts: list[list[int]] = [[] for _ in bins]
    trunk_contacts: list[int] = []
    for i, dofs in enumerate(moved):
        reached = [k for k, branch in enumerate(bins) if dofs.intersection(branch)]
        (contacts[reached[0]] if reached else trunk_contacts).append(i)
    # A contact that only dofs of the trunk move may be in any column.
    for i in trunk_contacts:
        min(contacts, key=len).append(i)
    return Partition(
        _padded(bins, nv).T,
        trunk,
        _padded(contacts, len(moved)).T,
    )


def _padded(lists: list[list[int]], fill: int) -> np.ndarray:
    longest = max(map(len, lists))
    return np.array([[*x, *[fill] * (longest - len(x))] for x in lists], int).reshape(
        len(lists), longest
    )
