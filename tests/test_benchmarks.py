"""The benchmark: results are compared before they are timed, and the tables are right."""

import argparse
import json

import mujoco
import numpy as np
import pytest

import jaxrbd
from benchmarks import (
    __main__ as command_line,
    gpu_day,
    jobs,
    report,
    robots,
    session,
    worker,
)
from benchmarks.conventions import Checker
from benchmarks.peers import BASELINE, PEERS
from jaxrbd import inverse_kinematics

JOBS = ("fk", "rnea", "crba", "fd", "jacobian", "drnea")


@pytest.fixture(scope="module")
def checker(tmp_path_factory) -> Checker:
    """The double pendulum, with Pinocchio's results."""
    return make_checker("double_pendulum", tmp_path_factory.mktemp("double_pendulum"))


def make_checker(name, folder) -> Checker:
    """A bundled robot, with Pinocchio's results; its files are in `checker.folder`."""
    pytest.importorskip("pinocchio")
    from benchmarks import reference

    robot = robots.make(name)
    robots.write(robot, folder)
    np.savez(folder / "states.npz", **jobs.states(robot.nq, robot.nv, robot.floating))
    reference.main(folder)
    root_joint = "free_flyer" if robot.floating else None
    model = jaxrbd.load_urdf(folder / "robot.urdf", root_joint=root_joint)
    with np.load(folder / "reference.npz") as file:
        found = Checker(robot, model, dict(file))
    found.folder = folder
    return found


@pytest.mark.slow
def test_jaxrbd_at_work(checker):
    """The worker of jaxrbd, in this process: every job is correct and is timed."""
    np.savez(checker.folder / "pinocchio.npz", **checker.native("pinocchio"))
    ours = worker.Worker("jaxrbd", checker.folder, "float64")
    assert set(ours.peer.versions()) == {"jaxrbd", "jax", "jaxlib"}
    outputs = checker.folder / "outputs.npz"
    for job in JOBS:
        inputs = str(checker.folder / "pinocchio.npz")
        command = {"job": job, "batch": 2, "inputs": inputs, "outputs": str(outputs)}
        facts = worker.answer(ours, {"do": "prepare", **command})
        assert facts["compile_s"] > 0
        assert facts["temp_bytes"] >= 0
        with np.load(outputs) as file:
            error = checker.error(job, "pinocchio", 2, [file[key] for key in file.files])
        assert error <= jobs.tolerance(job, "float64", 1.0, False)
        found = worker.answer(ours, {"do": "time", "seconds": 0.001})
        assert min(found["seconds"]) > 0
    unknown = worker.answer(ours, {"do": "prepare", **command, "inputs": "no such file"})
    assert unknown["failed"].startswith("FileNotFoundError")


@pytest.mark.slow
def test_conventions(tmp_path):
    """On a floating base, MuJoCo's converted forces and derivatives equal Pinocchio's."""
    checker = make_checker("quadruped", tmp_path)
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "robot.xml"))
    data, nv = mujoco.MjData(model), model.nv
    found = [], ([], [], [])
    states = checker.native("mujoco")
    for q, v, a in zip(*(states[name][:2] for name in "qva")):
        data.qpos, data.qvel, data.qacc = q, v, a
        Jq, Jv, Ja = (np.zeros((nv, nv)) for _ in range(3))
        mujoco.mjd_inverseFD(model, data, 1e-6, False, Jq, Jv, Ja, None, None, None, None)
        mujoco.mj_inverse(model, data)
        found[0].append(data.qfrc_inverse.copy())
        for rows, J in zip(found[1], (Jq, Jv, Ja)):
            rows.append(J.T)
    rnea, drnea = np.array(found[0]), [np.array(rows) for rows in found[1]]
    assert checker.error("rnea", "mujoco", 2, [rnea]) < 1e-11
    assert checker.error("drnea", "mujoco", 2, drnea) < 1e-5
    assert checker.error("drnea", "pinocchio", 2, drnea) > 0.1


@pytest.mark.slow
def test_the_rollout_of_a_floating_base_has_the_steps_of_pinocchio(tmp_path):
    """And the steps of MuJoCo, which are in world axes, give another gradient."""
    checker = make_checker("quadruped", tmp_path)
    np.savez(tmp_path / "pinocchio.npz", **checker.native("pinocchio"))
    ours = worker.Worker("jaxrbd", tmp_path, "float64")
    outputs = str(tmp_path / "outputs.npz")
    ours.prepare("rollout_grad", 2, str(tmp_path / "pinocchio.npz"), outputs)
    with np.load(outputs) as file:
        found = [file[key] for key in file.files]
    assert checker.error("rollout_grad", "pinocchio", 2, found) < 1e-11
    assert checker.error("rollout_grad", "mujoco", 2, found) > 1e-6


class Stub:
    """A stand-in for a library's process: returns the given arrays and records the requests."""

    def __init__(self, arrays):
        self.arrays, self.asked = arrays, []
        self.hello = {"versions": {}}

    def ask(self, limit, do, **command):
        self.asked.append(do)
        if do == "time":
            return {"seconds": [2e-3, 4e-3], "wall": 0.06, "cpu": 0.03}
        np.savez(command["outputs"], *self.arrays)
        return {"compile_s": 1.0}


