"""MJX, the JAX form of MuJoCo: `--adapter benchmarks.conformance.mjx_adapter:MJX`."""

import jax.numpy as jnp
import mujoco
from mujoco import mjx
from mujoco.mjx._src import forward, smooth, support

from jaxrbd.conformance import STEP, Adapter, Functions

from .mjcf import Conversion, expressible, mjcf


class MJX(Adapter):
    name = "MJX"

    def robots(self, trees):
        return [[tree for tree in trees if expressible(tree)]]

    def load(self, robot):
        plain = mujoco.MjModel.from_xml_string(mjcf(robot))
        m = mjx.put_model(plain)
        convert = Conversion(robot)
        tips = [plain.body(tip).id for tip in robot.tips]

        def dynamics(q, v):
            d = mjx.make_data(m)
            d = d.replace(qpos=convert.position(q), qvel=convert.motion(q, v))
            d = smooth.com_pos(m, smooth.kinematics(m, d))
            return smooth.rne(m, smooth.com_vel(m, smooth.crb(m, d)))

        def inverse_dynamics(q, v, a):
            d = dynamics(q, v)
            force = support.mul_m(m, d, convert.acceleration(q, v, a)) + d.qfrc_bias
            return convert.motion_back(q, force)

        def forward_dynamics(q, v, tau):
            d = smooth.factor_m(m, dynamics(q, v))
            qacc = smooth.solve_m(m, d, convert.motion(q, tau) - d.qfrc_bias)
            return convert.acceleration_back(q, v, qacc)

        def placement(q):
            d = smooth.kinematics(m, mjx.make_data(m).replace(qpos=convert.position(q)))
            return d.xmat[jnp.array(tips)], d.xpos[jnp.array(tips)]

        def step(q, v):
            qpos, qvel = convert.position(q), convert.motion(q, v)
            moved = forward._integrate_pos(m.jnt_type, qpos, qvel, jnp.asarray(STEP, q.dtype))
            return convert.position_back(moved)

        return Functions(inverse_dynamics, forward_dynamics, placement, step)
