"""The loop of a training: updates, metrics, checkpoints."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh
from jaxtyping import Float

from ..envs import AutoReset, Env, State, auto_reset, vectorize
from ..envs.environment import Observation, default_settings, name_and_settings, plain_setting
from ..errors import ArgumentError, SavedFileError, TrainingError
from ..io._sealed import file_path
from ..model import arguments
from ..model.names import described
from .apg import Apg
from .blocks import block_size, block_update
from .checkpoint import load_checkpoint, load_fields, read_description, save_checkpoint
from .imitation import Imitation
from .ppo import Ppo
from .robot_record import robot_differences, robot_record
from .schedules import Schedule, scheduled, with_types
from .shac import Shac

# Settings in which a continued training may differ: its length, and the ends of its schedules.
CHANGEABLE = ("updates", "last_learning_rate", "last_noise")

# The fields of the state that `Training.start_from` reads.
_LEARNED = ("policy", "critic", "target_critic", "statistics")

ALGORITHMS: dict[str, type] = {"shac": Shac, "apg": Apg, "ppo": Ppo}
Algorithm = Shac | Apg | Ppo | Imitation


class Record(NamedTuple):
    """The metrics of one update.

    - `update`: the number of updates up to now; `steps`: the number of steps of all environments up
      to now;
    - `metrics`: the metrics by name. `return` is the mean return of the episodes that ended last
      (`rollouts.Episodes.mean`), and minus infinity before the first end; `reward` is the mean
      reward of a step. After an evaluation, `evaluation_return` and `evaluation_length` are the
      means of its episodes.
    """

    update: int
    steps: int
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Evaluations:
    """Evaluations of the policy without noise during a training, for `Training.run`.

    - `every`: the number of updates between two evaluations; there is one after the last update
      too;
    - `episodes`: the number of episodes, whose starts are the same in each evaluation of a
      training. If the environments of the training have different parameters, episode i has the
      parameters of environment `i % batch`;
    - `stop_at`: the training ends when the mean return of an evaluation is at least this value
      (default: it does not end early);
    - `env`: the environment of the episodes (default: the one of the training). Some tasks have
      shorter episodes in a training; see `load_task`.
    """

    every: int
    episodes: int = 64
    stop_at: float | None = None
    env: Env | None = None

    def __post_init__(self):
        arguments.require_counts(every=self.every, episodes=self.episodes)
        x = self.stop_at
        number = isinstance(x, Real) and not isinstance(x, bool)
        if x is not None and not (number and math.isfinite(x)):
            raise ArgumentError(f"stop_at is {x!r}, expected a finite number")
        if self.env is not None:
            arguments.require_type(self.env, "env", Env)


class Training:
    """A training of one algorithm in one environment, which can be saved and continued.

    - `algorithm`: a `Shac`, `Apg`, `Ppo` or `Imitation`; `env`: an `Env`; `seed`: the seed of all
      random numbers, an integer of 64 bits;
    - `params`: the parameters of the environment (default: `env.default_params()`), `params_axes`:
      the axes of `randomise`, if the environments have different parameters;
    - `task`: a name that the checkpoint stores;
    - `mesh`: the devices that simulate the environments, of one or of several processes (default:
      one device). The first device of each process computes the rest of an update;
    - `block`: the number of environments that a device simulates at a time (default: all of its
      environments). With a block, the results on CPUs are the same, bit for bit, for every number
      of devices, also without a mesh; the page "Many devices" states the conditions. The number of
      environments must be a multiple of `block` times the number of devices;
    - `schedule`: a function from the parameters and the progress, the share of the updates that are
      complete, to the parameters of the next update (default: they do not change). The result has
      the structure and the shapes of the parameters, so nothing is compiled again. Parameters that
      only a reset uses, such as ranges of commands, act from the next episodes on. Evaluations have
      the parameters of the progress 1. A checkpoint does not state the schedule.

    `params` are the parameters of the next update. Without a schedule, they may be replaced between
    two records; other values of the same shapes need no compilation. `state` is the state of the
    algorithm, and `records` has one `Record` per update up to now; both change while `run` is
    iterated. `block` is the number of environments per block, and None
    without a mesh and a block. `started_from` describes the checkpoint of `start_from`, and is None
    without it.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        env: Env,
        seed: int = 0,
        params: Any = None,
        params_axes: Any = None,
        task: str = "",
        mesh: Mesh | None = None,
        block: int | None = None,
        schedule: Schedule | None = None,
    ):
        if not isinstance(algorithm, Algorithm):
            expected = "a Shac, an Apg, a Ppo or an Imitation"
            raise ArgumentError(f"algorithm is {described(algorithm)}, expected {expected}")
        inner = env.env if isinstance(env, AutoReset) else env
        arguments.require_type(inner, "env", Env)
        if mesh is not None:
            arguments.require_type(mesh, "mesh", Mesh)
        arguments.require_type(task, "task", str)
        key = arguments.random_key(seed)
        self.algorithm, self.env, self.seed, self.task = algorithm, env, int(seed), task
        self.params = env.default_params() if params is None else params
        if schedule is not None and not callable(schedule):
            raise ArgumentError(
                f"schedule is {described(schedule)}, expected a function of parameters and progress"
            )
        self._schedule, self._usual_params = schedule, self.params
        self.params_axes = params_axes
        batch = vectorize(env if isinstance(env, AutoReset) else auto_reset(env), params_axes)
        self.records: list[Record] = []
        self.started_from: dict[str, Any] | None = None
        self._init = jax.jit(lambda params, key: algorithm.init(batch, params, key))
        if mesh is None and block is None:
            self.block = None
            self._update = jax.jit(lambda params, state: algorithm.update(batch, params, state))
        else:
            self.block = block_size(algorithm.batch, mesh, block)
            self._update = block_update(algorithm, batch, mesh, self.block)
        self._follow_schedule()
        self.state = self._init(self.params, key)

    def run(
        self,
        path: str | os.PathLike[str] | None = None,
        every: int = 25,
        evaluation: Evaluations | None = None,
    ) -> Iterator[Record]:
        """The records of the remaining updates, each when its update is complete.

        - `path`: the file of the checkpoint, which is written after every `every` updates and at
          the end (default: no checkpoint);
        - `evaluation`: when the policy without noise is evaluated, and the return at which the
          training ends (default: never). An evaluation changes no parameter and no other metric. A
          training whose last record has this return is complete: `run` gives no record.

        Raises ArgumentError, before the first update, for a path in a folder that does not exist.
        Raises TrainingError, which names the update and the metric, if a metric other than the
        return is not finite, and if all steps of an update diverged (`envs.State.diverged`).
        """
        arguments.require_counts(every=every)
        if path is not None and not Path(os.path.realpath(file_path(path))).parent.is_dir():
            raise ArgumentError(f"path is {os.fspath(path)!r}, and its folder does not exist")
        if evaluation is not None:
            arguments.require_type(evaluation, "evaluation", Evaluations)
        evaluated_metrics = None if evaluation is None else self._evaluation(evaluation)
        while len(self.records) < self.algorithm.updates and not self.reached(evaluation):
            count = len(self.records) + 1
            self.params = with_types(self.params, self._usual_params)
            state, metrics = self._update(self.params, self.state)
            at_end = count == self.algorithm.updates
            if evaluation and evaluated_metrics and (count % evaluation.every == 0 or at_end):
                params = self._params_at(1.0)
                metrics = {**metrics, **evaluated_metrics(params, state)}
            numbers = {name: float(x) for name, x in metrics.items()}
            for name, x in numbers.items():
                if name != "return" and not math.isfinite(x):
                    raise TrainingError(f"update {count}: {name} is {x}, expected a finite number")
            if numbers.get("diverged") == self.algorithm.update_steps:
                raise TrainingError(
                    f"update {count}: all {self.algorithm.update_steps} steps diverged, expected "
                    "steps to finite physical states, observations and rewards"
                )
            record = Record(count, count * self.algorithm.update_steps, numbers)
            # No call between the assignments, so a signal handler that raises cannot separate them.
            self.records, self.state = [*self.records, record], state
            self._follow_schedule()
            at_end = at_end or self.reached(evaluation)
            if path is not None and (count % every == 0 or at_end):
                self.save(path)
            yield record

    def reached(self, evaluation: Evaluations | None) -> bool:
        """Whether the last record has the return at which an evaluation ends the training."""
        if evaluation is None or evaluation.stop_at is None or not self.records:
            return False
        last_return = self.records[-1].metrics.get("evaluation_return", -math.inf)
        return last_return >= evaluation.stop_at

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint; see `save_checkpoint`."""
        about = {**self._about(), "records": [list(record) for record in self.records]}
        if self.started_from is not None:
            about["started_from"] = self.started_from
        save_checkpoint(path, about, self.state)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint of the same training.

        The settings `updates`, `last_learning_rate` and `last_noise` of the algorithm may differ;
        the schedules of the rates and of the noise then have other values from here on. Otherwise
        the later records are the same as without the interruption, bit for bit, on the same machine
        with the same versions. The file states the static settings of the environment
        (`Env.settings`), unless it is older than version 3. A setting that it does not state is
        newer than the file, and had its default. The file states the names of the joints, links and
        actuators and the structure of the robot, unless it is older. It does not state the values
        of `params`: pass the same parameters again.

        Raises SavedFileError for a file that is damaged, has more updates than this training, or
        has another task, algorithm, seed, block, environment, setting or robot; the message names
        the first difference. A file that does not state its block is older, and any block continues
        it.
        """
        about = read_description(path)
        if (difference := next(self._differences(about), None)) is not None:
            name, found, wanted = difference
            raise SavedFileError(
                f"its {name} is {found!r}, expected {wanted!r}", file=os.fspath(path)
            )
        state = load_checkpoint(path, jax.eval_shape(lambda: self.state))
        try:
            records = [Record(int(n), int(k), dict(metrics)) for n, k, metrics in about["records"]]
        except (KeyError, TypeError, ValueError) as error:
            raise SavedFileError("it has no valid records", file=os.fspath(path)) from error
        if len(records) > self.algorithm.updates:
            raise SavedFileError(
                f"it has {len(records)} updates, expected at most {self.algorithm.updates}",
                file=os.fspath(path),
            )
        self.state, self.records = state, records
        self._follow_schedule()
        self.started_from = about.get("started_from")

    def start_from(self, path: str | os.PathLike[str]) -> None:
        """Start with the networks of another training, for example of one on easier ground.

        The policy with its noise, the critics and the statistics of the observations are those of
        the checkpoint; a critic that the file does not have stays new. The environment, its
        parameters, the algorithm and its settings may differ, but the networks need the same sizes
        and dtypes. The optimisers and the schedules start anew.

        Raises ArgumentError for a training that has records, and SavedFileError for a file that is
        damaged or has no policy, or whose networks are of other sizes; the message names the first
        different array.
        """
        if self.records:
            raise ArgumentError(
                f"the training has {len(self.records)} updates, expected a new training"
            )
        like = jax.eval_shape(lambda: self.state)._asdict()
        found = load_fields(path, {name: like[name] for name in _LEARNED if name in like})
        for name in ("policy", "statistics"):
            if name not in found:
                raise SavedFileError(f"it has no {name}", file=os.fspath(path))
        if "target_critic" in like and "critic" in found:
            found.setdefault("target_critic", found["critic"])
        about = read_description(path)
        self.state = self.state._replace(**found)
        self.started_from = {name: about.get(name) for name in ("task", "algorithm", "seed")}
        self.started_from["updates"] = len(about.get("records") or ())

    def policy(self) -> Callable[[Observation], Array]:
        """The trained policy without noise: a function of observations, of any batch axes."""
        state = self.state

        def actions(observation: Observation) -> Float[Array, "... k"]:
            return self.algorithm.deterministic(state, observation)

        return actions

    @property
    def algorithm_name(self) -> str:
        """The name of the algorithm: "shac", "apg", "ppo" or "imitation"."""
        return type(self.algorithm).__name__.lower()

    def _params_at(self, progress: float) -> Any:
        """The parameters at a progress between 0 and 1."""
        if self._schedule is None:
            return self.params
        return scheduled(self._schedule, self._usual_params, progress)

    def _follow_schedule(self) -> None:
        """Set the parameters of the next update."""
        self.params = self._params_at(len(self.records) / max(self.algorithm.updates, 1))

    def _evaluation(self, evaluation: Evaluations) -> Callable[[Any, Any], dict[str, Array]]:
        """The compiled function from the parameters and a state to the metrics of an evaluation.

        All evaluations have the same starts. The random key of the starts is derived from the seed,
        and is no key of the training.
        """
        env = without_resets(self.env) if evaluation.env is None else evaluation.env
        key = jax.random.fold_in(arguments.random_key(self.seed), 2**31)
        axes, episodes = self.params_axes, evaluation.episodes
        rows = jnp.arange(episodes) % self.algorithm.batch

        def episode_rows(axis: int | None, part: Any) -> Any:
            return part if axis is None else jax.tree.map(lambda x: jnp.take(x, rows, axis), part)

        def metrics(params: Any, state: Any) -> dict[str, Array]:
            params = jax.tree.map(episode_rows, axes, params, is_leaf=lambda x: x is None)

            def policy(observation: Observation) -> Array:
                return self.algorithm.deterministic(state, observation)

            results = evaluate(env, params, policy, key, episodes, axes)
            return {
                "evaluation_return": jnp.mean(results.returns),
                "evaluation_length": jnp.mean(results.lengths.astype(results.returns.dtype)),
            }

        return jax.jit(metrics)

    def _differences(self, about: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """The names of differences, with the values of the checkpoint and of this training."""
        expected = self._about()
        for name in ("task", "algorithm", "seed", "block"):
            # An older file does not state its block.
            is_stated = name in about or name != "block"
            if is_stated and about.get(name) != expected[name]:
                yield name, about.get(name), expected[name]
        # An older file does not state a newer setting, which then had its default.
        stated = about.get("settings")
        defaults = {
            field.name: _setting_value(field.default)
            for field in dataclasses.fields(self.algorithm)
        }
        stated = {**defaults, **stated} if isinstance(stated, dict) else {}
        yield from _different_settings("", stated, expected["settings"], CHANGEABLE)
        if "environment" not in about:  # before version 3 of checkpoints
            return
        found, wanted = about["environment"], expected["environment"]
        found = found if isinstance(found, dict) else {}
        if found.get("name") != wanted["name"]:
            yield "environment", found.get("name"), wanted["name"]
        stated = found.get("settings")
        if isinstance(stated, dict):
            stated = {**default_settings(without_resets(self.env)), **stated}
        yield from _different_settings("environment ", stated, wanted["settings"])
        yield from robot_differences(about.get("robot"), expected["robot"])

    def _about(self) -> dict[str, Any]:
        """The description of the training in a checkpoint, without its records."""
        env = without_resets(self.env)
        return {
            "task": self.task,
            "algorithm": self.algorithm_name,
            "settings": _settings(self.algorithm),
            "seed": self.seed,
            "block": self.block,
            "environment": name_and_settings(env),
            "robot": robot_record(self.params),
        }


def _settings(x: Any) -> dict[str, Any]:
    """The settings of an algorithm or of a policy network, as a checkpoint states them."""
    return {field.name: _setting_value(getattr(x, field.name)) for field in dataclasses.fields(x)}


def _setting_value(x: Any) -> Any:
    """The value of JSON of a setting in a checkpoint; a dataclass becomes a name and settings."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return {"name": type(x).__name__, "settings": _settings(x)}
    return plain_setting(x)


def _different_settings(
    kind: str, found: Any, expected: dict[str, Any], changeable: Sequence[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """The settings in which a checkpoint differs, as in `Training._differences`."""
    found = found if isinstance(found, dict) else {}
    for name in [*expected, *(name for name in found if name not in expected)]:
        both = name in found and name in expected
        if name not in changeable and not (both and found[name] == expected[name]):
            yield f"{kind}setting {name}", found.get(name), expected.get(name)


def without_resets(env: Env | AutoReset) -> Env:
    """The environment that `auto_reset` contains, or the environment itself."""
    return env.env if isinstance(env, AutoReset) else env


class Evaluation(NamedTuple):
    """The results of n episodes, one entry per episode.

    - `returns` (n,): the sums of the rewards; `terms`: the sums (n,) of each reward term;
    - `lengths` (n,): the numbers of steps;
    - `terminated` (n,): whether the task failed.
    """

    returns: Float[Array, " n"]
    terms: dict[str, Float[Array, " n"]]
    lengths: Array
    terminated: Array


def evaluate(
    env: Env,
    params: Any,
    policy: Callable[[Observation], Array],
    key: Array,
    episodes: int = 64,
    params_axes: Any = None,
) -> Evaluation:
    """The results of a policy in episodes from random starts.

    `policy`: a function of the observations (n, m), such as `Training.policy()`; `key`: a key of
    `jax.random`; `params_axes`: as in `envs.vectorize`, if the episodes have different parameters.
    """

    def measure(states: State) -> tuple[Array, dict[str, Array], Array]:
        return states.reward, states.reward_terms, states.terminated

    found = _episodes(env, params, policy, key, episodes, measure, params_axes)
    _, (rewards, terms, terminated), running = found

    def total(x: Array) -> Array:
        return jnp.sum(jnp.where(running, x, 0), axis=0)

    returns, terms = total(rewards), jax.tree.map(total, terms)
    failed = jnp.any(running & terminated, axis=0)
    return Evaluation(returns, terms, jnp.sum(running, axis=0), failed)


def motions(
    env: Env,
    params: Any,
    policy: Callable[[Observation], Array],
    key: Array,
    episodes: int = 8,
) -> Float[Array, "episodes steps nq"]:
    """The configurations of the robot in episodes from random starts, for `view.save_html`.

    The arguments are as in `evaluate`. There are `env.episode_steps + 1` configurations per
    episode; the first one is the start. After the end of an episode, its last configuration is
    repeated.
    """

    def measure(states: State) -> Array:
        return env.configuration(states.physics)

    arguments.require_type(env, "env", Env)
    first, after, running = _episodes(env, params, policy, key, episodes, measure)
    q = jnp.concatenate([first[None], after])
    last = jnp.minimum(jnp.arange(len(q))[:, None], jnp.sum(running, axis=0)[None])
    return q[last, jnp.arange(episodes)].swapaxes(0, 1)


def _episodes(
    env: Env,
    params: Any,
    policy: Callable[[Observation], Array],
    key: Array,
    episodes: int,
    measure: Callable[[State], Any],
    params_axes: Any = None,
) -> tuple[Any, Any, Array]:
    """The results of `measure` for the states of n episodes: at the start, and after each step.

    The third result (steps, n) states which episodes had not ended before the step.
    """
    arguments.require_counts(episodes=episodes)
    arguments.require_function(policy, "policy", "a function of observations")
    key = arguments.typed_keys(key, "key", 0)
    batch = vectorize(env, params_axes)

    def act(observations: Observation) -> Array:
        try:
            return policy(observations)
        except jax.errors.TracerArrayConversionError as error:
            raise ArgumentError(
                "policy calls functions of NumPy, expected a function of arrays of JAX"
            ) from error

    @jax.jit
    def run(params: Any) -> tuple[Any, Any, Array]:
        def step(carry: tuple, _: None) -> tuple[tuple, tuple]:
            states, running = carry
            after = batch.step(params, states, act(states.observation))
            return (after, running & ~after.done), (measure(after), running)

        start = batch.reset(params, jax.random.split(key, episodes))
        carry = start, jnp.ones(episodes, bool)
        found, running = jax.lax.scan(step, carry, length=env.episode_steps)[1]
        return measure(start), found, running

    return run(params)
