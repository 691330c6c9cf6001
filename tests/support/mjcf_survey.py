"""Which MJCF files of any folders are loaded, and how far their results are from MuJoCo's.

    python -m tests.support.mjcf_survey [--single] FOLDER...

For each file that MuJoCo can read, the command prints whether `load_mjcf` loads it and the largest
error of each quantity in three random states without contacts, limits and constraints. An error is
relative to the largest entry of the quantity or to 1. With --single, jaxrbd computes in single
precision. The last line of a folder counts its files, and those with errors above 1e-9, or above
1e-4 with --single. Included files, which are no robots, are not counted.
"""

import collections
import pathlib
import sys
import warnings

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import jaxrbd as rbd
from jaxrbd.io.mujoco import from_mujoco
from jaxrbd.tendons import tendon_dynamics

from .mjcf import mass_matrix, random_state

STATES = 3


def survey(folder, single):
    """Print one line per file, and return the counts of the outcomes."""
    limit = 1e-4 if single else 1e-9
    counts = collections.Counter()
    for path in sorted(pathlib.Path(folder).rglob("*.xml")):
        if "<mujoco" not in path.read_text(errors="replace"):
            continue
        try:
            compiled = mujoco.MjModel.from_xml_path(str(path))
        except ValueError:
            counts["not readable by MuJoCo"] += 1
            continue
        name = path.relative_to(folder)
        try:
            with_warnings_off(rbd.load_mjcf, path)
        except rbd.RobotFileError as error:
            counts["refused"] += 1
            print(f"{name}: refused: {str(error).removeprefix(f'{path}: ')[:200]}", flush=True)
            continue
        counts["loaded"] += 1
        found = errors(compiled, single) if compiled.nv else {}
        text = ", ".join(f"{key} {value:.1e}" for key, value in found.items())
        print(f"{name}: nv {compiled.nv}: {text}", flush=True)
        counts[f"worse than {limit}"] += any(not value < limit for value in found.values())
    return counts


def with_warnings_off(function, *arguments):
    with warnings.catch_warnings():
        for category in (rbd.InertiaWarning, rbd.ContactWarning):
            warnings.simplefilter("ignore", category)
        return function(*arguments)


def errors(compiled, single):
    """The largest error of each quantity of a compiled model."""
    dtype = jnp.float32 if single else jnp.float64
    compiled.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    compiled.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    robot = with_warnings_off(from_mujoco, compiled)
    ours_in = robot._replace(model=robot.model.astype(dtype))
    results, worst = jax.jit(lambda *state: our_results(ours_in, *state)), collections.Counter()
    for seed in range(STATES):
        state = random_state(compiled, np.random.default_rng(seed))
        state.act[:] = np.random.default_rng(seed).uniform(0, 1, compiled.na)
        mujoco.mj_forward(compiled, state)
        theirs = their_results(compiled, state, robot)
        activation = activations(compiled, state)
        given = state.qpos, state.qvel, state.ctrl, activation
        ours = results(*(jnp.array(x, dtype) for x in given))
        for name, value in theirs.items():
            mine = np.asarray(ours[name])
            if name == "poses":
                error = map(_error, mine[np.array(robot.body_frames + robot.site_frames)], value)
            elif name == "sensors":  # each one has its own scale
                parts = robot.sensors.by_name(mine)
                error = [_error(parts[sensor], reading) for sensor, reading in value.items()]
            else:
                error = [_error(mine, value)]
            worst[name] = max([worst[name], *error])
    return worst


def _error(ours, theirs):
    """The largest error, relative to the largest entry or to 1; of a quaternion up to its sign."""
    if theirs.shape == (4,) and ours @ theirs < 0:
        theirs = -theirs
    scale = max(1.0, np.max(np.abs(theirs), initial=0.0))
    return float(np.max(np.abs(ours - theirs), initial=0.0) / scale)


def activations(compiled, state):
    """The activation of each actuator, zero without dynamics."""
    first = compiled.actuator_actadr
    return np.where(first >= 0, np.append(state.act, 0)[first], 0)


def our_results(robot, qpos, qvel, control, activation):
    """The quantities of a state of MuJoCo, by the names of `their_results`."""
    model = robot.model.with_dissipation()
    q = robot.coordinates.q(model, qpos)
    v = robot.coordinates.v(model, q, qvel)
    # Before a time step, an actuator with dynamics has its activation as its control.
    _, filtered = robot.filter.push(activation, control, 1e-30)
    tau = robot.actuators(model, q, v, filtered) + robot.passive(model, q, v)
    tendons = robot.tendons.only_acting()
    a = tendon_dynamics(model, tendons, q, v, tau)
    placements = rbd.frame_placements(model, q)
    return {
        "poses": jnp.concatenate([placements.R, placements.p[..., None]], axis=2),
        "M": rbd.crba(robot.model, q),
        "bias": rbd.bias_force(robot.model, q, v),
        "lengths": robot.tendons.lengths(model, q),
        "rates": robot.tendons.rates(model, q, v),
        "actuators": robot.actuators.states(model, q, v, filtered).force,
        "acceleration": robot.coordinates.qacc(model, q, v, a),
        "sensors": robot.sensors(
            model,
            q,
            v,
            a,
            actuators=robot.actuators,
            control=filtered,
            tendons=robot.tendons,
            passive=robot.passive,
            time=0.0,
        ),
    }


def their_results(compiled, state, robot):
    """MuJoCo's quantities in our coordinates."""
    model, coordinates = robot.model, robot.coordinates
    q = coordinates.q(model, jnp.array(state.qpos))
    v = coordinates.v(model, q, jnp.array(state.qvel))
    turning = coordinates.a(model, q, v, jnp.zeros(compiled.nv))
    M = np.asarray(coordinates.mass_matrix(model, q, mass_matrix(compiled, state)))
    if not np.any(getattr(compiled, "tendon_armature", 0)):
        bias = np.asarray(coordinates.tau(model, q, jnp.array(state.qfrc_bias))) - M @ turning
        moving = {"M": M, "bias": bias}
    else:  # M of a model has no armature of tendons
        moving = {}
    R = np.concatenate([state.xmat[1:], state.site_xmat]).reshape(-1, 3, 3)
    p = np.concatenate([state.xpos[1:], state.site_xpos])
    readings = {}
    for i, (first, width) in enumerate(zip(compiled.sensor_adr, compiled.sensor_dim)):
        name = mujoco.mj_id2name(compiled, mujoco.mjtObj.mjOBJ_SENSOR, i) or f"sensor{i}"
        if name in robot.sensors.names:
            readings[name] = np.array(state.sensordata[first : first + width])
    return moving | {
        "poses": np.concatenate([R, p[..., None]], axis=2),
        "lengths": np.array(state.ten_length),
        "rates": np.array(state.ten_velocity),
        "actuators": np.array(state.actuator_force),
        "acceleration": np.array(state.qacc_smooth),
        "sensors": readings,
    }


def main(folders):
    """Survey the folders."""
    jax.config.update("jax_enable_x64", True)
    single = "--single" in folders
    for folder in (x for x in folders if x != "--single"):
        counts = survey(pathlib.Path(folder), single)
        print(f"{folder}: " + ", ".join(f"{name}: {n}" for name, n in sorted(counts.items())))


if __name__ == "__main__":
    main(sys.argv[1:])
