"""Trainings that start with the networks of another training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import cli, learning
from jaxrbd.cli import train_command
from jaxrbd.errors import ArgumentError, SavedFileError
from support.point import Point, PointWithSecrets

ENV = Point(episode_steps=5)
ALGORITHMS = {
    "shac": learning.Shac(4, 9, (6,), critic_minibatches=3, updates=2),
    "apg": learning.Apg(4, 9, (6,), updates=2),
    "ppo": learning.Ppo(4, 9, (6,), minibatches=3, updates=2),
}


@pytest.fixture
def saved(tmp_path):
    """A function that writes the checkpoint of an algorithm after changes of all its arrays."""

    def save(name):
        training = learning.Training(ALGORITHMS[name], ENV, seed=1, task="flat")
        state = training.state
        for i, field in enumerate(("policy", "critic", "target_critic", "statistics")):
            if hasattr(state, field):
                changed = jax.tree.map(lambda x, i=i: x + 0.1 * (i + 1), getattr(state, field))
                state = state._replace(**{field: changed})
        training.state = state
        training.records = [learning.Record(i + 1, 36 * (i + 1), {}) for i in range(2)]
        training.save(tmp_path / name)
        return tmp_path / name, state

    return save


def same(x, y):
    return jax.tree.all(jax.tree.map(lambda x, y: jnp.array_equal(x, y), x, y))


@pytest.mark.parametrize("name", ["shac", "apg", "ppo"])
def test_what_was_learned_is_taken_over_and_nothing_else(name, saved):
    path, state = saved(name)
    training = learning.Training(ALGORITHMS[name], Point(episode_steps=7), seed=2, task="rough")
    before = training.state
    training.start_from(path)
    for field in before._fields:
        learned = field in ("policy", "critic", "target_critic", "statistics")
        expected = getattr(state if learned else before, field)
        assert jax.tree.structure(getattr(training.state, field)) == jax.tree.structure(expected)
        if field not in ("key", "states"):
            assert same(getattr(training.state, field), expected), field
    assert training.state.states is before.states
    assert training.state.key is before.key
    assert training.records == []
    x = np.linspace(-1, 1, 5)[:, None]
    mean = ALGORITHMS[name].deterministic(state, x)
    np.testing.assert_array_equal(training.policy()(x), mean)


@pytest.mark.parametrize(("old", "critics"), [("apg", None), ("ppo", "critic")])
def test_critics_that_the_file_does_not_have(old, critics, saved):
    """SHAC after APG has a new critic, and after PPO one critic twice."""
    path, state = saved(old)
    training = learning.Training(ALGORITHMS["shac"], ENV)
    before = training.state
    training.start_from(path)
    assert same(training.state.policy, state.policy)
    expected = before.critic if critics is None else state.critic
    assert same(training.state.critic, expected)
    target = before.target_critic if critics is None else state.critic
    assert same(training.state.target_critic, target)


def test_the_checkpoint_states_where_the_training_started(saved, tmp_path):
    path, _ = saved("apg")
    first, again = (learning.Training(ALGORITHMS["apg"], ENV, seed=5) for _ in range(2))
    first.start_from(path)
    records = [record for record in first.run(tmp_path / "fine", every=1) if record.update == 2]
    first.save(tmp_path / "end")
    start = {"task": "flat", "algorithm": "apg", "seed": 1, "updates": 2}
    assert learning.read_description(tmp_path / "fine")["started_from"] == start
    again.load(tmp_path / "fine")
    assert again.started_from == start
    assert again.records[1:] == records
    assert learning.read_description(path).get("started_from") is None
    with pytest.raises(ArgumentError, match="the training has 2 updates, expected a new"):
        again.start_from(path)


def test_networks_of_other_sizes_are_refused(saved, tmp_path):
    path, _ = saved("apg")
    wide = dataclasses.replace(ALGORITHMS["apg"], hidden=(7,))
    deep = dataclasses.replace(ALGORITHMS["apg"], hidden=(6, 6))
    for algorithm, message in (
        (wide, r"has the array .*'\.policy.*'shape': \[1, 6\].*, expected .*'shape': \[1, 7\]"),
        (deep, "has other arrays than the policy of this training"),
    ):
        training = learning.Training(algorithm, ENV)
        before = training.state
        with pytest.raises(SavedFileError, match=message):
            training.start_from(path)
        assert training.state is before
    secrets = dataclasses.replace(ALGORITHMS["apg"], policy_observation="state")
    with pytest.raises(SavedFileError, match="other arrays than the statistics of this training"):
        learning.Training(secrets, PointWithSecrets()).start_from(path)
    learning.save_checkpoint(tmp_path / "other", {}, {"policy": jnp.ones(3)})
    with pytest.raises(SavedFileError, match="it has no policy"):
        learning.Training(ALGORITHMS["apg"], ENV).start_from(tmp_path / "other")


def test_the_command_starts_from_a_checkpoint(saved, tmp_path, monkeypatch, capsys):
    path, _ = saved("apg")
    monkeypatch.setattr(train_command, "load_task", lambda *_: ENV)
    monkeypatch.setattr(train_command, "algorithm_for", lambda *_: ALGORITHMS["apg"])
    monkeypatch.chdir(tmp_path)
    words = ["train", "cart-pole", "--no-plot", "--out", "fine", "--start-from", str(path)]
    assert cli.main(words) == 0
    about = learning.read_description(tmp_path / "fine" / "checkpoint.jaxrbd")
    assert about["started_from"]["task"] == "flat"
    assert len(about["records"]) == 2
    capsys.readouterr()
    assert cli.main([*words, "--resume"]) == 1
    assert "--start-from begins a training, and --resume continues" in capsys.readouterr().err
    assert cli.main(["train", "cart-pole", "--out", "new", "--start-from", "nosuch"]) == 1
    assert "nosuch: the file cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    given = cli._parser().parse_args(words)
    assert "--start-from" not in train_command._resumption(given, "fine")
