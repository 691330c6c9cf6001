"""Functions of JAX in PyTorch: values, vector-Jacobian products, and what is refused."""

import functools
import inspect
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import contact, envs, forward_dynamics, load_robot, rnea
from jaxrbd._math.cast import cast
from jaxrbd.errors import ArgumentError
from jaxrbd.io import pytorch
from jaxrbd.io.pytorch import torch_function
from support import pages
from support.jax_events import work
from support.point import Point


def test_without_pytorch_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    pytorch._torch.cache_clear()
    with pytest.raises(ArgumentError, match=r"needs the package torch: pip install torch$"):
        torch_function(jnp.sin)


torch = pytest.importorskip("torch")

BATCH = 3


def dynamics(algorithm, dtype, rng):
    """An algorithm of the arm for a batch of states, and random states."""
    model = cast(load_robot("arm7"), dtype)
    x = [rng.normal(size=(BATCH, 7)) for _ in range(3)]
    return jax.vmap(lambda q, v, x: algorithm(model, q, v, x)), x


def step_of_contact(dtype, rng):
    """A step of a hopper, with and without a contact."""
    params = cast(envs.Hopper().default_params(), dtype)
    q = np.array([[0.6, 0.0], [0.42, 0.01], [0.40, 0.02]])
    v, tau = 0.3 * rng.normal(size=(2, BATCH, 2))

    def step(q, v, tau):
        found = contact.contact_step(params.model, params.scene, q, v, tau, 0.004)
        return {"q": found.q, "v": found.v, "impulse": found.impulse, "distance": found.distance}

    return jax.vmap(step), [q, v, tau]


def step_of_environment(dtype, rng):
    """The next observation and the reward of a cart-pole."""
    env = envs.CartPoleSwingUp()
    params = cast(env.default_params(), dtype)
    batch = envs.vectorize(env)
    start = batch.reset(params, jax.random.split(jax.random.key(0), BATCH))

    def step(q, v, action):
        after = batch.step(params, start._replace(physics=envs.Motion(q, v)), action)
        return after.observation, after.reward, after.steps, after.done

    return step, [rng.normal(size=(BATCH, n)) for n in (2, 2, 1)]


CASES = {
    "rnea": functools.partial(dynamics, rnea),
    "forward dynamics": functools.partial(dynamics, forward_dynamics),
    "contact step": step_of_contact,
    "environment": step_of_environment,
}


