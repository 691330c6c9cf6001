"""The tasks of Gymnasium with MuJoCo, version v5, from the files of the package gymnasium.

`_TASKS` has the settings of each task. The functions above it are the parts of observations, the
reward terms, the conditions of health and the starts; most of them are for several tasks. Source:
the modules `gymnasium/envs/mujoco/*_v5.py` of Gymnasium 1.1 to 1.4.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .._math.components import norm, safe_norm
from ..algorithms.kinematics import frame_placement
from ..algorithms.mass import center_of_mass
from ..errors import ArgumentError
from ..model.names import similar_names
from .environment import uniform
from .mjcf_task import MjcfParams, MjcfPhysics, MjcfTask, Observed, RewardTerm

# A scalar or a condition: a function of the parameters and the state.
Value = Callable[[MjcfParams, MjcfPhysics], Array]

# ------------------------------------------------------------------------------ parts of a state


def _qpos(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return params.coordinates.qpos(params.model, physics.q)


def _qvel(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return params.coordinates.qvel(params.model, physics.q, physics.v)


def _place(frame: str, params: MjcfParams, physics: MjcfPhysics) -> Array:
    """The position of a body or a site in the world."""
    return frame_placement(params.model, physics.q, frame).p


def _x(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return _qpos(params, physics)[0]


def _center_of_mass_x(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return center_of_mass(params.model, physics.q)[0]


def _control(params: MjcfParams, action: Array) -> Array:
    return params.control_center + params.control_scale * action


# --------------------------------------------------------------------------- parts of observations


def _qpos_without_x(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return _qpos(params, physics)[1:]


def _qpos_without_xy(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return _qpos(params, physics)[2:]


def _clipped_qvel(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return jnp.clip(_qvel(params, physics), -10, 10)


def _clipped_cfrc_ext(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return jnp.clip(jnp.ravel(physics.readings["cfrc_ext"]), -1, 1)


def _cinert(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return jnp.ravel(params.bodies.cinert(params.model, physics.q))


def _cvel(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return jnp.ravel(params.bodies.cvel(params.model, physics.q, physics.v))


def _joint_actuation(params: MjcfParams, physics: MjcfPhysics) -> Array:
    """The forces of the actuators on the joints after the root; zero after a reset."""
    model, q = params.model, physics.q
    tau = params.actuators(model, q, physics.v, _control(params, physics.action))
    return params.coordinates.qfrc(model, q, tau)[6:]


def _double_pendulum_observation(params: MjcfParams, physics: MjcfPhysics) -> Array:
    qpos, limit_force = _qpos(params, physics), physics.readings["limit_force"]
    parts = (
        qpos[:1],
        jnp.sin(qpos[1:]),
        jnp.cos(qpos[1:]),
        _clipped_qvel(params, physics),
        jnp.clip(limit_force[:1], -10, 10),  # of the cart, as MuJoCo's qfrc_constraint
    )
    return jnp.concatenate(parts)


def _reacher_observation(params: MjcfParams, physics: MjcfPhysics) -> Array:
    qpos, qvel = _qpos(params, physics), _qvel(params, physics)
    to_tip = _place("fingertip", params, physics) - _place("target", params, physics)
    return jnp.concatenate([jnp.cos(qpos[:2]), jnp.sin(qpos[:2]), qpos[2:], qvel[:2], to_tip[:2]])


def _pusher_observation(params: MjcfParams, physics: MjcfPhysics) -> Array:
    places = [_place(frame, params, physics) for frame in ("tips_arm", "object", "goal")]
    return jnp.concatenate([_qpos(params, physics)[:7], _qvel(params, physics)[:7], *places])


# ------------------------------------------------------------------------------------ reward terms
# A cost is a negative reward term.


@dataclasses.dataclass(frozen=True)
class _Speed:
    """The mean rate of a coordinate in a step; the coordinate is a function of the state."""

    coordinate: Value
    time_step: float

    def __call__(self, params, before, action, after):
        return (self.coordinate(params, after) - self.coordinate(params, before)) / self.time_step


@dataclasses.dataclass(frozen=True)
class _Healthy:
    """1 if the state after the step is healthy, and 0 otherwise."""

    is_healthy: Value

    def __call__(self, params, before, action, after):
        return self.is_healthy(params, after).astype(action.dtype)


@dataclasses.dataclass(frozen=True)
class _Unhealthy:
    """Whether a state is not healthy."""

    is_healthy: Value

    def __call__(self, params, physics):
        return ~self.is_healthy(params, physics)


@dataclasses.dataclass(frozen=True)
class _Distance:
    """Minus the distance of two bodies after the step."""

    first: str
    second: str

    def __call__(self, params, before, action, after):
        offset = _place(self.first, params, after) - _place(self.second, params, after)
        return -safe_norm(offset)


def _control_cost(params, before, action, after):
    return -jnp.sum(_control(params, action) ** 2)


def _clipped_contact_cost(params, before, action, after):
    return -jnp.sum(_clipped_cfrc_ext(params, after) ** 2)


def _contact_cost(params, before, action, after):
    # Gymnasium's cost, 5e-7 times the sum, is at most 10.
    return -jnp.minimum(jnp.sum(after.readings["cfrc_ext"] ** 2), 10 / 5e-7)


def _height(params, before, action, after):
    return _qpos(params, after)[2]


def _tip_distance(params, before, action, after):
    x, _, y = _place("tip", params, after)
    return -(0.01 * x**2 + (y - 2) ** 2)


def _joint_speeds(params, before, action, after):
    v1, v2 = _qvel(params, after)[1:3]
    return -(1e-3 * v1**2 + 5e-3 * v2**2)


# ------------------------------------------------------------------------------------------ health


def _ant_is_healthy(params: MjcfParams, physics: MjcfPhysics) -> Array:
    z = _qpos(params, physics)[2]
    return (z >= 0.2) & (z <= 1.0)


def _hopper_is_healthy(params: MjcfParams, physics: MjcfPhysics) -> Array:
    qpos, qvel = _qpos(params, physics), _qvel(params, physics)
    z, angle = qpos[1:3]
    state = jnp.concatenate([qpos[2:], qvel])
    return jnp.all(jnp.abs(state) < 100) & (z > 0.7) & (jnp.abs(angle) < 0.2)


def _walker_is_healthy(params: MjcfParams, physics: MjcfPhysics) -> Array:
    z, angle = _qpos(params, physics)[1:3]
    return (z > 0.8) & (z < 2.0) & (jnp.abs(angle) < 1.0)


def _humanoid_is_healthy(params: MjcfParams, physics: MjcfPhysics) -> Array:
    z = _qpos(params, physics)[2]
    return (z > 1.0) & (z < 2.0)


def _pole_is_up(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return jnp.abs(_qpos(params, physics)[1]) <= 0.2


def _tip_is_high(params: MjcfParams, physics: MjcfPhysics) -> Array:
    return _place("tip", params, physics)[2] > 1


# -------------------------------------------------------------------------------- starts: q and v


def _q_and_v(params: MjcfParams, qpos: Array, qvel: Array) -> tuple[Array, Array]:
    """q and v of the model, from qpos and qvel of MuJoCo."""
    q = params.coordinates.q(params.model, qpos)
    return q, params.coordinates.v(params.model, q, qvel)


def _uniform_qpos_and_qvel(params: MjcfParams, key: Array) -> tuple[Array, Array]:
    """qpos of `home` with a uniform change, also of a quaternion's entries; a uniform velocity."""
    qpos = params.coordinates.qpos(params.model, params.home)
    qvel = jnp.zeros(len(params.coordinates.v_index), qpos.dtype)
    keys, (position, speed) = jax.random.split(key), params.start
    return (
        qpos + uniform(keys[0], jnp.full_like(qpos, position)),
        uniform(keys[1], jnp.full_like(qvel, speed)),
    )