def test_wrong_results_are_not_timed(checker):
    """One entry of one of two libraries is off by a millionth."""
    M = checker.reference["crba_0"][:2]
    off = M.copy()
    off[1, 0, 1] += 1e-6
    options = argparse.Namespace(seconds=0.1, limit=1.0)
    team = session.Team({"frax": "", "brax": ""}, checker.folder, "float64", checker, options, None)
    team.workers = {"frax": Stub([M]), "brax": Stub([off])}
    right, wrong = team.measure("crba", 2)
    assert right["min_us"] == pytest.approx(1000)
    assert right["median_us"] == pytest.approx(1500)
    assert right["share"] == pytest.approx(0.5)
    assert wrong["failed"].startswith("wrong: ")
    assert "min_us" not in wrong
    assert team.workers["brax"].asked == ["prepare"]
    # NaN, and arrays of another shape or another count, are wrong too.
    for arrays in ([np.full_like(M, np.nan)], [M[:, 0]], [M, M]):
        assert checker.error("crba", "pinocchio", 2, arrays) == np.inf


def test_a_library_that_cannot(checker):
    """A library that is not installed, or that loops over a very large batch, is reported."""
    options = argparse.Namespace(seconds=0.1, limit=1.0)
    pythons = {"jaxsim": None, "mujoco": None}
    team = session.Team(pythons, checker.folder, "float64", checker, options, None)
    cells = team.measure("crba", 10**6)
    assert [cell["failed"] for cell in cells] == ["not installed", cells[1]["failed"]]
    assert "loop over samples" in cells[1]["failed"]


def test_states_repeat():
    """A batch larger than the states repeats them, and both ends of it are compared."""
    q = jobs.states(9, 8, floating=True)["q"]
    assert np.linalg.norm(q[:, 3:7], axis=1) == pytest.approx(1)
    rows = jobs.checked(3 * jobs.UNIQUE)
    assert np.array_equal(jobs.batch_of(q, 3 * jobs.UNIQUE)[rows], q[rows % jobs.UNIQUE])
    assert rows.max() == 2 * jobs.UNIQUE + jobs.CHECKED - 1


def recorded() -> dict:
    """A short version of the results that a run writes."""
    common = {"robot": "hyq", "dtype": "float64", "batch": 64}
    times = {"share": 0.75}
    return {
        "date": "2026-01-02T03:04:05+00:00",
        "command": "python -m benchmarks",
        "machine": {"processor": "P", "cores": 2, "system": "Linux", "python": "3.11"},
        "platform": "cpu",
        "peers": ["jaxrbd", "pinocchio", "mujoco", "frax"],
        "versions": {"jaxrbd": {"jax": "2"}, "adam": {"jax": "1"}},
        "robots": {"hyq": {"nv": 18, "nb": 13}},
        "cells": [
            {**common, "job": "rnea", "peer": "jaxrbd", "min_us": 3.0, "median_us": 3.25, **times}
            | {"compile_s": 1.25, "temp_bytes": 128000},
            {**common, "job": "rnea", "peer": "pinocchio", "min_us": 2.0, "median_us": 2.5},
            {**common, "job": "rnea", "peer": "mujoco", "failed": "no such function"},
            {**common, "job": "rnea", "peer": "frax", "failed": "wrong: 3e-02", "compile_s": 2.0},
        ],
    }


def test_tables():
    """The tables show the results of a run."""
    text = report.Tables(recorded()).markdown()
    for line in (
        "2026-01-02, `python -m benchmarks`",
        "jax 2, jax (of adam) 1.",
        "had 75% of their core",
        "| inverse dynamics | 1.50 |",
        "| inverse dynamics | 64 | 3 (3.25) | 2 (2.5) | - | wrong: 3e-02 |",
        "- mujoco: no such function",
        "| hyq | inverse dynamics | 1.2 | 2.0 |",
        "| hyq | inverse dynamics | 2 |",
    ):
        assert line in text
    assert "3e-02" not in text.split("Trace and compile")[1]


def test_a_baseline_is_another_checkout(tmp_path, monkeypatch, capsys):
    """Its worker imports the benchmarks and the jaxrbd of the checkout, and the tables have it."""
    options = argparse.Namespace(baseline=tmp_path, platform="cpu", core=0)
    folders = {peer: session.environment(peer, options)["PYTHONPATH"] for peer in PEERS}
    assert folders.pop("baseline") == str(session.checkout("baseline", options)) == str(tmp_path)
    assert set(folders.values()) == {str(session.ROOT)}

    started = []
    monkeypatch.setattr(session.subprocess, "Popen", lambda command, **_: started.append(command))
    with pytest.raises(AttributeError):  # no process, so no pipe to read
        session.Worker("baseline", "python", tmp_path, "float64", options, None)
    assert started[0][2:4] == ["benchmarks.worker", "jaxrbd"]

    results = recorded()
    older = {
        **results["cells"][0],
        "peer": "baseline",
        "min_us": 2.0 * results["cells"][0]["min_us"],
    }
    results["cells"].append(older)
    results["peers"] = [*results["peers"], "baseline"]
    text = report.Tables(results).markdown()
    assert "Time of jaxrbd, divided by the time of the baseline" in text
    assert "| inverse dynamics | 0.50 |" in text

    for words in (["--baseline", str(tmp_path)], ["--peers", "jaxrbd,baseline"]):
        monkeypatch.setattr("sys.argv", ["benchmarks", *words])
        with pytest.raises(SystemExit):
            command_line.arguments()
        assert words[0] in capsys.readouterr().err


