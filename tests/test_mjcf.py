"""MJCF files: every quantity of the imported model agrees with MuJoCo."""

import functools
import os
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.contact.contacts import contact_bodies, find_contacts
from jaxrbd.io.mujoco import from_mujoco, load_mjcf, mujoco_pose, pose_from_mujoco
from jaxrbd.io.mujoco.source import Source
from support import mjcf, mjcf_table, nightly
from support.jax_events import work


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
    model, coordinates, actuators, passive = parts
    q = coordinates.q(model, data["qpos"])
    v = coordinates.v(model, q, data["qvel"])
    a = coordinates.a(model, q, v, data["qacc"])
    classical = coordinates.a(model, q, v, jnp.zeros_like(data["qacc"]))
    M = coordinates.mass_matrix(model, q, data["M"])
    force = coordinates.tau(model, q, data["qfrc_bias"])
    tau = actuators(model, q, v, data["ctrl"])
    spring = passive(model, q, v)
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
    return found.model, found.coordinates, found.actuators, found.passive


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


# ----------------------------------------------------------------------------------- coordinates


def test_velocities_of_the_bodies_agree_with_mujoco():
    """The bridges give the motion that MuJoCo computes, with accelerations."""
    compiled, found = imported(mjcf.TREES)
    state = mjcf.random_state(compiled, np.random.default_rng(11))
    qacc = np.array(state.qacc)
    mujoco.mj_forward(compiled, state)
    state.qacc[:] = qacc
    mujoco.mj_rnePostConstraint(compiled, state)
    model, coordinates = found.model, found.coordinates

    @jax.jit
    def motions(qpos, qvel, qacc):
        q = coordinates.q(model, qpos)
        v = coordinates.v(model, q, qvel)
        a = coordinates.a(model, q, v, qacc)
        state = "camera", "local_world_aligned"
        V = rbd.frame_velocity(model, q, v, *state)
        return V, rbd.frame_acceleration(model, q, v, a, *state)

    V, A = motions(np.array(state.qpos), np.array(state.qvel), qacc)
    expected = np.zeros(6)
    site = compiled.site("camera").id
    kind = mujoco.mjtObj.mjOBJ_SITE
    mujoco.mj_objectVelocity(compiled, state, kind, site, expected, 0)
    assert_close(V, np.roll(expected, 3), 1e-12)
    mujoco.mj_objectAcceleration(compiled, state, kind, site, expected, 0)
    expected = np.roll(expected, 3)
    expected[:3] += compiled.opt.gravity  # the world of MuJoCo accelerates upwards
    assert_close(A, expected, 1e-11)


@pytest.mark.slow
def test_coordinates_are_differentiable_and_batched(rng):
    """The rate of `qpos` along v is MuJoCo's velocity, with quaternions by mj_integratePos."""
    compiled, found = imported(mjcf.TREES)
    model, coordinates = found.model, found.coordinates
    qs = jnp.stack([rbd.random_configuration(model, jax.random.key(i)) for i in range(3)])
    vs = jnp.asarray(rng.normal(size=(3, model.nv)))
    rates = jax.jit(
        jax.vmap(
            lambda q, v: (
                jax.jvp(
                    lambda t: coordinates.qpos(model, rbd.integrate(model, q, t * v)),
                    (jnp.zeros(()),),
                    (jnp.ones(()),),
                ),
                coordinates.qvel(model, q, v),
            )
        )
    )
    (qpos, dqpos), qvel = rates(qs, vs)
    for i in range(3):
        ends = []
        for h in (1e-6, -1e-6):
            end = np.array(qpos[i])
            mujoco.mj_integratePos(compiled, end, np.array(qvel[i]), h)
            ends.append(end)
        assert_close(dqpos[i], (ends[0] - ends[1]) / 2e-6, 1e-8)


def test_a_text_with_a_byte_order_mark():
    text = "<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>"
    assert load_mjcf("\ufeff" + text).model.nv == 1


@pytest.mark.parametrize("place", [1, 5])
def test_an_initial_pose_that_is_not_finite_is_named(place):
    compiled = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint name='f'/><geom size='1'/></body></worldbody></mujoco>"
    )
    compiled.qpos0[place] = np.nan
    with pytest.raises(rbd.ModelError, match=r"joint 'f': qpos0 is .*nan.*, expected finite"):
        from_mujoco(compiled)


def test_poses_to_and_from_mujoco(rng):
    xquat = rng.normal(size=(5, 4))
    xquat /= np.linalg.norm(xquat, axis=1, keepdims=True)
    xpos = rng.normal(size=(5, 3))

    @jax.jit
    def there_and_back(xpos, xquat):
        X = pose_from_mujoco(xpos, xquat)
        return X, mujoco_pose(X)

    np.testing.assert_array_equal(pose_from_mujoco([1, 2, 3], [1, 0, 0, 0]).R, np.eye(3))
    X, back = there_and_back(xpos, xquat)
    for R, q in zip(X.R, xquat):
        expected = np.zeros(9)
        mujoco.mju_quat2Mat(expected, q)
        assert_close(R, expected.reshape(3, 3), 1e-14)
    assert_close(back.xpos, xpos, 0)
    xquat_back = np.asarray(back.xquat)
    assert_close(xquat_back * np.sign(xquat_back[:, :1] * xquat[:, :1]), xquat, 1e-14)


