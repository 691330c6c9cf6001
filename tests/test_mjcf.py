"""MJCF files: every quantity of the imported model agrees with MuJoCo."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.io.mujoco import from_mujoco
from support import mjcf


def assert_close(found, expected, tolerance, name=""):
    """The largest error is below the tolerance times the scale of the expected values."""
    scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale, err_msg=name)


@functools.cache
def imported(text):
    """MuJoCo's model of a text, and our import."""
    compiled = mujoco.MjModel.from_xml_string(text)
    return compiled, from_mujoco(compiled)


@jax.jit
def results(parts, data):
    """Our results at a state of MuJoCo, in our coordinates, and MuJoCo's results in them."""
    model, coordinates, actuators, springs = parts
    q = coordinates.q(model, data["qpos"])
    v = coordinates.v(model, q, data["qvel"])
    a = coordinates.a(model, q, v, data["qacc"])
    classical = coordinates.a(model, q, v, jnp.zeros_like(data["qacc"]))
    M = coordinates.mass_matrix(model, q, data["M"])
    force = coordinates.tau(model, q, data["qfrc_bias"])
    tau = actuators(model, q, v, data["ctrl"])
    spring = springs(model, q)
    damped = model.with_dissipation()
    ours = {
        "M": rbd.crba(model, q),
        "bias force": rbd.bias_force(model, q, v),
        "inverse dynamics": rbd.rnea(model, q, v, a),
        "actuator force": tau,
        "spring and damping force": spring + rbd.passive_force(model, q, v),
        "forward dynamics": rbd.forward_dynamics(damped, q, v, tau + spring),
        "back to qpos": coordinates.qpos(model, q),
        "back to qvel": coordinates.qvel(model, q, v),
        "back to qacc": coordinates.qacc(model, q, v, a),
        "back to qfrc": coordinates.qfrc(model, q, force),
        "back to M": coordinates.mujoco_mass_matrix(model, q, M),
    }
    theirs = {
        "M": M,
        "bias force": force + M @ classical * -1,
        "inverse dynamics": coordinates.tau(model, q, data["inverse"]),
        "actuator force": coordinates.tau(model, q, data["qfrc_actuator"]),
        "spring and damping force": coordinates.tau(model, q, data["qfrc_passive"]),
        "forward dynamics": coordinates.a(model, q, v, data["qacc_smooth"]),
        "back to qpos": data["qpos"],
        "back to qvel": data["qvel"],
        "back to qacc": data["qacc"],
        "back to qfrc": data["qfrc_bias"],
        "back to M": data["M"],
    }
    frames = rbd.forward_kinematics(model, q), rbd.frame_placements(model, q)
    return ours, theirs, frames


def evaluate(compiled, state):
    """MuJoCo's results at a state."""
    found = {name: np.array(getattr(state, name)) for name in ("qpos", "qvel", "qacc", "ctrl")}
    mujoco.mj_forward(compiled, state)
    found["M"] = mjcf.mass_matrix(compiled, state)
    # Inverse dynamics without the passive forces, which rnea leaves out.
    found["inverse"] = found["M"] @ found["qacc"] + state.qfrc_bias
    for name in ("qfrc_bias", "qfrc_actuator", "qfrc_passive", "qacc_smooth"):
        found[name] = np.array(getattr(state, name))
    return found


def parts(found):
    return found.model, found.coordinates, found.actuators, found.springs


TOLERANCES = {"forward dynamics": 1e-8}


@pytest.mark.parametrize("seed", range(4))
def test_every_quantity_agrees_with_mujoco(seed):
    compiled, found = imported(mjcf.TREES)
    state = mjcf.random_state(compiled, np.random.default_rng(seed))
    ours, theirs, (_, placements) = results(parts(found), evaluate(compiled, state))
    for name in ours:
        tolerance = 1e-12 if name.startswith("back") else TOLERANCES.get(name, 1e-9)
        assert_close(ours[name], theirs[name], tolerance, name)
    expected = mjcf.frame_poses(compiled, state, found)
    names = found.model.frame_names
    assert set(expected) <= set(names)
    for name, (R, p) in expected.items():
        i = names.index(name)
        assert_close(placements.R[i], R, 1e-12, name)
        assert_close(placements.p[i], p, 1e-12, name)
