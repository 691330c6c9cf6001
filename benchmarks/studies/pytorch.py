"""The time that `jaxrbd.io.pytorch.torch_function` adds to a call of JAX: needs PyTorch.

    taskset -c 1 python -m benchmarks.studies.pytorch --seconds 2

For each function and batch size, the table has the least processor time in microseconds of a call
with arrays of JAX, of a call with tensors, and the difference: of the function, and of the function
and its vector-Jacobian product with respect to all arguments. In JAX, these are two programs, as in
`torch_function`. All is in double precision.
"""

from __future__ import annotations

import functools

import jax
import numpy as np

import jaxrbd
from benchmarks.studies import common
from jaxrbd.io.pytorch import torch_function


def functions() -> dict:
    """Functions of a batch by name."""
    model = jaxrbd.load_robot("arm7")
    algorithms = {"rnea": jaxrbd.rnea, "forward_dynamics": jaxrbd.forward_dynamics}
    mapped = {name: functools.partial(x, model) for name, x in algorithms.items()}
    return {"the sum of three arrays": lambda q, v, x: q + v + x} | {
        f"{name} of arm7": jax.vmap(x) for name, x in mapped.items()
    }


def times(function, batch: int, seconds: float) -> list[float]:
    """The times of a call in microseconds: in JAX and with tensors; the same with gradients."""
    import torch

    random = np.random.default_rng(0)
    arguments = [random.normal(size=(batch, 7)) for _ in range(3)]
    arrays = [jax.device_put(x) for x in arguments]
    tensors = [torch.tensor(x) for x in arguments]
    leaves = [torch.tensor(x, requires_grad=True) for x in arguments]
    in_jax, in_torch = jax.jit(function), torch_function(function)
    product = jax.jit(lambda arrays, weight: jax.vjp(function, *arrays)[1](weight))

    def jax_gradient():
        value = in_jax(*arrays)
        return product(arrays, value)

    def torch_gradient():
        value = in_torch(*leaves)
        return torch.autograd.grad(value, leaves, value.detach())

    calls = {
        "jax": lambda: in_jax(*arrays),
        "torch": lambda: in_torch(*tensors),
        "jax gradient": jax_gradient,
        "torch gradient": torch_gradient,
    }
    return [1e6 * x for x in common.least_seconds(calls, seconds).values()]


def main() -> None:
    given = common.options(__doc__, batches=(1, 64), seconds=1.0)
    common.start()
    import torch

    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}\n")
    forward = "JAX", "tensors", "more"
    common.head("function", "batch", *forward, *(f"{x}, with gradient" for x in forward))
    for name, function in functions().items():
        for batch in given.batches:
            found = times(function, batch, given.seconds)
            pairs = [(a, b, b - a) for a, b in (found[:2], found[2:])]
            common.row(name, batch, *(f"{x:.0f}" for pair in pairs for x in pair))


if __name__ == "__main__":
    main()
