"""Steps per second of an environment and of its gradient, beside MJX and Brax.

    pip install -r benchmarks/peers/brax.txt -e .     # into a new environment
    python -m benchmarks.studies.environment_speed [--libraries jaxrbd,mjx] [--horizons 8]

All libraries simulate the same quadruped of 15 kg: four feet on a plane, twelve joints with
position actuators. A step of the environment has five steps of the physics of 4 ms, an
observation and a reward. The gradient is the gradient of the sum of the rewards of a window with
respect to the actions. The rows "gradient" compute each step of the window again in the backward
pass (`jax.checkpoint`); the rows "gradient, stored" store what the step needs. With jaxrbd, this is
the state and the solution of each step of the physics.

- jaxrbd: `envs.MjcfWalk`. Contact is solved to convergence.
- MJX with one iteration of the solver and five of the line search, as in MuJoCo Playground. Reverse
  mode requires one iteration: more iterations are a loop of unknown length.
- Brax: the pipeline "generalized", with ten iterations of its solver of contact, a projected
  gradient method. With four iterations the trunk tilts by 10 degrees, with one the robot falls.

Single precision, one process, one thread, without a cache of compiled programs. All times are CPU
times of the process, which depend little on other programs; the libraries take turns. A library
whose trunk is not at 31.2 cm within 1 cm after 1 s with the action 0 is not timed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.studies import common

SUBSTEPS, DT = 5, 0.004  # of the physics
STROKE = 0.5  # rad
HOME = np.tile(np.float32([0.0, 0.7, -1.4]), 4)
HEIGHT, RESTING = 0.33, 0.312  # m, at the start and after 1 s


LEG = """
<body name="{name}_hip" pos="{x} {y} 0">
  <inertial pos="0 {com} 0" mass="0.6" diaginertia="6e-4 4e-4 6e-4"/>
  <joint name="{name}_1" axis="1 0 0"/>
  <body name="{name}_thigh" pos="0 {thigh} 0">
    <inertial pos="0 0 -0.1" mass="1" diaginertia="3.6e-3 3.6e-3 3e-4"/>
    <joint name="{name}_2" axis="0 1 0"/>
    <body name="{name}_shank" pos="0 0 -0.2">
      <inertial pos="0 0 -0.12" mass="0.3" diaginertia="1.3e-3 1.3e-3 5e-5"/>
      <joint name="{name}_3" axis="0 1 0"/>
      <geom name="{name}_foot" size="0.02" pos="0 0 -0.2" contype="1"/>
    </body>
  </body>
</body>"""


def mjcf(iterations: int = 1) -> str:
    """The quadruped as MJCF text. `iterations`: of MJX's or Brax's solver of contact."""
    legs = servos = ""
    for name in ("fl", "fr", "hl", "hr"):
        x, side = 0.18 if name[0] == "f" else -0.18, 1 if name[1] == "l" else -1
        legs += LEG.format(name=name, x=x, y=0.05 * side, com=0.03 * side, thigh=0.08 * side)
        for joint in (1, 2, 3):
            servos += f'<position joint="{name}_{joint}" kp="60" kv="2" forcerange="-40 40"/>'
    return f"""
<mujoco>
  <option timestep="{DT}" iterations="{iterations}" ls_iterations="5">
    <flag eulerdamp="disable"/>
  </option>
  <default>
    <geom contype="0" conaffinity="0" friction="0.8" condim="3"/>
    <joint armature="0.01" damping="0.1" frictionloss="0.1"/>
  </default>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" conaffinity="1"/>
    <body name="trunk" pos="0 0 {HEIGHT}">
      <freejoint/>
      <inertial pos="0 0 0" mass="7.4" diaginertia="0.0163 0.0965 0.0979"/>
      {legs}
    </body>
  </worldbody>
  <actuator>{servos}</actuator>
  <keyframe><key name="home" qpos="0 0 {HEIGHT} 1 0 0 0 {"0 0.7 -1.4 " * 4}"/></keyframe>
