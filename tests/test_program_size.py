"""Sizes of programs: the larger the program, the longer its compilation.

The size of a program is the same for robots of any size, so the bounds are checked on one robot.
Each bound was set a third above the size at the time.
"""

import pathlib

import jax
import jax.numpy as jnp
import pytest

import jaxrbd as rbd
from jaxrbd import contact, envs
from jaxrbd.envs import legged
from support import nightly, zoo
from support.algorithms import ALGORITHMS
from support.zoo import close


def count_equations(jaxpr) -> int:
    """Equations of a jaxpr and of all jaxprs inside it."""
    count = 0
    for equation in jaxpr.eqns:
        count += 1
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            if hasattr(inner, "eqns"):
                count += count_equations(getattr(inner, "jaxpr", inner))
    return count


def size(function, model) -> int:
    return count_equations(jax.make_jaxpr(function)(model, *zoo.state(model)).jaxpr)


SIZED = """
    rnea bias_force gravity_force crba minverse aba forward_dynamics forward_kinematics
    joint_torque_regressor kinetic_energy_regressor potential_energy_regressor center_of_mass
    kinetic_energy integrate difference rnea_derivatives forward_dynamics_derivatives
    rnea_second_order coriolis_matrix frame_jacobian_dot frame_acceleration_derivatives
    point_jacobian centroidal_derivatives centroidal_momentum_matrix_dot delassus_matrix
    aba_minverse ltl_solve
""".split()


BY_DEFAULT = ("rnea", "forward_dynamics", "rnea_derivatives")


@pytest.mark.parametrize("name", nightly.all_but(BY_DEFAULT, SIZED))
def test_program_size_does_not_depend_on_the_robot(name):
    # The inverse of a matrix halves it three times, if it is large enough: from 16 dofs on.
    short, long, very_long = (size(ALGORITHMS[name], zoo.chain(n)) for n in (16, 40, 150))
    assert short == long > 1
    # Sums over large trees are sweeps and not products. The inverse of a large matrix is by blocks,
    # with 250 equations more.
    assert very_long - short <= max(250, short / 2)


def test_derivatives_have_few_more_equations_than_the_value():
    model = rbd.load_robot("humanoid")
    of_value = size(ALGORITHMS["rnea"], model)
    assert size(ALGORITHMS["rnea_derivatives"], model) < 2 * of_value
    assert size(ALGORITHMS["rnea_second_order"], model) < 3 * of_value


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


def run_recipe(number: int) -> dict:
    """The names that a recipe of docs/speed.md defines."""
    document = pathlib.Path(__file__).parents[1] / "docs" / "speed.md"
    recipes = [text.partition("```")[0] for text in document.read_text().split("```python\n")[1:]]
    assert len(recipes) == 2
    found = {}
    exec(recipes[number], found)
    return found


@pytest.mark.slow
def test_the_recipe_of_another_implementation():
    """By docs/speed.md, the mass matrices by products with 0/1 matrices."""
    found = run_recipe(1)
    close(found["M"], jax.jit(jax.vmap(rbd.crba, (None, 0)))(found["model"], found["q"]), 1e-13)


@pytest.mark.slow
def test_a_large_batch_in_blocks_needs_the_memory_of_a_block():
    """By the recipe of docs/speed.md, and with the results of the whole batch."""
    found = run_recipe(0)
    model, q, M = found["model"], found["q"], found["M"]
    close(M[-3:], jax.vmap(rbd.crba, (None, 0))(model, q[-3:]), 1e-13)
    in_blocks = found["mass_matrices"].lower(model, q).compile().memory_analysis()
    whole = jax.jit(jax.vmap(rbd.crba, (None, 0))).lower(model, q).compile().memory_analysis()
    assert in_blocks.temp_size_in_bytes < whole.temp_size_in_bytes / 20


# -------------------------------------------------------------------------- environments

BALL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.2"><joint name="lift" type="slide" axis="0 0 1"/>
      <geom type="sphere" size="0.1" mass="1"/>
      <body><joint name="turn" axis="0 1 0"/><geom type="box" size="0.1 0.1 0.3" mass="1"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="lift" ctrlrange="-1 1"/><motor joint="turn" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


def ball(terms=1, **settings):
    """A task of two bodies on the ground, with a number of reward terms."""
    pytest.importorskip("mujoco")

    def height(params, before, action, after):
        return -((after.q[0] - 0.3) ** 2)

    rewards = {f"height_{i}": (1.0, height) for i in range(terms)}
    return envs.MjcfTask(BALL, rewards, ("q", "v"), **settings)


def lowered(function, *operands) -> str:
    return jax.jit(function).lower(*operands).as_text()


def step_program(env, count=3) -> str:
    """The lowered program of a step of a batch with automatic resets."""
    batch = envs.vectorize(envs.auto_reset(env))
    params = env.default_params()
    keys = jax.random.split(jax.random.key(0), count)
    states = jax.eval_shape(batch.reset, params, keys)
    actions = jax.ShapeDtypeStruct((count, env.action_size), params.model.dtype)
    return lowered(batch.step, params, states, actions)


def operations(program: str) -> int:
    return program.count(" = stablehlo.")


def test_the_program_of_an_environment_has_one_step_of_the_physics():
    """For any number of steps of the physics per action, and of environments."""
    size = operations(step_program(ball(substeps=1)))
    assert operations(step_program(ball(substeps=12))) == size
    assert operations(step_program(ball(substeps=12), count=64)) == size

    env = ball()
    params = env.default_params()
    state = jax.eval_shape(env.reset, params, jax.random.key(0)).physics

    def physics(q, v):
        return contact.contact_step(params.model, params.scene, q, v, jnp.zeros(2), 0.01)

    q, v = (jax.ShapeDtypeStruct((3, *x.shape), x.dtype) for x in (state.q, state.v))
    assert size < 2 * operations(lowered(jax.vmap(physics), q, v))


def test_a_reward_term_adds_few_operations():
    one, nine = (operations(step_program(ball(terms=n))) for n in (1, 9))
    assert 8 < nine - one < 8 * 30


@pytest.mark.slow
def test_the_program_of_a_robot_with_legs_has_one_step_of_the_physics(monkeypatch):
    env = envs.QuadrupedTrot()
    size = operations(step_program(env))
    monkeypatch.setattr(legged, "SUBSTEPS", 15)
    assert operations(step_program(env, count=64)) == size
