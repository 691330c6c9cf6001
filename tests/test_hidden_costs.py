"""Causes of wasted time and memory. They are read from the programs, not measured."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import pytest

import jaxrbd as rbd
from jaxrbd import tree
from jaxrbd.topology import Topology
from support import zoo
from support.algorithms import ALGORITHMS, ON_THE_HOST, PUBLIC, functions_of_a_model, operands
from support.jax_events import work

# They take a function of the caller. A jit here would trace each new closure again.
TAKE_FUNCTIONS = {
    "explicit_dynamics",
    "explicit_euler",
    "gradient",
    "hessian",
    "jacobian",
    "runge_kutta_munthe_kaas",
    "semi_implicit_euler",
    "shooting_step",
    "step_derivatives",
    "variational_midpoint",
}
CONSTANTS = {"joint_torques", "neutral", "state_space"}
# They check their tasks on the host. Then they call one compiled function.
CHECK_TASKS = {
    "differential_inverse_kinematics",
    "inverse_kinematics",
    "search_inverse_kinematics",
}


def test_public_functions_are_compiled_by_themselves():
    """Otherwise a call outside of a jit runs one operation after another, 100 times slower."""
    plain = {
        name for name in functions_of_a_model() - ON_THE_HOST if not hasattr(PUBLIC[name], "lower")
    }
    assert plain == TAKE_FUNCTIONS | CONSTANTS | CHECK_TASKS


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CHECK_TASKS))
def test_functions_with_checks_call_one_compiled_function(name):
    """Loops outside of it would run one operation after another."""
    model = zoo.small()
    calls = jax.make_jaxpr(ALGORITHMS[name])(model, *zoo.state(model)).eqns
    compiled = {str(e.params["name"]): e for e in calls if e.primitive.name in ("jit", "pjit")}
    with_loops = {inner for inner, e in compiled.items() if "while" in str(e.params["jaxpr"])}
    assert len(with_loops & {"_solve", "_search", "_velocity"}) == 1, sorted(compiled)
    assert not {"while", "scan"} & {e.primitive.name for e in calls}


SWEEPS = "forward_kinematics rnea crba forward_dynamics rnea_derivatives coriolis_matrix".split()


@pytest.mark.parametrize("name", SWEEPS)
def test_a_batch_of_sweeps_gathers_and_scatters_nothing(name):
    """The samples of a batch are contiguous: a step of a sweep reads and writes a slice."""
    model = zoo.small()
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), zoo.state(model))
    mapped = jax.vmap(ALGORITHMS[name], (None, 0, 0, 0, 0))
    program = jax.jit(mapped).lower(model, *batch).as_text()
    assert "stablehlo.while" in program
    assert "dynamic_update_slice" in program
    assert not re.findall(r"stablehlo\.(?:gather|scatter)", program)


def test_sums_over_large_trees_are_sweeps():
    """The cost of a product with the support matrix grows with the square of the robot's size."""
    for bodies, sweeps in {8: 0, 200: 1}.items():
        topology = Topology(tuple(range(-1, bodies - 1)), (1,) * bodies, (1,) * bodies)
        for sums in (tree.sum_to_root, tree.sum_to_leaves):
            program = jax.jit(partial(sums, topology)).lower(jnp.ones((bodies, 6))).as_text()
            assert program.count("stablehlo.while") == sweeps
            assert program.count("stablehlo.dot_general") == 1 - sweeps


def residuals(steps, integrator):
    """The number of values that reverse mode stores for a rollout, nq and nv."""
    model = zoo.small()
    q, v, tau, _ = zoo.state(model)

    def step(q, v):
        def dynamics(q, v):
            return rbd.forward_dynamics(model, q, v, tau)

        return integrator(model, dynamics, q, v, 0.1)

    def end(q, v):
        if steps is None:
            return step(q, v)
        return rbd.integrators.rollout(step, (q, v), steps=steps)[0][-1]

    _, pull = jax.eval_shape(lambda q, v: jax.vjp(end, q, v), q, v)
    return sum(x.size for x in jax.tree.leaves(pull)), model.nq, model.nv


def test_reverse_mode_of_a_rollout_keeps_the_states_alone():
    few, nq, nv = residuals(10, rbd.integrators.semi_implicit_euler)
    many, *_ = residuals(110, rbd.integrators.semi_implicit_euler)
    assert nq + nv <= (many - few) / 100 <= nq + nv + 2


def test_reverse_mode_of_runge_kutta_keeps_the_rates_of_the_stages():
    """In a rollout with the states, so that a step is not computed again; and in one step."""
    few, nq, nv = residuals(10, rbd.integrators.runge_kutta_munthe_kaas)
    many, *_ = residuals(110, rbd.integrators.runge_kutta_munthe_kaas)
    rates = 4 * 2 * nv
    assert nq + nv + rates <= (many - few) / 100 <= nq + nv + rates + 2
    one_step, *_ = residuals(None, rbd.integrators.runge_kutta_munthe_kaas)
    assert one_step < few + rates


