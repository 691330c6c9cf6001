"""Tasks of any MJCF file: their physics, readings, rewards, derivatives and errors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, envs, io, learning, sensors, spatial
from jaxrbd.errors import ArgumentError
from support.finite_differences import slope
from support.muscle_arm import ARM
from support.zoo import close

pytest.importorskip("mujoco")

# A hopper with a spring, a tendon with a limit, a muscle, an integrator, a closed loop and sensors.
HOPPER = """
<mujoco>
  <compiler autolimits="true"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body name="trunk" pos="0 0 0.5"><freejoint/>
      <geom type="box" size="0.1 0.1 0.1" mass="4" contype="0" conaffinity="0"/>
      <site name="imu" pos="0.02 0 0.1"/>
      <body name="leg">
        <joint name="hip" axis="0 1 0" range="-1 1" stiffness="8" armature="0.02"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.2" mass="0.4" contype="0"
          conaffinity="0"/>
        <body name="shin" pos="0 0 -0.2">
          <joint name="knee" type="slide" axis="0 0 -1" range="-0.1 0.1" armature="0.02"/>
          <geom type="sphere" size="0.03" pos="0 0 -0.2" mass="0.2"/>
          <site name="foot" pos="0 0 -0.19"/>
        </body>
      </body>
      <body name="arm" pos="0 0.2 0">
        <joint name="arm" axis="0 1 0" damping="0.1"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.1" mass="0.2" contype="0"
          conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <equality><joint joint1="arm" joint2="hip"/></equality>
  <tendon>
    <fixed name="sum" stiffness="5"><joint joint="hip" coef="1"/><joint joint="knee" coef="0.2"/>
    </fixed>
  </tendon>
  <actuator>
    <position name="knee" joint="knee" kp="900" kv="30" ctrlrange="0 0.08"/>
    <muscle name="sum" tendon="sum" lengthrange="-1 1" force="20"/>
    <motor name="hip" joint="hip" gear="3"/>
  </actuator>
  <sensor>
    <gyro name="gyro" site="imu" noise="0.1"/>
    <accelerometer name="accelerometer" site="imu"/>
    <force name="foot" site="foot"/>
    <framepos name="place" objtype="body" objname="trunk"/>
    <touch name="pressure" site="foot"/>
  </sensor>
  <keyframe><key name="crouch" qpos="0 0 0.43 1 0 0 0 0.1 0.02 0.1" act="0.3"/></keyframe>
