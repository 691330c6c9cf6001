"""GPU kernels with one thread per state, written with JAX's Pallas for NVIDIA GPUs (Mosaic GPU).

A block of 128 threads computes 128 states. All arrays have the states as their last axis, so that
the threads of a block read and write contiguous memory. On other devices a kernel can be
interpreted, for tests.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

LANES = 128


def blocks_of(states: int) -> int:
    """The number of blocks for this number of states."""
    return -(-states // LANES)


def launch(kernel: Callable[..., None], results: Sequence[Any], blocks: int, interpret: bool):
    """The function of the operands that runs `kernel(block, *operand_refs, *result_refs)`.

    Every block runs the kernel once. `results`: shapes and dtypes; `interpret`: whether to
    interpret the kernel, which needs no GPU.
    """
    return (_interpreted if interpret else _compiled)(kernel, results, blocks)


def _compiled(kernel: Callable[..., None], results: Sequence[Any], blocks: int):
    from jax.experimental.pallas import mosaic_gpu

    mosaic_kernel: Any = mosaic_gpu.kernel
    # JAX 0.10 renamed the argument `out_shape` to `out_type`.
    parameters = inspect.signature(mosaic_kernel).parameters
    results_name = "out_type" if "out_type" in parameters else "out_shape"

    def body(*refs):
        kernel(lax.axis_index("block"), *refs)

    settings = mosaic_gpu.CompilerParams(lowering_semantics=mosaic_gpu.LoweringSemantics.Lane)
    return mosaic_kernel(
        body,
        **{results_name: results},
        grid=(blocks,),
        grid_names=("block",),
        compiler_params=settings,
    )


def _interpreted(kernel: Callable[..., None], results: Sequence[Any], blocks: int):
    from jax.experimental import pallas

    def body(*refs):
        kernel(pallas.program_id(0), *refs)

    return pallas.pallas_call(body, out_shape=results, grid=(blocks,), interpret=True)


def inverse_factor_by_kernel(M: Array, interpret: bool = False) -> Array:
    """The inverse Cholesky factors W (batch, n, n) of positive definite matrices, by one kernel.

    The kernel computes `M = L D L^T` and `L^-1` row by row; L is unit triangular. The array A
    stores the entries of `L^-1` below the diagonal, D on the diagonal, and the entries of `L^T`
    above the diagonal. At the end the rows of `L^-1` are divided by the square roots of D. Only the
    entries of M on and above the diagonal are used.
    Source: Golub and Van Loan (2013), Matrix computations, section 4.1.
    """
    count, n, _ = M.shape
    blocks = blocks_of(count)

    def kernel(block, M, A):
        from jax.experimental import pallas

        lanes = pallas.ds(block * LANES, LANES)

        def row(i, _):
            def product(j, _):
                """Entry [j, i] of `D L^T`, in place of the entry of L^T."""
                A[j, i, lanes] = lax.fori_loop(
                    0, j, lambda k, s: s - A[k, i, lanes] * A[k, j, lanes], M[j, i, lanes]
                )

            def pivot(k, d):
                """Entry [k, i] of L^T, and its term of the pivot."""
                entry = A[k, i, lanes]
                multiple = entry / A[k, k, lanes]
                A[k, i, lanes] = multiple
                return d - entry * multiple

            def invert(j, _):
                A[i, j, lanes] = lax.fori_loop(
                    j + 1, i, lambda k, s: s - A[k, i, lanes] * A[k, j, lanes], -A[j, i, lanes]
                )

            lax.fori_loop(0, i, product, None)
            A[i, i, lanes] = lax.fori_loop(0, i, pivot, M[i, i, lanes])
            lax.fori_loop(0, i, invert, None)

        def scale(i, _):
            """Row i of the factor."""
            d = A[i, i, lanes]
            root = lax.rsqrt(d)
            # One step of Newton's method, because the rsqrt of a GPU has errors of two roundings.
            root = root * (1.5 - 0.5 * d * root * root)

            def scale_entry(j, _):
                A[i, j, lanes] = A[i, j, lanes] * root
                A[j, i, lanes] = jnp.zeros_like(root)

            lax.fori_loop(0, i, scale_entry, None)
            A[i, i, lanes] = root

        lax.fori_loop(0, n, row, None)
        lax.fori_loop(0, n, scale, None)

    padded = jnp.pad(M, ((0, blocks * LANES - count), (0, 0), (0, 0)))
    shape = jax.ShapeDtypeStruct((n, n, blocks * LANES), M.dtype)
    (A,) = launch(kernel, [shape], blocks, interpret)(jnp.moveaxis(padded, 0, -1))
    return jnp.moveaxis(A, -1, 0)[:count]
