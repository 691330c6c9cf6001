"""Every algorithm takes the `Kinematics` of a configuration in place of q, and gives the same."""

import inspect

import chex
import jax
import pytest

import jaxrbd as rbd
from jaxrbd._math import rules
from support import nightly, zoo
from support.algorithms import ALGORITHMS, PUBLIC

TAKE_Q = [
    name
    for name in rbd.algorithms.__all__
    if "q" in getattr(inspect.signature(PUBLIC[name]), "parameters", ())
    and not inspect.isclass(PUBLIC[name])
]


@pytest.mark.parametrize("name", TAKE_Q)
def test_the_annotation_says_so(name):
    assert "Kinematics" in str(inspect.signature(PUBLIC[name]).parameters["q"].annotation)


BY_DEFAULT = ("crba", "external_force", "frame_jacobian")
COMPARED = nightly.all_but(BY_DEFAULT, sorted(set(TAKE_Q) & set(ALGORITHMS)))


@pytest.mark.parametrize("name", COMPARED)
def test_kinematics_in_place_of_the_configuration(name):
    model = zoo.small()
    q, *operands = zoo.state(model)

    @jax.jit
    def both(model, q, *operands):
        kinematics = rbd.forward_kinematics(model, q)
        return tuple(ALGORITHMS[name](model, x, *operands) for x in (q, kinematics))

    chex.assert_trees_all_close(*both(model, q, *operands), rtol=1e-12, atol=1e-12)


def is_jaxpr(x):
    return hasattr(x, "eqns")


def compositions(function, *operands):
    """How many scans that compose poses, of twelve entries each, are traced."""

    def count(jaxpr):
        found = 0
        for equation in jaxpr.eqns:
            if equation.primitive.name == rules.CALL:
                found += count(rules.program_of_call(equation).jaxpr)
            if equation.primitive.name == "scan":
                found += any(x.aval.shape[-1:] == (12,) for x in equation.outvars)
            for x in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
                found += count(getattr(x, "jaxpr", x)) if is_jaxpr(x) else 0
        return found

    return count(jax.make_jaxpr(function)(*operands).jaxpr)


def test_one_forward_pass_for_several_quantities():
    """The poses are composed once, by whoever calls several algorithms, and by forward dynamics."""
    model = zoo.small()
    q, v, u, _ = zoo.state(model)
    kinematics = rbd.forward_kinematics(model, q)
    once = compositions(lambda q: rbd.forward_kinematics(model, q), q)
    assert once > 0

    def several(q):
        return rbd.crba(model, q), rbd.com_jacobian(model, q), rbd.rnea(model, q, v, u)

    assert compositions(several, kinematics) == 0
    assert compositions(several, q) == 2 * once
    for dynamics in (
        lambda q: rbd.forward_dynamics(model, q, v, u),
        lambda q: rbd.forward_dynamics_derivatives(model, q, v, u),
    ):
        assert compositions(dynamics, q) == once
        assert compositions(dynamics, kinematics) == 0