def test_keyframes_sites_and_the_first_configuration():
    compiled, found = imported(mjcf.TREES)
    model, coordinates = found.model, found.coordinates
    (name, key), *rest = found.keyframes.items()
    assert name == "home"
    assert not rest
    data = mujoco.MjData(compiled)
    mujoco.mj_resetDataKeyframe(compiled, data, 0)
    assert_close(coordinates.qpos(model, key.q), data.qpos, 1e-14)
    assert_close(coordinates.qvel(model, key.q, key.v), data.qvel, 1e-13)
    assert_close(key.control, data.ctrl, 0)
    assert_close(coordinates.qpos(model, found.q0), compiled.qpos0, 0)
    assert found.sites == {"mark": "mark", "camera": "camera", "leg": "leg.site"}
    assert found.actuators.names == ("push", "aim", "spin", "both", "lift")
    assert (model.name, found.omitted) == ("trees", ())


def test_coordinates_refuse_a_model_with_other_joints():
    _, found = imported(mjcf.TREES)
    other = rbd.load_robot("arm7")
    q, v, M = np.zeros(other.nq), np.zeros(other.nv), np.zeros((other.nv, other.nv))
    qpos, qvel = np.zeros(23), np.zeros(20)
    for call in (
        lambda x: x.qpos(other, q),
        lambda x: x.qfrc(other, q, v),
        lambda x: x.mujoco_mass_matrix(other, q, M),
        lambda x: x.q(other, qpos),
        lambda x: x.v(other, q, qvel),
    ):
        with pytest.raises(rbd.ArgumentError, match=r"the joints of Model\('arm7'.* have 7 "):
            call(found.coordinates)


def test_keyframes_compile_nothing():
    bodies = """<mujoco><worldbody><body><joint axis="1 0 0"/><geom size=".1"/></body>
        <body pos="1 0 0"><freejoint/><geom size=".1"/></body></worldbody>{}</mujoco>"""
    key = '<keyframe><key qpos="0 0 0 0 .5 .5 .5 .5" qvel="1 2 3 4 5 6 7"/></keyframe>'
    load_mjcf(bodies.format(""))  # a free joint compiles its motion subspace once
    compiled = mujoco.MjModel.from_xml_string(bodies.format(key))
    compiled.key_qpos[0, 4:8] = -1, 4, 1, 2  # not a unit quaternion
    with work() as events:
        found = from_mujoco(compiled)
    assert not events
    key = found.keyframes["key0"]
    expected = found.coordinates.v(found.model, key.q, compiled.key_qvel[0])
    assert_close(key.v, expected, 1e-14)


SITES = """
<mujoco model="sites">
  <worldbody>
    <site name="mast" pos="1 2 3"/>
    <body name="z">
      <freejoint/>
      <geom size="0.1" mass="2"/>
      <site name="z" pos="0.1 0 0.2"/>
      <body name="m" pos="0.3 0 0">
        <joint name="first" axis="0 1 0" pos="0.1 0 0"/>
        <joint name="second" axis="1 0 0"/>
        <geom size="0.1" pos="0 0.1 0" mass="1"/>
        <site name="tip" pos="0 0.2 0.1"/>
        <body name="plate" pos="0 0 0.4">
          <geom size="0.1" mass="1"/>
          <site name="a" pos="0 0 1"/>
        </body>
      </body>
      <body name="b" pos="0 0.5 0">
        <joint name="ball" type="ball"/>
        <geom size="0.1" pos="0.1 0 0" mass="1"/>
        <site name="m"/>
      </body>
    </body>
    <body name="shelf" pos="0 -1 0"><geom size="0.1"/></body>
  </worldbody>
</mujoco>"""


def free_state():
    """MuJoCo's model and data at a random state, and our import."""
    compiled, found = imported(SITES)
    data, rng = mujoco.MjData(compiled), np.random.default_rng(0)
    data.qpos[:], data.qvel[:] = rng.normal(size=compiled.nq), rng.normal(size=compiled.nv)
    mujoco.mj_normalizeQuat(compiled, data.qpos)
    mujoco.mj_forward(compiled, data)
    return compiled, data, found


def test_frames_of_bodies_and_sites_by_their_indices():
    compiled, data, found = free_state()
    assert len(found.model.frame_names) > compiled.nbody - 1 + compiled.nsite  # two joints of m
    X = rbd.frame_placements(found.model, found.coordinates.q(found.model, data.qpos))
    bodies, sites = np.array(found.body_frames), np.array(found.site_frames)
    assert_close(X.p[bodies], data.xpos[1:], 1e-14)
    assert_close(X.R[bodies], data.xmat[1:].reshape(-1, 3, 3), 1e-14)
    assert_close(X.p[sites], data.site_xpos, 1e-14)
    assert_close(X.R[sites], data.site_xmat.reshape(-1, 3, 3), 1e-14)
    names = [compiled.body(i).name for i in range(1, compiled.nbody)]
    assert [found.model.frame_names[i] for i in bodies] == names
    assert [found.model.frame_names[i] for i in sites] == [
        found.sites[compiled.site(i).name] for i in range(compiled.nsite)
    ]


