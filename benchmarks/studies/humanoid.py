"""Train the humanoid G1 to walk, and test the policy here and in MuJoCo.

    pip install --no-deps playground
    python -m benchmarks.studies.humanoid OUTPUT_FOLDER --seed 0 [--rough 200]

The robot is the MJCF file `g1_mjx_feetonly.xml` of MuJoCo Playground, without its meshes. Its
position actuators get the gains below, without control ranges. In the training, each foot touches
the ground at the four lower corners of its box, and the robot does not touch itself. SHAC trains
with `MjcfWalk(follows_gait=True)`, episodes of 2 s and random commands: up to 0.8 m/s forward,
0.2 m/s sideways and 0.5 rad/s.

The first test has 64 episodes of 20 s with random commands: falls, and the errors of the mean
velocities after 2 s. In the second test, MuJoCo simulates the robot with its boxes, contact pairs
and solver options for 10 s per command. `--rough N` trains the policy for N more updates on hills,
and repeats the first test with both policies on other hills. The folder gets the checkpoints, the
records, a picture, and a walk for docs/gallery.py. Needs mujoco, optax, matplotlib and playground.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.studies import common
from jaxrbd import contact, envs, io, learning, view
from jaxrbd.learning.tasks import algorithm_for
from jaxrbd.model.description import inertia_about_com

FILE = "_src/locomotion/g1/xmls/scene_mjx_feetonly_flat_terrain.xml"
# Forward velocity and velocity to the left in m/s, and turning rate in rad/s.
LARGEST_COMMAND = (0.8, 0.2, 0.5)
COMMANDS = (
    (0.0, 0.0, 0.0),
    (0.4, 0.0, 0.0),
    (0.8, 0.0, 0.0),
    (-0.6, 0.0, 0.0),
    (0.0, 0.2, 0.0),
    (0.0, 0.0, 0.5),
    (0.5, 0.0, 0.5),
)
SOLE = 0.005  # m, the radius of the spheres at the corners of a sole
# kp in N m/rad, kd in N m s/rad, and the change of the target position for the action 1 in rad, by
# a part of the name of the joint.
JOINTS = {
    "knee": (150.0, 4.0, 0.38),
    "hip": (100.0, 2.0, 0.5),
    "ankle_pitch": (40.0, 2.0, 0.5),
    "ankle_roll": (40.0, 2.0, 0.26),
    "waist": (150.0, 4.0, 0.3),
    "shoulder": (40.0, 2.0, 0.5),
    "elbow": (40.0, 2.0, 0.5),
    "wrist": (10.0, 0.5, 0.1),
}


def settings(joint: str) -> tuple[float, float, float]:
    """The entry of `JOINTS` for a joint."""
    return next(values for part, values in JOINTS.items() if part in joint)


def robot(boxes: bool) -> str:
    """The text of the robot's file, whose feet are boxes, or the spheres of the training."""
    import mujoco

    package = importlib.util.find_spec("mujoco_playground")
    if package is None or package.origin is None:
        raise SystemExit("install the robot: pip install --no-deps playground")
    spec = mujoco.MjSpec.from_file(str(pathlib.Path(package.origin).parent / FILE))
    for geom in [geom for geom in spec.geoms if geom.type == mujoco.mjtGeom.mjGEOM_MESH]:
        spec.delete(geom)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    for actuator in spec.actuators:
        kp, kd, _ = settings(actuator.target)
        actuator.gainprm[0], actuator.biasprm[1] = kp, -kp
        actuator.ctrllimited, actuator.ctrlrange = 0, [0, 0]
        spec.joint(actuator.target).damping = [kd, 0, 0]
    if boxes:
        return spec.to_xml()
    touch = {"condim": 3, "friction": [0.6, 0.005, 0.0001]}
    for element in [*spec.pairs, *spec.sensors]:  # some sensors are of the boxes
        spec.delete(element)
    for name in ("left_foot", "right_foot"):
        box = spec.geom(name)
        half = np.array(box.size) - SOLE
        for x, y in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            box.parent.add_geom(
                type=mujoco.mjtGeom.mjGEOM_SPHERE,
                size=[SOLE, 0, 0],
                pos=box.pos + half * [x, y, -1],
                mass=0,
                contype=1,
                **touch,
            )
        spec.delete(box)
    floor = spec.geom("floor")
    floor.contype, floor.conaffinity, floor.friction = 0, 1, touch["friction"]
    return spec.to_xml()