def assert_close(found, expected, scale=1.0):
    """Tensors are arrays up to 1e-6 of their scale, with the same dtypes."""
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(x, torch.Tensor)
        assert str(x.dtype) == f"torch.{y.dtype}"
        tolerance = 1e-6 * max(scale, float(np.max(np.abs(y))))
        np.testing.assert_allclose(x.detach().numpy(), y, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_jax(name, dtype, rng):
    function, arguments = CASES[name](dtype, rng)
    arrays = [jnp.asarray(x, dtype) for x in arguments]
    tensors = [torch.tensor(x, dtype=getattr(torch, dtype)) for x in arguments]
    in_torch = torch_function(function)
    expected = jax.jit(function)(*arrays)
    assert_close(in_torch(*tensors), expected)

    def floats(*arrays):
        return [x for x in jax.tree.leaves(function(*arrays)) if x.dtype == dtype]

    @jax.jit
    def products(arrays, weights):
        return jax.vjp(floats, *arrays)[1](weights)

    weights = [
        jnp.asarray(rng.normal(size=x.shape), dtype)
        for x in jax.tree.leaves(expected)
        if x.dtype == dtype
    ]
    for x in tensors:
        x.requires_grad_()
    found = in_torch(*tensors)
    assert_close(found, expected)
    differentiable = [x for x in jax.tree.leaves(found) if x.dtype == tensors[0].dtype]
    assert all(x.requires_grad for x in differentiable)
    torch.autograd.backward(differentiable, [torch.tensor(np.array(x)) for x in weights])
    assert_close([x.grad for x in tensors], products(arrays, weights))


@pytest.mark.slow
def test_derivatives_are_the_differences_of_pytorch(rng):
    function, arguments = CASES["rnea"]("float64", rng)
    tensors = [torch.tensor(x, requires_grad=True) for x in arguments]
    assert torch.autograd.gradcheck(torch_function(function), tensors)


def test_a_policy_of_pytorch_learns_through_an_environment():
    """The state goes from step to step in PyTorch; its random keys stay in JAX."""
    batch = envs.vectorize(envs.auto_reset(Point(episode_steps=3)))
    params = Point().default_params()
    reset, step = (torch_function(functools.partial(x, params)) for x in (batch.reset, batch.step))
    gain = torch.tensor([[0.1]], dtype=torch.float64, requires_grad=True)
    keys = jax.random.split(jax.random.key(3), 2)
    state = reset(keys)
    rewards = []
    for _ in range(4):
        state = step(state, state.observation @ gain)
        rewards.append(state.reward)
    assert isinstance(state.key, jax.Array)
    assert (state.steps.dtype, state.terminated.dtype) == (torch.int32, torch.bool)
    assert not state.steps.requires_grad
    sum(x.sum() for x in rewards).backward()

    def total(gain):
        state, total = batch.reset(params, keys), 0.0
        for _ in range(4):
            state = batch.step(params, state, state.observation @ gain)
            total += jnp.sum(state.reward)
        return total

    np.testing.assert_allclose(gain.grad, jax.grad(total)(jnp.array([[0.1]])), rtol=1e-12)


def test_the_examples_of_the_guide_run():
    """The blocks `py` of the page: the blocks `python` run without PyTorch."""
    blocks = re.findall(r"```py\n(.*?)```", (pages.DOCS / "exchange.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    with jax.enable_x64(False):
        names = {}
        for block in blocks:
            exec(block, names)


# ------------------------------------------------------------------------- programs and memory


def test_each_direction_is_compiled_once_for_each_shape():
    calls = []

    def function(x, y):
        calls.append(x.shape)
        return jnp.sin(x) * y

    in_torch = torch_function(function)

    def run(n):
        x = torch.ones(n, requires_grad=True)
        in_torch(torch.ones(n), torch.ones(n))
        in_torch(x, torch.ones(n)).sum().backward()
        return x.grad

    run(2)
    assert calls == [(2,), (2,)]
    with work() as events:
        np.testing.assert_allclose(run(2), np.cos([1.0, 1.0]), rtol=1e-6)
    assert not events
    run(5)
    assert calls == [(2,), (2,), (5,), (5,)]


def test_arguments_and_results_are_not_copied():
    x = torch.ones(5)
    assert np.shares_memory(pytorch._array(x), x.numpy())
    array = jnp.arange(4.0)
    (tensor,) = pytorch._tensors(torch, [array])
    assert tensor.data_ptr() == array.unsafe_buffer_pointer()


def test_changes_in_place_after_a_call_are_noticed():
    """Also of an argument that needs no gradient. Results do not share memory with arguments."""
    in_torch = torch_function(lambda x, y: (x * y, x))
    for changed in (0, 1):
        arguments = torch.tensor([0.5, 1.0], requires_grad=True), torch.tensor([2.0, 3.0])
        product, same = in_torch(*arguments)
        with torch.no_grad():
            arguments[changed].add_(100)
        assert (product.tolist(), same.tolist()) == ([1.0, 3.0], [0.5, 1.0])
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()
    product, same = in_torch(*(x.detach() for x in arguments))
    same += 1
    assert arguments[0].tolist() == [0.5, 1.0]


def test_arguments_in_other_orders_of_memory():
    """Transposed arguments and cotangents, a slice that is not aligned, and expanded cotangents."""
    matrix = torch.arange(6.0).reshape(2, 3)
    in_torch = torch_function(lambda x: 2 * x)
    assert in_torch(matrix.T).tolist() == (2 * matrix.T).tolist()
    assert in_torch(matrix.ravel()[1:4]).tolist() == [2, 4, 6]
    x = matrix.clone().requires_grad_()
    (in_torch(x).T * torch.arange(3.0)[:, None]).sum().backward()
    assert x.grad.tolist() == [[0, 2, 4], [0, 2, 4]]
    y = matrix.clone().requires_grad_()
    in_torch(y).sum().backward()
    assert y.grad.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_only_what_requires_a_gradient_gets_one():
    def function(x, *, others):
        return {"sum": x + 2 * others["y"], "unused": x * others["y"], "count": jnp.arange(2)}

    in_torch = torch_function(function)
    x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0)
    found = in_torch(x, others={"y": y, "z": jnp.ones(3)})
    found["sum"].backward()
    assert (x.grad.item(), y.grad) == (1.0, None)
    assert found["count"].tolist() == [0, 1]
    with torch.no_grad():
        assert not in_torch(x, others={"y": y})["sum"].requires_grad
    counts = torch_function(lambda x: jnp.ones((), bool))(x)  # no float to differentiate
    assert counts.item() is True


# ------------------------------------------------------------------------------------- errors


def test_second_derivatives_are_refused():
    """Also where PyTorch would leave out their part of a sum."""
    x = torch.tensor([0.5], requires_grad=True)
    value = torch_function(jnp.sin)(x).sum()
    message = "second derivatives .* not available in PyTorch: create_graph is True"
    with pytest.raises(ArgumentError, match=message):
        torch.autograd.grad(value, x, create_graph=True)
    with pytest.raises(ArgumentError, match=message):
        value.backward(create_graph=True)


def rank_two(q, state, *more):
    return q


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(2), 0), "^q is a ndarray, expected a tensor or an array of JAX$"),
        ((torch.ones(2), {"v": 1.0}), r"^state\['v'\] is a float, expected a tensor"),
        ((torch.ones(2), envs.Motion(torch.ones(2), "v")), r"^state.v is a str, expected a tensor"),
        ((torch.ones(2), None, torch.ones(1), 2), "^argument 3 is a int, expected a tensor"),
        ((torch.ones(2), torch.ones(1, device="meta")), "^state is on meta, .* a tensor on cpu$"),
        ((torch.ones(2, device="meta"), None), "^q is on meta, expected a tensor on cpu, as JAX$"),
        ((torch.ones(2, dtype=torch.bfloat16), None), "^q has dtype torch.bfloat16, expected bool"),
        ((torch.ones(2, dtype=torch.complex64), None), "^q has dtype torch.complex64, expected b"),
    ],
)
def test_arguments_that_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        torch_function(rank_two)(*arguments)


def test_dtypes_that_jax_would_round_are_refused():
    in_torch = torch_function(rank_two)
    with jax.enable_x64(False):
        for dtype in (torch.float64, torch.int64):
            with pytest.raises(ArgumentError, match=f"q has dtype {dtype}, .* jax_enable_x64 only"):
                in_torch(q=torch.ones(2, dtype=dtype), state=None)
        assert in_torch(torch.ones(2), None).dtype == torch.float32


def test_results_that_are_complex_are_refused():
    with pytest.raises(ArgumentError, match="a result has dtype complex64, expected no complex"):
        torch_function(lambda x: jax.lax.complex(x, x))(torch.ones(2))


def test_errors_of_the_function_and_its_name():
    model = load_robot("arm7")
    in_torch = torch_function(functools.partial(rnea, model))
    with pytest.raises(ArgumentError, match="v has shape"):
        in_torch(*(torch.ones(n, dtype=torch.float64) for n in (7, 6, 7)))
    named = torch_function(rank_two)
    assert named.__name__ == "rank_two"
    assert [*inspect.signature(named).parameters] == ["q", "state", "more"]
