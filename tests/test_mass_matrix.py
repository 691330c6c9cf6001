"""The branch-sparse factor of the mass matrix, and its inverse."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from support import nightly, zoo
from support.zoo import close

MODELS = {
    "everywhere": zoo.everywhere,
    "connected": zoo.connected,
    "coupled": zoo.coupled,
    "chain": lambda: zoo.chain(8),
}


@functools.cache
def case(name):
    model = MODELS[name]()
    q, v, a, _ = zoo.state(model)
    M = rbd.crba(model, q)
    assert np.linalg.cond(M) < 1e4  # otherwise the tolerances of the inverse would be meaningless
    return model, q, v, a, M


@pytest.mark.parametrize(
    "name", nightly.all_but(["connected", "chain"], ["everywhere", "connected", "chain"])
)
def test_branch_sparse_factor(name):
    """`L^T L = M`; L is lower triangular and has the zeros of M; its solution is `M^-1 b`."""
    model, _, _, b, M = case(name)
    L = rbd.algorithms.ltl_factor(model, M)
    close(L.T @ L, M, 1e-14)
    close(jnp.tril(L), L, 0)
    body = model.topology.dof_body
    apart = ~model.topology.supports[np.ix_(body, body)]
    assert not np.any(np.tril(np.array(L)) * (apart & apart.T))
    x = rbd.algorithms.ltl_solve(model, L, b)
    close(M @ x, b, 1e-15 * np.linalg.cond(M))


def test_derivative_of_the_branch_sparse_solution():
    """Through the factor and the solve: `d(M^-1 b) = -M^-1 dM M^-1 b`."""
    model, _, _, b, M = case("chain")
    dM = M @ M

    def solution(M):
        return rbd.algorithms.ltl_solve(model, rbd.algorithms.ltl_factor(model, M), b)

    x, dx = jax.jit(lambda M, dM: jax.jvp(solution, (M,), (dM,)))(M, dM)
    close(dx, -jnp.linalg.solve(M, dM @ x), 1e-14 * np.linalg.cond(M))


def test_no_branches_where_joints_follow_others():
    model, _, _, b, M = case("coupled")
    with pytest.raises(rbd.ArgumentError, match="follow others"):
        rbd.algorithms.ltl_factor(model, M)
    with pytest.raises(rbd.ArgumentError, match="follow others"):
        rbd.algorithms.ltl_solve(model, M, b)


@pytest.mark.parametrize("name", nightly.all_but(["everywhere"], MODELS))
def test_inverse_by_the_dof_tree(name):
    model, q, _, _, M = case(name)
    Minv = rbd.algorithms.aba_minverse(model, q)
    close(M @ Minv, jnp.eye(model.nv), 1e-14 * np.linalg.cond(M))
    close(Minv, Minv.T, 0)