def test_the_configuration_is_q_or_qpos():
    _, data, found = free_state()
    model, coordinates = found.model, found.coordinates
    qpos, qvel, qacc = (jnp.asarray(x) for x in (data.qpos, data.qvel, data.qacc))
    q = coordinates.q(model, qpos)
    v = coordinates.v(model, q, qvel)
    M = jnp.diag(qvel**2)
    assert_close(v, coordinates.v(model, qpos=qpos, qvel=qvel), 0)
    a = coordinates.a(model, q, v, qacc)
    for found in (
        coordinates.a(model, qpos=qpos, qvel=qvel, qacc=qacc),
        coordinates.a(model, q, qvel=qvel, qacc=qacc),
        coordinates.a(model, qpos=qpos, v=v, qacc=qacc),
    ):
        assert_close(found, a, 0)
    assert_close(coordinates.tau(model, qpos=qpos, qfrc=qacc), coordinates.tau(model, q, qacc), 0)
    found = coordinates.mass_matrix(model, qpos=qpos, M_mujoco=M)
    assert_close(found, coordinates.mass_matrix(model, q, M), 0)
    for call, message in (
        (lambda: coordinates.v(model, q, qvel, qpos=qpos), "one of q and qpos, found both"),
        (lambda: coordinates.v(model, qvel=qvel), "one of q and qpos, found neither"),
        (lambda: coordinates.v(model, q), "qvel is missing"),
        (lambda: coordinates.a(model, q, v, qacc, qvel=qvel), "one of v and qvel, found both"),
        (lambda: coordinates.a(model, qpos=qpos, qacc=qacc), "one of v and qvel, found neither"),
        (lambda: coordinates.tau(model, qpos=qpos), "qfrc is missing"),
        (lambda: coordinates.mass_matrix(model, q), "M_mujoco is missing"),
    ):
        with pytest.raises(rbd.ArgumentError, match=message):
            call()


def test_limits_and_parameters_of_joints():
    model = imported(mjcf.TREES)[1].model
    place = {name: model.joint(name) for name in ("yaw", "mast", "a0", "ankle", "root")}
    assert model.lower_position_limit[place["yaw"].q] == -1
    assert model.upper_position_limit[place["mast"].q] == 0.6
    assert not np.isfinite(model.upper_position_limit[place["a0"].q])
    assert_close(model.armature[place["ankle"].v], 3 * [0.02], 0)
    assert_close(model.damping[place["root"].v], 6 * [0.7], 0)
    assert_close(model.gravity, [0.3, -0.2, -9.7], 0)


def arrays_of(found):
    """The names and the arrays of an import, as copies."""
    return [np.array(leaf) for leaf in jax.tree.leaves(found)]


@pytest.mark.parametrize("text", ["TREES", "LOOPS", "SHAPES", "HILLS"])
def test_an_import_shares_no_memory_with_mujoco(text):
    """A later change of the compiled model does not change the import."""
    text = HILLS.format(turn="") if text == "HILLS" else getattr(mjcf, text)
    compiled = mujoco.MjModel.from_xml_string(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rbd.ContactWarning)
        found = from_mujoco(compiled)
    before = arrays_of(found)
    for name in dir(compiled):
        field = getattr(compiled, name)
        if isinstance(field, np.ndarray) and field.dtype.kind == "f":
            field[...] = 7
    for leaf, expected in zip(arrays_of(found), before):
        np.testing.assert_array_equal(leaf, expected)


NEWER = {
    *("actuator_armature", "actuator_ctrladr", "actuator_damping", "actuator_dampingpoly"),
    *(
        "actuator_delay",
        "actuator_history",
        "actuator_outadr",
        "actuator_plugin",
        "dof_dampingpoly",
    ),
    *("geom_adhesion", "geom_surfacevel", "jnt_springyield", "jnt_stiffnesspoly"),
    *("pair_adhesion", "tendon_armature", "tendon_dampingpoly", "tendon_stiffnesspoly"),
    *("tendon_actfrclimited", "tendon_actfrcrange", "tendon_springyield"),
}


class OlderModel:
    """A compiled model without the fields `NEWER`."""

    def __init__(self, compiled):
        self.compiled = compiled

    def __getattr__(self, name):
        if name in NEWER:
            raise AttributeError(name)
        return getattr(self.compiled, name)


class OlderSource(Source):
    def __init__(self, compiled):
        super().__init__(compiled)
        self.m = OlderModel(compiled)


TENDON = """<tendon><fixed name="t"><joint joint="{}" coef="1"/></fixed></tendon>"""


def test_versions_of_mujoco_without_the_newer_fields(monkeypatch):
    """Without these fields, the import of a model that uses no newer feature is the same."""
    texts = (
        mjcf.TREES.replace("<keyframe>", TENDON.format("yaw") + "<keyframe>"),
        mjcf.CROWD.format(filterparent="enable"),
    )
    models = [mujoco.MjModel.from_xml_string(text) for text in texts]
    expected = [arrays_of(from_mujoco(model)) for model in models]
    monkeypatch.setattr("jaxrbd.io.mujoco.imported.Source", OlderSource)
    for model, arrays in zip(models, expected):
        older = arrays_of(from_mujoco(model))
        assert len(older) == len(arrays)
        for found, same in zip(older, arrays):
            np.testing.assert_array_equal(found, same)


