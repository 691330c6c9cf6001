"""The implementations of the loops over bodies and dofs, and the context that selects one."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from ..errors import ArgumentError, installation

IMPLEMENTATIONS = (
    "automatic",
    "scan",
    "products",
    "parallel",
    "kernels",
    "interpreted kernels",
)
# A context in which JAX traces the implementation with the given name.
in_context = jax.make_user_context("automatic")


def implementation(name: str) -> contextlib.AbstractContextManager[None]:
    """A context in which JAX compiles the passes over the tree in one way.

    - `"automatic"`, the default: as `"scan"`, except for trees of up to 128 bodies. For such trees,
      the passes of up to 50,000 states are as `"products"` on GPUs. Sums in one common frame are as
      `"products"` on GPUs, on CPUs for one state, and in a part of `forward_dynamics_derivatives`.
      If the default device of JAX is a CPU, programs for other devices are as on CPUs;
    - `"scan"`: loops of XLA over bodies or dofs, on all devices;
    - `"products"`: products with 0/1 matrices, on all devices. They need fewer kernels than the
      loops, and about twice the memory traffic. The recursions over dofs remain loops;
    - `"parallel"`: products along the heavy paths of the tree, on all devices. The number of steps
      grows with the logarithm of the number of bodies, so a GPU needs fewer kernels for one state
      of a long chain. `forward_dynamics` composes articulated bodies by divide and conquer, and its
      rounding errors are smaller. `aba` and solves with the mass matrix remain loops over dofs;
    - `"kernels"`: on NVIDIA GPUs of the Hopper generation and newer, one Pallas kernel per pass,
      per function of single bodies or dofs, per factor of mass matrices, and per minimum of a
      contact step of few dofs. On devices other than NVIDIA GPUs loops. Experimental: tested
      against the loops on CPUs and on an H200;
    - `"interpreted kernels"`: the same kernels, interpreted on any device. Slow, for tests.

    The context applies where JAX traces a function, for example in
    `with implementation("kernels"): a = jax.jit(jax.vmap(dynamics))(q, v, tau)`.
    The results are equal to rounding. A program with kernels cannot be exported. Raises
    ArgumentError for another name, or if a package is missing that JAX needs for the kernels.
    """
    if name not in IMPLEMENTATIONS:
        raise ArgumentError(f"implementation is {name!r}, expected one of {IMPLEMENTATIONS}")
    if name == "kernels":
        try:
            importlib.import_module("jax.experimental.pallas.mosaic_gpu")
        except ImportError as error:
            wanted = f"needs {error.name}: {installation('kernels')}"
            raise ArgumentError(f"implementation {name!r} {wanted}") from error
    return in_context(name)


def current_implementation() -> str:
    """The name of the implementation in the present context."""
    return in_context.value


def kernels_selected() -> bool:
    """Whether the present context selects GPU kernels, compiled or interpreted."""
    return current_implementation().endswith("kernels")


def paths_selected() -> bool:
    """Whether the present context selects products along the paths of the tree."""
    return current_implementation() == "parallel"


def with_kernel(
    function: Callable[..., Any], kernel: Callable[..., Any], states: int | float, *operands: Any
) -> Any:
    """`function(*operands)`, or `kernel(*operands)` where the present context selects kernels.

    `kernel` computes the same as `function`, with one GPU kernel. It has an argument `interpret`.
    `states`: the number of states in the batch. Kernels need a number that is known while JAX
    traces.
    """
    if not kernels_selected() or states == math.inf:
        return function(*operands)
    if current_implementation() == "interpreted kernels":
        return functools.partial(kernel, interpret=True)(*operands)
    return lax.platform_dependent(*operands, cuda=kernel, default=function)
