"""Train one policy for three robots with legs, test it, and draw it.

    python -m benchmarks.studies.walkers OUTPUT_FOLDER --seed 0 --attention

The robots are a hopper with one leg and a robot with six legs, from MJCF files that this study
writes, and the bundled quadruped. SHAC trains all at once, in `envs.PaddedWalk`: a network of two
layers. With `--attention`, a `learning.JointAttention` then learns to act as this network. The test
has 63 episodes of 10 s with a forward command of 0.4 m/s: falls, the mean speed after 2 s, and the
share of the time in which no foot touches the ground, and in which a foot does not. The folder gets
the checkpoints, the records, the curve of the returns and a picture of the robots. Needs mujoco,
optax and matplotlib.
"""

from __future__ import annotations

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.studies import common
from jaxrbd import envs, learning, view
from jaxrbd.cli.curve_plot import plot_curves
from jaxrbd.contact import contact_points
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
SERVO = '<position joint="{joint}" kp="60" kv="2" forcerange="-{force} {force}" ctrlrange="-4 4"/>'
HOPS = 0.4, 0.04  # the period in s, and the height of the foot in m
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
      <geom class="drawn" type="box" size="{size}"/>
      {legs}
    </body>
  </worldbody>
  <actuator>{servos}</actuator>
  <keyframe><key name="home" qpos="0 0 {height} 1 0 0 0 {posture}"/></keyframe>
</mujoco>"""


def robot(
    feet: list[tuple[float, float]], mass: float, inertia: str, size: str, force: float = 30.0
) -> str:
    """The MJCF file of a robot.

    - `feet`: the places of the feet in m, forward and to the left of the middle of the trunk;
    - `mass` in kg, `inertia` in kg m^2, `size` in m: of the trunk;
    - `force` in N m: the largest torque of a joint.
    """
    legs = servos = ""
    for i, (x, y) in enumerate(feet):
        legs += LEG.format(name=f"_{i}", x=x, y=2 / 3 * y, side=y / 3)
        joints = (f"{part}_{i}" for part in ("hip", "thigh", "shank"))
        servos += "".join(SERVO.format(joint=joint, force=force) for joint in joints)
    return FILE.format(
        height=0.4 * np.cos(0.7) + 0.02,
        mass=mass,
        inertia=inertia,
        size=size,
        legs=legs,
        servos=servos,
        posture="0 0.7 -1.4 " * len(feet),
    )


def walkers() -> envs.PaddedWalk:
    """The environment of the hopper, the quadruped, and the robot with six legs.

    Neighbouring legs of the robot with six legs swing in turn. The hopper starts in stance.
    """
    hopper = robot([(0.0, 0.0)], 4.0, "0.4 0.4 0.2", "0.25 0.25 0.03", 60.0)
    feet = [(x, y) for x in (0.35, 0.0, -0.35) for y in (0.15, -0.15)]
    six_legs = robot(feet, 12.0, "0.18 0.36 0.48", "0.4 0.08 0.05")

    def of_file(text: str, phases: tuple[float, ...]) -> envs.MjcfWalk:
        return envs.MjcfWalk(text, keyframe="home", phases=phases, smoothing=SMOOTHING)

    robots = (
        of_file(hopper, (0.5,)),
        envs.QuadrupedTrot(smoothing=SMOOTHING),
        of_file(six_legs, (0.0, 0.5, 0.5, 0.0, 0.0, 0.5)),
    )
    return envs.PaddedWalk(robots, smoothing=SMOOTHING)


def parameters(env: envs.PaddedWalk, size: int) -> envs.Randomised:
    """The parameters of environments with the robots in turn; the hopper has its own gait."""
    params, axes = env.params_of_all(size)
    gait = params.gait.at[:: len(env.walkers)].set(np.array(HOPS, params.gait.dtype))
    return envs.Randomised(params._replace(gait=gait), axes)


def flight(walker: envs.LeggedEnv, q: np.ndarray) -> tuple[float, float]:
    """The share of the time without any foot, and without a foot, within 1 mm of the ground.

    `q` (steps, episodes, nq): the motion of this robot.
    """
    params = walker.default_params()
    no_velocity = jnp.zeros(params.model.nv, q.dtype)

    def above(q: jax.Array) -> jax.Array:
        return contact_points(params.model, params.scene, q, no_velocity).distance > 1e-3

    up = np.asarray(jax.jit(jax.vmap(jax.vmap(above)))(q))
    return float(np.mean(np.all(up, axis=-1))), float(np.mean(up))


def motions(training: learning.Training, episodes: int = 63) -> tuple[np.ndarray, ...]:
    """What `common.walk` returns for episodes of 10 s with the command `SPEED`."""
    env, params = dataclasses.replace(training.env, episode_steps=500), training.params
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
    options = common.options(__doc__, "folder", seed=0, updates=500, attention=False)
    common.start(double=False)
    folder = pathlib.Path(*(options.folder or ["walkers"]))
    env = dataclasses.replace(walkers(), episode_steps=200)
    shac = algorithm_for("quadruped-trot", "shac")
    changes = {"batch": 63, "updates": options.updates, "learning_rate": 3e-3, "log_std": -2.0}
    shac = dataclasses.replace(shac, **changes)
    training = learning.Training(shac, env, options.seed, *parameters(env, shac.batch))
    print(env.robots())
    common.train(training, folder)
    found = motions(training)
    print_test(env, *found)
    plot_curves(folder / "curve.png", "one policy for three robots", [training.records])
    picture(env, found[0], folder / "walkers.png")
    if options.attention:
        training = imitation(env, training)
        common.train(training, folder / "attention")
        print_test(env, *motions(training))


def imitation(env: envs.PaddedWalk, training: learning.Training) -> learning.Training:
    """The training of a policy with attention that acts as the policy of a training."""
    joints, parts = env.action_size, env.interface(env.default_params()).observation
    student = learning.Imitation(
        training.policy(),
        weights=lambda observation: observation[..., -joints:],  # the joints that the robot has
        policy_network=learning.JointAttention(parts, mask="has_joint"),
        batch=training.algorithm.batch,
        learning_rate=3e-3,
        log_std=-3.0,
    )
    return learning.Training(student, env, training.seed, training.params, training.params_axes)


def print_test(
    env: envs.PaddedWalk, q: np.ndarray, velocity: np.ndarray, failed: np.ndarray
) -> None:
    """Print how the robots walk; the arrays are those of `motions`."""
    common.head("robot", "falls", "mean speed, m/s", "in flight", "a foot in the air")
    for i, walker in enumerate(env.walkers):
        fell = failed[-1, i :: len(env.walkers)]
        mean = np.mean(velocity[100:, i :: len(env.walkers), 0][:, ~fell])
        name = f"{walker.action_size // 3} legs ({type(walker).__name__})"
        motion = q[100:, i :: len(env.walkers)][:, ~fell][..., env.robots().q_index[i]]
        shares = (f"{share:.2f}" for share in flight(walker, motion))
        common.row(name, f"{fell.sum()} of {fell.size}", f"{mean:.3f}", *shares)
    print()


if __name__ == "__main__":
    main()