DRIVES = """
<mujoco>
  <worldbody>
    <body name="a"><joint name="a" damping="0.1" armature="0.2" frictionloss="0.3"
        actuatorfrcrange="-1 3" actuatorfrclimited="true"/>
      <geom size="0.1" pos="0.1 0 0"/></body>
    <body name="b"><joint name="b" type="slide" damping="0.4" stiffness="2"/>
      <geom size="0.1"/></body>
  </worldbody>
  <actuator>
    <motor joint="a" gear="2"/>
    <motor name="second" joint="a" gear="-3"/>
    <motor name="off" joint="b" group="2"/>
    <position joint="b" kp="3" dampratio="0.5" inheritrange="0" {extra}/>
    <motor joint="b" ctrlrange="-0.1 0.1" ctrllimited="true"/>
  </actuator>
</mujoco>
"""


@functools.cache
def flagged(**flags):
    """`DRIVES` with changed options of the compiled model."""
    compiled = mujoco.MjModel.from_xml_string(DRIVES.format(extra=""))
    compiled.opt.disableactuator = 1 << 2
    for flag in flags:
        compiled.opt.disableflags |= getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}")
    return compiled, from_mujoco(compiled)


@pytest.mark.parametrize("flag", ["", "CLAMPCTRL", "SPRING", "DAMPER", "GRAVITY", "FRICTIONLOSS"])
def test_options_that_disable_features(flag, rng):
    if flag and not hasattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"):
        pytest.skip("this version of MuJoCo has no such flag")
    compiled, found = flagged(**{flag: 1} if flag else {})
    for _ in range(3):
        state = mjcf.random_state(compiled, rng)
        state.ctrl[:] *= 2
        ours, theirs, _ = results(parts(found), evaluate(compiled, state))
        for name in ("bias force", "actuator force"):
            assert_close(ours[name], theirs[name], 1e-12, name)
    model = found.model
    friction = model.friction[model.joint("a").v]
    assert_close(friction, [0.0 if flag == "FRICTIONLOSS" else 0.3], 0)
    assert model.effort_limit.tolist() == [3, np.inf]
    assert found.passive.parts == (() if flag == "SPRING" else ("springs",))
    assert bool(model.damping.any()) == (flag != "DAMPER")


@pytest.mark.skipif(
    not hasattr(mujoco.MjModel, "actuator_armature"), reason="a newer attribute of MuJoCo"
)
def test_armature_and_damping_of_actuators(rng):
    text = DRIVES.format(extra='armature="0.7" damping="0.9" gear="3"')
    text = text.replace('frictionloss="0.3"', "")
    compiled, found = imported(text)
    state = mjcf.random_state(compiled, rng)
    ours, theirs, _ = results(parts(found), evaluate(compiled, state))
    for name in ours:
        assert_close(ours[name], theirs[name], 1e-11, name)
    undamped = mujoco.MjModel.from_xml_string(text)
    undamped.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_DAMPER
    assert not from_mujoco(undamped).model.damping.any()


# ------------------------------------------------------------------------------------ equalities


def equality_errors(compiled, state):
    """MuJoCo's errors by name of the equality, with its two bodies' rotations for frames."""
    mujoco.mj_forward(compiled, state)
    rows = {}
    for row in range(state.nefc):
        if state.efc_type[row] == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY):
            name = mujoco.mj_id2name(compiled, mujoco.mjtObj.mjOBJ_EQUALITY, state.efc_id[row])
            rows.setdefault(name, []).append(state.efc_pos[row])
    return {name: np.array(values) for name, values in rows.items()}


def test_equality_constraints_agree_with_mujoco(rng):
    compiled = mujoco.MjModel.from_xml_string(mjcf.LOOPS)
    compiled.eq_data[2, :6] = compiled.eq_data[5, :10] = 0.3  # MuJoCo ignores this, for sites
    found = from_mujoco(compiled)
    model, coordinates = found.model, found.coordinates
    assert len(found.constraints) == 9
    assert len(found.inactive_constraints) == 1

    @eqx.filter_jit
    def errors(qpos):
        q = coordinates.q(model, qpos)
        constraints = found.constraints + found.inactive_constraints
        return [c.position(model, q) for c in constraints]

    names = [mujoco.mj_id2name(compiled, mujoco.mjtObj.mjOBJ_EQUALITY, i) for i in range(10)]
    for _ in range(3):
        state = mjcf.random_state(compiled, rng)
        expected = equality_errors(compiled, state)
        ours = dict(zip(names, errors(np.array(state.qpos))))
        R = {i: state.body(i).xmat.reshape(3, 3) for i in "abcd"}
        relative = np.zeros(9)
        mujoco.mju_quat2Mat(relative, compiled.eq_data[3, 6:10])
        first = {  # the axes of the first frame, in which our error is expressed
            "pin": R["a"],
            "fixed pin": R["c"],
            "site pin": state.site("sa").xmat.reshape(3, 3),
            "weld": R["b"] @ relative.reshape(3, 3),
            "world weld": None,
            "site weld": state.site("sd").xmat.reshape(3, 3),
        }
        mujoco.mju_quat2Mat(relative, compiled.eq_data[4, 6:10])
        first["world weld"] = R["c"] @ relative.reshape(3, 3)
        for name, axes in first.items():
            assert_close(ours[name][:3], -axes.T @ expected[name][:3], 1e-12, name)
            if "weld" in name:
                half = -expected[name][3:] / (0.5 if name == "weld" else 1)
                angle = np.linalg.norm(ours[name][3:])
                sine = np.sin(angle / 2) / angle * ours[name][3:]  # of half of the angle
                assert_close(sine, half * np.sign(half @ sine), 1e-12, name)
        for name in ("affine", "quartic", "constant"):
            assert_close(ours[name], expected[name], 1e-13, name)
        joints = [compiled.joint(name) for name in ("j4", "j1")]
        x, y = (state.qpos[joint.qposadr[0]] for joint in joints)
        assert_close(ours["sleeping"], [x - (y - 0.3)], 1e-13)