@pytest.mark.parametrize("loop", ["scan", "rollout"])
def test_reverse_mode_of_contact_steps_keeps_their_states_and_solutions(loop):
    """Otherwise a loop stores about 250 arrays per step, or computes the solutions twice."""
    model = zoo.build(["free_flyer", "revolute"], [-1, 0], seed=3)
    scene = rbd.contact.Scene(("l1",), 0.1)
    q, v, tau, _ = zoo.state(model)

    def step(q, v):
        found = rbd.contact.contact_step(model, scene, q, v, tau, 0.01)
        return found.q, found.v

    def end(steps, q, v):
        if loop == "rollout":
            return rbd.integrators.rollout(step, (q, v), steps=steps)[0][-1]
        return jax.lax.scan(lambda x, _: (step(*x), None), (q, v), length=steps)[0][0]

    def stored(steps):
        _, pull = jax.eval_shape(lambda q, v: jax.vjp(partial(end, steps), q, v), q, v)
        return [x.size for x in jax.tree.leaves(pull)]

    few, many = stored(10), stored(110)
    n = model.nv
    # the velocity, the impulses on the contact and on the joint, the factor of the Hessian
    solution = n + 3 + 2 * n + n * n
    assert n * n + model.nq + n <= (sum(many) - sum(few)) / 100 <= solution + model.nq + n + 20


def test_blocks_are_compiled_apart_from_what_surrounds_them():
    """With two barriers per block, the program of a block and its rounding are always the same."""
    mesh = jax.make_mesh((1,), ("batch",), devices=jax.devices()[:1])

    def barriers(block):
        mapped = rbd.sharding.over_devices(lambda x: jnp.sin(2 * x), mesh, block=block)
        return mapped.lower(jnp.ones(6)).as_text().count("stablehlo.optimization_barrier")

    assert barriers(2) == 2
    assert barriers(None) == 0


def test_dof_columns_are_computed_once():
    """Barriers around values that are used many times, which XLA would compute for each use."""
    model = zoo.small()
    for name, count in {"crba": 3, "rnea_derivatives": 3, "frame_jacobian": 1}.items():
        program = PUBLIC[name].lower(model, *operands(name, *zoo.state(model))).as_text()
        assert program.count("stablehlo.optimization_barrier") == count, name


def test_a_first_call_compiles_one_program():
    """No operation before or after it is compiled separately."""
    model = zoo.build(["helical", "planar", "spherical"], [-1, 0, 0], seed=12)
    state = zoo.state(model)
    for name in ("rnea", "crba", "integrate", "frame_velocity"):
        with work() as events:
            PUBLIC[name](model, *operands(name, *state))
        assert sum("backend_compile" in event for event in events) == 1, name


def test_one_sweep_a_quantity():
    """A program has as many loops as the algorithm has sweeps."""
    model = zoo.small()
    sweeps = {
        "forward_kinematics": 1,
        "gravity_force": 2,
        "rnea": 3,
        "mass_matrix_product": 2,
        "kinetic_energy": 1,
        "aba": 3,
    }
    for name, count in sweeps.items():
        program = PUBLIC[name].lower(model, *operands(name, *zoo.state(model))).as_text()
        assert program.count("stablehlo.while") == count, name


def test_kinematics_are_not_computed_again():
    """An algorithm with kinematics as its argument does not compute poses."""
    model = zoo.small()
    kinematics = rbd.forward_kinematics(model, zoo.state(model)[0])
    for function in (rbd.center_of_mass, rbd.potential_energy, rbd.forward_kinematics):
        assert "stablehlo.while" not in function.lower(model, kinematics).as_text()


def test_the_direction_of_gravity_needs_no_poses_of_other_bodies():
    """Environments on legs compute it several times per step, in the base."""
    model = rbd.load_robot("quadruped")
    q = rbd.neutral(model)

    def bodies_in_loops(function, *args):
        loops = re.findall(r"stablehlo\.while.* : (.*)", function.lower(model, *args).as_text())
        return [int(count) for loop in loops for count in re.findall(r"tensor<(\d+)x3x3x", loop)]

    assert set(bodies_in_loops(rbd.forward_kinematics, q)) == {model.nb}
    assert set(bodies_in_loops(rbd.sensors.projected_gravity, q, "trunk")) == {1}
    known = rbd.forward_kinematics(model, q)
    assert bodies_in_loops(rbd.sensors.projected_gravity, known, "trunk") == []
