"""Evaluations during a training: they change nothing, and can end it."""

import dataclasses
import json
import shlex

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import cli, envs, learning
from jaxrbd.cli import train_command
from jaxrbd.errors import ArgumentError
from jaxrbd.learning import Evaluations
from support import nightly
from support.point import Point, arrays

BATCH, HORIZON, UPDATES = 4, 9, 5
ENV = Point(episode_steps=5)
SMALL = {
    "shac": learning.Shac(
        BATCH, HORIZON, (6,), critic_epochs=2, critic_minibatches=3, updates=UPDATES
    ),
    "apg": learning.Apg(BATCH, HORIZON, (6,), learning_rate=1e-2, updates=UPDATES),
    "ppo": learning.Ppo(BATCH, HORIZON, (6,), epochs=2, minibatches=3, updates=UPDATES),
}
EVERY_TWO = Evaluations(2, episodes=6)


def run(training, start, *arguments, **options):
    """The records of a training from its start, without another compilation."""
    training.state, training.records = start, []
    return list(training.run(*arguments, **options))


def returns(records):
    """The mean returns of the evaluations, by update."""
    return {
        record.update: record.metrics["evaluation_return"]
        for record in records
        if "evaluation_return" in record.metrics
    }


@pytest.mark.parametrize("name", nightly.all_but(["apg"], SMALL))
def test_an_evaluation_changes_no_bit_of_a_training(name):
    training = learning.Training(SMALL[name], ENV, seed=4)
    start = training.state
    plain = run(training, start)
    state = arrays(training.state)
    records = run(training, start, evaluation=EVERY_TWO)
    assert all(np.array_equal(x, y) for x, y in zip(arrays(training.state), state))
    assert [*returns(records)] == [2, 4, 5]
    for record, without in zip(records, plain):
        names = {"evaluation_return", "evaluation_length"} & set(record.metrics)
        assert len(names) == (2 if record.update in (2, 4, 5) else 0)
        assert {k: x for k, x in record.metrics.items() if k not in names} == without.metrics


@pytest.fixture(scope="module")
def trained():
    """A training whose environments have different frictions, its start, and its records."""
    names = {"friction": envs.Uniform(0.0, 0.9)}
    params, axes = envs.randomise(ENV.default_params(), names, jax.random.key(0), BATCH)
    training = learning.Training(SMALL["apg"], ENV, seed=7, params=params, params_axes=axes)
    start = training.state
    return training, start, run(training, start, evaluation=EVERY_TWO)


def test_the_metrics_of_an_evaluation_are_means_over_its_episodes(trained):
    """Of the policy without noise; episode i has the parameters of environment i % 4."""
    training, _, records = trained
    params, policy, total, length = training.params, training.policy(), 0.0, 0
    keys = jax.random.split(jax.random.fold_in(jax.random.key(7), 2**31), 6)
    starts = envs.vectorize(ENV).reset(ENV.default_params(), keys)
    for i, place in enumerate(np.asarray(starts.physics)):
        for _ in range(5):
            action = np.asarray(policy(jnp.asarray(place)))
            place = (1 - float(params.friction[i % 4])) * place + action
            total += float(place[0] - 0.5 * action[0] ** 2)
            length += 1
            if place[0] > 1:
                break
    metrics = records[-1].metrics
    np.testing.assert_allclose(metrics["evaluation_return"], total / 6, rtol=1e-9)
    np.testing.assert_allclose(metrics["evaluation_length"], length / 6, rtol=1e-12)


def test_a_training_ends_when_an_evaluation_reaches_a_return(trained, tmp_path):
    """Its checkpoint is complete: the same return ends it again, and no return continues it."""
    training, start, whole = trained
    found, final = returns(whole), arrays(training.state)
    assert found[4] > found[2]
    aim = dataclasses.replace(EVERY_TWO, stop_at=found[4])
    records = run(training, start, tmp_path / "file", 25, aim)
    assert records == whole[:4]
    assert training.reached(aim)
    training.state, training.records = start, []
    training.load(tmp_path / "file")
    assert training.records == whole[:4]
    assert list(training.run(tmp_path / "file", 25, aim)) == []
    assert not training.reached(EVERY_TWO)
    assert list(training.run(evaluation=EVERY_TWO)) == whole[4:]
    assert all(np.array_equal(x, y) for x, y in zip(arrays(training.state), final))
    above = dataclasses.replace(EVERY_TWO, stop_at=max(found.values()) + 1e-6)
    assert run(training, start, evaluation=above) == whole
    assert not training.reached(above)


