"""Oracle one: Pinocchio, on every real robot, with its base fixed and on a free-flyer.

Both number the joints alike, so vectors and matrices are compared as they stand. An error is
relative to the largest entry; of what is solved with the mass matrix M it may grow with cond(M).
"""

import functools

import jax
import numpy as np
import pytest
from lxml import etree

import jaxrbd
import oracles
import real_robots

pin = pytest.importorskip("pinocchio", reason="Pinocchio has no wheel for this platform")

TOLERANCE, PER_CONDITION = 1e-12, 1e-15
SEEDS = range(3)
REFERENCES = {
    "local": pin.ReferenceFrame.LOCAL,
    "world": pin.ReferenceFrame.WORLD,
    "local_world_aligned": pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}

both_bases = pytest.mark.parametrize(
    "root_joint", [None, "free_flyer"], ids=["fixed", "free_flyer"]
)


@both_bases
@pytest.mark.parametrize("name", real_robots.ROBOTS)
def test_every_quantity_of_every_robot(name, root_joint):
    model, oracle = real_robots.load(name, root_joint), load_oracle(name, root_joint)
    assert list(model.joint_names) == list(oracle.names)[1:]
    for seed in SEEDS:
        state = oracles.random_state(model, seed)
        ours = as_pinocchio(oracle.joints[1:], oracles.our_results(model, state))
        theirs = pinocchio_results(oracle, model, state)
        assert set(ours) == set(theirs)
        agree(name, f"{name}, seed {seed}", ours, theirs, real_robots.SINGULAR)


@pytest.mark.parametrize("name", real_robots.UNREADABLE)
def test_neither_reads_what_is_no_robot(name):
    with pytest.raises(ValueError, match="does not contain a valid URDF"):
        load_oracle(name, None)
    with pytest.raises(jaxrbd.RobotFileError):
        real_robots.load(name, None)


def test_robots_are_there():
    assert len(real_robots.ROBOTS) >= 68
    named = [real_robots.UNREADABLE, real_robots.SINGULAR, real_robots.UNPHYSICAL]
    named += [real_robots.MIMIC, real_robots.UNREADABLE_MIMIC]
    assert set().union(*named) <= set(real_robots.FILES)


# ---------------------------------------------------------------------------------- mimic joints


@both_bases
@pytest.mark.parametrize("name", real_robots.MIMIC)
def test_mimic_joints(name, root_joint):
    """Pinocchio's results without mimic, taken through `v_tree = G v` with G from the file."""
    model, oracle = real_robots.load(name, root_joint, mimic=True), load_oracle(name, root_joint)
    coupling = Coupling(name, oracle)
    for seed in SEEDS:
        state = oracles.random_state(model, seed)
        ours = as_pinocchio(coupling.independent, oracles.our_results(model, state))
        tree = pinocchio_results(oracle, model, coupling.tree_state(state))
        theirs = coupling.results(state, tree)
        assert set(ours) == set(theirs)
        agree(name, f"{name} with mimic, seed {seed}", ours, theirs, real_robots.SINGULAR_MIMIC)


@both_bases
@pytest.mark.parametrize("name", real_robots.MIMIC)
def test_mimic_joints_as_pinocchio_has_them(name, root_joint):
    """Pinocchio's own mimic joints, in the robots and the algorithms for which it has them."""
    if real_robots.MIMIC[name] is not None:
        with pytest.raises(ValueError, match="not in the kinematic tree"):
            load_oracle(name, root_joint, mimic=True)
        return
    model, oracle = (load(name, root_joint, mimic=True) for load in (real_robots.load, load_oracle))
    for seed in SEEDS:
        state = oracles.random_state(model, seed)
        ours = as_pinocchio(oracle.joints[1:], oracles.our_results(model, state))
        theirs = results_with_mimic(oracle, model, state)
        agree(name, f"{name} with mimic, seed {seed}", ours, theirs, {})


@pytest.mark.parametrize("name", real_robots.UNREADABLE_MIMIC)
def test_neither_reads_a_mimic_of_no_joint(name):
    with pytest.raises(ValueError, match="not in the kinematic tree"):
        load_oracle(name, None, mimic=True)
    with pytest.raises(jaxrbd.RobotFileError, match="mimic"):
        jaxrbd.load_urdf(real_robots.path_of(name))


class Coupling:
    """The map from independent coordinates to those of the tree, from the text of a URDF file."""

    def __init__(self, name, oracle):
        leaders = {}
        for joint in etree.parse(real_robots.path_of(name)).getroot().iterfind("joint"):
            mimic = joint.find("mimic")
            if mimic is not None and joint.get("name") in oracle.names:
                terms = (float(mimic.get(k, d)) for k, d in (("multiplier", 1), ("offset", 0)))
                leaders[joint.get("name")] = (mimic.get("joint"), *terms)
        names = [joint for joint in oracle.names[1:] if joint not in leaders]
        self.independent = [oracle.joints[oracle.getJointId(joint)] for joint in names]
        start = dict(zip(names, np.cumsum([0, *(joint.nv for joint in self.independent)])))
        self.G = np.zeros((oracle.nv, sum(joint.nv for joint in self.independent)))
        self.offset = np.zeros(oracle.nv)
        for joint in names:
            rows = of_joint(oracle, joint)
            self.G[rows, start[joint] : start[joint] + len(rows)] = np.eye(len(rows))
        for joint, (leader, multiplier, offset) in leaders.items():
            assert leader not in leaders, "no chains of mimic joints in these files"
            self.G[of_joint(oracle, joint), start[leader]] = multiplier
            self.offset[of_joint(oracle, joint)] = offset

    def tree_position(self, q):
        """The tree's configuration; of joints with as many coordinates as dofs, but the base."""
        base = len(q) - self.G.shape[1]
        return ...
