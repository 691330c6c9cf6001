"""Train one policy for three robots with legs, test it, and draw it.

    python -m benchmarks.studies.walkers OUTPUT_FOLDER --seed 0

The robots are the bundled quadruped, and robots with six and with four legs from MJCF files that
this study writes. SHAC trains all at once, in `envs.PaddedWalk`. The test has 63 episodes of
10 s with a forward command of 0.4 m/s: falls, and the mean speed after 2 s. The folder gets the
checkpoint, the records and a picture. Needs mujoco, optax and matplotlib.
"""

from __future__ import annotations

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.studies import common
from jaxrbd import envs, learning, view
from jaxrbd.learning.tasks import algorithm_for

SMOOTHING = 0.01  # m
SPEED = 0.4  # m/s
LEG = """
<body name="hip{name}" pos="{x} {y} 0">
  <joint name="hip{name}" axis="1 0 0" range="-1 1"/>
  <inertial pos="0 {side} 0" mass="0.5" diaginertia="5e-4 5e-4 5e-4"/>
  <body name="thigh{name}" pos="0 {side} 0">
    <joint name="thigh{name}" axis="0 1 0" range="-1.5 3"/>
    <inertial pos="0 0 -0.08" mass="0.8" diaginertia="4e-3 4e-3 5e-4"/>
    <geom class="drawn" type="capsule" fromto="0 0 0 0 0 -0.2" size="0.025"/>
    <body name="shank{name}" pos="0 0 -0.2">
      <joint name="shank{name}" axis="0 1 0" range="-2.7 -0.3"/>
      <inertial pos="0 0 -0.1" mass="0.2" diaginertia="1e-3 1e-3 1e-4"/>
      <geom class="drawn" type="capsule" fromto="0 0 0 0 0 -0.2" size="0.015"/>
      <geom type="sphere" pos="0 0 -0.2" size="0.02" contype="1" conaffinity="0"/>
    </body>
  </body>
</body>"""
SERVO = '<position joint="{joint}" kp="60" kv="2" forcerange="-30 30" ctrlrange="-4 4"/>'
FILE = """
<mujoco model="walker">
  <compiler angle="radian"/>
  <option timestep="0.004" cone="elliptic"/>
  <default><geom friction="0.8"/>
    <default class="drawn"><geom contype="0" conaffinity="0" mass="0"/></default>
  </default>
  <worldbody>
    <geom type="plane" size="5 5 1" contype="0" conaffinity="1"/>
    <body name="trunk" pos="0 0 {height}">
      <freejoint/>
      <inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia}"/>
      <geom class="drawn" type="box" size="{half} 0.08 0.05"/>
      {legs}
    </body>
  </worldbody>
  <actuator>{servos}</actuator>
  <keyframe><key name="home" qpos="0 0 {height} 1 0 0 0 {posture}"/></keyframe>
</mujoco>"""


def robot(pairs: int, length: float) -> str:
    """The MJCF file of a robot with pairs of legs along a trunk of this length in m."""
    legs = servos = ""
    for i, x in enumerate(np.linspace(length / 2, -length / 2, pairs)):
        for name, side in (("left", 1), ("right", -1)):
            leg = f"_{i}_{name}"
            legs += LEG.format(name=leg, x=x, y=0.1 * side, side=0.05 * side)
            joints = (f"{part}{leg}" for part in ("hip", "thigh", "shank"))
            servos += "".join(SERVO.format(joint=joint) for joint in joints)
    count = 2 * pairs
    return FILE.format(
        height=0.4 * np.cos(0.7) + 0.02,
        mass=2 * count,
        inertia=" ".join(str(count * x) for x in (0.03, 0.06, 0.08)),
        half=length / 2 + 0.05,
        legs=legs,
        servos=servos,
        posture="0 0.7 -1.4 " * count,
    )


def walkers() -> envs.PaddedWalk:
    """The environment of the three robots. Neighbouring legs swing in turn."""

    def of_file(pairs: int, length: float) -> envs.MjcfWalk:
        phases = tuple(0.5 * ((i + side) % 2) for i in range(pairs) for side in range(2))
        text = robot(pairs, length)
        return envs.MjcfWalk(text, keyframe="home", phases=phases, smoothing=SMOOTHING)

    robots = envs.QuadrupedTrot(smoothing=SMOOTHING), of_file(3, 0.7), of_file(2, 0.4)
    return envs.PaddedWalk(robots, smoothing=SMOOTHING)


def motions(training: learning.Training, episodes: int = 63) -> tuple[np.ndarray, ...]:
    """q (steps, episodes, nq), forward speeds, and whether the episode has failed up to now."""
    env, params = training.env, training.params
    batch, policy = envs.vectorize(env, training.params_axes), training.policy()
    keys = jax.random.split(jax.random.key(1), episodes)
    start = batch.reset(params, keys)
    command = jnp.broadcast_to(jnp.array([SPEED, 0, 0], start.reward.dtype), (episodes, 3))
    physics = start.physics._replace(command=command)
    start = start._replace(
        physics=physics, observation=jax.vmap(env.observe)(params, physics, keys)
    )
    return common.walk(batch, params, policy, start, 500)


def picture(env: envs.PaddedWalk, q: np.ndarray, path: pathlib.Path) -> None:
    """Draw the three robots, each in four postures of a step."""
    import matplotlib.pyplot as plt

    rows = []
    for i, walker in enumerate(env.walkers):
        model, own = walker.default_params().model, env.robots().q_index[i]
        looks = {"width": 260, "height": 200, "distance": 1.6}
        rows.append(
            np.concatenate(
                [
                    view.render(model, q[t, i][own], target=(*q[t, i, :2], 0.22), **looks)
                    for t in range(250, 270, 5)
                ],
                axis=1,
            )
        )
    plt.imsave(path, np.concatenate(rows))


def main() -> None:
    """Train, print the test, and write the files."""
    options = common.options(__doc__, "folder", seed=0, updates=300)
    common.start(double=False)
    folder = pathlib.Path(*(options.folder or ["walkers"]))
    env = walkers()
    shac = algorithm_for("quadruped-trot", "shac")
    shac = dataclasses.replace(shac, batch=63, updates=options.updates)
    training = learning.Training(shac, env, options.seed, *env.params_of_all(shac.batch))
    print(env.robots())
    common.train(training, folder)
    q, speed, failed = motions(training)
    common.head("robot", "falls", "mean speed, m/s")
    for i, walker in enumerate(env.walkers):
        fell = failed[-1, i :: len(env.walkers)]
        mean = np.mean(speed[100:, i :: len(env.walkers)][:, ~fell])
        name = f"{walker.action_size // 3} legs ({type(walker).__name__})"
        common.row(name, f"{fell.sum()} of {fell.size}", f"{mean:.3f}")
    picture(env, q, folder / "walkers.png")


if __name__ == "__main__":
    main()
