"""Optimal control problems of Crocoddyl, restated with jaxrbd: the same nodes and the same minima.

`data/crocoddyl.jsonl` is the output of `benchmarks/studies/crocoddyl_peer.py --short`.
"""

import functools
import json
import pathlib
import warnings

import jax
import jax.numpy as jnp
import pytest

from benchmarks.studies import crocoddyl_comparison as study
from jaxrbd import optimal_control as oc
from jaxrbd.errors import InertiaWarning, LimitWarning
from support import nightly, real_robots

DATA = pathlib.Path(__file__).parent / "data" / "crocoddyl.jsonl"
RESULTS = {line["name"]: line for line in map(json.loads, DATA.read_text().splitlines())}
pytestmark = pytest.mark.skipif(not real_robots.FILES, reason="example-robot-data: no wheel here")


@functools.cache
def restated(name):
    """The problem, the initial state and the parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InertiaWarning)
        warnings.simplefilter("ignore", LimitWarning)  # the double pendulum has limits of 0
        return study.restated(RESULTS[name], real_robots.ROOT.parent)


def test_all_problems_of_the_study_have_results():
    assert set(RESULTS) == {*study.PROBLEMS, *study.GAITS}
    assert all(result["converged"] for result in RESULTS.values())


def node_errors(problem, p, nodes):
    """The largest relative errors of the cost and of the state after the stage, per node."""

    @jax.jit
    def evaluate(*x):
        common = problem.common(*x, p)
        return problem.dynamics(*x, p, *common), study.scalar(problem.cost(*x, p, *common))

    (m,) = {len(node["u"]) for node in nodes if node["u"]}
    found = []
    for node in nodes:
        x, error = study.state(node["x"]), 0.0
        if node["stage"] < 0:
            cost = study.scalar(problem.terminal_cost(x, p))
        else:
            after, cost = evaluate(node["stage"], x, jnp.asarray(node["u"] or [0.0] * m))
            gap = problem.space.difference(study.state(node["after"]), after)
            size = problem.space.difference(x, after)
            error = jnp.max(jnp.abs(gap)) / jnp.max(jnp.abs(size))
        found.append((float(abs(cost / node["cost"] - 1)), float(error)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", nightly.all_but([x for x in RESULTS if x not in ("trot", "walk")], RESULTS)
)
def test_costs_and_states_of_nodes_are_those_of_crocoddyl(name):
    """At random states and controls: stages with all contacts and with some, impacts, the end."""
    problem, _, p = restated(name)
    nodes = RESULTS[name]["nodes"]
    assert {node["stage"] for node in nodes} >= {0, -1}
    errors = node_errors(problem, p, nodes)
    # Crocoddyl adds 1e-12 to a diagonal in impacts.
    assert max(map(max, errors)) < 1e-10, errors


@pytest.mark.parametrize("name", nightly.all_but(["unicycle"], ["unicycle", "trot"]))
def test_minima_are_those_of_crocoddyl(name):
    """The cost is that of Crocoddyl within 1e-8, and the optimality conditions hold."""
    problem, x0, p = restated(name)
    result = RESULTS[name]
    us = jnp.asarray(result["guess"])
    guess = jax.tree.map(lambda x: jnp.repeat(x[None], len(us) + 1, axis=0), x0), us
    found = oc.solve(problem, x0, p, guess, tolerance=1e-7)
    assert found.status == oc.Status.CONVERGED
    assert abs(found.cost / result["cost"] - 1) < 1e-8
    assert found.iterations < 2 * result["iterations"]
