"""MJX, the JAX form of MuJoCo: the stages of its pipeline that a job needs."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import numpy as np

from .. import jobs
from . import _jax


class MJX(_jax.Library):
    names = ("mujoco-mjx", "mujoco")

    def __init__(self, folder: pathlib.Path, robot: dict):
        import mujoco
        from mujoco import mjx
        from mujoco.mjx._src import forward, smooth, support

        super().__init__(robot)
        self.mjx, self.forward, self.smooth, self.support = mjx, forward, smooth, support
        self.model = mjx.put_model(mujoco.MjModel.from_xml_path(str(folder / "robot.xml")))
        self.body = robot["frame"] + 1

    def _kinematics(self, q, **more):
        data = self.mjx.make_data(self.model).replace(qpos=q, **more)
        return self.smooth.com_pos(self.model, self.smooth.kinematics(self.model, data))

    def _bias(self, q, v):
        data = self._kinematics(q, qvel=v)
        data = self.smooth.com_vel(self.model, self.smooth.crb(self.model, data))
        return self.smooth.rne(self.model, data)

    def fk(self, q):
        data = self.mjx.make_data(self.model).replace(qpos=q)
        data = self.smooth.kinematics(self.model, data)
        return data.xmat[1:], data.xpos[1:]

    def rnea(self, q, v, a):
        data = self.smooth.com_vel(self.model, self._kinematics(q, qvel=v, qacc=a))
        return self.smooth.rne(self.model, data, flg_acc=True).qfrc_bias

    def crba(self, q):
        return self.support.full_m(self.model, self.smooth.crb(self.model, self._kinematics(q)))

    def fd(self, q, v, tau):
        data = self.smooth.factor_m(self.model, self._bias(q, v))
        return self.smooth.solve_m(self.model, data, tau - data.qfrc_bias)

    def jacobian(self, q):
        data = self._kinematics(q)
        linear, angular = self.support.jac(self.model, data, data.xpos[self.body], self.body)
        return jnp.concatenate([linear.T, angular.T])

    def step(self, q, v, tau):
        v = v + jobs.DT * self.fd(q, v, tau)
        return self.forward._integrate_pos(self.model.jnt_type, q, v, jobs.DT), v


def load(folder: pathlib.Path, robot: dict, dtype: np.dtype) -> MJX:
    _jax.setup(dtype)
    return MJX(folder, robot)
