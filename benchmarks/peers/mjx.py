"""MJX, MuJoCo in JAX. A job calls only the stages of the pipeline that it needs."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx
from mujoco.mjx._src import forward, smooth, support

from . import _jax


class Library(_jax.Library):
    names = ("mujoco-mjx", "mujoco")

    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        super().__init__(folder, robot, dtype)
        self.model = mjx.put_model(mujoco.MjModel.from_xml_path(str(folder / "robot.xml")))
        self.body = robot["frame"] + 1

    def _kinematics(self, q, **more):
        data = mjx.make_data(self.model).replace(qpos=q, **more)
        return smooth.com_pos(self.model, smooth.kinematics(self.model, data))

    def _bias(self, q, v):
        data = self._kinematics(q, qvel=v)
        data = smooth.com_vel(self.model, smooth.crb(self.model, data))
        return smooth.rne(self.model, data)

    def fk(self, q):
        data = mjx.make_data(self.model).replace(qpos=q)
        data = smooth.kinematics(self.model, data)
        return data.xmat[1:], data.xpos[1:]

    def rnea(self, q, v, a):
        data = smooth.com_vel(self.model, self._kinematics(q, qvel=v, qacc=a))
        return smooth.rne(self.model, data, flg_acc=True).qfrc_bias

    def crba(self, q):
        return support.full_m(self.model, smooth.crb(self.model, self._kinematics(q)))

    def fd(self, q, v, tau):
        data = smooth.factor_m(self.model, self._bias(q, v))
        return smooth.solve_m(self.model, data, tau - data.qfrc_bias)

    def jacobian(self, q):
        data = self._kinematics(q)
        linear, angular = support.jac(self.model, data, data.xpos[self.body], self.body)
        return jnp.concatenate([linear.T, angular.T])

    def integrate(self, q, v, dt):
        return forward._integrate_pos(self.model.jnt_type, q, v, dt)
