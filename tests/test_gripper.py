"""A gripper whose two fingers one actuator closes, through a tendon, holds a box."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from jaxrbd import contact

GRIPPER = """
<mujoco>
  <option timestep="0.004"/>
  <compiler autolimits="true"/>
  <default><geom friction="0.8"/></default>
  <worldbody>
    <body name="palm" pos="0 0 0.5">
      <geom type="box" size="0.06 0.02 0.02" contype="0" conaffinity="0"/>
      <body name="left" pos="-0.04 0 -0.05">
        <joint name="left" type="slide" axis="1 0 0" range="0 0.04" damping="1"/>
        <geom name="left" type="box" size="0.005 0.01 0.03" mass="0.05"/>
      </body>
      <body name="right" pos="0.04 0 -0.05">
        <joint name="right" type="slide" axis="-1 0 0" range="0 0.04" damping="1"/>
        <geom name="right" type="box" size="0.005 0.01 0.03" mass="0.05"/>
      </body>
    </body>
    <body name="box" pos="0 0 0.44">
      <freejoint name="box"/>
      <geom name="box" type="box" size="0.02 0.02 0.02" mass="0.1"/>
    </body>
  </worldbody>
  <contact><exclude body1="left" body2="right"/></contact>
  <tendon>
    <fixed name="grip"><joint joint="left" coef="0.5"/><joint joint="right" coef="0.5"/></fixed>
  </tendon>
  <equality><joint joint1="left" joint2="right"/></equality>
  <actuator><position name="grip" tendon="grip" kp="400" kv="5" forcerange="-20 20"/></actuator>
</mujoco>
"""


@pytest.mark.slow
def test_a_gripper_holds_a_box_for_ten_seconds():
    """The box creeps less than 20 um/s, and does not turn; an open gripper drops it."""
    robot = jaxrbd.load_mjcf(GRIPPER)
    model = robot.model.with_dissipation()

    @jax.jit
    def held(control):
        def step(_, state):
            q, v = state
            servo, tau = contact.servo_of_actuators(robot.actuators, model, q, control, v)
            found = contact.contact_step(
                model,
                robot.scene,
                q,
                v,
                tau,
                0.004,
                servo=servo,
                constraints=robot.constraints,
                tendons=robot.tendons,
            )
            return found.q, found.v

        start = robot.q0, jnp.zeros(model.nv)
        early = jax.lax.fori_loop(0, 250, step, start)
        return early, jax.lax.fori_loop(0, 2250, step, early)

    (early, _), (late, v) = held(jnp.array([0.04]))
    fingers, position, rotation = np.split(late, [2, 5])
    np.testing.assert_allclose(fingers, 0.015, atol=1e-5)
    np.testing.assert_allclose(position, [0, 0, 0.4385], atol=5e-4)
    np.testing.assert_allclose(rotation, [0, 0, 0, 1], atol=1e-6)
    assert abs(late[4] - early[4]) < 9 * 20e-6
    assert np.max(np.abs(v)) < 1e-4
    (dropped, _), _ = held(jnp.array([0.0]))
    assert dropped[4] < -1
