"""The options of commands reach the functions that do the work, and their results the user."""

import functools
import importlib.util
import json
import math
import os
import pathlib
import re
import shlex
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from jaxrbd import cli, learning, view
from jaxrbd.cli import (
    bench_command,
    play_command,
    rollout as rollout_functions,
    rollout_command,
    train_command,
    view_command,
)
from jaxrbd.errors import JaxRBDError
from support.disk import full_disk
from support.point import Point

needs_trimesh = pytest.mark.skipif(
    importlib.util.find_spec("trimesh") is None, reason="trimesh is not installed"
)


def without(monkeypatch, *names):
    """Make these packages seem to be missing."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in names else find(name, *a)
    )


# ------------------------------------------------------------------------------------------- view

TRIANGLES = """solid
facet normal 0 0 1
outer loop
vertex 0 0 0
vertex 0 0.4 0
vertex 0 0 0.9
endloop
endfacet
endsolid
"""


@pytest.fixture
def robot(tmp_path):
    """A URDF file of one link with a mesh of the package `my_arm`, and the folder of the package.

    The collision shape is a ball.
    """
    folder, path = tmp_path / "meshes", tmp_path / "robot.urdf"
    folder.mkdir()
    (folder / "part.stl").write_text(TRIANGLES)
    path.write_text(
        '<robot name="r"><link name="a"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"'
        ' ixy="0" ixz="0" iyz="0"/></inertial><visual><geometry><mesh '
        'filename="package://my_arm/part.stl"/></geometry></visual><collision><geometry><sphere '
        'radius="0.3"/></geometry></collision></link></robot>'
    )
    return path, folder


@needs_trimesh
def test_a_picture_of_the_command_shows_what_its_options_say(robot, tmp_path, capsys, monkeypatch):
    """Layers and packages change the picture, and the picture is the array of `render`."""
    image = pytest.importorskip("PIL.Image")
    (path, folder), png = robot, tmp_path / "a.png"
    small = functools.partial(view.render, width=80, height=60, smooth=1)
    monkeypatch.setattr(view_command, "render", small)
    model = jaxrbd.load_urdf(path, root_joint="free_flyer")
    pictures = []
    for layers in (["visuals"], ["collisions"], ["frames", "com"]):
        words = [] if layers == ["visuals"] else ["--layers", ",".join(layers)]
        command = ["view", str(path), "--png", str(png), "--free-flyer", "--package"]
        assert cli.main([*command, f"my_arm={folder}", *words]) == 0
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == (f"ok: {png}\n", "")
        pictures.append(np.asarray(image.open(png)))
        expected = small(model, layers=layers, packages={"my_arm": folder})
        np.testing.assert_array_equal(pictures[-1], expected)
    for i in range(3):
        assert np.count_nonzero(np.any(pictures[i] != pictures[i - 1], axis=2)) > 100
    if importlib.util.find_spec("viser") is not None:
        page = tmp_path / "a.html"
        assert cli.main(["view", "pendulum", "--html", str(page)]) == 0
        assert capsys.readouterr().out == f"ok: {page}\n"
        assert "__VISER_EMBED_DATA__" in page.read_text()
    with full_disk():  # the picture before stays
        assert cli.main(["view", "pendulum", "--png", str(png)]) == 1
    assert capsys.readouterr().err.startswith(f"jaxrbd: error: {png}: ")
    np.testing.assert_array_equal(np.asarray(image.open(png)), pictures[-1])
    with pytest.raises(SystemExit, match="2"):
        cli.main(["view", "arm7", "--png", str(png), "--layers", "walls"])
    assert "--layers: 'walls', expected some of visuals" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "layers", "port", "nv"),
    [
        ([], ("visuals",), 8080, 1),
        (["--layers", "com,frames", "--free-flyer"], ("com", "frames"), 8125, 7),
    ],
)
def test_view_passes_its_options_on(words, layers, port, nv, tmp_path, capsys, monkeypatch):
    """To the page, to the picture, and to the server; only what is asked for is made."""
    asked = {}

    class Server:
        url = "http://here"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            asked["stopped"] = True

        def wait(self):
            asked["waited"] = True

    def save_html(path, model, **options):
        asked["html"] = path, model.nv, options

    def render(model, **options):
        asked["png"] = model.nv, options
        return np.zeros((2, 3, 3), np.uint8)

    def serve(model, **options):
        asked["server"] = model.nv, options
        return Server()

    for function in (save_html, render, serve):
        monkeypatch.setattr(view_command, function.__name__, function)
    packages = {"one": str(tmp_path), "two": str(tmp_path / "..")}
    words = [*words, *(x for item in packages.items() for x in ("--package", "=".join(item)))]
    page, png = str(tmp_path / "a.html"), str(tmp_path / "a.png")
    given = {"layers": layers, "packages": packages}
    for files, expected in (
        (["--html", page], {"html": (page, nv, given)}),
        (["--png", png], {"png": (nv, given)}),
        (["--html", page, "--png", png], {"html": (page, nv, given), "png": (nv, given)}),
        (
            [] if port == 8080 else ["--port", str(port)],
            {"server": (nv, {**given, "port": port}), "waited": True, "stopped": True},
        ),
    ):
        asked.clear()
        assert cli.main(["view", "pendulum", *words, *files]) == 0
        assert asked == expected
        said = [f"ok: {file}" for file in files[1::2]]
        if "server" in expected:
            said = ["pendulum: http://here (Ctrl-C ends)"]
        assert capsys.readouterr().out.splitlines() == said


# ---------------------------------------------------------------------------------------- rollout


@pytest.fixture
def rollout(monkeypatch, tmp_path):
    """A function that runs `jaxrbd rollout` without a simulation, and returns what it would do."""

    def run(*words, batch=9, factor=1.0):
        asked = {}

        def timed(label, function, model, inputs, dt, devices):
            asked.update(model=model, inputs=inputs, dt=float(dt), devices=len(devices))
            steps = inputs.tau.shape[1]
            shape = (batch, steps + 1)
            q = factor * np.arange(np.prod(shape) * model.nq).reshape(*shape, model.nq)
            error = np.zeros(shape) + np.arange(steps + 1) / 1e3
            error[0, 1] = 0.25
            found = rollout_command.Trajectory(q, q[..., : model.nv] + 0.5, error)
            outputs = rollout_command.Outputs(found, np.arange(batch), error)
            times = {"samples": 1, "seconds": 1.0, "compile_seconds": 1.0}
            return (outputs if label == "simulate" else np.zeros_like(inputs.tau)), times

        def gradient_error(model, inputs, dt, gradient, scale, seed):
            asked.update(scale=scale, seed=seed)
            return 0.0

        def save_html(path, model, q, **options):
            asked.update(page=(path, np.array(q), options))

        for function in (gradient_error, save_html):
            monkeypatch.setattr(rollout_command, function.__name__, function)
        monkeypatch.setattr(rollout_command, "_timed", timed)
        monkeypatch.chdir(tmp_path)
        command = ["rollout", "--no-plot", "--batch", str(batch), "--steps", "4", *words]
        assert cli.main(command) == 0
        return asked

    return run


def test_rollout_simulates_what_its_options_say(rollout, tmp_path, capsys):
    model = jaxrbd.load_robot("double_pendulum")
    limits = np.array([30.0, 10.0])
    plain = rollout("double_pendulum", batch=60)
    assert plain["dt"] == 2e-3
    np.testing.assert_array_equal(plain["model"].damping, model.damping)
    q, v, tau = (np.asarray(x) for x in plain["inputs"])
    assert (q.dtype, tau.shape) == (np.float64, (60, 4, 2))
    assert not np.any(v)
    for torques, fraction in (
        (tau, 0.1),
        (rollout("double_pendulum", "--torque", "0.5", batch=60)["inputs"].tau, 0.5),
    ):
        largest = np.max(np.abs(torques), axis=(0, 1)) / limits
        assert np.all((0.97 * fraction < largest) & (largest <= fraction))
        assert np.all(np.abs(np.mean(torques, axis=(0, 1)) / limits) < 0.2 * fraction)
    np.testing.assert_allclose(np.std(q, axis=0), 0.3, rtol=0.2)

    other = rollout("double_pendulum", "--seed", "7", "--dt", "0.25", "--undamped", batch=60)
    assert (other["dt"], other["seed"], plain["seed"]) == (0.25, 7, 0)
    np.testing.assert_array_equal(other["model"].damping, [0, 0])
    assert np.all(other["inputs"].q != q)
    assert np.all(other["inputs"].tau != tau)
    again = rollout("double_pendulum", batch=60)["inputs"]
    np.testing.assert_array_equal(again.q, q)
    np.testing.assert_array_equal(again.tau, tau)
    single = rollout("double_pendulum", "--float32", batch=60)
    assert {x.dtype for x in jax.tree.leaves(single["inputs"])} == {np.dtype("float32")}
    assert single["model"].dtype == np.float32


def test_rollout_writes_what_its_options_say(rollout, tmp_path, capsys, monkeypatch):
    """The page has the first eight trajectories, with their time step."""
    (tmp_path / "robots").mkdir()
    path = tmp_path / "robots" / "my_arm.urdf"
    path.write_text(jaxrbd.robots.robot_path("pendulum").read_text())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    words = [str(path), "--dt", "0.25", "--html", "page.html", "--package", f"a={tmp_path}"]
    asked = rollout(*words, "--json", batch=9)
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["files"] == [os.path.join("rollout-my_arm", "trajectories.npz"), "page.html"]
    assert report["energy_error"] == {"largest": 0.25, "median_at_end": 0.004}
    assert (report["dt"], report["seed"], report["devices"]) == (0.25, 0, 1)
    assert "largest 2.5e-01, median at the end 4.0e-03" in printed.err
    name, q, options = asked["page"]
    assert (name, options) == ("page.html", {"dt": 0.25, "packages": {"a": str(tmp_path)}})
    assert q.shape == (8, 5, 1)
    found = np.load(tmp_path / report["files"][0])
    np.testing.assert_array_equal(found["q"][:8], q)
    np.testing.assert_array_equal(found["time"], [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(found["v"], found["q"] + 0.5)
    np.testing.assert_array_equal(found["cost"], np.arange(9))
    np.testing.assert_array_equal(found["tau"], asked["inputs"].tau)
    rollout(str(path), "--out", "else where")
    assert (tmp_path / "else where" / "trajectories.npz").exists()


def test_a_rollout_that_is_not_finite_writes_nothing(rollout, tmp_path, capsys, monkeypatch):
    with pytest.raises(AssertionError):
        rollout("pendulum", factor=np.nan)
    assert "become infinite or NaN: try a smaller --dt" in capsys.readouterr().err
    assert not [*tmp_path.rglob("*.npz")]


def test_rollout_has_no_dry_friction(rollout, tmp_path, capsys):
    path = tmp_path / "robot.urdf"
    path.write_text(JOINT.format(velocity=4))
    model = rollout(str(path))["model"]
    assert (float(model.friction[0]), float(model.damping[0])) == (0, 0.5)
    assert "note       dry friction is set to zero\n" in capsys.readouterr().out
    asked = rollout("cart_pole", "--json")
    printed = capsys.readouterr()
    assert "dry friction" not in printed.err
    arm = jaxrbd.load_robot("double_pendulum").with_dissipation()
    jaxrbd.io.save_model(arm, "arm.jaxrbd")
    model = rollout("arm.jaxrbd")["model"]  # the step adds the damping, so the model must not
    assert not model.dissipative
    assert np.all(model.damping > 0)
    assert (json.loads(printed.out)["driven"], *asked["scale"]) == (1, 5.0, 0.0)


def test_the_plot_of_a_rollout_shows_its_arrays(monkeypatch):
    from jaxrbd.cli import rollout_plot

    drawn = []
    functions = {
        "kinetic_energy": lambda model, q, v: v[0] ** 2,
        "potential_energy": lambda model, q: 7.0 + 2 * q[0],
        "difference": lambda model, a, b: b - a,
        "neutral": lambda model: jnp.array([0.5]),
    }
    for name, function in functions.items():
        monkeypatch.setattr(rollout_plot, name, function)
    monkeypatch.setattr(
        rollout_plot.Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)
    )
    time, q = np.array([0.0, 0.5, 1.0]), np.array([[[1.0], [2.0], [3.0]], [[0.0], [0.0], [0.0]]])
    found = rollout_command.Trajectory(q, q - 1, np.array([[0.0, 1.0, 3.0]] * 2))
    error = np.array([[9.0, 1.0, 2.0], [9.0, 3.0, 4.0]])
    gradient = np.array([[[1.0, 2.0, 2.0]] * 2, [[2.0, 3.0, 6.0]] * 2])  # of the lengths 3 and 7
    model = jaxrbd.load_robot("pendulum")
    rollout_plot.plot_rollout(pathlib.Path("a.png"), model, time, found, error, gradient)
    coordinates, energy, errors, slopes = (
        {line.get_label(): line.get_xydata().T.tolist() for line in axes.lines}
        for axes in drawn[0].axes
    )
    assert [*coordinates.values()] == [[[0, 0.5, 1], [0.5, 1.5, 2.5]]]
    assert {label: line[1] for label, line in energy.items()} == {
        "kinetic": [0, 1, 4],
        "potential, gained": [0, 2, 4],
        "sum": [0, 3, 8],
        "work of torques and damping": [0, 1, 3],
    }
    assert errors["median"] == [[0.5, 1], [2, 3]]
    assert slopes["median"] == [[0, 0.5], [5, 5]]


@pytest.mark.parametrize(("values", "scale"), [(0.0, "linear"), (1.0, "log")])
def test_the_plot_of_zeros_has_no_logarithmic_scale(values, scale):
    """As for a robot without joints; Matplotlib would warn."""
    from jaxrbd.cli import rollout_plot

    figure = rollout_plot.Figure()
    axes = figure.subplots()
    rollout_plot._quantiles(axes, np.arange(3.0), np.full((2, 3), values), "a title")
    figure.canvas.draw()
    assert axes.get_yscale() == scale


def test_the_cost_of_a_rollout_is_its_definition():
    """Half the squared distance from neutral at the end, and 1e-3 of half the effort."""
    model = jaxrbd.load_robot("pendulum")
    q, tau, dt = jnp.array([[5.0], [2.0], [3.0]]), jnp.array([[20.0], [-10.0]]), jnp.asarray(0.25)
    trajectory = rollout_functions.Trajectory(q, 0 * q, q[:, 0])
    found = rollout_functions.cost(model, trajectory, tau, dt)
    np.testing.assert_allclose(found, 9 / 2 + 1e-3 * 0.25 * (400 + 100) / 2, rtol=1e-12)


def test_joints_without_an_effort_limit_are_not_driven():
    model = jaxrbd.load_robot("quadruped")
    scale = rollout_command.effort_scale(model)
    np.testing.assert_array_equal(scale, [*[0] * 6, *model.effort_limit[6:]])


def test_rollout_uses_as_many_devices_as_its_option_says(monkeypatch):
    jax.devices()  # JAX has started, so the option cannot split the CPU
    devices = [types.SimpleNamespace(platform="gpu", id=i) for i in range(3)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    for count in (1, 2, 3):
        assert rollout_command.first_devices(count) == devices[:count]
    with pytest.raises(JaxRBDError, match="--devices 4: JAX has 3 of platform gpu"):
        rollout_command.first_devices(4)


def test_blocks_of_a_batch_have_its_order(monkeypatch, capsys):
    """Blocks of equal size; the results are those of the batch."""
    monkeypatch.setattr(rollout_command, "BLOCK", 2)
    model, tau = jaxrbd.load_robot("pendulum"), jnp.arange(15.0).reshape(5, 3, 1)
    inputs = rollout_command.Inputs(tau[:, 0], tau[:, 1], tau)
    blocks = rollout_command._blocks(inputs)
    assert [block.q.shape for block in blocks] == [(2, 1)] * 3
    function = jax.jit(lambda model, inputs, dt: (inputs.tau * dt, inputs.q))
    dt, devices = jnp.asarray(2.0), jax.devices()
    found, times = rollout_command._timed("words", function, model, inputs, dt, devices)
    np.testing.assert_array_equal(found[0], 2 * tau)
    np.testing.assert_array_equal(found[1], tau[:, 0])
    assert times["samples"] == 15
    assert capsys.readouterr().err.split()[:2] == ["words", "compiling"]


def test_the_check_of_the_gradient_finds_one_wrong_trajectory(monkeypatch):
    """The cost is a parabola, so its gradient is known and a central difference is exact."""

    def simulate(model, inputs, dt):
        cost = jnp.sum(inputs.tau**2, axis=(1, 2)) / 2
        return types.SimpleNamespace(cost=cost)

    monkeypatch.setattr(rollout_command, "simulate_batch", simulate)
    tau = jnp.array(np.random.default_rng(0).normal(size=(5, 4, 2)))
    inputs = rollout_command.Inputs(tau[:, 0], tau[:, 0], tau)

    def error(gradient, scale=(3.0, 0.0), seed=5):
        model, dt = jaxrbd.load_robot("double_pendulum"), jnp.ones(())
        return rollout_command.gradient_error(model, inputs, dt, gradient, np.array(scale), seed)

    right = np.array(tau)
    assert error(right) < 1e-8
    for k in range(5):
        wrong = right.copy()
        wrong[k] += 1
        assert error(wrong) > 1e-4
    # The directions scale with the torques, and another seed has others.
    wrong = right * np.array([1.0, 0.0])
    assert error(wrong, (1.0, 1.0)) > 1e-2
    assert error(wrong, (3.0, 3.0)) == pytest.approx(error(wrong, (1.0, 1.0)), rel=1e-6)
    assert error(wrong, (1e9, 1.0)) < 1e-6
    assert error(wrong, seed=6) != error(wrong)


# ------------------------------------------------------------------------------------------ bench


def test_jobs_have_the_names_of_functions():
    for name in ("rnea", "forward_dynamics", "rnea_derivatives", "forward_dynamics_derivatives"):
        assert bench_command.JOBS[name] is getattr(jaxrbd, name)
    model = jaxrbd.load_robot("double_pendulum")
    q, v, tau = (jnp.array(x) for x in ([0.7, 0.3], [0.2, 0.1], [1.0, 2.0]))
    found = bench_command.JOBS["crba"](model, q, v, tau)
    np.testing.assert_array_equal(found, jaxrbd.crba(model, q))
    found = bench_command.JOBS["forward_kinematics"](model, q, v, tau)
    np.testing.assert_array_equal(found.R, jaxrbd.forward_kinematics(model, q).X_WB.R)


@pytest.mark.parametrize(
    ("words", "jobs", "numbers", "dtype"),
    [
        ([], tuple(bench_command.JOBS), (64, 1.0, 0), "float64"),
        (
            "--jobs crba,rnea --batch 8 --seconds 0.5 --seed 3 --float32".split(),
            ("crba", "rnea"),
            (8, 0.5, 3),
            "float32",
        ),
    ],
)
def test_bench_measures_what_its_options_say(words, jobs, numbers, dtype, capsys, monkeypatch):
    timing = bench_command.Timing("crba", 1.5, 2.25, 3.75, 4321.0)
    asked = []
    monkeypatch.setattr(bench_command, "measure", lambda *x: asked.append(x) or [timing])
    for json_words in ([], ["--json"]):
        assert cli.main(["bench", "pendulum", *words, *json_words]) == 0
        (model, *found) = asked.pop()
        assert (model.name, model.dtype.name, *found) == ("pendulum", dtype, jobs, *numbers)
    out, err = capsys.readouterr()
    text = out.partition("{")[0]
    (row,) = (line.split() for line in text.splitlines() if line.startswith("crba"))
    assert row == ["crba", "1.50", "s", "2.250", "us", "3.750", "us", "4,321"]
    report = json.loads(out[len(text) :])
    assert report["jobs"] == [timing._asdict()]
    assert (report["batch"], report["dtype"]) == (numbers[0], dtype)
    assert "crba" in err


def test_bench_has_the_states_of_its_seed(monkeypatch):
    """The batch has different states, which another seed changes."""
    monkeypatch.setattr(bench_command, "_call_times", lambda call, seconds: [call()] and [1.0])
    model, seen = jaxrbd.load_robot("double_pendulum"), []
    monkeypatch.setitem(
        bench_command.JOBS,
        "crba",
        lambda model, *x: jax.debug.callback(seen.append, x, ordered=False),
    )
    for seed in (0, 0, 1):
        [_] = bench_command.measure(model, ["crba"], batch=3, seconds=1.0, seed=seed)
    jax.effects_barrier()
    states = np.array(sorted(np.concatenate(x).tolist() for x in seen))
    assert states.shape == (9, 6)
    assert len(np.unique(states, axis=0)) == 6


# --------------------------------------------------------------------------------- train and play


class Fake(learning.Training):
    """A training without a computation, which notes its arguments and its checkpoints."""

    made: list = []
    blocks: list = []
    saved: list = []

    def __init__(self, algorithm, env, seed, *, task, mesh, block):
        Fake.made.append((algorithm, env, seed, task))
        Fake.blocks.append((mesh and mesh.size, block))
        self.algorithm, self.params, self.state, self.records = algorithm, None, None, []
        self._schedule, self._usual_params = None, self.params
        returns = iter([-math.inf, *[1.5] * 99])  # no episode has ended after the first update
        self._update = lambda params, state: (
            state,
            {"return": next(returns), "reward": 0.25, "loss": 0.0},
        )

    def save(self, path):
        Fake.saved.append((path, len(self.records)))


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """`jaxrbd train` with fake trainings of seven updates; the value notes what is asked for."""
    asked = {"algorithm": [], "task": [], "made": [], "blocks": [], "saved": []}
    Fake.made, Fake.blocks, Fake.saved = (asked[x] for x in ("made", "blocks", "saved"))
    algorithm = learning.Apg(4, 9, (6,), updates=7)
    monkeypatch.setattr(train_command, "Training", Fake)
    monkeypatch.setattr(
        train_command, "algorithm_for", lambda *x: asked["algorithm"].append(x) or algorithm
    )
    monkeypatch.setattr(train_command, "load_task", lambda *x: asked["task"].append(x) or "env")
    monkeypatch.chdir(tmp_path)
    return asked, algorithm


def test_train_passes_its_options_on(fake, tmp_path, capsys):
    asked, algorithm = fake
    words = "train hopper --algorithm ppo --seed 11 --steps 5000 --every 3 --no-plot".split()
    assert cli.main([*words, "--out", "here"]) == 0
    assert asked["algorithm"] == [("hopper", "ppo", 5000)]
    assert asked["task"] == [("hopper", "ppo")]
    assert asked["made"] == [(algorithm, "env", 11, "hopper")]
    assert [(str(path), n) for path, n in asked["saved"]] == [
        (os.path.join("here", "checkpoint.jaxrbd"), n) for n in (3, 6, 7)
    ]
    lines = [json.loads(x) for x in (tmp_path / "here" / "metrics.jsonl").read_text().splitlines()]
    assert [(x["update"], x["steps"], x["return"]) for x in lines] == [
        (n, n * algorithm.update_steps, None if n == 1 else 1.5) for n in range(1, 8)
    ]
    assert not (tmp_path / "here" / "curve.png").exists()
    last = f"ok: here: {7 * algorithm.update_steps} steps, return 1.5\n"
    assert capsys.readouterr().out == last


def test_the_defaults_of_train(fake, tmp_path, monkeypatch):
    """SHAC, seed 0, a checkpoint after 25 updates, and a picture in a folder of its own."""
    asked, algorithm = fake
    plots = []
    from jaxrbd.cli import curve_plot

    monkeypatch.setattr(curve_plot, "plot_curves", lambda *x: plots.append(x))
    assert cli.main(["train", "hopper"]) == 0
    assert asked["algorithm"] == [("hopper", "shac", None)]
    assert asked["made"] == [(algorithm, "env", 0, "hopper")]
    assert asked["blocks"] == [(None, None)]
    folder = pathlib.Path("train-hopper-shac")
    assert asked["saved"] == [(folder / "checkpoint.jaxrbd", 7)]
    ((path, title, [records]),) = plots
    assert (path, title) == (folder / "curve.png", "hopper: shac, seed 0")
    assert [record.update for record in records] == [*range(1, 8)]


def test_several_seeds_have_a_folder_each_and_a_summary(fake, capsys, monkeypatch):
    from jaxrbd.cli import curve_plot

    plots = []
    monkeypatch.setattr(curve_plot, "plot_curves", lambda *x: plots.append(x))
    asked, _ = fake
    monkeypatch.setattr(Fake, "save", lambda training, path: path.write_bytes(b""))
    command = ["train", "hopper", "--seed", "8", "--seeds", "3", "--out", "here"]
    assert cli.main(command) == 0
    assert [seed for *_, seed, _ in asked["made"]] == [8, 9, 10]
    here = pathlib.Path("here")
    folders = [here / f"seed-{seed}" for seed in (8, 9, 10)]
    assert [path for path, *_ in plots] == [x / "curve.png" for x in (*folders, here)]
    assert [len(records) for records in plots[3][2]] == [7, 7, 7]
    assert all((folder / "metrics.jsonl").read_text().count("\n") == 7 for folder in folders)
    *_, last = capsys.readouterr().out.splitlines()
    mean = "return 1.5 on average, standard deviation 0, from 1.5 to 1.5"
    assert last == f"ok: here: 3 seeds, {mean}"
    assert cli.main(command) == 1
    assert f"{folders[0] / 'checkpoint.jaxrbd'} exists" in capsys.readouterr().err


def test_several_seeds_continue_where_they_have_a_checkpoint(fake, capsys, monkeypatch):
    asked, algorithm = fake
    loaded = []
    monkeypatch.setattr(Fake, "load", lambda training, path: loaded.append(path))
    command = ["train", "hopper", "--no-plot", "--seeds", "2", "--out", "here", "--resume"]
    assert cli.main(command) == 1
    assert "--resume: no checkpoint" in capsys.readouterr().err
    first = pathlib.Path("here", "seed-0", "checkpoint.jaxrbd")
    first.parent.mkdir(parents=True)
    about = {"settings": {"updates": algorithm.updates}}
    learning.save_checkpoint(first, about, {"x": np.ones(1)})
    assert cli.main(command) == 0
    assert loaded == [first]
    assert [seed for *_, seed, _ in asked["made"]] == [0, 1]
    started = []
    monkeypatch.setattr(Fake, "start_from", lambda training, path: started.append(path))
    assert cli.main([*command, "--start-from", str(first)]) == 0
    assert started == [str(first)]  # for the seed 1 only
    assert cli.main([*command[:-1], "--seed", str(2**63 - 1)]) == 1
    assert "the last seed has more than 64 bits" in capsys.readouterr().err


def test_train_has_the_block_of_its_option_or_of_its_checkpoint(fake, monkeypatch):
    asked, algorithm = fake
    monkeypatch.setattr(Fake, "load", lambda training, path: None)
    monkeypatch.setattr(train_command, "first_devices", lambda n: jax.devices()[:1] * n)
    command = ["train", "hopper", "--no-plot", "--out", "here"]
    assert cli.main([*command, "--block", "4", "--devices", "2"]) == 0
    about = {"settings": {"updates": algorithm.updates}, "block": 2}
    learning.save_checkpoint("here/checkpoint.jaxrbd", about, {"x": np.ones(1)})
    assert cli.main([*command, "--resume"]) == 0
    assert cli.main([*command, "--resume", "--block", "3"]) == 0
    assert asked["blocks"] == [(2, 4), (None, 2), (None, 3)]


def test_the_summary_of_several_seeds():
    def runs(returns):
        return {k: [learning.Record(1, 1, {"return": x})] for k, x in enumerate(returns)}

    found = train_command._summary(runs([1.0, 2.0, 6.0]))
    assert found == "3 seeds, return 3 on average, standard deviation 2.65, from 1 to 6"
    assert train_command._summary(runs([2.0])).endswith("standard deviation 0, from 2 to 2")
    found = train_command._summary(runs([1.0, -math.inf]))
    assert found == "2 seeds, no episode has ended with the seeds 1"


def test_train_needs_matplotlib_only_for_the_curve(fake, capsys, monkeypatch):
    """It says so before the training, not after it."""
    without(monkeypatch, "matplotlib")
    asked, _ = fake
    assert cli.main(["train", "hopper", "--out", "here"]) == 1
    assert "pip install matplotlib, or --no-plot" in capsys.readouterr().err
    assert asked["made"] == []
    assert cli.main(["train", "hopper", "--no-plot", "--out", "here"]) == 0


def test_the_curve_shows_returns_and_rewards_over_the_steps(tmp_path, monkeypatch):
    from jaxrbd.cli import curve_plot

    drawn = []
    monkeypatch.setattr(
        curve_plot.Figure, "savefig", lambda figure, path, **_: drawn.append((figure, path))
    )
    records = [learning.Record(n, 30 * n, {"return": 5.0 * n, "reward": -n}) for n in (1, 2, 3)]
    curve_plot.plot_curves(tmp_path / "a.png", "words", [records, records[:2]])
    ((figure, path),) = drawn
    assert path == tmp_path / "a.png"
    lines = [axes.lines[0].get_xydata().T.tolist() for axes in figure.axes]
    steps = [30, 60, 90]
    assert lines == [[steps, [5, 10, 15]], [steps, [-1, -2, -3]]]
    assert [len(axes.lines[1].get_xydata()) for axes in figure.axes] == [2, 2]
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "mean return of an episode",
        "mean reward of a step",
    ]


@pytest.mark.parametrize(
    "words",
    [
        "cart-pole",
        "hopper --algorithm ppo --seed -4 --steps 120",
        "hopper --steps 7 --every 3 --no-plot --no-cache",
        "hopper --algorithm apg --seed 9 --tensorboard events --report my_log:write",
        "hopper --block 8 --devices 2",
        "hopper --seeds 3 --start-from other",
    ],
)
@pytest.mark.parametrize("folder", ["trained", "my runs/it's"])
def test_the_printed_command_continues_the_same_training(words, folder):
    """Read by the parser, it has the task, the settings, the seed and the folder of the options."""
    parser = cli._parser()
    given = parser.parse_args(["train", *words.split(), "--out", folder])
    program, *arguments = shlex.split(train_command._resumption(given, pathlib.Path(folder)))
    found = parser.parse_args(arguments)
    assert program == "jaxrbd"
    assert found.resume
    names = "task algorithm seed seeds steps out tensorboard report no_plot no_cache block devices"
    for name in [*names.split(), "start_from"]:
        assert getattr(found, name) == getattr(given, name), name


@pytest.mark.parametrize(("before", "left"), [(0, 10), (20, 50)])
def test_the_time_left_is_by_the_updates_of_this_run(before, left, capsys):
    """25 of 50 updates are done in ten seconds: all 25, or 5 after those of the run before."""
    record = learning.Record(25, 240, {"return": 1.0})
    train_command._progress(record, 50, before, 10.0)
    line = f"update 25/50  steps 240  return 1  10 s, {left} s left\n"
    assert capsys.readouterr().err == line


@pytest.fixture
def checkpoint(monkeypatch):
    """What `jaxrbd play` asks for, with a checkpoint of a point whose episodes are known."""
    asked = {}
    point = Point()
    training = learning.Training.__new__(learning.Training)  # without its compiled state
    training.env, training.task, training.records = point, "cart-pole", [1, 2]
    training.algorithm, training.params = learning.Apg(updates=9), point.default_params()
    training.policy = lambda: "policy"

    def load_training(path):
        asked["path"] = path
        return training

    def evaluate(env, params, policy, key, episodes):
        asked["evaluate"] = env, policy, jax.random.key_data(key).tolist(), episodes
        return types.SimpleNamespace(
            returns=jnp.array([-1.0, 3.0, 4.0]),
            lengths=jnp.array([2, 6, 7]),
            terminated=jnp.array([True, False, True]),
            terms={"place": jnp.array([1.0, 2.0, 6.0]), "effort": jnp.array([-0.5, 0.0, 0.5])},
        )

    def motions(env, params, policy, key, episodes):
        asked["motions"] = env, policy, jax.random.key_data(key).tolist(), episodes
        return jnp.array([[[0.0], [0.1], [0.3], [0.7], [0.7], [0.7]]]) * asked.get("factor", 1.0)

    def save_html(path, model, q, **options):
        asked["page"] = path, model.name, np.asarray(q).shape, options

    def tiles(model, q):
        asked["rows"] = model.name, np.asarray(q)[:, 0].tolist()
        return np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)

    def save_video(path, model, q, **options):
        asked["video"] = path, model.name, np.asarray(q)[:, 0].tolist(), options

    for function in (load_training, evaluate, motions, save_html, save_video):
        monkeypatch.setattr(play_command, function.__name__, function)
    monkeypatch.setattr(play_command, "_tiles", tiles)
    return asked, Point(episode_steps=240)  # as in the task


def test_play_prints_the_returns_of_the_episodes(checkpoint, capsys):
    asked, point = checkpoint
    assert cli.main(["play", "file", "--episodes", "3", "--seed", "5"]) == 0
    assert asked == {
        "path": "file",
        "evaluate": (point, "policy", jax.random.key_data(jax.random.key(5)).tolist(), 3),
    }
    assert capsys.readouterr().out.splitlines() == [
        "cart-pole: apg, update 2 of 9, 3 episodes without noise",
        "  return    mean 2, from -1 to 4",
        "  duration  mean 0.5 s; failed: 2",
        "  place              3",
        "  effort             0",
    ]


def test_play_shows_the_motion_of_its_seed(checkpoint, tmp_path, capsys, monkeypatch):
    """The picture begins and ends with the episode, and needs no matplotlib."""
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "viser")
    asked, point = checkpoint
    page, png = str(tmp_path / "a.html"), str(tmp_path / "a.png")
    assert cli.main(["play", "file", "--seed", "5", "--html", page, "--png", png]) == 0
    key = jax.random.key_data(jax.random.key(5)).tolist()
    assert asked["evaluate"][3] == 64
    assert asked["motions"] == (point, "policy", key, 8)
    assert asked["page"] == (page, "pendulum", (1, 6, 1), {"dt": point.time_step})
    name, rows = asked["rows"]
    assert (name, len(rows), rows[0], rows[-1]) == ("pendulum", 8, 0.0, 0.7)
    assert set(rows) == {0.0, 0.1, 0.3, 0.7}
    expected = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    np.testing.assert_array_equal(np.asarray(image.open(png)), expected)
    assert capsys.readouterr().out.endswith(f"wrote {page}\nwrote {png}\n")


def test_play_writes_a_video_of_one_whole_episode(checkpoint, tmp_path, capsys):
    """The last configuration is repeated after the end of the episode, and is shown once."""
    asked, point = checkpoint
    assert cli.main(["play", "file", "--video", "a.avi"]) == 1
    assert "path is 'a.avi', expected a name that ends in .gif or .mp4" in capsys.readouterr().err
    assert asked == {}
    video = str(tmp_path / "a.gif")
    assert cli.main(["play", "file", "--video", video]) == 0
    path, name, q, options = asked["video"]
    assert (path, name) == (video, "pendulum")
    np.testing.assert_allclose(q, [0.0, 0.1, 0.3, 0.7], rtol=1e-6)
    assert options == {"dt": point.time_step, "follow": "rod", "camera": play_command.SIDE}
    assert capsys.readouterr().out.endswith(f"wrote {video}\n")


@pytest.mark.parametrize(
    "words", [["play", "file"], "rollout pendulum --no-plot --batch 1 --steps 1".split()]
)
def test_pages_need_viser_before_the_computation(words, checkpoint, tmp_path, capsys, monkeypatch):
    without(monkeypatch, "viser")
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words, "--html", "a.html"]) == 1
    assert capsys.readouterr().err.startswith("jaxrbd: error: --html needs viser: pip install")
    assert (checkpoint[0], [*tmp_path.iterdir()]) == ({}, [])


def test_play_shows_a_robot_that_does_not_move(checkpoint, tmp_path):
    asked, _ = checkpoint
    asked["factor"] = 0.0
    assert cli.main(["play", "file", "--png", str(tmp_path / "a.png")]) == 0
    assert asked["rows"] == ("pendulum", [0.0] * 8)


# --------------------------------------------------------------------------- all other commands


@pytest.mark.parametrize(
    "words",
    [
        ["convert", "cow", "a.jaxrbd"],
        ["rollout", "cow"],
        ["bench", "cow"],
        ["info", "cow", "--json"],
    ],
)
def test_numbers_in_files_and_reports_have_double_precision(words, capsys, monkeypatch):
    """JAX has single precision by default, so the command changes this before it loads a robot."""
    changed = {}
    monkeypatch.setattr(jax.config, "update", changed.__setitem__)
    assert cli.main([*words, *(["--no-cache"] if words[0] != "bench" else [])]) == 1
    assert changed["jax_enable_x64"]


def test_convert_adds_a_free_flyer(tmp_path):
    saved = tmp_path / "arm.jaxrbd"
    assert cli.main(["convert", "pendulum", str(saved), "--free-flyer"]) == 0
    assert jaxrbd.io.load_model(saved).nv == 7


def test_options_of_convert(tmp_path, monkeypatch, capsys):
    """Only the options that are given change the file."""
    from jaxrbd.cli import convert_command

    asked = []
    monkeypatch.setattr(
        convert_command, "save_urdf", lambda model, out, **x: asked.append((out, x))
    )
    out = str(tmp_path / "a.urdf")
    plain = {"unlimited": None, "reorder": False, "geometry": True}
    for words, changed in (
        ([], {}),
        (["--unlimited", "40"], {"unlimited": 40.0}),
        (["--reorder"], {"reorder": True}),
        (["--no-geometry"], {"geometry": False}),
    ):
        assert cli.main(["convert", "pendulum", out, *words]) == 0
        assert asked.pop() == (out, plain | changed)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["convert", "pendulum", "a.jaxrbd", "--unlimited", "4"], "--unlimited is for URDF files"),
        (["convert", "pendulum", "a.jaxrbd", "--reorder"], "--reorder is for URDF files"),
        (["convert", "pendulum", "a.jaxrbd", "--no-geometry"], "--no-geometry is for URDF files"),
        (["convert", "pendulum", "a.jaxrbd", "--no-tendons"], "--no-tendons is for URDF files"),
        (["rollout", "pendulum", "--no-plot", "--package", "a=."], "--package is for --html"),
        (["view", "pendulum", "--html", "a.html", "--port", "80"], "--port is for the server"),
        (
            ["train", "cart-pole", "--no-plot", "--resume", "--evaluation-episodes", "3"],
            "--evaluation-episodes is for --evaluate-every",
        ),
    ],
)
def test_an_option_without_an_effect_is_refused(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 1
    assert message in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


JOINT = """<robot name="r">
  <link name="base"/>
  <link name="arm"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="j" type="revolute">
    <parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="2" effort="3" velocity="{velocity}"/>
    <dynamics damping="0.5" friction="0.25"/>
  </joint>