def walker() -> envs.MjcfWalk:
    """The environment of the training."""
    text = robot(boxes=False)
    joints = io.load_mjcf(text).model.joint_names[1:]
    return envs.MjcfWalk(
        text,
        keyframe="knees_bent",
        stroke={joint: settings(joint)[2] for joint in joints},
        phases=(0.0,) * 4 + (0.5,) * 4,
        command=LARGEST_COMMAND,
        episode_steps=100,
        smoothing=0.01,
        follows_gait=True,
    )


def on_hills(params: Any, count: int, seed: int) -> envs.Randomised:
    """The parameters with `count` random grounds, whose heights have a deviation of 2 cm."""

    def hills(key: jax.Array, heights: jax.Array) -> jax.Array:
        rough = jax.random.normal(key, heights.shape, heights.dtype)
        near = sum(jnp.roll(rough, step, axis) for step in (-1, 1) for axis in (0, 1))
        return 0.02 / np.sqrt(5) * (rough + near)

    # 40 m wide, so that the robot stays on it.
    ground = contact.HeightGrid(np.zeros((81, 81)), 0.5, (-20.0, -20.0))
    params = params._replace(scene=dataclasses.replace(params.scene, ground=ground))
    return envs.randomise(params, {"scene.ground.heights": hills}, jax.random.key(seed), count)


def motions(training: learning.Training, params: Any, axes: Any) -> tuple[np.ndarray, ...]:
    """What `common.walk` returns for 64 episodes of 20 s, and their commands (64, 3)."""
    episodes, steps = 64, 1000
    env = dataclasses.replace(training.env, episode_steps=steps)
    batch, policy = envs.vectorize(env, axes), training.policy()
    start = batch.reset(params, jax.random.split(jax.random.key(1), episodes))
    found = common.walk(batch, params, policy, start, steps)
    return *found, np.asarray(start.physics.command)


def walks(training: learning.Training, params: Any, axes: Any = None) -> tuple[np.ndarray, int]:
    """Print the falls and the errors of 64 episodes; return q and the fastest episode."""
    q, velocity, failed, commands = motions(training, params, axes)
    up = ~failed[-1]
    errors = np.mean(np.abs(velocity[100:].mean(axis=0) - commands)[up], axis=0)
    print(f"falls: {np.sum(~up)} of {len(up)}; mean errors: {stated(errors)}\n")
    return q, int(np.argmax(np.where(up, commands[:, 0], -1)))


def velocities_in_mujoco(training: learning.Training, seconds: float = 10.0) -> list[np.ndarray]:
    """The mean velocity after 2 s for each of `COMMANDS` (3,); NaN if the robot falls."""
    import mujoco

    env, params = training.env, training.params
    compiled = mujoco.MjModel.from_xml_string(robot(boxes=True))
    coordinates = io.load_mjcf(env.path).coordinates
    model, policy, dt = params.model, training.policy(), env.time_step
    joints = [compiled.actuator(name).id for name in model.joint_names[1:]]
    start = env.initial(params, jax.random.key(0))

    @jax.jit
    def control(qpos, qvel, time, last, command):
        q, v = coordinates.q(model, qpos), coordinates.v(model, qpos=qpos, qvel=qvel)
        physics = start._replace(q=q, v=v, action=last, command=command, time=time)
        action = policy(env.observe(params, physics, jax.random.key(0)))
        return env.center(params, time + dt, command) + params.stroke * action, action

    def velocity(command: tuple[float, float, float]) -> np.ndarray:
        data = mujoco.MjData(compiled)
        mujoco.mj_resetDataKeyframe(compiled, data, compiled.key("knees_bent").id)
        poses, action = [], jnp.zeros(env.action_size, start.q.dtype)
        wanted = jnp.array(command, start.q.dtype)
        for i in range(round(seconds / dt)):
            state = (jnp.asarray(x, start.q.dtype) for x in (data.qpos, data.qvel, i * dt))
            data.ctrl[joints], action = control(*state, action, wanted)
            mujoco.mj_step(compiled, data, round(dt / compiled.opt.timestep))
            poses.append(data.qpos[:7].copy())
            if data.qpos[2] < params.low:
                return np.full(3, np.nan)
        return mean_velocity(np.array(poses[100:]), dt)

    return [velocity(command) for command in COMMANDS]