def test_an_evaluation_can_have_an_environment_of_its_own(trained):
    """Such as one with longer episodes than those of the training."""
    training, start, whole = trained
    longer = Evaluations(2, 6, env=Point(episode_steps=50))
    records = run(training, start, evaluation=longer)
    lengths = [x[-1].metrics["evaluation_length"] for x in (whole, records)]
    assert lengths[0] <= 5 < lengths[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every is 0, expected an integer of 1 or more"),
        ({"every": 2, "episodes": 1.5}, "episodes is 1.5, expected an integer of 1 or more"),
        ({"every": 2, "stop_at": float("nan")}, "stop_at is nan, expected a finite number"),
        ({"every": 2, "stop_at": "high"}, "stop_at is 'high', expected a finite number"),
    ],
)
def test_wrong_settings_of_evaluations_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        Evaluations(**settings)


# ------------------------------------------------------------------------------------- commands


@pytest.fixture
def command(monkeypatch, tmp_path):
    """`jaxrbd train` for the small environment with APG, for its task of 240 steps."""
    monkeypatch.setattr(train_command, "load_task", lambda *_: ENV)
    monkeypatch.setattr(train_command, "algorithm_for", lambda *_: SMALL["apg"])
    monkeypatch.chdir(tmp_path)
    return "train cart-pole --no-plot --out here --evaluate-every 2".split()


def metrics(tmp_path):
    return [json.loads(x) for x in (tmp_path / "here" / "metrics.jsonl").read_text().splitlines()]


def test_the_command_says_why_it_ended_and_continues_without_the_return(command, tmp_path, capsys):
    words = [*command, "--evaluation-episodes", "3"]
    assert cli.main([*words, "--stop-at", "-1000"]) == 0
    lines = metrics(tmp_path)
    assert [line["update"] for line in lines] == [1, 2]
    assert lines[1]["evaluation_length"] > 5  # whole episodes of the task
    shown = capsys.readouterr()
    end = f"; without noise {lines[1]['evaluation_return']:.4g}, which reaches --stop-at -1000"
    assert shown.out.endswith(f"{end}, at update 2 of 5\n")
    assert f"  without noise {lines[1]['evaluation_return']:.4g}  " in shown.err
    assert cli.main([*words, "--stop-at", "-1000", "--resume"]) == 0
    assert capsys.readouterr().out.endswith(f"{end}, at update 2 of 5\n")
    assert metrics(tmp_path) == lines
    assert cli.main([*words, "--stop-at", "1e9", "--resume"]) == 0
    after = metrics(tmp_path)
    assert after[:2] == lines
    assert len(after) == 5
    last = f"; without noise {after[4]['evaluation_return']:.4g}\n"
    assert capsys.readouterr().out.endswith(last)


def test_a_return_of_no_evaluation_is_refused(command, tmp_path, capsys):
    assert cli.main(["train", "cart-pole", "--stop-at", "3"]) == 1
    assert "--stop-at is the return of an evaluation, and needs" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main([*command, "--stop-at", "nan"])
    assert "expected a finite number, found nan" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_the_printed_command_continues_with_the_same_evaluations():
    parser, words = cli._parser(), "--evaluate-every 3 --evaluation-episodes 7 --stop-at=-1e-9"
    given = parser.parse_args(["train", "hopper", *words.split()])
    printed = shlex.split(train_command._resumption(given, "there"))
    found = parser.parse_args(printed[1:])
    for name in ("evaluate_every", "evaluation_episodes", "stop_at"):
        assert getattr(found, name) == getattr(given, name), name
