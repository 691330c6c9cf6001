"""Batches over devices: eight devices on one processor, and two processes.

Tests that need more than one device run in separate processes (on_devices.py).
"""

import json
import math
import os
import pathlib
import platform
import re
import signal
import socket
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import cli, envs, learning
from support import block_training, nightly, on_devices
from support.point import Point
from support.zoo import close

HERE = pathlib.Path(__file__).parent


def environment(**changes) -> dict[str, str]:
    """The environment without fused multiply-adds, so that all programs have the same rounding.

    XLA uses them in different places in programs of one device and of many.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if platform.machine() in ("x86_64", "AMD64"):
        flags += " --xla_cpu_max_isa=AVX"
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path, **changes}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def run(*commands, folder=None, **changes):
    """Run programs in parallel. All must succeed."""
    started = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=environment(**changes),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in commands
    ]
    try:
        for process in started:
            text, _ = process.communicate(timeout=900)
            assert process.returncode == 0, text
    finally:
        for process in started:
            process.kill()


def load(path):
    """The results of a process of on_devices.py: values, and communication operations, by name."""
    values = {}
    with np.load(path.with_suffix(".npz")) as found:
        for name in found:
            values.setdefault(name.rpartition("/")[0], []).append(found[name])
    return values, json.loads(path.with_suffix(".json").read_text())


def same(first, second):
    """Whether lists of arrays are equal, bit for bit."""
    assert len(first) == len(second)
    return all(np.array_equal(a, b) for a, b in zip(first, second))


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    run(["-m", "support.on_devices", "one", folder])
    return load(folder / "one")


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    folder = tmp_path_factory.mktemp("more")
    run(["-m", "support.on_devices", "more", folder])
    return load(folder / "more")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two processes with one device each."""
    folder = tmp_path_factory.mktemp("two")
    port = free_port()
    run(*(["-m", "support.on_devices", "part", folder, port, i] for i in range(2)))
    return [load(folder / f"part{i}") for i in range(2)]


# ---------------------------------------------------------------------------- eight devices


@pytest.mark.slow
def test_blocks_are_the_same_on_any_number_of_devices(more):
    values, talk = more
    for name in ("auto", "explicit", "two"):
        assert same(values[name], values["alone"]), name
        assert talk[name] == [], name


@pytest.mark.slow
@pytest.mark.parametrize("program", ["one", "more"], ids=on_devices.TYPES)
def test_a_split_batch_needs_no_helper(request, program):
    values, talk = request.getfixturevalue(program)
    for found, expected in zip(values["plain"], values["alone"]):
        close(found, expected)
    assert talk["plain"] == []


@pytest.mark.slow
def test_a_batch_that_does_not_divide(one):
    values, _ = one
    close(values["13"][0], values["efforts"][0][:13])


@pytest.mark.slow
def test_a_batch_that_does_not_divide_is_not_sharded(one):
    assert "12 samples do not divide by 8 devices" in one[1]["refusal"]


@pytest.mark.slow
def test_derivatives_of_samples_stay_where_they_are(one):
    values, talk = one
    assert talk["by batch"] == []
    close(values["by batch"][0], values["by batch, alone"][0])


@pytest.mark.slow
def test_derivatives_of_what_is_shared_are_one_sum(one):
    values, talk = one
    assert talk["by model"] == ["all-reduce"]
    for found, expected in zip(values["by model"], values["by model, alone"]):
        close(found, expected)


# Their loops end when all samples of the batch have converged, so the devices must communicate.
# Where the axes of the mesh are Explicit, JAX 0.10 raises these exceptions.
LOOPS = {
    "close_loops": "ValueError",
    "contact_step": "ValueError",
    "variational_midpoint": "ValueError",
}


@pytest.mark.slow
def test_every_algorithm(tmp_path):
    run(["-m", "support.on_devices", "every", tmp_path])
    _, found = load(tmp_path / "every")
    assert set(found) >= set(LOOPS)
    for name, case in found.items():
        assert case["same"] == [True, True], name
        assert case["blocks"] == [], name
        assert case["auto"] == (["all-reduce"] if name in LOOPS else []), name
        assert case["explicit"] == LOOPS.get(name, []), name