def _uniform_start(params: MjcfParams, key: Array) -> tuple[Array, Array]:
    return _q_and_v(params, *_uniform_qpos_and_qvel(params, key))


def _normal_start(params: MjcfParams, key: Array) -> tuple[Array, Array]:
    """As `_uniform_start`, with a normal velocity of the standard deviation `start[1]`."""
    key, speed_key = jax.random.split(key)
    qpos, qvel = _uniform_qpos_and_qvel(params, key)
    normal = jax.random.normal(speed_key, qvel.shape, qvel.dtype)
    return _q_and_v(params, qpos, params.start[1] * normal)


def _reacher_start(params: MjcfParams, key: Array) -> tuple[Array, Array]:
    """The target is uniform in a circle of 0.2 m, at rest."""
    key, radius_key, angle_key = jax.random.split(key, 3)
    qpos, qvel = _uniform_qpos_and_qvel(params, key)
    radius = 0.2 * jnp.sqrt(jax.random.uniform(radius_key, (), qpos.dtype))
    angle = jnp.pi * jax.random.uniform(angle_key, (), qpos.dtype, -1, 1)
    target = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return _q_and_v(params, qpos.at[-2:].set(target), qvel.at[-2:].set(0))


def _pusher_start(params: MjcfParams, key: Array) -> tuple[Array, Array]:
    """The object is uniform in a rectangle, but not within 0.17 m of the goal. Both are at rest."""
    key, object_key = jax.random.split(key)
    qpos, qvel = _uniform_qpos_and_qvel(params, key)
    # The first of 64 draws that is outside of the circle; about 62 % of all draws are outside.
    low, high = (jnp.array(x, qpos.dtype) for x in ((-0.3, -0.2), (0.0, 0.2)))
    draws = jax.random.uniform(object_key, (64, 2), qpos.dtype, low, high)
    place = draws[jnp.argmax(norm(draws) > 0.17)]
    qpos = qpos.at[-4:-2].set(place).at[-2:].set(0)
    return _q_and_v(params, qpos, qvel.at[-4:].set(0))


