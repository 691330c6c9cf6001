"""Every algorithm as an exported program of any batch size: saved, loaded, differentiated."""

import inspect
import pathlib
import subprocess
import sys
from functools import partial

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.io.program import _plain
from support import nightly, zoo
from support.algorithms import ALGORITHMS, ON_THE_HOST, functions_of_a_model
from support.zoo import close

DOCUMENT = pathlib.Path(__file__).parents[1] / "docs" / "saving.md"
BATCHES = (1, 3, 7)
QUICK = ("frame_placement",)
# XLA optimizes the two programs separately, so they agree up to rounding. Where a matrix is
# inverted, the condition number multiplies the rounding. Where steps are repeated, the tolerance
# of the iteration counts.
SOLVED = """
    aba aba_minverse constrained_dynamics constrained_dynamics_derivatives delassus_matrix
    explicit_dynamics explicit_euler impact_derivatives
    forward_dynamics forward_dynamics_derivatives forward_dynamics_second_order impact
    maximal_dynamics minverse operational_space_inertia runge_kutta_munthe_kaas semi_implicit_euler
    variational_midpoint ltl_solve
""".split()
TOLERANCE = {
    **dict.fromkeys(SOLVED, 1e-13),
    **dict.fromkeys(("close_loops", "contact_step", "contact_step_derivatives"), 1e-11),
    "touch": 1e-11,  # of a contact_step
}


def states(batch):
    """A batch of states of the small robot."""
    return jax.tree.map(lambda *x: jnp.stack(x), *(zoo.state(zoo.small(), k) for k in range(batch)))


def saved_and_loaded(program, folder, **options):
    rbd.io.save_program(program, folder / "program.jaxrbd", **options)
    return rbd.io.load_program(folder / "program.jaxrbd")


def test_every_function_of_a_model_is_in_the_sweep():
    # `distance` takes two shapes and no model.
    assert functions_of_a_model() | {"distance"} == set(ALGORITHMS) | ON_THE_HOST


@pytest.mark.parametrize("name", nightly.all_but(QUICK, ALGORITHMS))
def test_a_loaded_program_is_the_mapped_function(name, tmp_path):
    """The program is for CPUs and GPUs, and for any batch size."""
    model, algorithm = zoo.small(), ALGORITHMS[name]
    program = rbd.io.export_batched(algorithm, model, *zoo.state(model))
    assert program.platforms == ("cpu", "cuda")
    loaded = saved_and_loaded(program, tmp_path)
    assert all(str(x.shape[0]) == "b" for x in loaded.out_avals)
    expected = jax.jit(lambda *x: _plain(jax.vmap(algorithm, (None, 0, 0, 0, 0))(model, *x)))
    called = jax.jit(loaded.call)
    for batch in BATCHES:
        operands = states(batch)
        found, wanted = called(*operands), expected(*operands)
        chex.assert_trees_all_equal_dtypes(found, wanted)
        chex.assert_tree_all_finite(wanted)
        jax.tree.map(partial(close, tolerance=TOLERANCE.get(name, 1e-14)), found, wanted)