@pytest.mark.slow
def test_trainings_split_their_environments(tmp_path):
    """The losses are those of one device, and each of two devices simulates half of the states."""
    run(["-m", "support.on_devices", "trainings", tmp_path])
    values, found = load(tmp_path / "trainings")
    for name in ("shac", "ppo", "own"):
        alone = values[f"{name}, alone"]
        assert len(set(map(float, alone))) == 4
        assert found[f"{name}, alone"] == {"sizes": [8], "devices": 0}
        for kind in on_devices.TYPES:
            np.testing.assert_allclose(values[f"{name}, {kind}"], alone, rtol=1e-9)
            assert found[f"{name}, {kind}"] == {"sizes": [4], "devices": 2}


# ---------------------------------------------------------------------------- two processes


@pytest.mark.slow
def test_two_processes_are_the_same_as_one(more, two):
    whole = [np.concatenate(parts) for parts in zip(*(values["blocks"] for values, _ in two))]
    assert same(whole, more[0]["auto"])
    assert same(whole, more[0]["alone"])
    assert [talk["blocks"] for _, talk in two] == [[], []]


@pytest.mark.slow
def test_two_processes_sum_a_derivative(one, two):
    for values, _ in two:
        for found, expected in zip(values["by model"], one[0]["by model, alone"]):
            close(found, expected)


@pytest.mark.slow
def test_the_documented_programs(tmp_path):
    text = (HERE.parent / "docs" / "devices.md").read_text()
    first, fall = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "fall.py").write_text(fall)
    command = ["fall.py", f"localhost:{free_port()}", 2]
    run(["-c", first], [*command, 0], [*command, 1], folder=tmp_path)
    model = rbd.load_robot("double_pendulum")
    q = jnp.stack([jnp.linspace(-1, 1, 64)] * 2, axis=1)
    rest = jnp.zeros_like(q)
    expected = jax.vmap(rbd.forward_dynamics, on_devices.SHARED)(model, q, rest, rest)
    close(np.concatenate([np.load(tmp_path / f"share{i}.npy") for i in range(2)]), expected)


# ---------------------------------------------------------------------------- the command


@pytest.mark.slow
def test_rollout_on_two_devices_is_the_rollout_on_one(tmp_path, capsys):
    options = ["rollout", "pendulum", "--batch", "300", "--steps", "2", "--no-plot", "--out"]
    command = "import sys; from jaxrbd import cli; sys.exit(cli.main(sys.argv[1:]))"
    for count in ("1", "2"):
        run(["-c", command, *options, tmp_path / count, "--devices", count])
    first, second = (np.load(tmp_path / count / "trajectories.npz") for count in ("1", "2"))
    assert set(first) == set(second)
    for name in first:
        assert np.array_equal(first[name], second[name]), name


def test_rollout_on_more_devices_than_there_are(capsys, tmp_path):
    jax.devices()  # From here on, the number of devices is fixed.
    options = ["--no-plot", "--out", str(tmp_path)]
    assert cli.main(["rollout", "pendulum", "--devices", "3", *options]) == 1
    assert "--devices 3: JAX has 1 of platform cpu" in capsys.readouterr().err


# ---------------------------------------------------------------------------- one device


@pytest.fixture(scope="module")
def mesh():
    return on_devices.mesh_of(1)


def test_over_devices_maps_the_samples(mesh):
    """Of two arguments; all samples share the argument between them. The batch needs a padding."""
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(a) for a in rng.normal(size=(2, 32, 3)))

    def function(x, scale, y):
        return x - y / scale, jnp.sum(x)

    mapped = rbd.sharding.over_devices(function, mesh, (0, None, 0), block=5)
    differences, sums = mapped(x, jnp.asarray(3.0), y)
    close(differences, x - y / 3)
    close(sums, jnp.sum(x, axis=1))


@pytest.mark.slow
def test_over_devices_is_vmap(mesh):
    model, (q, v, a) = on_devices.samples()
    expected = jax.jit(jax.vmap(on_devices.motion, on_devices.SHARED))(model, q, v, a)
    found = rbd.sharding.over_devices(on_devices.motion, mesh, on_devices.SHARED, block=5)(
        model, q, v, a
    )
    jax.tree.map(close, found, expected)