# --------------------------------------------------------------------------------------- the tasks


class _Task(NamedTuple):
    """The settings of a task.

    - `file`: the MJCF file; `timestep` in s: the time step of this file; `frame_skip`: the number
      of time steps per action;
    - `start`: the size of the random change of qpos and of qvel at the start;
    - `forward`: the weight of "reward_forward", and the coordinate whose rate is this reward;
    - `healthy`: the weight of "reward_survive", and the condition of a healthy state. An episode
      ends when the state is not healthy;
    - all other fields: as in `MjcfTask`.
    """

    file: str
    timestep: float
    frame_skip: int
    start: tuple[float, float]
    draw_start: Callable[[MjcfParams, Array], tuple[Array, Array]]
    observations: tuple[Observed | str, ...]
    forward: tuple[float, Value] | None = None
    healthy: tuple[float, Value] | None = None
    rewards: Mapping[str, float | tuple[float, RewardTerm]] = {}
    sensors: tuple[str, ...] = ()
    episode_steps: int = 1000


_HUMANOID_OBSERVATIONS = (_qpos_without_xy, _qvel, _cinert, _cvel, _joint_actuation, "cfrc_ext")

_TASKS: dict[str, _Task] = {
    "Ant-v5": _Task(
        "ant.xml",
        timestep=0.01,
        frame_skip=5,
        start=(0.1, 0.1),
        draw_start=_normal_start,
        observations=(_qpos_without_xy, _qvel, _clipped_cfrc_ext),
        sensors=("cfrc_ext",),
        forward=(1.0, _x),
        healthy=(1.0, _ant_is_healthy),
        rewards={
            "reward_ctrl": (0.5, _control_cost),
            "reward_contact": (5e-4, _clipped_contact_cost),
        },
    ),
    "HalfCheetah-v5": _Task(
        "half_cheetah.xml",
        timestep=0.01,
        frame_skip=5,
        start=(0.1, 0.1),
        draw_start=_normal_start,
        observations=(_qpos_without_x, _qvel),
        forward=(1.0, _x),
        rewards={"reward_ctrl": (0.1, _control_cost)},
    ),
    "Hopper-v5": _Task(
        "hopper.xml",
        timestep=0.002,
        frame_skip=4,
        start=(5e-3, 5e-3),
        draw_start=_uniform_start,
        observations=(_qpos_without_x, _clipped_qvel),
        forward=(1.0, _x),
        healthy=(1.0, _hopper_is_healthy),
        rewards={"reward_ctrl": (1e-3, _control_cost)},
    ),
    "Walker2d-v5": _Task(
        "walker2d_v5.xml",
        timestep=0.002,
        frame_skip=4,
        start=(5e-3, 5e-3),
        draw_start=_uniform_start,
        observations=(_qpos_without_x, _clipped_qvel),
        forward=(1.0, _x),
        healthy=(1.0, _walker_is_healthy),
        rewards={"reward_ctrl": (1e-3, _control_cost)},
    ),
    "Humanoid-v5": _Task(
        "humanoid.xml",
        timestep=0.003,
        frame_skip=5,
        start=(0.01, 0.01),
        draw_start=_uniform_start,
        observations=_HUMANOID_OBSERVATIONS,
        forward=(1.25, _center_of_mass_x),
        healthy=(5.0, _humanoid_is_healthy),
        rewards={"reward_ctrl": (0.1, _control_cost), "reward_contact": (5e-7, _contact_cost)},
    ),
    "HumanoidStandup-v5": _Task(
        "humanoidstandup.xml",
        timestep=0.003,
        frame_skip=5,
        start=(0.01, 0.01),
        draw_start=_uniform_start,
        observations=_HUMANOID_OBSERVATIONS,
        rewards={
            "reward_linup": (1 / 0.003, _height),  # the height divided by the timestep
            "reward_quadctrl": (0.1, _control_cost),
            "reward_impact": (5e-7, _contact_cost),
            "alive": 1.0,  # has no name in Gymnasium
        },
    ),
    "InvertedPendulum-v5": _Task(
        "inverted_pendulum.xml",
        timestep=0.02,
        frame_skip=2,
        start=(0.01, 0.01),
        draw_start=_uniform_start,
        observations=(_qpos, _qvel),
        healthy=(1.0, _pole_is_up),
    ),
    "InvertedDoublePendulum-v5": _Task(
        "inverted_double_pendulum.xml",
        timestep=0.01,
        frame_skip=5,
        start=(0.1, 0.1),
        draw_start=_normal_start,
        observations=(_double_pendulum_observation,),
        sensors=("limit_force",),
        healthy=(10.0, _tip_is_high),
        rewards={
            "distance_penalty": (1.0, _tip_distance),
            "velocity_penalty": (1.0, _joint_speeds),
        },
    ),
    "Reacher-v5": _Task(
        "reacher.xml",
        timestep=0.01,
        frame_skip=2,
        start=(0.1, 5e-3),
        draw_start=_reacher_start,
        observations=(_reacher_observation,),
        rewards={
            "reward_dist": (1.0, _Distance("fingertip", "target")),
            "reward_ctrl": (1.0, _control_cost),
        },
        episode_steps=50,
    ),
    "Swimmer-v5": _Task(
        "swimmer.xml",
        timestep=0.01,
        frame_skip=4,
        start=(0.1, 0.1),
        draw_start=_uniform_start,
        observations=(_qpos_without_xy, _qvel),
        forward=(1.0, _x),
        rewards={"reward_ctrl": (1e-4, _control_cost)},
    ),
    "Pusher-v5": _Task(
        "pusher_v5.xml",
        timestep=0.01,
        frame_skip=5,
        start=(0.0, 5e-3),
        draw_start=_pusher_start,
        observations=(_pusher_observation,),
        rewards={
            "reward_dist": (1.0, _Distance("object", "goal")),
            "reward_near": (0.5, _Distance("object", "tips_arm")),
            "reward_ctrl": (0.1, _control_cost),
        },
        episode_steps=100,
    ),
}