</mujoco>"""


class Library(NamedTuple):
    """An environment of one robot.

    `start` is a state; `step(state, action)` gives a state and a reward; `height(state)` is the
    height of the trunk.
    """

    start: Any
    step: Callable[[Any, jax.Array], tuple[Any, jax.Array]]
    height: Callable[[Any], jax.Array]


def reward_of(up, velocity, posture, joint_velocity, action):
    """A reward of the kind of `envs.MjcfWalk`."""
    return (
        0.5
        + 2 * jnp.exp(-4 * jnp.sum((velocity - jnp.asarray([0.5, 0.0])) ** 2))
        + up
        - 0.1 * jnp.sum(posture**2)
        - 5e-4 * jnp.sum(joint_velocity**2)
        - 0.01 * jnp.sum(action**2)
    )


def load_jaxrbd() -> Library:
    from jaxrbd import envs

    env = envs.MjcfWalk(mjcf(), keyframe="home", stroke=STROKE)
    params = jax.tree.map(lambda x: x.astype(jnp.float32), env.default_params())
    start = env.reset(params, jax.random.key(0))
    q = start.physics.q.at[7:].set(HOME).at[2].set(HEIGHT)
    start = start._replace(physics=start.physics._replace(q=q, v=0 * start.physics.v))

    def step(state, action):
        state = env.step(params, state, action)
        return state, state.reward + 0 * jnp.sum(state.observation)

    return Library(start, step, lambda state: state.physics.q[2])


def physics_library(start, advance, coordinates) -> Library:
    """The environment of a library that has only the physics.

    `advance(state, targets)` is the state after one step; `coordinates(state)` are q and v.
    """

    def step(state, action):
        targets = jnp.asarray(HOME, action.dtype) + STROKE * action
        physics = lambda x, _: (advance(x, targets), None)  # noqa: E731
        state = jax.lax.scan(physics, state, length=SUBSTEPS)[0]
        q, v = coordinates(state)
        _, x, y, _ = q[3:7]
        up, posture = 1 - 2 * (x**2 + y**2), q[7:] - HOME
        reward = reward_of(up, v[:2], posture, v[6:], action)
        observation = jnp.concatenate([posture, v, action])
        return state, reward + 0 * jnp.sum(observation)

    return Library(start, step, lambda state: coordinates(state)[0][2])


def load_mjx() -> Library:
    import mujoco
    from mujoco import mjx

    compiled = mujoco.MjModel.from_xml_string(mjcf())
    model = mjx.put_model(compiled)
    data = mujoco.MjData(compiled)
    mujoco.mj_resetDataKeyframe(compiled, data, 0)
    mujoco.mj_forward(compiled, data)
    return physics_library(
        mjx.put_data(compiled, data),
        lambda data, targets: mjx.step(model, data.replace(ctrl=targets)),
        lambda data: (data.qpos, data.qvel),
    )


def load_brax() -> Library:
    from brax.generalized import pipeline
    from brax.io import mjcf as reader

    system = reader.loads(mjcf(iterations=10))
    q = jnp.asarray([0, 0, HEIGHT, 1, 0, 0, 0, *HOME], jnp.float32)
    return physics_library(
        jax.jit(pipeline.init)(system, q, jnp.zeros(system.qd_size())),
        lambda state, targets: pipeline.step(system, state, targets),
        lambda state: (state.q, state.qd),
    )


LIBRARIES = {"jaxrbd": load_jaxrbd, "mjx": load_mjx, "brax": load_brax}


def actions_of(*shape: int):
    return jnp.asarray(0.1 * np.random.default_rng(0).uniform(-1, 1, (*shape, 12)), jnp.float32)


def program_of(library: Library, function, actions) -> common.Program:
    """A batch of `function(actions, state)`, from the start of the library."""
    broadcast = lambda x: jnp.broadcast_to(x, (len(actions), *jnp.shape(x)))  # noqa: E731
    return common.Program(function, actions, jax.tree.map(broadcast, library.start))


def step_program(library: Library, batch: int) -> common.Program:
    """One step of a batch."""
    return program_of(library, lambda action, state: library.step(state, action), actions_of(batch))


def gradient_program(library: Library, batch: int, horizon: int, stored: bool) -> common.Program:
    """The gradients of the rewards of a window with respect to the actions, of a batch."""
    # In a scan, nothing merges the two computations, so the barriers of `prevent_cse` have no use.
    step = library.step if stored else jax.checkpoint(library.step, prevent_cse=False)

    def total(actions, start):
        return jnp.sum(jax.lax.scan(step, start, actions)[1])

    return program_of(library, jax.grad(total), actions_of(batch, horizon))


def settled(library: Library, program: common.Program) -> float:
    """The height of the trunk in m after 1 s with the action 0; `program`: a batch of steps."""
    actions, states = program.arguments
    for _ in range(50):
        states, _ = program.compiled(jnp.zeros_like(actions), states)
    return float(jax.vmap(library.height)(states)[0])


def show(what: str, batch: int, horizon: int, programs: dict[str, common.Program]) -> None:
    """Time the programs of all libraries in turns, and print a row for each."""
    seconds = common.least_seconds({name: x.call for name, x in programs.items()}, 2.0)
    first = next(iter(programs))
    for name, program in programs.items():
        us = 1e6 * seconds[name] / (batch * horizon)
        ratio = seconds[name] / seconds[first]
        kilobytes = program.compiled.memory_analysis().temp_size_in_bytes / 1e3 / batch
        cells = name, f"{us:.3g}", f"{ratio:.2f}", program.compilation, f"{kilobytes:.3g}"
        common.row(what, batch, horizon, *cells)


def main():
    given = common.options(
        __doc__, libraries=tuple(LIBRARIES), batches=(64, 4096), horizons=(8, 32)
    )
    one_thread = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {one_thread}"
    common.start(double=False)
    libraries = {name: LIBRARIES[name]() for name in given.libraries}
    for name, library in list(libraries.items()):
        height = settled(library, step_program(library, given.batches[0]))
        print(f"height of the trunk with {name}: {1e3 * height:.1f} mm")
        if abs(height - RESTING) > 0.01:
            print(f"{name} is not timed, because its height is wrong")
            del libraries[name]
    print()
    relative = f"time / {next(iter(libraries))}"
    common.head(
        *("program", "batch", "steps", "library", "us per step", relative),
        *("trace and compile, s", "kB per robot"),
    )
    for batch in given.batches:
        programs = {name: step_program(x, batch) for name, x in libraries.items()}
        show("step", batch, 1, programs)
        for horizon, stored in itertools.product(given.horizons, (False, True)):
            programs = {
                name: gradient_program(x, batch, horizon, stored) for name, x in libraries.items()
            }
            show("gradient, stored" if stored else "gradient", batch, horizon, programs)


if __name__ == "__main__":
    main()