@pytest.mark.slow
def test_a_day_with_a_gpu(tmp_path, capsys):
    """On the CPU: the command stops in time, continues, and times no wrong result."""
    options = {"robot": "double_pendulum", "batches": (3,), "duration": 0.001}
    options |= {"implementations": ("scan", "products"), "job_names": ("rnea", "fk")}
    (limits_row,) = gpu_day.run(tmp_path, minutes=0, **options)
    assert min(limits_row[key] for key in ("call_us", "copy_GB_per_s")) > 0
    assert "4 rows are missing" in capsys.readouterr().err

    rows = gpu_day.run(tmp_path, **{**options, "job_names": ("rnea",)})
    assert [x["implementation"] for x in rows[1:]] == ["scan", "products"]
    assert all(x["us"] > 0 and x["error"] < 1e-5 for x in rows[1:])

    path = tmp_path / "reference_double_pendulum.npz"
    with np.load(path) as arrays:
        wrong = {key: x * (1.01 if key.startswith("fk") else 1) for key, x in arrays.items()}
    np.savez(path, **wrong)
    rows = gpu_day.run(tmp_path, **options)
    assert len((tmp_path / "gpu_day.jsonl").read_text().splitlines()) == len(rows) == 5
    assert {x["failed"] for x in rows[3:]} == {"the result is wrong"}
    assert "| fk | 3 | the result is wrong |" in (tmp_path / "gpu_day.md").read_text()


def test_files(tmp_path):
    """The files beside results.json, and the requirements of every library."""
    report.write(recorded(), tmp_path)
    assert (tmp_path / "results.md").read_text().startswith("2026-01-02")
    assert (tmp_path / "results.png").stat().st_size > 1000
    json.dumps(recorded())
    for peer in set(PEERS) - {BASELINE}:
        text = session.ROOT / "benchmarks" / "peers"
        assert (text / f"{peer}.py").exists()
        assert (text / f"{peer}.txt").exists() == (peer != "jaxrbd")


@pytest.mark.slow
def test_the_quadruped_of_the_study_of_environments_stands_as_in_mujoco():
    """After 1 s with the targets of the home posture, the trunk has the same height."""
    from benchmarks.studies import environment_speed as study

    library = study.load_jaxrbd()
    compiled = mujoco.MjModel.from_xml_string(study.mjcf())
    compiled.opt.iterations = 100
    data = mujoco.MjData(compiled)
    mujoco.mj_resetDataKeyframe(compiled, data, 0)
    data.ctrl[:] = study.HOME
    for _ in range(50 * study.SUBSTEPS):
        mujoco.mj_step(compiled, data)
    assert abs(study.settled(library, study.step_program(library, 2)) - data.qpos[2]) < 3e-3


def test_the_chains_of_the_study_of_long_chains():
    """Hinges about x, y and z in turn or about y; two chains are straight and at rest."""
    from benchmarks.studies import long_chains as study

    chains = study.chains(3)
    for name, (model, q, v, _) in chains.items():
        axes = [[0, 1, 0]] * 3 if "plane" in name else np.eye(3)
        joints = jaxrbd.model.describe(model)[1]
        np.testing.assert_array_equal([joint.kind.axis for joint in joints], axes)
        assert np.any(q) == np.any(v) == ("at rest" not in name)


@pytest.mark.slow
def test_errors_of_the_study_of_inverse_kinematics():
    """A target that is reached, one that is missed, and a configuration beyond a limit."""
    from benchmarks.studies import inverse_kinematics as study

    robot = study.arm7()
    q = study.middle(robot)
    X = study.poses(robot, q)
    found = inverse_kinematics.inverse_kinematics(robot.model, study.tasks(robot, X), q)

    def errors(q):
        return [float(x) for x in study.errors(robot, X, found._replace(q=q))]

    np.testing.assert_allclose(errors(q), 0, atol=1e-7)
    turned = errors(q.at[-1].add(0.1))  # the tool turns about its axis
    np.testing.assert_allclose(turned, [0, 0.1, 0.1], atol=1e-6)
    upper = robot.model.upper_position_limit
    assert np.all(np.isfinite(errors(upper)))
    assert np.all(np.isinf(errors(upper.at[3].add(1e-5))))


@pytest.mark.slow
def test_the_study_of_inverse_kinematics_runs(capsys):
    from benchmarks.studies import inverse_kinematics as study

    study.main(["--targets", "64", "--robots", "arm7"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| arm7")]
    assert len(rows) == 2
    assert rows[0].count("100.00 %") == 2
