"""Nothing is traced twice: a program depends on a robot's structure, not on its parameters."""

import copy
import dataclasses
import os
import pathlib
import subprocess
import sys

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import jaxrbd as rbd
from support import nightly, zoo
from support.algorithms import ALGORITHMS
from support.jax_events import work

QUICK = ("rnea", "forward_dynamics", "integrate", "frame_jacobian")
KINDS = ["free_flyer", "spherical", "revolute"]


def likenesses(tmp_path):
    """Robots with the structure of `zoo.small()`: other parameters, or the same again."""
    model = zoo.small()
    rbd.io.save_model(model, tmp_path / "robot.jaxrbd")
    return {
        "other numbers": zoo.build(KINDS, [-1, 0, 1], seed=7, armature=0.3, gravity=(1, 2, 3)),
        "built again": zoo.build(KINDS, [-1, 0, 1], seed=4),
        "copied": copy.deepcopy(model),
        "loaded": rbd.io.load_model(tmp_path / "robot.jaxrbd"),
        "cast and back": model.astype("float32").astype("float64"),
        "with dissipation and without": model.with_dissipation().with_dissipation(False),
        "mapped and back": jax.tree.map(
            lambda x: x[1], jax.tree.map(lambda x: jnp.stack([x, x]), model)
        ),
    }


@pytest.mark.parametrize("name", nightly.all_but(QUICK, ALGORITHMS))
def test_one_trace_for_all_robots_of_a_structure(name, tmp_path):
    """Called directly and mapped: only the first call traces and compiles."""
    chex.clear_trace_counter()  # it counts all cases of this test together

    @jax.jit
    @chex.assert_max_traces(n=1)
    def program(model, *state):
        return ALGORITHMS[name](model, *state)

    mapped = jax.jit(jax.vmap(program, (None, 0, 0, 0, 0)))
    models = likenesses(tmp_path)
    states = {what: zoo.state(model, seed) for seed, (what, model) in enumerate(models.items())}
    batches = {what: jax.tree.map(lambda x: jnp.stack([x, x]), s) for what, s in states.items()}
    with work() as first:
        program(zoo.small(), *states["copied"])
        mapped(zoo.small(), *batches["copied"])
    assert first, "JAX reports no event of a trace or a compilation"
    for what, model in models.items():
        with work() as events:
            program(model, *states[what])
            mapped(model, *batches[what])
        assert not events, what


@pytest.mark.slow
def test_public_functions_are_called_as_they_are(tmp_path):
    """Public functions without a jit, and with a `vmap` alone, are not traced again."""
    models = likenesses(tmp_path)
    q, v, a, f = zoo.state(zoo.small())
    qs, vs = jnp.stack([q, q]), jnp.stack([v, v])

    def calls(model):
        rbd.rnea(model, q, v, a)
        rbd.forward_dynamics(model, q, v, a, f)
        rbd.frame_placement(model, q, "l2")
        rbd.integrate(model, q, v)
        jax.vmap(rbd.bias_force, (None, 0, 0))(model, qs, vs)

    calls(zoo.small())
    for what, model in models.items():
        with work() as events:
            calls(model)
        assert not events, what


def test_two_loads_of_one_file_share_their_programs():
    q = rbd.neutral(rbd.load_robot("arm7"))
    rbd.gravity_force(rbd.load_robot("arm7"), q)
    again = rbd.load_robot("arm7")
    with work() as events:
        rbd.gravity_force(again, q)
    assert not events


def test_what_is_traced_again():
    """The structure, which includes names; dtypes; shapes."""
    model = zoo.chain(2)
    q = rbd.neutral(model)
    rbd.gravity_force(model, q)
    for operands in (
        (dataclasses.replace(model, name="another"), q),
        (model.with_dissipation(), q),
        (model.astype("float32"), q.astype("float32")),
    ):
        with work() as events:
            rbd.gravity_force(*operands)
        assert events


PROCESS = """
import sys
{recipe}
jax.config.update("jax_enable_x64", True)
import jaxrbd

events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
for robot in sys.argv[1:]:
    model = jaxrbd.io.load_model(robot)
    q = jaxrbd.neutral(model)
    for call in (jaxrbd.gravity_force, jax.jit(lambda _, q: jaxrbd.gravity_force(model, q))):
        events.clear()
        call(model, q)
        print(*(event.rpartition("/")[2] for event in events if "/cache_" in event))
"""


@pytest.mark.slow
def test_a_process_finds_what_another_compiled(tmp_path):
    """By the recipe of docs/compilation.md: robots with other masses and names hit the cache."""
    document = pathlib.Path(__file__).parents[1] / "docs" / "compilation.md"
    recipe = next(
        text.partition("```")[0]
        for text in document.read_text().split("```python\n")[1:]
        if "jax_compilation_cache_dir" in text
    )
    script = PROCESS.format(recipe=recipe.replace("/var/cache/robot", str(tmp_path / "cache")))
    model = zoo.chain(1)
    rbd.io.save_model(model, tmp_path / "light")
    heavy = eqx.tree_at(lambda m: m.inertia, model, 2 * model.inertia)
    rbd.io.save_model(dataclasses.replace(heavy, name="another"), tmp_path / "heavy")
    environment = {k: v for k, v in os.environ.items() if "CACHE" not in k}

    def events(*robots):
        """The cache's answers for each robot as an argument and as a constant."""
        done = subprocess.run(
            [sys.executable, "-c", script, *robots],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.split()

    assert events("light") == ["cache_misses", "cache_misses"]
    assert events("heavy") == ["cache_hits", "cache_misses"]
    assert events("light") == ["cache_hits", "cache_hits"]
