"""How large the programs are: what is lowered has to be compiled, in a time like its size.

The bounds are a third above what each algorithm needed when they were set. A program does not grow
with the robot (tests/test_arguments.py), so any robot will do.
"""

import pathlib

import jax
import jax.numpy as jnp
import pytest

import jaxrbd as rbd
from support.zoo import close


def gradient(model, q, v, a):
    return jax.grad(lambda *x: jnp.sum(rbd.rnea(model, *x)), argnums=(0, 1, 2))(q, v, a)


# The operations of the lowered program, a batch of states.
BOUNDS = {
    rbd.forward_kinematics: (1, 450),
    rbd.crba: (1, 1000),
    rbd.minverse: (1, 1600),
    rbd.rnea: (3, 1700),
    rbd.aba: (3, 1500),
    rbd.forward_dynamics: (3, 2800),
    rbd.rnea_derivatives: (3, 2600),
    rbd.forward_dynamics_derivatives: (3, 5500),
    gradient: (3, 3500),
}


@pytest.mark.parametrize("function", BOUNDS, ids=lambda f: f.__name__)
def test_the_lowered_program_is_small(function):
    model = rbd.load_robot("humanoid")
    operands, bound = BOUNDS[function]
    states = (jnp.zeros((2, model.nq)), *[jnp.zeros((2, model.nv))] * 2)[:operands]
    batched = jax.vmap(function, in_axes=(None, *[0] * operands))
    program = jax.jit(batched).lower(model, *states).as_text()
    size = program.count(" = stablehlo.")
    assert bound / 3 < size < bound
    assert "lapack" not in program  # one call a matrix; and several at once can wait for ever


def test_a_large_batch_in_blocks_needs_the_memory_of_a_block():
    """By the recipe of docs/speed.md, and with the results of the whole batch."""
    document = pathlib.Path(__file__).parents[1] / "docs" / "speed.md"
    (recipe,) = (text.partition("```")[0] for text in document.read_text().split("```python\n")[1:])
    found = {}
    exec(recipe, found)
    model, q, M = found["model"], found["q"], found["M"]
    close(M[-3:], jax.vmap(rbd.crba, (None, 0))(model, q[-3:]), 1e-13)
    in_blocks = found["mass_matrices"].lower(model, q).compile().memory_analysis()
    whole = jax.jit(jax.vmap(rbd.crba, (None, 0))).lower(model, q).compile().memory_analysis()
    assert in_blocks.temp_size_in_bytes < whole.temp_size_in_bytes / 20
