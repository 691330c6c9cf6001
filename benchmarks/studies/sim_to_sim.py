"""A walking policy that was trained here, in MuJoCo.

    python -m benchmarks.studies.sim_to_sim FILE --keyframe NAME --phases 0 0.5 0.5 0 --out DIR

FILE is an MJCF file of a robot with legs, as `envs.MjcfWalk` requires. PPO or SHAC trains one
policy per seed, in single precision. From each of several starts, the policy then walks for 10 s
with the command of 0.4 m/s forward: in the environment, in MuJoCo's own simulation of the file, and
in this simulation with stiff contacts (`STIFF`), because contacts are rigid in jaxrbd. MuJoCo has
the file's time step and ground, and up to 100 iterations of its solver: files for MJX often state
one. In MuJoCo the policy gets the same observations, from MuJoCo's state by the maps of
`load_mjcf(FILE).coordinates`, and its targets are the controls of the file's actuators.

For MuJoCo, the study also prints the smallest vertical component of a contact normal. If it is
smaller than that of any normal of the ground, MuJoCo has computed a wrong contact.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxrbd import envs, io, learning

COMMAND = (0.4, 0.0, 0.0)
STIFF = 0.004  # s, the least time constant of a contact in MuJoCo: two of its time steps


def here(env, params, policy):
    """A function of a start: velocities forward and failures in 500 steps of the environment.

    The third result is NaN; for `there`, it is the smallest vertical component of a contact normal
    before a failure.
    """

    @jax.jit
    def run(state):
        def step(state, _):
            state = env.step(params, state, policy(state.observation))
            return state, (state.physics.v[0], state.terminated)

        return jax.lax.scan(step, state, length=500)[1]

    return lambda start: (*jax.tree.map(np.asarray, run(start)), np.nan)


def there(env, params, policy, path, time_constant):
    """The same in MuJoCo; `time_constant` in s: of all contacts (None: as the file states)."""
    robot, compiled = io.load_mjcf(path), mujoco.MjModel.from_xml_path(str(path))
    compiled.opt.iterations, compiled.opt.ls_iterations = 100, 50
    if time_constant is not None:
        compiled.geom_solref[:] = time_constant, 1.0
    model, coordinates = params.model, robot.coordinates
    index = [model.joint_names[1:].index(name) for name in robot.actuators.joints]
    gear = np.asarray(robot.actuators.gear)

    @jax.jit
    def act(qpos, qvel, physics):
        q = coordinates.q(model, qpos)
        physics = physics._replace(q=q, v=coordinates.v(model, q, qvel))
        action = policy(env.observe(params, physics, jax.random.key(0)))
        targets = params.home[7:] + params.stroke * action
        later = physics._replace(action=action, time=physics.time + env.time_step)
        return later, targets, env.failed(params, physics)

    def run(start):
        data, physics = mujoco.MjData(compiled), start.physics
        data.qpos[:] = coordinates.qpos(model, physics.q)
        data.qvel[:] = coordinates.qvel(model, physics.q, physics.v)
        speeds, failures, least = [], [], 1.0
        for _ in range(500):
            state = (jnp.asarray(x, model.dtype) for x in (data.qpos, data.qvel))
            physics, targets, failed = act(*state, physics)
            speeds.append(float(physics.v[0]))
            failures.append(bool(failed))
            data.ctrl[:] = gear * np.asarray(targets)[index]
            mujoco.mj_step(compiled, data, round(env.time_step / compiled.opt.timestep))
            if not any(failures):
                least = min(least, *np.abs(data.contact.frame[:, 2]), 1.0)
        return np.array(speeds), np.array(failures), least

    return run


def starts(env, params, count):
    """The states at the start of the walks, with the command `COMMAND`."""
    command = jnp.asarray(COMMAND, params.model.dtype)
    for key in jax.random.split(jax.random.key(100), count):
        start = env.reset(params, key)
        start = start._replace(physics=start.physics._replace(command=command))
        yield start._replace(observation=env.observe(params, start.physics, start.key))


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--keyframe")
    parser.add_argument("--phases", type=float, nargs="+")
    parser.add_argument("--stroke", type=float, default=0.5)
    parser.add_argument("--smoothing", type=float, default=0.01, help="of contact_step, in m")
    parser.add_argument("--weights", nargs="+", default=["velocity=4", "gait=4"])
    parser.add_argument("--algorithm", choices=("ppo", "shac"), default="ppo")
    parser.add_argument("--last-noise", type=float, default=0.0, help="as in Shac")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("sim-to-sim"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    phases = None if options.phases is None else tuple(options.phases)
    env = envs.MjcfWalk(
        str(options.file), options.keyframe, options.stroke, phases, smoothing=options.smoothing
    )
    params = env.default_params()
    given = {} if phases is None else dict(text.split("=") for text in options.weights)
    weights = {name: jnp.asarray(float(x), params.model.dtype) for name, x in given.items()}
    params = params._replace(weights={**params.weights, **weights})
    algorithm = (
        learning.Ppo(updates=options.updates)
        if options.algorithm == "ppo"
        else learning.Shac(rate=2e-3, last_noise=options.last_noise, updates=options.updates)
    )
    for seed in options.seeds:
        training = learning.Training(algorithm, env, seed, params)
        path = options.out / f"{seed}.jaxrbd"
        if path.exists():
            training.load(path)
        begin, cpu = time.perf_counter(), time.process_time()
        for record in training.run(path):
            if record.update % 25 == 0:
                print(record.update, round(record.metrics["reward"], 3), flush=True)
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        policy = training.policy()
        for name, run in {
            "jaxrbd": here(env, params, policy),
            "MuJoCo": there(env, params, policy, options.file, None),
            "MuJoCo, stiff": there(env, params, policy, options.file, STIFF),
        }.items():
            found = [run(start) for start in starts(env, params, options.starts)]
            speeds = [float(np.mean(speed[100:])) for speed, failed, _ in found if not failed.any()]
            mean = f"{np.mean(speeds):.3f} m/s in seconds 2 to 10" if speeds else "none walked"
            least = min(least for _, _, least in found)
            normal = "" if np.isnan(least) else f", normals have at least {least:.2f} along z"
            walks = f"{len(speeds)} of {len(found)} without a fall"
            print(f"seed {seed}, {name}: {walks}, {mean}{normal}", flush=True)
        print(f"seed {seed}: training {elapsed:.0f} s, {cpu:.0f} s of the CPU", flush=True)


if __name__ == "__main__":
    main()
