"""The environment of a robot from an MJCF file, compared with MuJoCo."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import envs, io
from jaxrbd.errors import ArgumentError, RobotFileError

mujoco = pytest.importorskip("mujoco")

LEG = """
<body name="{side}_leg" pos="0 {y} 0">
  <joint name="{side}_hip" axis="0 1 0" range="-1 1"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.1" mass="0.4" contype="0" conaffinity="0"/>
  <body pos="0 0 -0.1">
    <joint name="{side}_shin" type="slide" axis="0 0 -1" range="-0.1 0.1"/>
    <geom type="box" size="0.08 0.03 0.01" pos="0 0 -0.1" mass="0.2" contype="2"/>
  </body>
</body>
"""
# The actuators are in another order than the joints, and one has a gear.
BIPED = (
    """
<mujoco model="biped">
  <compiler angle="radian"/>
  <option timestep="0.004" integrator="implicitfast"/>
  <default><joint armature="0.02" damping="0.3"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body name="trunk" pos="0 0 1"><freejoint/>
      <geom type="box" size="0.1 0.1 0.1" mass="4" contype="0" conaffinity="0"/>"""
    + LEG.format(side="left", y=0.1)
    + LEG.format(side="right", y=-0.1)
    + """
    </body>
  </worldbody>
  <contact><exclude body1="trunk" body2="trunk"/></contact>
  <actuator>
    <position name="a" joint="right_hip" kp="60" kv="2" forcerange="-15 15"/>
    <position name="b" joint="right_shin" kp="900" kv="30"/>
    <position name="c" joint="left_shin" kp="900" kv="30" ctrlrange="-0.5 0.5"/>
    <position name="d" joint="left_hip" kp="15" kv="0.5" gear="-2" forcerange="-7.5 7.5"/>
  </actuator>
  <keyframe><key name="crouch" qpos="0 0 1 1 0 0 0 0.1 -0.02 0.1 -0.02"/></keyframe>