</robot>
"""


def test_the_numbers_of_a_joint_have_their_names(tmp_path, capsys):
    """No two of them are equal, in the JSON object and in the table."""
    path = tmp_path / "robot.urdf"
    path.write_text(JOINT.format(velocity=4))
    assert cli.main(["info", str(path), "--json"]) == 0
    (joint,) = json.loads(capsys.readouterr().out)["joints"]
    names = ("lower", "upper", "effort", "velocity", "damping", "friction", "armature")
    assert [joint[name] for name in names] == [[-1], [2], [3], [4], [0.5], [0.25], [0]]
    assert (joint["parent"], joint["child"], joint["kind"]) == (None, "arm", "Revolute")
    assert cli.main(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.endswith("frame  welded to\nbase   world\n")
    heads, row = re.findall(r"^(?:joint|j) .*$", text, re.M)
    words = "joint kind parent q v lower upper effort velocity damping friction"
    assert heads.split() == words.split()
    assert row.split() == "j Revolute world 0 0 -1 2 3 4 0.5 0.25".split()


def test_info_shows_the_indices_of_a_free_flyer(capsys):
    assert cli.main(["info", "quadruped"]) == 0
    (row,) = re.findall(r"^root_joint .*$", capsys.readouterr().out, re.M)
    assert row.split() == "root_joint FreeFlyer world 0-6 0-5".split()


def test_folders_of_packages_may_have_any_name(tmp_path):
    (tmp_path / "a=b").mkdir()
    words = ["view", "arm7", "--package", f"one={tmp_path / 'a=b'}", "--package", f"two={tmp_path}"]
    found = cli._parser().parse_args(words).package
    assert found == [("one", str(tmp_path / "a=b")), ("two", str(tmp_path))]


def test_warnings_about_limits_are_printed(tmp_path, capsys):
    path = tmp_path / "robot.urdf"
    path.write_text(JOINT.format(velocity=0))
    assert cli.main(["info", str(path)]) == 0
    assert re.match(r"jaxrbd: warning: .*doubtful limits: .*\('j'\)\n$", capsys.readouterr().err)


@pytest.mark.parametrize(
    "words",
    [
        ["view", "arm7", "--port", "0"],
        ["view", "arm7", "--port", "65536"],
        ["view", "arm7", "--port", "8.5"],
        ["bench", "--seconds", "inf"],
        ["rollout", "--dt", "1e999"],
        ["rollout", "--torque", "-1"],
        ["rollout", "--devices", "0"],
        ["rollout", "--steps", "1099511627777"],
        ["rollout", "--seed", "9223372036854775808"],
        ["play", "file", "--episodes", "0"],
        ["train", "hopper", "--every", "0"],
        ["convert", "arm7", "a.urdf", "--unlimited", "nan"],
        ["view", "arm7", "--layers", ""],
        ["view", "arm7", "--package", "=folder"],
        ["view", "arm7", "--package", "name="],
    ],
)
def test_values_that_options_do_not_have(words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli._parser().parse_args(words)
    assert stop.value.code == 2
    assert re.search(rf"argument {words[-2]}: .*expected", capsys.readouterr().err)


@pytest.mark.parametrize("seed", ["-9223372036854775808", "9223372036854775807"])
def test_seeds_of_64_bits(seed):
    assert cli._parser().parse_args(["rollout", "--seed", seed]).seed == int(seed)
    assert cli._parser().parse_args(["view", "arm7", "--port", "65535"]).port == 65535


def test_an_output_that_nobody_reads_has_the_status_1(monkeypatch, capsys):
    """`jaxrbd check | head -0`: no message, and the rest goes nowhere."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert cli.main(["check", "pendulum"]) == 1
        print("more", flush=True)
    assert capsys.readouterr().err == ""


def test_every_page_and_picture_needs_a_folder(tmp_path, capsys):
    for command in (["view", "arm7"], ["play", "x"]):
        for option in ("--html", "--png"):
            assert cli.main([*command, option, str(tmp_path / "gone" / "a")]) == 1
            assert capsys.readouterr().err.startswith(f"jaxrbd: error: {option}: the folder ")


def test_shells_complete_folders_and_files(capsys):
    """`--out` takes a folder, `--html` and OUT take files, and ROBOT a file or a bundled robot."""
    pytest.importorskip("shtab")
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for name, function in {
        "rollout___out": "_shtab_compgen_dirs",
        "train___out": "_shtab_compgen_dirs",
        "view___html": "_shtab_compgen_files",
        "convert_pos_1": "_shtab_compgen_files",
        "export_pos_1": "_shtab_compgen_files",
        "convert_pos_0": "_jaxrbd_robots",
    }.items():
        assert re.search(rf"^_shtab_jaxrbd_{name}_COMPGEN={function}$", script, re.M), name