FOLLOWERS = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="ball"><joint type="ball"/><geom size="0.1"/></body>
    <body><joint name="leader" axis="0 1 0" ref="0.3"/><geom size="0.1" pos="0.1 0 0"/>
      <body pos="0.2 0 0"><joint name="affine" axis="0 1 0" ref="-0.2"/><geom size="0.1"/></body>
      <body pos="0 0.2 0"><joint name="quartic" axis="1 0 0" ref="0.6"/><geom size="0.1"/></body>
    </body>
  </worldbody>
  <equality>
    <joint joint1="affine" joint2="leader" polycoef="0.1 0.7 0 0 0"/>
    <joint joint1="quartic" joint2="leader" polycoef="0.2 0.3 -0.4 0.5 0.6"/>
  </equality>
</mujoco>
"""


def test_joints_that_follow_a_leader():
    """MuJoCo's polynomials from the reference positions, their rates, and the power of forces."""
    found = from_mujoco(mujoco.MjModel.from_xml_string(FOLLOWERS), mimic=True)
    model, coordinates = found.model, found.coordinates
    q, v = jnp.array([0, 0.6, 0, 0.8, 0.8]), jnp.array([3.1, -0.4, 0.9, 1.7])
    a, qfrc = jnp.array([0.2, 0.1, -0.5, -2.3]), jnp.array([0.5, 0.3, 0.2, 0.4, -1.1, 0.6])

    @jax.jit
    def all_joints(q):
        qpos, qvel = coordinates.qpos(model, q), coordinates.qvel(model, q, v)
        qacc, tau = coordinates.qacc(model, q, v, a), coordinates.tau(model, q, qfrc)
        back = coordinates.q(model, qpos), coordinates.v(model, q, qvel)
        back += (coordinates.a(model, q, v, qacc),)
        return qpos, qvel, qacc, back, tau, coordinates.qfrc(model, q, tau)

    qpos, qvel, qacc, back, tau, force = all_joints(q)
    y = 0.8 - 0.3
    quartic = 0.6 + 0.2 + 0.3 * y - 0.4 * y**2 + 0.5 * y**3 + 0.6 * y**4
    assert_close(qpos, [0.8, 0, 0.6, 0, 0.8, -0.2 + 0.1 + 0.7 * y, quartic], 1e-14)
    rates = np.array([1, 0.7, 0.3 - 0.8 * y + 1.5 * y**2 + 2.4 * y**3])
    assert_close(qvel, np.append(v[:3], 1.7 * rates), 1e-14)
    changes = np.array([0, 0, -0.8 + 3 * y + 7.2 * y**2])  # of the rates, per unit of y
    assert_close(qacc, np.append(a[:3], -2.3 * rates + 1.7**2 * changes), 1e-14)
    assert_close(tau @ v, qfrc @ qvel, 1e-14)
    assert_close(force, np.append(tau, [0, 0]), 1e-14)
    for found_value, expected in zip(back, (q, v, a)):
        assert_close(found_value, expected, 1e-14)


@pytest.mark.slow
def test_equalities_of_joints_as_followers(rng):
    """M, bias and inverse dynamics are MuJoCo's on the motions that the followers allow."""
    compiled = imported(mjcf.LOOPS)[0]
    found = from_mujoco(compiled, mimic=True)
    model, coordinates = found.model, found.coordinates
    assert (model.nv, compiled.nv) == (8, 10)
    assert len(found.constraints) == 7

    @jax.jit
    def inverse(q, v, a):
        state = (
            coordinates.qpos(model, q),
            coordinates.qvel(model, q, v),
            coordinates.qacc(model, q, v, a),
        )
        back = coordinates.q(model, state[0]), coordinates.v(model, q, state[1])
        back += (coordinates.a(model, q, v, state[2]),)
        return state, back, rbd.rnea(model, q, v, a), rbd.crba(model, q)

    q = rbd.random_configuration(model, jax.random.key(3))
    v, a = jnp.asarray(rng.normal(size=(2, model.nv)))
    (qpos, qvel, qacc), back, tau, M = inverse(q, v, a)
    for found_value, expected in zip(back, (q, v, a)):
        assert_close(found_value, expected, 1e-13)
    state = mujoco.MjData(compiled)
    state.qpos[:], state.qvel[:] = qpos, qvel
    mujoco.mj_forward(compiled, state)
    M_mujoco = mjcf.mass_matrix(compiled, state)
    errors = equality_errors(compiled, state)
    assert_close(errors["affine"], [0], 1e-14)
    assert_close(errors["quartic"], [0], 1e-14)
    qfrc = M_mujoco @ qacc + state.qfrc_bias
    assert_close(tau, coordinates.tau(model, q, qfrc), 1e-10)
    assert_close(M, coordinates.mass_matrix(model, q, M_mujoco), 1e-11)
    assert_close(coordinates.tau(model, q, coordinates.qfrc(model, q, tau)), tau, 1e-12)
    with pytest.raises(rbd.ArgumentError, match="follow others"):
        coordinates.mujoco_mass_matrix(model, q, M)