</mujoco>
"""


def height(params, before, action, after):
    return envs.tolerance(after.readings["place"][2], 0.5, 0.6, 0.2)


REWARDS = {"alive": 1.0, "action_rate": 0.01, "posture": 0.1, "height": (2.0, height)}


def fallen(params, physics):
    return physics.q[2] < 0.3


@pytest.fixture(scope="module")
def env():
    return envs.MjcfTask(
        HOPPER,
        REWARDS,
        observations=("gyro", "q", "foot", "activation", "touch", "action"),
        sensors=("place", "accelerometer"),
        fails=fallen,
        keyframe="crouch",
        start=(0.01, 0.05),
        control_range={"hip": (-1, 2)},
        substeps=2,
        time_step=0.008,
    )


@pytest.fixture(scope="module")
def params(env):
    return env.default_params()


@pytest.fixture(scope="module")
def advance(env):
    return jax.jit(env.step)


@pytest.fixture(scope="module")
def start(env, params):
    return jax.jit(env.reset)(params, jax.random.key(0))


def test_sizes_and_the_start(env, params, start):
    assert env.action_size == 3
    assert hash(env) == hash(dataclasses.replace(env))
    robot = io.load_mjcf(HOPPER)
    key, physics = robot.keyframes["crouch"], start.physics
    width = np.abs(physics.q - key.q)
    assert np.all(width[:7] == 0)
    assert np.all((width[7:] > 0) & (width[7:] < 0.01))
    assert np.all((physics.v != 0) & (np.abs(physics.v) < 0.05))
    close(physics.activation, key.activation)
    contacts = robot.scene.size
    assert start.observation.shape == (3 + 10 + 3 + 3 + contacts + 3,)
    close(params.control_center, [0.04, 0.5, 0.5])
    close(params.control_scale, [0.04, 0.5, 1.5])
    narrow = dataclasses.replace(env, control_range={"hip": (-1, 2), "knee": (0.01, 0.03)})
    close(narrow.default_params().control_center, [0.02, 0.5, 0.5])


def test_controls_stay_within_the_ranges_of_the_file(params, start, advance):
    """The hip has a range of the argument `control_range` only, which does not clip."""

    def moved(*action):
        return advance(params, start, jnp.array(action)).physics

    one, seven = moved(1.0, 1.0, 0.0), moved(7.0, 7.0, 0.0)
    np.testing.assert_array_equal(one.q, seven.q)
    assert one.activation[1] == seven.activation[1]
    assert seven.action.tolist() == [7, 7, 0]  # as it was given
    assert not np.array_equal(one.q, moved(0.5, 1.0, 0.0).q)
    assert not np.array_equal(moved(0.0, 0.0, 1.0).q, moved(0.0, 0.0, 7.0).q)


def test_a_step_is_the_physics_of_the_file(env, params, start, advance):
    """The same motion from the parts of the file, and the readings of its end."""
    robot = io.load_mjcf(HOPPER)
    model = robot.model.with_dissipation()
    action = jnp.array([0.3, -0.2, 0.4])
    control = params.control_center + params.control_scale * action

    @jax.jit
    def step(q, v, activation):  # of 4 ms
        activation, filtered = robot.filter.push(activation, control, 0.004)
        servo, tau = contact.servo_of_actuators(robot.actuators, model, q, filtered, v)
        found = contact.contact_step(
            model,
            robot.scene,
            q,
            v,
            tau + robot.passive(model, q, v),
            0.004,
            servo=servo,
            constraints=robot.constraints,
            tendons=robot.tendons,
        )
        a = (found.v - v) / 0.004
        pressure = sensors.touch(model, robot.scene, q, found, 0.004).normal_force
        f_ext = contact.step_wrenches(model, robot.scene, q, found, 0.004)
        named = robot.sensors.chosen(["gyro", "accelerometer", "foot"])
        readings = named(model, found.q, found.v, a, f_ext)
        # The wrenches of the impulse at the contact point, and of f_ext, about the world's origin.
        p, f = (
            contact.contact_points(model, robot.scene, q, v).position[0],
            found.impulse[0] / 0.004,
        )
        X_WB = rbd.forward_kinematics(model, q).X_WB
        on_bodies = jnp.sum(spatial.transform_force(X_WB, f_ext), axis=0)
        on_foot = jnp.concatenate([f, jnp.cross(p, f)])
        return found.q, found.v, activation, pressure, named.by_name(readings), on_bodies, on_foot

    physics = start.physics
    # with a dtype: weakly typed arrays would compile `step` twice
    state = (jnp.asarray(x, float) for x in (physics.q, physics.v, physics.activation))
    q, v, activation = state
    for _ in range(2):
        q, v, activation, pressure, readings, on_bodies, on_foot = step(q, v, activation)
    after = advance(params, start, action)
    close(after.physics.q, q, 1e-12, "q")
    close(after.physics.v, v, 1e-10, "v")
    close(after.physics.activation, activation)
    assert np.sum(pressure) > 10
    close(on_bodies, on_foot, 1e-12, "wrenches of contacts")
    for name, reading in (readings | {"touch": pressure}).items():
        close(after.physics.readings[name], reading, 1e-8, name)
    assert np.max(np.abs(readings["foot"])) > 10
    terms = after.reward_terms
    weight = 2 * envs.tolerance(q[2], 0.5, 0.6, 0.2)
    close(terms["height"], weight)
    close(terms["action_rate"], -0.01 * np.sum(action**2))
    assert terms["alive"] == 1


def test_a_second_step(env, params, start, advance):
    first = advance(params, start, jnp.array([0.1, 0.2, 0.3]))
    second = advance(params, first, jnp.array([0.4, 0.2, 0.1]))
    close(second.physics.time, 0.016)
    close(second.physics.action, [0.4, 0.2, 0.1])
    close(second.physics.last_action, [0.1, 0.2, 0.3])
    close(second.reward_terms["action_rate"], -0.01 * 0.13)


def test_an_observation_has_the_noise_of_the_file(env, params, start):
    keys = jax.random.split(jax.random.key(3), 2000)
    observed = jax.vmap(env.observe, (None, None, 0))(params, start.physics, keys)
    spread = np.std(observed, axis=0)
    close(spread[:3], [0.1] * 3, 0.01)
    assert np.all(spread[3:] < 1e-12)
    close(np.mean(observed, axis=0)[3:13], start.physics.q)


def test_an_episode_fails(env, params, start, advance):
    lying = start.physics._replace(q=start.physics.q.at[2].set(0.2))
    after = advance(params, start._replace(physics=lying), jnp.zeros(3))
    assert after.terminated
    assert not advance(params, start, jnp.zeros(3)).terminated


@pytest.mark.slow
def test_a_step_has_derivatives(env, params, start, advance):
    """Of the reward and of the readings with respect to the action, against differences."""

    def along(t):
        after = advance(params, start, jnp.array([0.1, 0.2, -0.3]) + t * jnp.array([1, -0.5, 0.7]))
        return jnp.append(after.reward, jnp.concatenate([*after.physics.readings.values()]))

    derivative = jax.jvp(along, (0.0,), (1.0,))[1]
    assert np.min(np.abs(derivative[:1])) > 1e-6
    close(derivative, slope(along, 1e-5), 1e-6)


@pytest.mark.slow
def test_explicit_forces(env, params, start):
    explicit = dataclasses.replace(env, implicit=False, observations=("v",), sensors=("place",))
    few = explicit.default_params()
    after = jax.jit(explicit.step)(few, start._replace(physics=small(start)), jnp.zeros(3))
    assert after.observation.shape == (9,)
    assert np.all(np.isfinite(after.observation))


def small(state):
    """The physics with the readings of the explicit task."""
    return state.physics._replace(readings={"place": state.physics.readings["place"]})


def test_a_tolerance_decreases_outside_of_its_bounds():
    x = jnp.array([0.0, 1.0, 1.5, 2.0, 2.5, 3.0])
    expected = [0.1, 1, 1, 1, 0.1**0.25, 0.1]
    close(envs.tolerance(x, 1.0, 2.0, 1.0), expected)
    assert np.all(np.isfinite(jax.vmap(jax.grad(lambda x: envs.tolerance(x, 1, 2, 1)))(x)))
    close(envs.tolerance(jnp.array([0, 1, 3]), 0.9, 2.0, 1.0), [0.1**0.81, 1, 0.1])
    close(envs.tolerance(0, 0.9, 2, 1), 0.1**0.81)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rewards": {"speed": 1.0}}, "no reward term 'speed'; expected one of alive, action"),
        ({"rewards": {"alive": np.nan}}, "the weight of 'alive' is nan, expected a finite number"),
        ({"rewards": {"alive": True}}, "the weight of 'alive' is True, expected a finite number"),
        ({"rewards": {"a": (1.0, "b")}}, "the reward term 'a' is 'b', expected a function"),
        ({"rewards": ["alive"]}, "rewards is .*, expected a mapping"),
        ({"observations": "q"}, "observations is 'q', expected a sequence of names"),
        ({"observations": ["qpos"]}, "'qpos' in observations is unknown, expected one of q, v, "),
        ({"observations": ["gyr"]}, "or a sensor: 'gyro'.*; did you mean 'gyro'"),
        ({"control_range": {"kne": (0, 1)}}, "did you mean 'knee'"),
        ({"sensors": ["q"]}, "'q' in sensors is unknown, .* touch, limit_force, cfrc_ext, or a s"),
        ({"sensors": ["pressure"]}, "sensor 'pressure' was left out: .* the kind 'touch'"),
        ({"keyframe": "stand"}, "keyframe is 'stand', expected one of 'crouch'$"),
        ({"keyframe": "croch"}, "expected one of 'crouch'; did you mean 'crouch'"),
        ({"keyframe": ["crouch"]}, r"keyframe is \['crouch'\], expected one of 'crouch'"),
        ({"control_range": {}}, "actuator 'hip' has no control range"),
        ({"control_range": {"toe": (0, 1)}}, "control_range has the actuator 'toe', expected one"),
        ({"control_range": {"hip": (1, 0)}}, r"control_range of 'hip' is \(1, 0\), expected two"),
        (
            {"control_range": {"hip": (False, 1)}},
            r"control_range of 'hip' is \(False, 1\), expected",
        ),
        ({"substeps": 0}, "substeps is 0, expected an integer of 1 or more"),
        ({"time_step": True}, "time_step is True, expected more than 0, and finite"),
        ({"time_step": np.inf}, "time_step is inf, expected more than 0, and finite"),
        ({"start": (0.1, -1)}, "start is .*, expected finite, 0 or more"),
        ({"start": 0.1}, r"start has shape \(\) .* expected \(2,\)"),
        ({"fails": 3}, "fails is 3, expected a function or None"),
        ({"rewards": ("alive", "action")}, "rewards is .*, expected a mapping"),
        ({"rewards": {"a": (1.0, abs, 2)}}, "the reward term 'a' is .*, expected a pair"),
        ({"control_range": ["hip"]}, "control_range is .*, expected a mapping from names"),
        ({"control_range": {"hip": (None, 1)}}, r"control_range of 'hip' is \(None, 1\)"),
        ({"observations": [["q"]]}, r"observations has the entry \['q'\], expected a name or a f"),
        ({"sensors": [fallen]}, r"sensors has the entry <function fallen.*>, expected a name$"),
        ({"draw_start": 1}, "draw_start is 1, expected a function or None"),
    ],
)
def test_wrong_settings_are_named(env, settings, message):
    with pytest.raises(ArgumentError, match=message):
        dataclasses.replace(env, **settings)


def test_a_numpy_weight_is_a_number(env):
    (term,) = dataclasses.replace(env, rewards={"alive": np.float32(2)})._terms
    assert term[:2] == ("alive", 2.0)


# An arm with two links, a cord that only a motor pulls, and a target that the file places.
ARM_OF_TWO = """
<mujoco>
  <worldbody>
    <body name="target" mocap="true" pos="0 0 1"><site name="target"/></body>
    <body><joint name="a" axis="0 1 0"/><geom size="0.1" pos="0.2 0 0"/><site name="s"/>
      <body name="b" pos="0.4 0 0"><joint name="b" axis="0 1 0"/><geom size="0.1" pos="0.1 0 0"/>
        <site name="t" pos="0.1 0 0"/></body>
    </body>
  </worldbody>
  {more}
  <tendon><spatial name="cord"><site site="s"/><site site="t"/></spatial></tendon>
  <actuator><motor name="m" {drive} ctrlrange="-1 1"/></actuator>
  <sensor>
    <tendonpos name="cord" tendon="cord"/><framepos name="target" objtype="site" objname="target"/>
    <force name="force" site="t"/><jointpos name="q" joint="a"/><user name="touch" dim="1"/>
  </sensor>
  <keyframe><key name="high" mpos="0 0 2"/></keyframe>