def test_environments_of_a_mesh_have_their_own_parameters(mesh):
    """The points of `Point` move by their own friction, and their states are on the mesh."""
    env, n = Point(), 8
    names = {"friction": envs.Uniform(0.0, 0.5)}
    params, axes = envs.randomise(env.default_params(), names, jax.random.key(0), n)
    batch = envs.vectorize(env, axes, mesh)
    start = jax.jit(batch.reset)(params, jax.random.split(jax.random.key(1), n))
    after = jax.jit(batch.step)(params, start, jnp.full((n, 1), 0.1))
    close(after.physics, (1 - params.friction)[:, None] * start.physics + 0.1)
    assert np.ptp(params.friction) > 0.1
    assert mesh_of_array(start.physics) == mesh_of_array(after.physics) == mesh


@pytest.mark.parametrize("kind", nightly.all_but(["explicit"], on_devices.TYPES))
def test_a_training_accepts_a_mesh_of_one_device(kind):
    mesh = on_devices.mesh_of(1, kind)
    training = learning.Training(learning.Apg(8, 9, (6,), updates=1), Point(), mesh=mesh)
    assert math.isfinite(next(training.run()).metrics["loss"])


def mesh_of_array(x):
    """The mesh over which an array is split, or None."""
    return getattr(x.sharding, "mesh", None)


def test_pad_batch_repeats_samples():
    batch = {"q": jnp.arange(6.0).reshape(3, 2), "n": np.arange(3)}
    padded, size = rbd.sharding.pad_batch(batch, 4)
    assert size == 3
    np.testing.assert_array_equal(padded["q"], [[0, 1], [2, 3], [4, 5], [0, 1]])
    np.testing.assert_array_equal(padded["n"], [0, 1, 2, 0])
    padded, size = rbd.sharding.pad_batch(batch, 8)
    np.testing.assert_array_equal(padded["n"], [0, 1, 2, 0, 1, 2, 0, 1])
    assert rbd.sharding.pad_batch(batch, 3)[0] is batch


def test_shares_of_one_process_are_the_batch(mesh):
    batch = (np.arange(6.0).reshape(3, 2), np.arange(3))
    split = rbd.sharding.shard_batch(batch, mesh)
    assert all(x.sharding.spec == jax.P(("batch",)) for x in split)
    chex.assert_trees_all_equal(rbd.sharding.local_batch(split), batch)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, mesh: rbd.sharding.over_devices(f, mesh, 1), "in_axes is 1"),
        (lambda f, mesh: rbd.sharding.over_devices(f, mesh, block=0), "block is 0"),
        (
            lambda f, mesh: rbd.sharding.over_devices(f, mesh, (0, None))(jnp.ones(2)),
            "1 arguments, expected 2",
        ),
        (
            lambda f, mesh: rbd.sharding.over_devices(f, mesh)(jnp.ones(2), jnp.ones(3)),
            "are no batch",
        ),
        (lambda f, mesh: rbd.sharding.over_devices(f, mesh)(jnp.ones(())), "are no batch"),
        (lambda f, mesh: rbd.sharding.pad_batch({"q": jnp.ones((0, 3))}, 4), "are no batch"),
        (lambda f, mesh: rbd.sharding.pad_batch(jnp.ones(3), 0), "multiple is 0"),
        (lambda f, mesh: rbd.sharding.shard_batch(jnp.ones(()), mesh), "are no batch"),
        (lambda f, mesh: rbd.sharding.local_batch({}), "are no batch"),
    ],
)
def test_wrong_arguments(mesh, call, words):
    with pytest.raises(rbd.ArgumentError, match=words):
        call(lambda *x: x, mesh)


# ---------------------------------------------------------------------------- trainings in blocks

# As many threads of XLA on each machine: the gradient of a large minibatch is a sum whose order
# depends on their number.
THREADS = {"NPROC": "4"}
COMPLETE = {"XLA_FLAGS": "", **THREADS}  # with all optimizations and instructions of this machine