# --------------------------------------------------------------------------------------- contact


@pytest.mark.parametrize("filterparent", ["enable", "disable"])
def test_the_geoms_that_can_touch(filterparent):
    compiled = mujoco.MjModel.from_xml_string(mjcf.CROWD.format(filterparent=filterparent))
    found = from_mujoco(compiled, strict=False)
    data = mujoco.MjData(compiled)
    mujoco.mj_forward(compiled, data)
    touching = {
        frozenset(compiled.geom(geom).name for geom in contact.geom) for contact in data.contact
    }
    assert len(touching) > 10
    ground = {pair for pair in touching if "floor" in pair}
    other = touching - ground
    assert {frozenset(pair) for pair in found.pairs} == other
    assert len(found.pairs) == len(other)
    ids = [[compiled.geom(name).id for name in pair] for pair in found.pairs[compiled.npair :]]
    assert ids == sorted(map(sorted, ids))  # after the pairs that the file states
    assert found.omitted == ()
    assert len(found.scene.pairs) == len(other)
    centres = {tuple(x) for x in np.array(found.scene.offsets)}
    names = [name for pair in ground for name in pair - {"floor"}]
    assert len(found.scene.frames) == len(names)
    assert centres == {tuple(compiled.geom(name).pos) for name in names}


def test_spheres_of_the_scene_agree_with_mujoco():
    compiled, found = imported(mjcf.SHAPES)
    rng = np.random.default_rng(5)
    model, coordinates = found.model, found.coordinates
    assert_close(found.scene.friction[:11], np.full(11, 0.6), 0)
    assert found.scene.frames == ("ball", *2 * ["rod"], *8 * ["brick"])

    @jax.jit
    def points(qpos):
        q = coordinates.q(model, qpos)
        found_points = rbd.contact.contact_points(model, found.scene, q, jnp.zeros(model.nv))
        return found_points.distance, found_points.position, found_points.normal

    for _ in range(3):
        state = mjcf.random_state(compiled, rng)
        mujoco.mj_forward(compiled, state)
        distance, position, normal = points(np.array(state.qpos))
        # MuJoCo puts the position of a contact in the middle between both surfaces.
        ours = np.array(position - distance[:, None] * normal / 2)
        ground = [c for c in state.contact if compiled.geom("floor").id in c.geom]
        assert len(ground) == 1 + 2 + 4  # a box has at most four contacts
        for contact in ground:
            error = np.linalg.norm(ours - contact.pos, axis=1)
            nearest = int(np.argmin(error))
            assert error[nearest] < 1e-12
            assert abs(distance[nearest] - contact.dist) < 1e-12
            assert_close(normal[nearest], contact.frame[:3], 1e-12)


COLLISIONS = """
<mujoco>
  <worldbody>
    <body pos="0.1 0.2 0.3" quat="1 0.1 0.2 0.3">
      <geom name="block" type="box" size="0.5 0.4 0.3" pos="0.1 0 0" quat="1 0 0.2 0"/>
      <geom name="rail" type="capsule" size="0.2 0.7" pos="0 0.1 0" friction="0.3"/></body>
    <body name="ball"><freejoint/>
      <geom name="ball" size="0.4" pos="0.1 0 0.1" friction="0.9"/></body>
    <body name="rod"><freejoint/>
      <geom name="rod" type="capsule" size="0.3 0.5" quat="1 1 0 0" pos="0 0.1 0"/></body>
  </worldbody>
  <contact><exclude body1="world" body2="ball"/>
    <pair geom1="block" geom2="ball"/><pair geom1="rail" geom2="ball" friction="0.2 0.2"/>
  </contact>
</mujoco>
"""