def mean_velocity(poses: np.ndarray, dt: float) -> np.ndarray:
    """The mean velocity forward and to the left in m/s, and the mean turning rate in rad/s.

    `poses` (n, 7): the position of the base and its quaternion wxyz, at times dt apart.
    """
    w, x, y, z = poses[:, 3:].T
    heading = np.unwrap(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
    rates = np.diff(poses[:, :2], axis=0) / dt
    c, s = np.cos(heading[:-1]), np.sin(heading[:-1])
    forward, left = c * rates[:, 0] + s * rates[:, 1], c * rates[:, 1] - s * rates[:, 0]
    turning = (heading[-1] - heading[0]) / (dt * (len(poses) - 1))
    return np.array([forward.mean(), left.mean(), turning])


def picture(q: np.ndarray, path: pathlib.Path) -> None:
    """Draw one episode at eight moments of a second."""
    import matplotlib.pyplot as plt

    model = io.load_mjcf(robot(boxes=True)).model
    looks = {"width": 200, "height": 360, "distance": 2.2, "camera": (0.4, -1.0, 0.2)}
    drawn = [view.render(model, x, target=(*x[:2], 0.65), **looks) for x in q[200:248:6]]
    plt.imsave(path, np.concatenate(drawn, axis=1))


def store_boxes(q: np.ndarray, path: pathlib.Path) -> None:
    """Store the boxes of the inertias of the bodies, and 4 s of an episode, for docs/gallery.py.

    `inertia` (n, 3): the principal moments of inertia per kg, in m^2; `q` (T, 7 n): the poses of
    the boxes as coordinates of free joints, 0.04 s apart.
    """
    model = io.load_mjcf(robot(boxes=True)).model
    bodies = [inertia_about_com(inertia) for inertia in np.asarray(model.inertia, float)]
    centers = np.stack([c for _, c, _ in bodies])
    moments, axes = np.linalg.eigh(np.stack([I / mass for mass, _, I in bodies]))
    axes[:, :, 0] *= np.linalg.det(axes)[:, None]

    def places(q: jax.Array) -> jax.Array:
        X_WB = jaxrbd.forward_kinematics(model, q).X_WB
        X = X_WB @ jaxrbd.Pose(jnp.asarray(axes, q.dtype), jnp.asarray(centers, q.dtype))
        quaternions = jaxrbd.so3.quaternion_from_matrix(X.R)
        return jnp.concatenate([X.p, quaternions], axis=1).reshape(-1)

    found = jax.jit(jax.vmap(places))(jnp.asarray(q[200:400:2]))
    np.savez_compressed(path, inertia=np.float32(moments), q=np.asarray(found, np.float32))


def stated(velocity: Sequence[float] | np.ndarray) -> str:
    """The three numbers of a velocity."""
    return ", ".join(f"{x:.3f}" for x in velocity)


def main() -> None:
    """Train, print the tests, and write the files."""
    options = common.options(__doc__, "folder", seed=0, updates=400, rough=0)
    common.start(double=False)
    folder = pathlib.Path(*(options.folder or ["humanoid"]))
    shac = dataclasses.replace(algorithm_for("humanoid-walk", "shac"), updates=options.updates)
    training = learning.Training(shac, walker(), options.seed)
    common.train(training, folder)
    q, fastest = walks(training, training.params)
    common.head("command: m/s, m/s, rad/s", "in MuJoCo")
    for command, found in zip(COMMANDS, velocities_in_mujoco(training)):
        common.row(stated(command), "falls" if np.isnan(found).any() else stated(found))
    picture(q[:, fastest], folder / "humanoid.png")
    store_boxes(q[:, fastest], folder / "g1.npz")
    if not options.rough:
        return
    params, axes = on_hills(training.params, shac.batch, seed=2)
    rough = learning.Training(
        dataclasses.replace(shac, learning_rate=5e-4, updates=options.rough),
        training.env,
        options.seed,
        params=params,
        params_axes=axes,
    )
    rough.start_from(folder / "checkpoint")
    common.train(rough, folder / "rough")
    others, other_axes = on_hills(training.params, 64, seed=3)
    for name, policy in (("before", training), ("after", rough)):
        print(f"{name} the training on hills, on other hills: ", end="")
        walks(policy, others, other_axes)
    print("after the training on hills, on flat ground: ", end="")
    walks(rough, training.params)


if __name__ == "__main__":
    main()