# The names of the tasks, as in `gymnasium.make`.
GYMNASIUM_TASKS: tuple[str, ...] = tuple(_TASKS)


def gymnasium_task(name: str, **changes: Any) -> MjcfTask:
    """A task of Gymnasium with MuJoCo, as a pure environment with jaxrbd's physics.

    - `name`: one of `GYMNASIUM_TASKS`, which are ids of `gymnasium.make`, such as "Ant-v5";
    - `changes`: other values of the fields of `MjcfTask`, such as `path` for another MJCF file with
      the same bodies, or `substeps`.

    The robot is the MJCF file of the installed package gymnasium. Observations, reward terms and
    their names, terminations, lengths of episodes, frame skips and distributions of the start are
    those of Gymnasium. These are different:

    - The physics. Contact and joint limits are soft as in MuJoCo (rigid with `soft=False`). But
      friction cones are round, and the integrator is of first order; most of the files select RK4.
    - Actions are between -1 and 1, the ends of the control range. Gymnasium's actions are the
      controls: within +-0.4 for both Humanoids, +-3 for InvertedPendulum, +-2 for Pusher, and +-1
      for the other tasks. Control costs use the control in both libraries.
    - Contact forces in observations and rewards (`cfrc_ext` of Ant and both Humanoids, the force of
      the joint limit of InvertedDoublePendulum) are jaxrbd's forces in MuJoCo's convention.
    - Observations and rewards use the state after the step. In Gymnasium, positions of bodies,
      `cinert` and `cvel` are from the last evaluation within MuJoCo's step, before its end.
    - A state that is not finite ends the episode, see `State.diverged`.
    - The constant 1 in the reward of HumanoidStandup has the name `alive`.

    Raises ArgumentError for an unknown name or field, if the package gymnasium is not installed or
    too old to have the file (`pip install gymnasium`), and as `MjcfTask`. Source: Gymnasium, the
    modules `envs/mujoco/*_v5.py`; Towers et al. (2024), Gymnasium: a standard interface for
    reinforcement learning environments.
    """
    if name not in GYMNASIUM_TASKS:
        hint = similar_names(str(name), GYMNASIUM_TASKS)
        raise ArgumentError(f"name is {name!r}, expected one of {', '.join(GYMNASIUM_TASKS)}{hint}")
    fields = [field.name for field in dataclasses.fields(MjcfTask) if field.init]
    for field in changes:
        if field not in fields:
            hint = similar_names(field, fields)
            raise ArgumentError(f"MjcfTask has no field {field!r}, expected one of {fields}{hint}")
    task = _TASKS[name]
    time_step = changes.get("time_step", task.timestep * task.frame_skip)
    rewards, fails = dict(task.rewards), None
    if task.forward is not None:
        weight, coordinate = task.forward
        rewards["reward_forward"] = (weight, _Speed(coordinate, time_step))
    if task.healthy is not None:
        weight, is_healthy = task.healthy
        rewards["reward_survive"] = (weight, _Healthy(is_healthy))
        fails = _Unhealthy(is_healthy)
    settings = {
        "rewards": rewards,
        "observations": task.observations,
        "sensors": task.sensors,
        "fails": fails,
        "start": task.start,
        "draw_start": task.draw_start,
        "episode_steps": task.episode_steps,
        "time_step": time_step,
        "substeps": task.frame_skip,
        "soft": True,
        "implicit": False,  # the actuators are motors, whose forces do not depend on the state
    }
    if "path" not in changes:
        settings["path"] = _find_file(task.file)
    return MjcfTask(**{**settings, **changes})


def _find_file(file: str) -> str:
    """The path of an MJCF file of the package gymnasium, whose code is not imported."""
    spec = importlib.util.find_spec("gymnasium")
    origin = None if spec is None else spec.origin
    if origin is None:
        raise ArgumentError(
            "gymnasium_task reads files of the package gymnasium 1.1 or later: "
            "pip install gymnasium mujoco"
        )
    path = pathlib.Path(origin).parent / "envs" / "mujoco" / "assets" / file
    if not path.is_file():
        raise ArgumentError(
            f"the installed package gymnasium has no file {file}, expected gymnasium 1.1 or later: "
            "pip install --upgrade gymnasium"
        )
    return str(path)