def test_pairs_of_the_scene_agree_with_mujoco():
    """Distances, normals and positions of spheres, capsules and a box, and their friction."""
    compiled, found = imported(COLLISIONS)
    rng = np.random.default_rng(3)
    model, coordinates, scene = found.model, found.coordinates, found.scene
    names = [frozenset(pair) for pair in found.pairs]
    assert {tuple(sorted(pair)) for pair in names} == {
        ("ball", "block"),
        ("ball", "rail"),
        ("ball", "rod"),
        ("block", "rod"),
        ("rail", "rod"),
    }
    # The capsule has two contacts with the box.
    contacts = [p for pair in names for p in (1 + ({"block", "rod"} == pair)) * [pair]]
    friction = {("ball", "rail"): 0.2, ("ball", "rod"): 1.0, ("ball", "block"): 1.0}
    expected = [friction.get(tuple(sorted(pair)), 1.0) for pair in contacts]
    assert_close(scene.friction, expected, 0)

    @jax.jit
    def points(qpos):
        kinematics = rbd.forward_kinematics(model, coordinates.q(model, qpos))
        geometry = find_contacts(model, scene.astype(float), kinematics)
        bodies = contact_bodies(model, scene)
        X = kinematics.X_WB
        inside = (X.R[bodies] @ geometry.arm[..., None])[..., 0] + X.p[bodies]
        positions = jnp.where(bodies[:, None] < 0, geometry.arm, inside)
        return geometry.distance, geometry.gradient, positions

    seen = set()
    for _ in range(30):
        state = mujoco.MjData(compiled)
        state.qpos[:] = rng.normal(size=compiled.nq) * (2 * ([0.4] * 3 + [1.0] * 4))
        mujoco.mj_forward(compiled, state)
        distance, normal, position = points(np.array(state.qpos))
        middle = (position[: len(contacts)] + position[len(contacts) :]) / 2
        for contact in state.contact:
            pair = frozenset(compiled.geom(geom).name for geom in contact.geom)
            seen.add(pair)
            if pair == {"block", "rod"}:
                least = min(distance[i] for i, other in enumerate(contacts) if other == pair)
                assert least - contact.dist < 1e-10
                continue
            (i,) = [i for i, other in enumerate(contacts) if other == pair]
            assert abs(distance[i] - contact.dist) < 1e-10
            assert_close(abs(normal[i] @ contact.frame[:3]), 1, 1e-10)
            assert_close(middle[i], contact.pos, 1e-10)
    assert len(seen) == 5


def calls_of_an_import(geoms, boxes):
    """The number of calls of functions of jaxrbd, and of contacts, in an import.

    The file has fixed geoms of all kinds, and free boxes.
    """
    kinds = ("box", "sphere", "capsule", "ellipsoid")
    fixed = (f'<geom type="{kinds[i % 4]}" size=".1 .1 .1" pos="{i} 0 0"/>' for i in range(geoms))
    free = boxes * '<body><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
    text = f"<mujoco><worldbody>{''.join(fixed)}{free}</worldbody></mujoco>"
    compiled = mujoco.MjModel.from_xml_string(text)
    count, package = 0, os.path.dirname(rbd.__file__)

    def profile(frame, event, arg):
        nonlocal count
        count += event == "call" and package in frame.f_code.co_filename

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rbd.ContactWarning)
        sys.setprofile(profile)
        try:
            found = from_mujoco(compiled, strict=False)
        finally:
            sys.setprofile(None)
    return count, len(found.scene.pairs)


def test_an_import_is_linear_in_the_geoms_and_pairs():
    calls_of_an_import(4, 2)
    small, middle, large = (calls_of_an_import(n, 1)[0] for n in (20, 40, 80))
    assert large - middle < 2.5 * (middle - small)
    (small, few), (large, many) = (calls_of_an_import(0, n) for n in (6, 12))
    assert (few, many) == (4 * 15, 4 * 66)
    assert large - small < 32 * (many - few)  # each shape is examined once, not once per pair


HILLS = """
<mujoco>
  <asset><hfield name="hills" nrow="4" ncol="5" size="2 1.5 0.5 0.1"
    elevation="0 1 2 3 1  5 2 4 1 2  3 2 1 0 4  1 1 0 2 3"/></asset>
  <worldbody>
    <body name="ground" pos="0.1 0.2 0.3">
      <geom name="hills" type="hfield" hfield="hills" pos="0.2 -0.1 0.4" {turn}/></body>
    <body name="ball" pos="0 0 2"><freejoint/><geom size="0.1"/></body>
  </worldbody>
</mujoco>
"""


def test_a_height_field_has_the_points_of_mujoco():
    """Between its points, the surface of MuJoCo consists of triangles, and ours is smooth."""
    compiled, found = imported(HILLS.format(turn=""))
    data = mujoco.MjData(compiled)
    mujoco.mj_forward(compiled, data)
    grid = found.scene.ground
    assert grid.heights.shape == (5, 4)
    geom = np.zeros(1, np.int32)
    inner = [(x, y) for x in (-1.0, 0.0, 1.0) for y in (-0.5, 0.5)]
    xy = np.array([0.3, 0.1]) + np.array(inner)
    heights = jax.jit(jax.vmap(grid.elevation))(xy)
    for point, height in zip(xy, heights):
        start = np.array([*(point + 1e-9), 1.6])
        hit = mujoco.mj_ray(compiled, data, start, np.array([0.0, 0, -1]), None, 1, -1, geom)
        assert geom[0] == compiled.geom("hills").id
        assert abs(1.6 - hit - height) < 1e-7  # MuJoCo stores the heights in single precision