def test_a_contact_step_has_a_program_for_all_batch_sizes():
    model = zoo.small()
    program = rbd.io.export_batched(ALGORITHMS["contact_step"], model, *zoo.state(model))
    assert {str(x.shape[0]) for x in program.out_avals} == {"b"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnea", "forward_dynamics"])
def test_derivatives_of_a_loaded_program(name, tmp_path):
    """Reverse mode of the loaded program, with `custom_linear_solve` and a symbolic batch size."""
    model, algorithm = zoo.small(), ALGORITHMS[name]
    program = rbd.io.export_batched(algorithm, model, *zoo.state(model))
    loaded = saved_and_loaded(program, tmp_path, vjp_order=1)
    operands = states(3)
    weights = jnp.sin(jnp.arange(3.0 * model.nv)).reshape(3, model.nv)

    def value_and_gradient(function):
        def number(operands):
            value = function(*operands)
            return jnp.sum(weights * value), value

        (_, value), gradient = jax.jit(jax.value_and_grad(number, has_aux=True))(operands)
        return value, *gradient

    mapped = value_and_gradient(lambda *x: jax.vmap(algorithm, (None, 0, 0, 0, 0))(model, *x))
    for found, expected in zip(value_and_gradient(loaded.call), mapped):
        close(found, expected, 1e-13)


@pytest.mark.parametrize("order", nightly.all_but([2], range(3)))
def test_a_loaded_program_is_differentiated_as_often_as_was_asked(order, tmp_path):
    """One more derivative is an error. No derivative of a pendulum's gravity force is zero."""
    model = zoo.chain(1)
    loaded = saved_and_loaded(tiny(), tmp_path, vjp_order=order)
    assert loaded.has_vjp() == (order > 0)

    def differentiated(function, times):
        for _ in range(times):
            function = jax.grad(function)
        return function

    angle = jnp.asarray(0.4)
    force = lambda x: loaded.call(x[None, None])[0, 0]  # noqa: E731
    expected = lambda x: rbd.gravity_force(model, x[None])[0]  # noqa: E731
    for times in range(order + 1):
        found, wanted = (jax.jit(differentiated(f, times))(angle) for f in (force, expected))
        assert abs(wanted) > 0.01
        close(found, wanted, 1e-14)
    with pytest.raises(ValueError, match="No VJP is available"):
        differentiated(force, order + 1)(angle)


@pytest.mark.parametrize("order", [-1, 1.5, True, "1", None])
def test_an_order_that_is_none_is_refused(order, tmp_path):
    # Without the tests' type checker, the function raises the error.
    with pytest.raises(
        rbd.ArgumentError, match=r"vjp_order is .*, expected an integer of 0 or more"
    ):
        inspect.unwrap(rbd.io.save_program)(tiny(), tmp_path / "program.jaxrbd", vjp_order=order)
    assert not [*tmp_path.iterdir()]


def test_the_robots_numbers_as_an_argument(tmp_path):
    """One program for all masses. The leaves are those that `save_model` stores."""
    model = zoo.small()
    program = rbd.io.export_batched(
        rbd.gravity_force, model, rbd.neutral(model), model_as_argument=True
    )
    loaded = saved_and_loaded(program, tmp_path)
    rbd.io.save_model(
        eqx.tree_at(lambda m: m.inertia, model, 2 * model.inertia), tmp_path / "heavy"
    )
    q = states(3)[0]
    for robot in (model, rbd.io.load_model(tmp_path / "heavy")):
        expected = jax.vmap(rbd.gravity_force, (None, 0))(robot, q)
        close(jax.jit(loaded.call)(jax.tree.leaves(robot), q), expected, 1e-14)


def test_single_precision_and_shapes_without_numbers():
    model = zoo.chain(3).astype("float32")
    q = jax.ShapeDtypeStruct((3,), np.float32)
    program = rbd.io.export_batched(rbd.crba, model, q, platforms=("cpu", "cuda", "rocm", "tpu"))
    assert program.platforms == ("cpu", "cuda", "rocm", "tpu")
    assert [x.str_short() for x in program.out_avals] == ["float32[b,3,3]"]


ELSEWHERE = """
import sys
import numpy as np
import jax
jax.config.update("jax_enable_x64", True)
{recipe}
q, v, a, f, expected = np.load("states.npz").values()
found = jax.jit(program.call)(q, v, a, f)
np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.max(np.abs(expected)))
assert not any(name.startswith("jaxrbd") for name in sys.modules)
print("done")
"""


@pytest.mark.slow
def test_a_program_runs_where_there_is_no_jaxrbd(tmp_path):
    """In a separate process, by the recipe of docs/saving.md."""
    model = zoo.small()
    program = rbd.io.export_batched(rbd.rnea, model, *zoo.state(model))
    rbd.io.save_program(program, tmp_path / "dynamics.jaxrbd")
    operands = states(5)
    expected = jax.vmap(rbd.rnea, (None, 0, 0, 0, 0))(model, *operands)
    np.savez(tmp_path / "states.npz", *operands, expected)
    (recipe,) = (
        text.partition("```")[0]
        for text in DOCUMENT.read_text().split("```python\n")[1:]
        if "export.deserialize" in text
    )
    script = ELSEWHERE.format(recipe=recipe)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout == "done\n", done.stderr[-3000:]


# ---------------------------------------------------------------------------------------- refusals


def tiny():
    model = zoo.chain(1)
    return rbd.io.export_batched(rbd.gravity_force, model, rbd.neutral(model), platforms=("cpu",))


def test_what_is_no_program_is_refused_by_name(tmp_path):
    path = tmp_path / "program.jaxrbd"
    rbd.io.save_program(tiny(), path)
    data = path.read_bytes()
    robot = tmp_path / "robot.jaxrbd"
    rbd.io.save_model(zoo.chain(1), robot)
    with pytest.raises(rbd.SavedFileError, match=r"robot.jaxrbd: it holds a 'model', expected a"):
        rbd.io.load_program(robot)
    with pytest.raises(rbd.SavedFileError, match=r"program.jaxrbd: it holds a 'program', expected"):
        rbd.io.load_model(path)
    for content, message in (
        (data[:-1], "truncated"),
        (data[:-1] + b"\xff", "altered"),
        (data.split(b"\n", 2)[2], "not a file that jaxrbd saved"),
    ):
        path.write_bytes(content)
        with pytest.raises(rbd.SavedFileError, match=f"^{path}: {message}"):
            rbd.io.load_program(path)


def test_a_program_that_jax_cannot_read_names_the_jax_that_wrote_it(tmp_path, monkeypatch):
    path = tmp_path / "program.jaxrbd"
    rbd.io.save_program(tiny(), path)

    def of_the_future(_):
        raise ValueError("unsupported calling convention version 99")

    monkeypatch.setattr("jax.export.deserialize", of_the_future)
    written = jax.__version__
    monkeypatch.setattr(jax, "__version__", "0.1")
    message = f"program.jaxrbd: JAX 0.1 cannot read the program of JAX {written}: .* 99"
    with pytest.raises(rbd.SavedFileError, match=message):
        rbd.io.load_program(path)


def test_what_cannot_be_exported_is_named(tmp_path):
    model = zoo.small()
    q, v, _, _ = zoo.state(model)
    with pytest.raises(rbd.ArgumentError, match="no argument to batch"):
        rbd.io.export_batched(rbd.total_mass, model)
    for platforms in ("cpu", (), ("cpu", "gpu")):
        with pytest.raises(rbd.ArgumentError, match=r"platforms is .*, expected some of \('cpu',"):
            rbd.io.export_batched(rbd.crba, model, q, platforms=platforms)
    with pytest.raises(rbd.ArgumentError, match="q has shape"):
        rbd.io.export_batched(rbd.crba, model, v)
    labelled = rbd.io.export_batched(lambda m, q: rbd.frames.State(m, q, v).momentum(), model, q)
    with pytest.raises(
        rbd.ArgumentError, match=r"the program cannot be saved: .*unregistered type"
    ):
        rbd.io.save_program(labelled, tmp_path / "program.jaxrbd")
    assert not [*tmp_path.iterdir()]