</mujoco>
"""
)


@pytest.fixture(scope="module")
def env():
    return envs.MjcfWalk(BIPED, "crouch", stroke=0.2)


def test_mocap_bodies_are_at_the_poses_of_the_keyframe():
    text = BIPED.replace(
        '<body name="trunk"', '<body name="board" mocap="true"/><body name="trunk"'
    )
    text = text.replace('<key name="crouch"', '<key name="crouch" mpos="1 2 3"')
    for keyframe, p in (("crouch", [1, 2, 3]), (None, [0, 0, 0])):
        model = envs.MjcfWalk(text, keyframe, stroke=0.2).default_params().model
        place = rbd.frame_placement(model, rbd.neutral(model), "board")
        np.testing.assert_array_equal(place.p, p)


def test_phases_and_commands_are_numbers():
    for command in ((np.nan, 0.0, 0.0), (-0.5, 0.0, 0.0), (0.5, np.inf, 0.0)):
        with pytest.raises(ArgumentError, match=r"command is .*, expected finite, 0 or"):
            envs.MjcfWalk(BIPED, "crouch", stroke=0.2, command=command)
    with pytest.raises(ArgumentError, match=r"command has shape \(2,\)"):
        envs.MjcfWalk(BIPED, "crouch", stroke=0.2, command=(0.5, 0.0))
    with pytest.raises(ArgumentError, match=r"phases is .*, expected finite numbers"):
        envs.MjcfWalk(BIPED, "crouch", stroke=0.2, phases=16 * (np.nan,))
    with pytest.raises(ArgumentError, match=r"phases has shape \(\)"):
        envs.MjcfWalk(BIPED, "crouch", stroke=0.2, phases=3)
    given = envs.MjcfWalk(BIPED, "crouch", stroke=0.2, phases=[0.5] * 16, command=np.ones(3))
    assert given == dataclasses.replace(given, phases=(0.5,) * 16, command=(1.0, 1.0, 1.0))
    assert isinstance(hash(given), int)


@pytest.mark.slow
def test_sizes_and_the_posture(env, key):
    params = env.default_params()
    assert (env.action_size, env.base, env.stroke) == (4, "trunk", params.stroke)
    assert hash(env) == hash(envs.MjcfWalk(BIPED, "crouch", stroke=0.2))
    state = env.reset(params, key)
    assert state.observation.shape == (24,)
    assert jnp.abs(jnp.min(state.physics.distance)) < 1e-9
    np.testing.assert_allclose(params.home[7:], [0.1, -0.02, 0.1, -0.02])
    # The soles are 0.21 m below the hips in the neutral configuration.
    np.testing.assert_allclose(params.low, (0.19 * np.cos(0.1) + 0.08 * np.sin(0.1)) / 2, atol=2e-3)
    gait = envs.MjcfWalk(BIPED, stroke=0.2, phases=tuple(np.zeros(16)))
    assert gait.reset(gait.default_params(), key).observation.shape == (26,)


def test_the_servos_are_the_actuators_of_mujoco(env, rng):
    """The joint forces for random states and actions; some forces are at their limits."""
    params, robot = env.default_params(), io.load_mjcf(BIPED)
    model, coordinates = params.model, robot.coordinates
    compiled = mujoco.MjModel.from_xml_string(BIPED)
    data = mujoco.MjData(compiled)
    clipped = 0
    for _ in range(20):
        q = params.home.at[7:].add(jnp.asarray(rng.uniform(-0.3, 0.3, 4)))
        v = jnp.asarray(rng.normal(size=10))
        target = params.home[7:] + params.stroke * jnp.asarray(rng.uniform(-1, 1, 4))
        position = jnp.concatenate([params.home[:7], target])
        data.qpos[:] = coordinates.qpos(model, q)
        data.qvel[:] = coordinates.qvel(model, q, v)
        values = dict(zip(model.joint_names[1:], np.asarray(target)))
        gear = compiled.actuator_gear[:, 0]
        data.ctrl[:] = [r * values[name] for name, r in zip(robot.actuators.joints, gear)]
        mujoco.mj_forward(compiled, data)
        expected = coordinates.tau(model, q, jnp.asarray(data.qfrc_actuator))
        np.testing.assert_allclose(params.control(model, q, v, position), expected, atol=1e-10)
        clipped += np.sum(np.abs(data.actuator_force[[0, 3]]) == [15, 7.5])
    assert 0 < clipped < 40


def test_a_stroke_per_joint_in_three_forms(env):
    """The order is the order of the joints: left_hip, left_shin, right_hip, right_shin."""
    strokes = {"right_shin": 0.4, "left_shin": 0.2, "right_hip": 0.3, "left_hip": 0.1}
    named = envs.MjcfWalk(BIPED, stroke=strokes)
    assert named.stroke == (0.1, 0.2, 0.3, 0.4)
    np.testing.assert_array_equal(named.default_params().stroke, [0.1, 0.2, 0.3, 0.4])
    assert named == envs.MjcfWalk(BIPED, stroke=np.array(named.stroke))
    assert hash(named) == hash(dataclasses.replace(named))
    found = named.interface(named.default_params())
    assert dict(zip(found.actuators, found.scale.tolist())) == strokes
    assert named.settings()["stroke"] == [0.1, 0.2, 0.3, 0.4]
    assert "path" not in named.settings()
    # Only the stroke of the joint with the range from -0.5 to 0.5 is too large.
    with pytest.raises(ArgumentError, match=r"stroke is 0.6 for the joint 'left_shin': act") as e:
        envs.MjcfWalk(BIPED, stroke=0.6)
    assert "controls from -0.6 to 0.6, expected from -0.5 to 0.5, so a stroke up" in str(e.value)
    assert "right" not in str(e.value)
    envs.MjcfWalk(BIPED, stroke=[0.6, 0.5, 0.6, 0.6])


@pytest.mark.parametrize(
    ("stroke", "message"),
    [
        ([0.1, 0.2], "stroke has 2 values, expected 1 or 4, one per joint: 'left_hip'"),
        ({"left_hip": 0.1, "knee": 1}, "no value for 'left_shin', .* and a value for 'knee'"),
        (np.inf, "stroke is inf, expected finite values"),
        (np.array([[0.1]]), r"stroke has shape \(1, 1\)"),
    ],
)
def test_wrong_strokes_are_refused(stroke, message):
    with pytest.raises(ArgumentError, match=message):
        envs.MjcfWalk(BIPED, stroke=stroke)


MOTORS = re.sub(
    "<actuator>.*</actuator>",
    """<actuator>
    <motor name="a" joint="right_hip" gear="3" ctrlrange="-5 5"/>
    <motor name="b" joint="right_shin"/>
    <motor name="c" joint="left_shin" ctrlrange="-8 8" forcerange="-6 6" gear="-2"/>
    <position name="d" joint="left_hip" kp="15" kv="0.5" gear="-2" forcerange="-7.5 7.5"/>
  </actuator>""",
    BIPED,
    flags=re.DOTALL,
)


def test_motors_get_pd_control_within_their_forces(env):
    """The gains are those of the arguments, and of the file for the position actuator."""
    stiffness = {"right_shin": 90, "left_shin": 80, "right_hip": 70}
    motors = envs.MjcfWalk(MOTORS, stroke=0.2, stiffness=stiffness, damping=(3.0, 4.0, 5.0))
    assert (motors.stiffness, motors.damping) == ((80, 70, 90), (3, 4, 5))
    control = motors.default_params().control
    np.testing.assert_allclose(control.stiffness, [0] * 6 + [60, 80, 70, 90])
    np.testing.assert_allclose(control.damping, [0] * 6 + [2, 3, 4, 5])
    np.testing.assert_allclose(control.effort[6:], [15, 12, 15, np.inf])
    for one in (motors, dataclasses.replace(motors, stiffness=50.0)):
        assert hash(one) == hash(dataclasses.replace(one))


@pytest.mark.parametrize(
    ("text", "gains", "message"),
    [
        (MOTORS, {}, "stiffness is missing, .* of 'left_shin', 'right_hip', 'right_shin', which"),
        (MOTORS, {"stiffness": 50}, "damping is missing"),
        (MOTORS, {"stiffness": 50, "damping": -1}, "damping is -1.0, expected 0 or more"),
        (MOTORS, {"stiffness": {"right_hip": 1}}, "no value for 'left_shin', 'right_shin'"),
        (BIPED, {"stiffness": 50, "damping": 1}, "stiffness is 50, expected None, because no"),
        (
            MOTORS.replace("-5 5", "-4 5"),
            {"stiffness": 50, "damping": 1},
            "actuator 'a' has controls from -4.0 to 5.0, expected the same limit",
        ),
    ],
)
def test_wrong_gains_of_motors_are_refused(text, gains, message):
    with pytest.raises(ArgumentError, match=message):
        envs.MjcfWalk(text, stroke=0.2, **gains)


def test_features_without_a_counterpart_are_refused_or_reported():
    text = BIPED.replace("<option ", '<option><flag override="enable"/></option><option ')
    with pytest.raises(RobotFileError, match=r"no counterpart for option flag override"):
        envs.MjcfWalk(text, stroke=0.2)
    found = envs.MjcfWalk(text, stroke=0.2, strict=False)
    assert found.omitted == ("option flag override (parameters of contacts)",)
    assert found.default_params().model.nv == 10
    assert envs.MjcfWalk(BIPED, stroke=0.2).omitted == ()


@pytest.mark.slow
def test_the_robot_stands_and_follows_actions(env, key):
    """With the action 0 it keeps the posture of MuJoCo, and with other actions it moves."""
    params = env.default_params()
    params = params._replace(start=jnp.zeros(2))

    @jax.jit
    def run(params, action):
        def step(state, _):
            state = env.step(params, state, action)
            return state, state.terminated

        return jax.lax.scan(step, env.reset(params, key), length=50)

    params = params._replace(stroke=jnp.full(4, 0.2))
    state, failed = run(params, jnp.zeros(4))
    assert not jnp.any(failed)
    robot = io.load_mjcf(BIPED)
    compiled = mujoco.MjModel.from_xml_string(BIPED)
    data = mujoco.MjData(compiled)
    start = env.reset(params, key).physics.q
    data.qpos[:] = robot.coordinates.qpos(robot.model, start)
    data.ctrl[:] = [0.1, -0.02, -0.02, -0.2]
    mujoco.mj_step(compiled, data, 250)
    theirs = robot.coordinates.q(robot.model, jnp.asarray(data.qpos))
    np.testing.assert_allclose(state.physics.q[2:], theirs[2:], atol=5e-3)
    params = params._replace(stroke=jnp.array([0.2, 0.2, 0.2, 0.1]))
    moved, _ = run(params, jnp.array([0.0, 0.2, 0.0, 0.4]))
    change = moved.physics.q[7:] - state.physics.q[7:]
    np.testing.assert_allclose(change, [0, 0.04, 0, 0.04], atol=5e-3)


ACTUATOR = '<position name="c" joint="left_shin" kp="900" kv="30" ctrlrange="-0.5 0.5"/>'

FLOOR = 'name="floor" type="plane"'
BALL = '<joint name="left_hip" type="ball"/>'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<freejoint/>", '<joint name="j"/>', "joint 'j', the first one, is no free joint"),
        ("<freejoint/>", "", "joint 'left_hip', the first one, is no free joint"),
        (ACTUATOR, "", "joint 'left_shin' has 0 actuators, expected 1"),
        (ACTUATOR, ACTUATOR + ACTUATOR.replace('"c"', '"e"'), "joint 'left_shin' has 2 actuators"),
        (ACTUATOR, '<velocity name="c" joint="left_shin" kv="3"/>', "no motor and no position"),
        (ACTUATOR, '<motor name="c" joint="left_shin"/>', "stiffness is missing, .* 'left_shin'"),
        ('"c" joint', '"c" timeconst="0.1" joint', "actuator 'c' has activation dynamics"),
        ('"c" joint', '"c" delay="0.02" nsample="9" joint', "actuator 'c' has a delay"),
        ("-7.5 7.5", "-7.5 8", "forces from -7.5 to 8.0, expected the same limit"),
        ("-0.5 0.5", "-0.5 0.1", "stroke up to 0.1"),
        (
            'name="floor" type="plane"',
            'name="floor" type="plane" contype="0" conaffinity="0"',
            "touch",
        ),
        ('<joint name="left_hip" axis="0 1 0" range="-1 1"/>', BALL, "'left_hip' has 3 degrees"),
    ],
)
def test_other_robots_are_refused(old, new, message):
    text = BIPED.replace(old, new)
    assert text != BIPED
    text = re.sub("<keyframe>.*</keyframe>", "", text)
    if new == BALL:
        text = re.sub('<position name="d".*/>', "", text)
    with pytest.raises(ArgumentError, match=message):
        envs.MjcfWalk(text, stroke=0.2)


def test_springs_tendons_and_constraints_act(key):
    """Stiffer springs and tendons give other motions, and the coupled joints move together."""
    tendon = """<tendon><fixed name="hips" stiffness="2">
      <joint joint="left_hip" coef="1"/><joint joint="right_hip" coef="0.5"/></fixed></tendon>
      <equality><joint joint1="left_shin" joint2="right_shin"/></equality><contact>"""
    text = BIPED.replace('damping="0.3"', 'stiffness="3"').replace("<contact>", tendon)
    text = text.replace('type="box" size="0.08 0.03 0.01"', 'type="sphere" size="0.01"')
    env = envs.MjcfWalk(text, stroke=0.2)
    params = env.default_params()
    advance = jax.jit(env.advance)
    physics = env.initial(params, key)
    q = physics.q.at[7:].set(jnp.array([0.3, 0.05, -0.2, 0.05]))

    def hips(params):
        after = np.array(advance(params, physics._replace(q=q), jnp.zeros(4), key).q[7:])
        np.testing.assert_allclose(after[1], after[3], atol=1e-4)
        return after[[0, 2]]

    springs, tendons = params.passive.springs, params.tendons
    stiff = dataclasses.replace(springs, stiffness=10 * springs.stiffness)
    moved = hips(params)
    changed = hips(params._replace(passive=dataclasses.replace(params.passive, springs=stiff)))
    assert np.all(np.abs(changed - moved) > 1e-3)
    stiff = dataclasses.replace(tendons, stiffness=10 * tendons.stiffness)
    assert np.all(np.abs(hips(params._replace(tendons=stiff)) - moved) > 1e-3)


@pytest.mark.slow
def test_commands_dissipation_and_pairs(key):
    """The pairs of the file have no entries in the distances of the feet from the ground."""
    capsule = 'mass="0.4" contype="0" conaffinity="0"'
    text = BIPED.replace(capsule, 'mass="0.4" contype="4" conaffinity="4"')
    env = envs.MjcfWalk(text, stroke=0.2, command=(1.0, 2.0, 3.0))
    params = env.default_params()
    assert params.model.dissipative
    np.testing.assert_array_equal(params.command, [1, 2, 3])
    assert len(params.scene.pairs) > 0
    state = env.reset(params, key)
    after = jax.eval_shape(env.step, params, state, jnp.zeros(4))
    assert after.physics.distance.shape == state.physics.distance.shape


def test_unknown_keyframes_and_other_numbers_of_phases_are_refused():
    with pytest.raises(ArgumentError, match=r"keyframe is 'sit', expected one of 'crouch'$"):
        envs.MjcfWalk(BIPED, "sit")
    without = re.sub("<keyframe>.*</keyframe>", "", BIPED)
    with pytest.raises(ArgumentError, match="expected None, because the file has no keyframes"):
        envs.MjcfWalk(without, "crouch")
    with pytest.raises(ArgumentError, match="phases has 2 values, expected 16, one per contact"):
        envs.MjcfWalk(BIPED, "crouch", 0.2, phases=(0.0, 0.5))