@pytest.mark.parametrize(("nrow", "ncol"), [(2, 10), (10, 2)])
def test_a_height_field_of_few_points_has_middles(nrow, ncol):
    """Points of the file have its heights, as MuJoCo's rays find them; others are on lines."""
    text = HILLS.format(turn="").replace('nrow="4" ncol="5"', f'nrow="{nrow}" ncol="{ncol}"')
    compiled = mujoco.MjModel.from_xml_string(text)
    grid = from_mujoco(compiled).scene.ground
    assert min(grid.heights.shape) == 5
    bends = np.diff(grid.heights, 2, axis=int(np.argmin(grid.heights.shape)))
    np.testing.assert_allclose(bends, 0, atol=1e-12)
    elevation = jax.jit(lambda point: grid.elevation(point))
    data, geom = mujoco.MjData(compiled), np.zeros(1, np.int32)
    mujoco.mj_forward(compiled, data)
    (x, y, _, _), center = compiled.hfield_size[0], data.geom("hills").xpos
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        edge = np.array([x * (2 * j / (ncol - 1) - 1), y * (2 * i / (nrow - 1) - 1)])
        start = np.array([*(center[:2] + (1 - 1e-9) * edge), 9.0])
        hit = mujoco.mj_ray(compiled, data, start, np.array([0.0, 0, -1]), None, 1, -1, geom)
        assert geom[0] == compiled.geom("hills").id
        assert abs(9 - hit - elevation(start[:2])) < 1e-6


# ----------------------------------------------------------------------- the files of the wheels

FILES = mjcf_table.files()
# MuJoCo takes the mass matrix of a free body as diagonal if its centre of mass is about 1e-9 m from
# its origin, as for the meshes of this file.
LOOSER = {"mjx/test_data/convex.xml": 1e-8}


@jax.jit
def mass_and_bias(model, coordinates, data):
    """M and the bias force: ours, and MuJoCo's in our coordinates."""
    q = coordinates.q(model, data["qpos"])
    v = coordinates.v(model, q, data["qvel"])
    M = coordinates.mass_matrix(model, q, data["M"])
    turning = coordinates.a(model, q, v, jnp.zeros_like(data["qvel"]))
    bias = coordinates.tau(model, q, data["qfrc_bias"]) - M @ turning
    placements = rbd.frame_placements(model, q)
    return (rbd.crba(model, q), M), (rbd.bias_force(model, q, v), bias), placements


def tendon_motion(found, q, v):
    return found.tendons.lengths(found.model, q), found.tendons.rates(found.model, q, v)


def check_file(name):
    """The row of the page is right, and what is carried over agrees with MuJoCo."""
    stated = mjcf_table.stated_rows()
    if mjcf_table.stated_versions() == mjcf_table.VERSIONS:
        assert mjcf_table.row(name, FILES[name]) == stated[name]
    else:
        assert mjcf_table.row(name, FILES[name])
    try:
        compiled = mujoco.MjModel.from_xml_path(str(FILES[name]))
    except ValueError:
        return
    if "tendon_armature" in dir(compiled):
        compiled.tendon_armature[:] = 0  # the mass matrix of a model has no tendons
    with warnings.catch_warnings():
        for category in (rbd.InertiaWarning, rbd.ContactWarning):
            warnings.simplefilter("ignore", category)
        found = from_mujoco(compiled, strict=False)
    state = mjcf.random_state(compiled, np.random.default_rng(0))
    mujoco.mj_forward(compiled, state)
    data = {name: np.array(getattr(state, name)) for name in ("qpos", "qvel", "qfrc_bias")}
    data["M"] = mjcf.mass_matrix(compiled, state)
    *pairs, placements = mass_and_bias(found.model, found.coordinates, data)
    for ours, theirs in pairs:
        assert_close(ours, theirs, LOOSER.get(name, 1e-12), name)
    if compiled.ntendon:
        q = found.coordinates.q(found.model, data["qpos"])
        v = found.coordinates.v(found.model, q, data["qvel"])
        lengths, rates = jax.jit(lambda q, v: tendon_motion(found, q, v))(q, v)
        assert_close(lengths, state.ten_length, 1e-12, name)
        assert_close(rates, state.ten_velocity, 1e-7, name)
    for frame, (R, p) in mjcf.frame_poses(compiled, state, found).items():
        i = found.model.frame_names.index(frame)
        assert_close(placements.R[i], R, 1e-12, frame)
        assert_close(placements.p[i], p, 1e-12, frame)


SOME = [
    "testdata/model.xml",
    "testdata/msh.xml",
    "mjx/test_data/humanoid/humanoid.xml",
    "mjx/test_data/barkour_v0/assets/barkour_v0_mjx.xml",
]


@pytest.mark.parametrize("name", nightly.all_but(SOME[1:], SOME))
def test_some_files(name, tmp_path, monkeypatch):
    if name not in FILES:
        pytest.skip("mujoco-mjx is not installed")
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log of its warnings
    check_file(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FILES if name not in SOME])
def test_every_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_file(name)


def test_the_page_has_every_file():
    stated = mjcf_table.stated_rows()
    assert len(stated) > 35
    assert {name.partition("/")[0] for name in stated} == {"mjx", "testdata"}
    if mjcf_table.stated_versions() == mjcf_table.VERSIONS:
        assert set(stated) == set(FILES)
    elif mjcf_table.VERSIONS[0] == mjcf_table.stated_versions()[0]:
        assert set(FILES) <= set(stated)