</mujoco>
"""


def test_tendons_without_properties_and_mocap_bodies_are_read():
    text = ARM_OF_TWO.format(more="", drive='joint="a"')
    task = envs.MjcfTask(text, {"alive": 1}, ["cord", "target"], keyframe="high", start=(0, 0))
    observed = task.reset(task.default_params(), jax.random.key(0)).observation
    close(observed, [0.5, 0, 0, 2])


@pytest.mark.parametrize(
    ("more", "drive", "message"),
    [
        ("", 'tendon="cord"', "sensor 'force' .* the forces of the tendons 'cord'"),
        (
            "<equality><connect body1='b' anchor='0 0 0'/></equality>",
            'joint="a"',
            "sensor 'force' .* the forces of the equalities of frames",
        ),
    ],
)
def test_force_sensors_that_would_miss_forces_are_refused(more, drive, message):
    with pytest.raises(ArgumentError, match=message):
        envs.MjcfTask(ARM_OF_TWO.format(more=more, drive=drive), {"alive": 1}, ["force"])


def test_names_of_the_file_that_an_observation_has_too_are_refused():
    text = ARM_OF_TWO.format(more="", drive='joint="a"')
    for name in ("q", "touch"):
        with pytest.raises(ArgumentError, match=f"'{name}' in sensors is a sensor of the file, an"):
            envs.MjcfTask(text, {"alive": 1}, ["v"], sensors=[name])


def test_an_actuator_with_a_negative_stiffness_at_one_end_is_refused():
    text = ARM_OF_TWO.format(more="", drive='joint="a"').replace("<motor", "<general")
    text = text.replace('name="m"', 'name="m" gaintype="affine" gainprm="0 1 0"')
    with pytest.raises(ArgumentError, match=r"'m'|'a'"):
        envs.MjcfTask(text, {"alive": 1}, ["v"])
    envs.MjcfTask(text, {"alive": 1}, ["v"], implicit=False)


def test_rewards_and_failures_are_numbers():
    text = ARM_OF_TWO.format(more="", drive='joint="a"')
    wide = envs.MjcfTask(text, {"a": (1.0, lambda *x: jnp.ones(3))}, ["v"])
    with pytest.raises(ArgumentError, match=r"the reward term 'a' has shape \(3,\), expected a n"):
        jax.eval_shape(wide.reset, wide.default_params(), jax.random.key(0))
    many = envs.MjcfTask(text, {"alive": 1}, ["v"], fails=lambda *x: jnp.ones(3))
    with pytest.raises(ArgumentError, match=r"fails returns the shape \(3,\) and the dtype float"):
        many.failed(None, None)


# A ball that rests on the ground, and a slider that a motor pushes against the end of its rail.
PRESSED = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="ball" pos="0 0 0.1"><freejoint/><geom name="ball" size="0.1" mass="3"/></body>
    <body name="cart" pos="0 0 1"><joint name="rail" type="slide" axis="1 0 0" range="-1 0.5"
      limited="true"/><geom size="0.1" mass="2" contype="0" conaffinity="0"/></body>
  </worldbody>
  <actuator><motor joint="rail" gear="40" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


def at_the_end(params, key):
    return params.home.at[-1].set(0.5), params.home_velocity


def half_of_the_action(params, physics):
    return physics.action / 2


def test_functions_as_observations_and_the_forces_of_limits_and_contacts():
    task = envs.MjcfTask(
        PRESSED,
        {"alive": 1.0},
        ["limit_force", half_of_the_action, "cfrc_ext"],
        draw_start=at_the_end,
        substeps=10,
    )
    params = task.default_params()
    state = task.reset(params, jax.random.key(0))
    close(state.physics.q[-1], 0.5)
    assert not np.any(state.observation)
    after = jax.jit(task.step)(params, state, jnp.array([0.5]))
    limit_force, half, forces = np.split(after.observation, [7, 8])
    close(limit_force, [0] * 6 + [-20], 0.02)
    close(half, [0.25])
    close(forces, [0, 0, 0, 0, 0, 3 * 9.81] + [0] * 6, 0.02)  # [moment; force] on the ball
    wide = dataclasses.replace(task, observations=[lambda *x: jnp.ones((2, 2))])
    with pytest.raises(ArgumentError, match=r"the function <lambda> of observations returns shap"):
        jax.eval_shape(wide.reset, params, jax.random.key(0))
    number = dataclasses.replace(task, fails=lambda params, physics: physics.q[0])
    with pytest.raises(ArgumentError, match=r"fails returns the shape \(\) and the dtype float"):
        jax.eval_shape(number.failed, params, state.physics)
    single = dataclasses.replace(task, draw_start=lambda *x: jnp.ones(7))
    with pytest.raises(ArgumentError, match=r"draw_start returns an array of shape \(7,\), exp"):
        jax.eval_shape(single.reset, params, jax.random.key(0))
    short = dataclasses.replace(task, draw_start=lambda *x: (jnp.ones(3), jnp.ones(7)))
    with pytest.raises(ArgumentError, match=r"q has shape \(3,\), expected \(8,\)"):
        jax.eval_shape(short.reset, params, jax.random.key(0))


def test_a_robot_without_actuators_is_refused():
    robot = "<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>"
    with pytest.raises(ArgumentError, match="the robot has no actuators, expected at least one"):
        envs.MjcfTask(robot, {"alive": 1.0})


TARGET = np.array([0.2, 0.0, 0.4])


def to_target(params, before, action, after):
    return -jnp.linalg.norm(after.readings["hand"] - jnp.asarray(TARGET, action.dtype))


def at_target(params, before, action, after):
    error = after.readings["hand"] - jnp.asarray(TARGET, action.dtype)
    return envs.tolerance(jnp.sum(error**2), 0.0, 0.0, 0.006)


@pytest.mark.slow
def test_an_arm_with_six_muscles_learns_to_reach_a_target():
    """By SHAC in single precision, through muscles, tendons and their wrapping."""
    rewards = {
        "distance": (1.0, to_target),
        "near": (1.0, at_target),
        "velocity": 0.002,
        "action": 0.01,
    }
    env = envs.MjcfTask(
        ARM,
        rewards,
        observations=("q", "v", "activation", "hand", "speed"),
        keyframe="hanging",
        start=(0.1, 0.1),
        episode_steps=100,
    )
    with jax.enable_x64(False):
        algorithm = learning.Shac(batch=32, horizon=16, updates=80, last_noise=0.0)
        training = learning.Training(algorithm, env, seed=0)
        for _ in training.run():
            pass
        policy, params = training.policy(), training.params

        @jax.jit
        @jax.vmap
        def last_distance(key):
            def step(state, _):
                return env.step(params, state, policy(state.observation)), None

            state = jax.lax.scan(step, env.reset(params, key), length=100)[0]
            return jnp.linalg.norm(state.physics.readings["hand"] - TARGET.astype(np.float32))

        distances = last_distance(jax.random.split(jax.random.key(1), 64))
    assert np.max(distances) < 0.03
