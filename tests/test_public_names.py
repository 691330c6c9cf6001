"""Every public name exists, is documented, and is in the reference; the example of README runs."""

import importlib
import importlib.util
import inspect
import pathlib
import re
import shlex
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DERIVATIVES = (ROOT / "docs" / "derivatives.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "index.md").read_text()

MODULES = [
    *(f"jaxrbd.{n}" for n in jaxrbd.__all__ if isinstance(getattr(jaxrbd, n), types.ModuleType)),
    "jaxrbd.conformance",
    "jaxrbd.learning",
    "jaxrbd.integrators.diffrax_adapter",
    "jaxrbd.io.pinocchio",
    "jaxrbd.io.pytorch",
]

# What other people's code may rely on; a name leaves this list only with a note in the changelog.
PROMISED = """
    Model load_urdf load_mjcf load_robot robot_names
    neutral random_configuration integrate difference interpolate
    forward_kinematics frame_placement frame_velocity frame_acceleration frame_jacobian
    rnea bias_force gravity_force crba mass_matrix_product aba forward_dynamics minverse
    center_of_mass total_mass kinetic_energy potential_energy passive_force
""".split()


def test_the_page_of_stable_names_lists_the_promised_names():
    page = (ROOT / "docs" / "stability.md").read_text()
    (names,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert names.split() == PROMISED


@pytest.mark.parametrize("name", PROMISED)
def test_promised_names_are_public(name):
    assert name in jaxrbd.__all__


@pytest.mark.parametrize("name", jaxrbd.__all__)
def test_public_names_exist_and_are_documented(name):
    thing = getattr(jaxrbd, name)
    first_line = (inspect.getdoc(thing) or "").partition("\n")[0]
    assert len(first_line) > 20, f"{name} needs a docstring"
    assert first_line.rstrip().endswith((".", ":", ",")) or len(first_line) > 60, first_line


@pytest.mark.parametrize("name", jaxrbd.__all__)
def test_public_functions_say_what_they_take(name):
    thing = getattr(jaxrbd, name)
    if inspect.isfunction(inspect.unwrap(thing)) and not inspect.isclass(thing):
        for parameter in inspect.signature(thing).parameters.values():
            assert parameter.annotation is not parameter.empty, f"{name}({parameter.name})"


@pytest.mark.parametrize("name", jaxrbd.__all__)
def test_reference_has_every_public_name(name):
    assert f"`{name}`" in REFERENCE


def site_pages():
    """The module of docs/ that makes the pages of the site."""
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def documented():
    """The names and the objects that the directives of docs/reference/ document."""
    return [
        (name, getattr(importlib.import_module(module), name))
        for module, names in site_pages().directives()
        for name in names
    ]


@pytest.mark.parametrize("name", MODULES)
def test_the_site_documents_every_public_name_of(name, documented):
    module = importlib.import_module(name)
    for public in site_pages().public_names(name):
        thing = getattr(module, public)
        assert any(n == public and x is thing for n, x in documented), f"{name}.{public}"


def test_every_name_of_the_index_of_the_reference_is_documented():
    paths, modules = site_pages().documented_names(), {n.partition(".")[2] for n in MODULES}
    names = set(re.findall(r"`([\w.]+)`", REFERENCE)) - modules - {"jaxrbd", "import jaxrbd"}
    names -= {"jax.vmap", "jax.jit", "jaxrbd.rnea", "jaxrbd.algorithms.rnea"}
    assert not names - set(paths) - {f"jaxrbd.{path}" for path in paths}


def test_every_name_of_the_page_of_choices_is_documented():
    page = (ROOT / "docs" / "choose.md").read_text()
    names = set(re.findall(r"`([\w.]+)`", page))
    others = {
        "jaxrbd",
        "X_WB",
        "jax.vmap",
        "jax.jit",
        "jax.grad",
        "jax.jvp",
        "jax.vjp",
        "jax.hessian",
    }
    others |= {"integrators.diffrax_adapter"}
    assert names - others <= set(site_pages().documented_names())
    assert others <= names


def test_nothing_is_public_by_accident():
    public = {
        name
        for name, thing in vars(jaxrbd).items()
        if not name.startswith("_") and not isinstance(thing, types.ModuleType)
    }
    assert public <= set(jaxrbd.__all__)
    assert len(jaxrbd.__all__) == len(set(jaxrbd.__all__))


def test_annotations_are_advertised():
    assert pathlib.Path(jaxrbd.__file__).with_name("py.typed").exists()


def test_readme_is_short_and_begins_with_the_two_commands():
    assert len(README.splitlines()) <= 120
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
    venv = "python3 -m venv .venv && .venv/bin/pip install -q"
    assert commands[:2] == [
        f'{venv} ".[cli]" && .venv/bin/jaxrbd rollout',
        f'{venv} -e ".[test]" && .venv/bin/python -m pytest -n auto',
    ]
    assert commands[2].startswith(f'{venv} . && .venv/bin/python -c "')


def test_the_command_of_the_readme_prints_a_gradient(capsys):
    command = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)[2]
    exec(shlex.split(command)[-1], {})
    printed = np.array(capsys.readouterr().out.strip(" \n[]").split(), float)
    arm = jaxrbd.load_robot("arm7")
    np.testing.assert_allclose(printed, jaxrbd.gravity_force(arm, jnp.ones(7)), atol=1e-6)


@pytest.mark.documents
def test_readme_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {}
    exec(example, names)
    np.testing.assert_allclose(names["qdd"], names["a"], atol=1e-9)
    assert names["taus"].shape == (64, names["model"].nv)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(names["by_placement"]))
    assert any(np.any(x != 0) for x in jax.tree.leaves(names["by_placement"]))


def test_recipe_for_a_derivative_in_the_tangent_space():
    recipe = "jax.grad(lambda dq: f(jaxrbd.integrate(model, q, dq)))(jnp.zeros(model.nv))"
    assert recipe in DERIVATIVES
    model = jaxrbd.load_robot("arm7")
    q = jaxrbd.random_configuration(model, jax.random.key(0))

    def f(q):
        return jaxrbd.potential_energy(model, q)

    found = eval(recipe, {"jax": jax, "jnp": jnp, "jaxrbd": jaxrbd, "f": f, "model": model, "q": q})
    np.testing.assert_allclose(found, jaxrbd.gravity_force(model, q), atol=1e-10)