def train(*commands, **changes):
    run(*(["-m", "support.block_training", *command] for command in commands), **changes)


def checkpoints(file, names=("ppo", "apg", "shac", "imitation")):
    return {name: file.with_name(f"{file.name}-{name}").read_bytes() for name in names}


@pytest.mark.parametrize("name", nightly.all_but(["apg"], ["ppo", "apg", "shac", "imitation"]))
def test_blocks_change_a_training_only_by_rounding(name, monkeypatch):
    """Each environment has its own parameters. A step computes the environments of one block."""
    sizes, step = set(), envs.batches.Vectorized.step

    def recorded_step(batch, params, state, action):
        sizes.add(state.steps.size)
        return step(batch, params, state, action)

    monkeypatch.setattr(envs.batches.Vectorized, "step", recorded_step)
    records = []
    for block in (None, block_training.BLOCK):
        sizes.clear()
        ((_, training),) = block_training.trainings("point", None, [name], block)
        records.append([record.metrics for record in training.run()])
        assert sizes == {block or block_training.BATCH}
    whole, in_blocks = records
    assert whole[0]["gradient_norm"] > 1e-3
    chex.assert_trees_all_close(in_blocks, whole, rtol=1e-3, atol=1e-5)


def test_a_training_in_blocks_is_the_same_on_one_and_two_devices(tmp_path):
    """The checkpoints, byte for byte; each environment has its own parameters."""
    flags = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", ""), **THREADS}
    names = ["--names", "apg"]
    train(["point", 1, tmp_path / "one", *names], ["point", 2, tmp_path / "two", *names], **flags)
    assert checkpoints(tmp_path / "one", ["apg"]) == checkpoints(tmp_path / "two", ["apg"])


@pytest.fixture(scope="module", params=["point", "cart-pole"])
def one_device(request, tmp_path_factory):
    """A task, and the checkpoints of its trainings on one device."""
    file = tmp_path_factory.mktemp(request.param) / "one"
    train([request.param, 1, file], **COMPLETE)
    return request.param, checkpoints(file)


@pytest.mark.slow
def test_a_training_in_blocks_does_not_depend_on_its_devices(one_device, tmp_path):
    task, expected = one_device
    for count in (2, 4):
        train([task, count, tmp_path / str(count)], **COMPLETE)
        assert checkpoints(tmp_path / str(count)) == expected


@pytest.mark.slow
def test_a_training_in_blocks_does_not_depend_on_its_processes(one_device, tmp_path):
    """Two processes with two devices each."""
    task, expected = one_device
    port = free_port()
    files = [tmp_path / f"process{i}" for i in range(2)]
    each = [[task, 2, file, "--port", port, "--process", i] for i, file in enumerate(files)]
    train(*each, **COMPLETE)
    assert [checkpoints(file) for file in files] == [expected, expected]


@pytest.mark.slow
def test_a_training_in_blocks_continues_after_a_kill(one_device, tmp_path):
    """On one device, and then on two."""
    task, expected = one_device
    file = tmp_path / "killed"
    for name in expected:
        command = [task, 1, file, "--kill", "--names", name]
        program = [sys.executable, "-m", "support.block_training", *map(str, command)]
        assert subprocess.run(program, env=environment(**COMPLETE)).returncode == -signal.SIGKILL
        assert checkpoints(file, [name]) != {name: expected[name]}
    train([task, 2, file, "--resume"], **COMPLETE)
    assert checkpoints(file) == expected


CHECKPOINT = """
import sys
from jaxrbd import learning
from support.point import Point

algorithm = learning.Ppo(4, 9, (6,), epochs=2, minibatches=3, updates=2)
list(learning.Training(algorithm, Point(episode_steps=5)).run(sys.argv[1]))
"""


@pytest.mark.slow
def test_the_number_of_devices_does_not_change_a_checkpoint(tmp_path):
    """Of a training without a mesh: byte for byte."""
    files = [tmp_path / str(count) for count in (1, 2, 4)]
    for count, file in zip((1, 2, 4), files):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
        run(("-c", CHECKPOINT, file), XLA_FLAGS=flags)
    first, *others = (file.read_bytes() for file in files)
    assert others == [first, first]
