"""Functions with rules for their derivatives, in all transformations of JAX, and in loops."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.custom_derivatives import SymbolicZero

from jaxrbd._math.rules import custom_jvp, implicit_root, with_value
from support import nightly
from support.zoo import close

X = jnp.array([2.0, 3.0])


@custom_jvp
def by_rule(x):
    """The square root, by code with wrong derivatives."""
    return jnp.sqrt(lax.stop_gradient(x)) + 0 * x


@by_rule.defjvp
def _(primals, tangents):
    y = by_rule(*primals)
    return y, tangents[0] / (2 * y)


def by_equation(a):
    return implicit_root(
        lambda x: x * x - a,
        lambda: by_rule(lax.stop_gradient(a)),
        lambda A, b: b / A(jnp.ones_like(b)),
    )


def loop(function):
    """The sum of a loop that calls the function."""

    def total(x):
        def body(x, _):
            y = function(x)
            return y + 1, y * x

        return jnp.sum(lax.scan(body, x, length=3)[1])

    return total


def compiled_in_the_loop(function):
    return loop(jax.jit(function))


def one_by_one(function):
    return loop(jax.vmap(function))


def recomputed(function):
    return jax.checkpoint(loop(function))


TRANSFORMATIONS = {
    "value": lambda f: f,
    "gradient": jax.grad,
    "forward over reverse": jax.hessian,
    "reverse over reverse": lambda f: jax.jacrev(jax.grad(f)),
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "third": lambda f: jax.jacrev(jax.jacfwd(jax.grad(f))),
    "gradient of a batch": lambda f: (
        lambda x: jax.grad(lambda x: jnp.sum(jax.vmap(f)(jnp.stack([x, 2 * x]))))(x)
    ),
    "batch of Hessians": lambda f: lambda x: jax.vmap(jax.hessian(f))(jnp.stack([x, 2 * x])),
}


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize(
    "wrapper", nightly.all_but([loop], [loop, compiled_in_the_loop, one_by_one, recomputed])
)
@pytest.mark.parametrize("function", [by_rule, by_equation])
def test_derivatives_in_a_loop_are_those_of_the_rule(function, wrapper, transformation):
    derivative = TRANSFORMATIONS[transformation]
    found = jax.jit(derivative(wrapper(function)))(X)
    close(found, derivative(loop(jnp.sqrt))(X), 1e-13)


def test_a_rule_sees_which_arguments_change():
    changes = []

    @custom_jvp
    def product(x, n, y):
        return {"product": n.astype(x.dtype) * x * y, "count": n}

    def rule(primals, tangents):
        x, n, y = primals
        changes.append([not isinstance(t, SymbolicZero) for t in tangents])
        terms = [
            n.astype(x.dtype) * factor * t
            for factor, t in ((y, tangents[0]), (x, tangents[2]))
            if not isinstance(t, SymbolicZero)
        ]
        return product(x, n, y), {"product": sum(terms), "count": SymbolicZero(tangents[1].aval)}

    product.defjvp(rule, symbolic_zeros=True)

    def total(x, y):
        found = jax.vmap(lambda x, n: product(x, n, y))(x, jnp.array([1, 2]))
        return jnp.sum(found["product"] * found["count"].astype(x.dtype))

    close(jax.grad(total)(X, 5.0), [5.0, 20.0], 1e-15)
    close(jax.grad(total, 1)(X, 5.0), 14.0, 1e-15)
    assert changes == [[True, False, False], [False, False, True]]


def test_arguments_that_are_no_arrays():
    by_name = {"sine": jnp.sin, "cosine": jnp.cos}

    def value(x, name, scale):
        return scale * by_name[name](x)

    function = custom_jvp(value, nondiff_argnums=(1,))

    @function.defjvp
    def _(name, primals, tangents):
        assert name == "sine"
        x, scale = primals
        # without `symbolic_zeros`, the change of `scale` is an array of zeros
        change = scale * jnp.cos(x) * tangents[0] + jnp.sin(x) * tangents[1]
        return function(x, name, scale), change

    close(jax.jit(jax.vmap(jax.grad(lambda x: function(x, "sine", 3.0))))(X), 3 * jnp.cos(X), 1e-15)


def test_an_implicit_root_uses_arrays_of_enclosing_functions():
    """Floats and integers, of a batch and of a loop; the first entry of `a` is not used."""

    def root(a, i):
        def body(scale, _):
            x = implicit_root(
                lambda x: scale * x * x - a[i],
                lambda: jnp.sqrt(a[i] / scale),
                lambda A, b: b / A(jnp.ones_like(b)),
            )
            return scale + 1, x

        return jnp.sum(lax.scan(body, jnp.ones(()), length=2)[1])

    a, i = jnp.array([7.0, 2.0, 3.0]), jnp.array([1, 2])
    found = jax.jit(jax.vmap(jax.hessian(root), (None, 0)))(a, i)
    slope = -0.25 * (1 + 1 / jnp.sqrt(2)) * X**-1.5
    close(found, jnp.stack([jnp.diag(jnp.zeros(3).at[k].set(slope[k - 1])) for k in (1, 2)]), 1e-15)


def test_another_value_keeps_the_derivatives():
    def function(x):
        return jnp.sum(with_value(x * x, jnp.zeros(2)) * x)

    assert function(X) == 0
    close(jax.grad(function)(X), 2 * X * X, 1e-15)


def test_the_effects_of_a_function_are_kept():
    seen = []

    @custom_jvp
    def function(x):
        jax.debug.callback(lambda x: seen.append(float(x)), x, ordered=True)
        return 2 * x

    @jax.jit
    def powers(x):
        return lax.scan(lambda x, _: (function(x), None), x, length=3)[0]

    assert powers(1.0) == 8
    jax.effects_barrier()
    assert seen == [1, 2, 4]


def test_a_function_that_is_linear_in_an_operand_is_transposed():
    @custom_jvp
    def product(A, b):
        return {"product": A @ b, "sum": jnp.sum(b)}

    @product.defjvp
    def _(primals, tangents):
        (A, b), (dA, db) = primals, tangents
        change = product(A, db)  # the rule is the function itself
        return product(A, b), change | {"product": change["product"] + dA @ b}

    def total(A, b):
        found = product(A, b)
        return jnp.dot(jnp.array([5.0, 7.0]), found["product"]) + 2 * found["sum"]

    A = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    expected = [5 + 21 + 2.0, 10 + 28 + 2.0]
    close(jax.jit(jax.grad(total, 1))(A, X), expected, 1e-15)
    close(jax.grad(total)(A, X), jnp.outer(jnp.array([5.0, 7.0]), X), 1e-15)
    (found,) = jax.linear_transpose(lambda b: product(A, b)["product"], X)(jnp.array([5.0, 7.0]))
    close(found, [26.0, 38.0], 1e-15)
    close(jax.vmap(jax.grad(total, 1), (None, 0))(A, jnp.stack([X, X])), [expected] * 2, 1e-15)


def test_a_stated_transpose_is_used():
    """Two functions are transposes of one another, and each has a rule."""
    called = []

    @custom_jvp
    def product(A, b):
        return {"product": A @ b["x"], "sum": jnp.sum(b["y"])}

    @custom_jvp
    def transposed(A, cotangent):
        called.append(1)
        return {"x": cotangent["product"] @ A, "y": jnp.full(3, cotangent["sum"])}

    @product.defjvp
    def _(primals, tangents):
        (A, b), (dA, db) = primals, tangents
        change = product(A, db)
        return product(A, b), change | {"product": change["product"] + dA @ b["x"]}

    @transposed.defjvp
    def _(primals, tangents):
        (A, cotangent), (dA, change) = primals, tangents
        moved = transposed(A, change)
        return transposed(A, cotangent), moved | {"x": moved["x"] + cotangent["product"] @ dA}

    product.deftranspose(1, transposed)
    transposed.deftranspose(1, product)

    def total(A, x, y):
        found = product(A, {"x": x, "y": y})
        return jnp.sum(found["product"] ** 3) + found["sum"] ** 2

    def expected(A, x, y):
        return jnp.sum((A @ x) ** 3) + jnp.sum(y) ** 2

    A, y = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.arange(3.0)
    for derivative in (
        lambda f: jax.grad(f, (0, 1, 2)),
        lambda f: jax.hessian(f, (0, 1, 2)),
        lambda f: jax.jacrev(jax.grad(f, (0, 1, 2)), (0, 1, 2)),
    ):
        before = len(called)
        found, right = jax.jit(derivative(total))(A, X, y), derivative(expected)(A, X, y)
        jax.tree.map(lambda a, b: close(a, b, 1e-13), found, right)
        assert len(called) > before
    batch = jnp.stack([X, 2 * X])
    for axes, operands in (
        ((None, 0, None), (A, batch, y)),
        ((0, None, None), (A[None] * 2, X, y)),
    ):
        gradient = jax.vmap(jax.grad(total, (0, 1, 2)), axes)(*operands)
        right = jax.vmap(jax.grad(expected, (0, 1, 2)), axes)(*operands)
        jax.tree.map(lambda a, b: close(a, b, 1e-13), gradient, right)
    whole = jax.grad(lambda x: jnp.sum(jax.vmap(lambda A: total(A, x, y))(jnp.stack([A, 2 * A]))))
    right = jax.grad(lambda x: expected(A, x, y) + expected(2 * A, x, y))
    close(whole(X), right(X), 1e-13)

    def of_columns(function, columns):
        return jnp.sum(jax.vmap(lambda x: function(A, x, y), 1)(columns))

    columns = jnp.arange(6.0).reshape(2, 3)
    gradients = (jax.grad(of_columns, 1)(f, columns) for f in (total, expected))
    close(*gradients, 1e-13)
