"""The structure of a tree: derived arrays, equality, errors."""

import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.topology import Topology

#        0 (world)
#   0 -- 1 -- 3       body 1 has three dofs
#    \-- 2
PARENTS, NQS, NVS = (-1, 0, 0, 1), (1, 4, 1, 1), (1, 3, 1, 1)


@pytest.fixture
def topology():
    return Topology(PARENTS, NQS, NVS)


def test_sizes_and_starts(topology):
    assert (topology.nb, topology.nq, topology.nv) == (4, 7, 6)
    assert topology.q_start.tolist() == [0, 1, 5, 6]
    assert topology.v_start.tolist() == [0, 1, 4, 5]
    assert topology.dof_body.tolist() == [0, 1, 1, 1, 2, 3]


def test_dof_tree_is_a_chain_within_a_joint(topology):
    assert topology.dof_parent.tolist() == [-1, 0, 1, 2, 0, 3]


def test_supports_are_the_paths_to_the_world(topology):
    paths = {0: {0}, 1: {0, 1}, 2: {0, 2}, 3: {0, 1, 3}}
    for body, path in paths.items():
        assert set(np.flatnonzero(topology.supports[:, body])) == path


def test_roots():
    assert Topology((-1, 0, -1, 2), (1,) * 4, (1,) * 4).root.tolist() == [0, 0, 2, 2]
    assert Topology((-1, 0, 1, -1, 3, 4), (1,) * 6, (1,) * 6).root.tolist() == [0, 0, 0, 3, 3, 3]


def test_equal_structures_are_equal_and_hash_alike(topology):
    twin = Topology(PARENTS, NQS, NVS)
    assert topology == twin
    assert hash(topology) == hash(twin)
    assert topology != Topology((-1, 0, 1, 1), NQS, NVS)
    assert topology != Topology(PARENTS, (1, 3, 1, 1), NVS)
    assert topology != Topology(PARENTS, NQS, (1, 1, 1, 1))


@pytest.mark.parametrize("parents", [(0,), (-2,), (-1, 1), (-1, 2, 0)])
def test_a_parent_must_precede_its_child(parents):
    with pytest.raises(rbd.ModelError, match="parent"):
        Topology(parents, (1,) * len(parents), (1,) * len(parents))


def test_lengths_must_agree():
    with pytest.raises(rbd.ModelError, match="one entry per body"):
        Topology((-1, 0), (1,), (1, 1))
