"""Functions of JAX as functions of PyTorch tensors, with their first derivatives.

A function becomes two programs, each compiled once for each set of shapes and dtypes: the function,
and its vector-Jacobian product, which computes the function again. Between the two calls PyTorch
stores only the arguments. The first program could instead return all arrays that reverse mode
needs. Then the gradient of a step of 256 quadrupeds would take two thirds of the time. But the
gradient of the inverse dynamics of 64 arms would take three times as long, because a program needs
1 us for each of hundreds of small results (November 2026). The functions need PyTorch: `pip install
torch`.

Programs read the memory of the tensors, and the resulting tensors use the memory of the results,
without a copy (`torch_function` states the exceptions). Results, and arguments on a GPU, are
exchanged by DLPack. Arguments on a CPU are NumPy views of the tensors, which JAX accepts in a fifth
of the time of DLPack.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree

from ..errors import ArgumentError, installation
from ..model.names import described

__all__ = ["torch_function"]

_DTYPES = "bool uint8 int8 int16 int32 float16 float32".split()
_WIDE_DTYPES = "int64 float64".split()  # JAX has them with jax_enable_x64
_PLATFORMS = {"cpu": "cpu", "cuda": "gpu"}  # names in PyTorch and in JAX


def torch_function(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """The function of PyTorch tensors that computes a pure function of JAX.

    - `function`: a function of arrays, or of pytrees of arrays such as a dict or the `State` of an
      environment. Batch it with `jax.vmap`. Fix arguments that are not arrays, such as a model or
      the name of a frame, with a lambda.

    The returned function takes tensors in place of arrays. All tensors must be on the device on
    which JAX computes. The function returns tensors with the dtypes of the results of `function`.
    Random keys of JAX stay arrays of JAX; other arrays of JAX are accepted as arguments, too.
    PyTorch can differentiate the floats of a result once, with respect to each argument that
    requires a gradient.

    Tensors are not copied if they are contiguous and, on a CPU, aligned to 64 bytes, as new tensors
    are. The backward pass reads the arguments again, so there PyTorch raises an error if an
    argument was changed in place after the call.

    Raises ArgumentError for an object that is no function, and without PyTorch (`pip install
    torch`). The returned function raises ArgumentError, which names the argument, for an argument
    that is neither a tensor nor an array of JAX, for a tensor on another device, and for a dtype
    that JAX does not have or would round (float64 and int64 need `jax_enable_x64`); for complex
    results; and for second derivatives.
    """
    if not callable(function):
        raise ArgumentError(f"function is {described(function)}, expected a function of JAX")
    torch, apply = _torch()
    dtypes, wide_dtypes = (
        {getattr(torch, name) for name in names} for names in (_DTYPES, _WIDE_DTYPES)
    )
    value = jax.jit(functools.partial(_value, function), static_argnums=0)
    product = jax.jit(functools.partial(_product, function), static_argnums=(0, 1))

    def fault(x: Any, device: Any) -> str | None:
        """The fault of an argument, or None. `device`: the device of the first tensor."""
        if not isinstance(x, torch.Tensor):
            expected = "expected a tensor or an array of JAX"
            return None if isinstance(x, Array) else f"is a {type(x).__name__}, {expected}"
        if x.device != device or _PLATFORMS.get(device.type) != jax.default_backend():
            here = device if x.device != device else f"{jax.default_backend()}, as JAX"
            return f"is on {x.device}, expected a tensor on {here}"
        if x.dtype in wide_dtypes and not jax.config.jax_enable_x64:  # pyright: ignore
            return f"has dtype {x.dtype}, which JAX has with jax_enable_x64 only"
        if x.dtype not in dtypes and x.dtype not in wide_dtypes:
            return f"has dtype {x.dtype}, expected {', '.join(_DTYPES + _WIDE_DTYPES)}"
        return None

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> PyTree:
        leaves, structure = jax.tree.flatten((arguments, keywords))
        places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        device = leaves[places[0]].device if places else None
        for place, x in enumerate(leaves):
            if (text := fault(x, device)) is not None:
                raise ArgumentError(f"{_name(function, arguments, keywords, place)} {text}")
        tensors = [leaves[i] for i in places]

        def arrays(tensors: Sequence[Any]) -> list[Any]:
            for place, x in zip(places, tensors):
                leaves[place] = _array(x)
            return leaves

        def gradients(tensors: Sequence[Any], wanted: Sequence[bool], cotangents: Any) -> list[Any]:
            chosen = tuple(place for place, want in zip(places, wanted) if want)
            weights = [_array(x) for x in cotangents]
            found = iter(_tensors(torch, product(structure, chosen, arrays(tensors), weights)))
            return [next(found) if want else None for want in wanted]

        floats, others, layout = value(structure, arrays(tensors))
        floats = _tensors(torch, floats)
        if floats and torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            floats = apply(gradients, floats, *tensors)
        return layout.joined(floats, _tensors(torch, others))

    return call


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Layout:
    """The structure of a result, and which of its arrays are floats."""

    structure: Any
    are_floats: tuple[bool, ...]

    def joined(self, floats: Iterable[Any], others: Iterable[Any]) -> PyTree:
        """The result with the given floats and other arrays."""
        parts = iter(floats), iter(others)
        leaves = [next(parts[0] if is_float else parts[1]) for is_float in self.are_floats]
        return jax.tree.unflatten(self.structure, leaves)


def _value(
    function: Callable[..., PyTree], structure: Any, arrays: Sequence[Array]
) -> tuple[list[Array], list[Array], _Layout]:
    """The floats of a result, the other arrays of the result, and its layout."""
    arguments, keywords = jax.tree.unflatten(structure, arrays)
    leaves, found = jax.tree.flatten(function(*arguments, **keywords))
    leaves = [jnp.asarray(x) for x in leaves]
    for x in leaves:
        if jnp.issubdtype(x.dtype, jnp.complexfloating):
            raise ArgumentError(f"a result has dtype {x.dtype}, expected no complex numbers")
    are_floats = tuple(bool(jnp.issubdtype(x.dtype, jnp.floating)) for x in leaves)
    floats, others = (
        [x for x, is_float in zip(leaves, are_floats) if is_float == wanted]
        for wanted in (True, False)
    )
    return floats, others, _Layout(found, are_floats)


def _product(
    function: Callable[..., PyTree],
    structure: Any,
    places: tuple[int, ...],
    arrays: Sequence[Array],
    cotangents: Sequence[Array],
) -> list[Array]:
    """The vector-Jacobian product of the floats of a result with respect to some arguments."""

    def floats(chosen: Sequence[Array]) -> list[Array]:
        filled = dict(enumerate(arrays)) | dict(zip(places, chosen))
        return _value(function, structure, [*filled.values()])[0]

    return jax.vjp(floats, [arrays[place] for place in places])[1](cotangents)[0]


@functools.cache
def _torch() -> tuple[Any, Callable[..., tuple]]:
    """PyTorch, and an operation `(gradients, results, *tensors)` that PyTorch can differentiate.

    The operation returns the results. Their gradients with respect to the tensors are
    `gradients(tensors, wanted, cotangents)`, with None where `wanted` is false.
    """
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ArgumentError(
            f"torch_function needs the package torch: {installation('torch')}"
        ) from error

    class Call(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, gradients: Callable, results: Sequence, *tensors: Any) -> tuple:
            ctx.gradients = gradients
            ctx.save_for_backward(*tensors)  # PyTorch then detects changes in place
            return tuple(results)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> tuple:
            if torch.is_grad_enabled():
                raise ArgumentError(
                    "second derivatives of a function of JAX are not available in PyTorch: "
                    "create_graph is True, expected False; differentiate in JAX"
                )
            wanted = ctx.needs_input_grad[2:]
            return None, None, *ctx.gradients(ctx.saved_tensors, wanted, cotangents)

    return torch, Call.apply


def _array(tensor: Any) -> Any:
    """A NumPy view or a JAX array with the memory of a tensor, for a program of JAX."""
    tensor = tensor.detach()
    if tensor.device.type == "cpu":
        return tensor.numpy()
    return jax.dlpack.from_dlpack(tensor.contiguous())


def _tensors(torch: Any, arrays: Sequence[Array]) -> list[Any]:
    """The tensors with the memory of arrays; random keys stay arrays."""
    if jax.default_backend() == "cpu":
        for x in arrays:
            x.block_until_ready()  # after this, the program does not read its arguments
    return [
        torch.from_dlpack(x) if isinstance(x.dtype, np.dtype) else x  # a random key
        for x in arrays
    ]


def _name(function: Callable[..., Any], arguments: tuple, keywords: dict, place: int) -> str:
    """The name of an array among the arguments, for example "state.physics.q"."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path((arguments, keywords))]
    group, key, *rest = paths[place]  # group: the positional or the keyword arguments
    name = getattr(key, "key", None)
    if group.idx == 0:
        parameters = [*inspect.signature(function).parameters.values()]
        named = parameters[key.idx : key.idx + 1]
        positional = [x.name for x in named if x.kind != x.VAR_POSITIONAL]
        name = positional[0] if positional else f"argument {key.idx}"
    return f"{name}{jax.tree_util.keystr(tuple(rest))}"
