"""Brax's generalized pipeline."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import numpy as np

from .. import jobs
from . import _jax


class Brax(_jax.Library):
    """Inverse dynamics is the mass matrix times the acceleration, and the bias force."""

    names = ("brax",)

    def __init__(self, folder: pathlib.Path, robot: dict):
        from brax import kinematics, math
        from brax.generalized import constraint, dynamics, integrator, mass
        from brax.generalized.base import State
        from brax.io import mjcf

        super().__init__(robot)
        self.kinematics, self.math, self.constraint = kinematics, math, constraint
        self.dynamics, self.integrator, self.mass, self.State = dynamics, integrator, mass, State
        system = mjcf.load(folder / "robot.xml")
        self.system = system.replace(opt=system.opt.replace(timestep=jobs.DT))
        self.link = system.link_names.index(robot["joints"][robot["frame"]]["link"])
        names = list(system.link_names)
        self.order = [names.index(joint["link"]) for joint in robot["joints"]]

    def _state(self, q, v):
        x, xd = self.kinematics.forward(self.system, q, v)
        return self.dynamics.transform_com(self.system, self.State.init(q, v, x, xd))

    def fk(self, q):
        x, _ = self.kinematics.forward(self.system, q, jnp.zeros(self.nv, q.dtype))
        return x.rot, x.pos

    def finish(self, job, arrays):
        if job != "fk":
            return arrays
        w, x, y, z = np.moveaxis(arrays[0][:, self.order], -1, 0)
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
        R = np.moveaxis(np.array(rows), (0, 1), (-2, -1))
        return [R, arrays[1][:, self.order]]

    def rnea(self, q, v, a):
        state = self._state(q, v)
        M = self.mass.matrix(self.system, state)
        return M @ a + self.dynamics.inverse(self.system, state)

    def crba(self, q):
        return self.mass.matrix(self.system, self._state(q, jnp.zeros(self.nv, q.dtype)))

    def fd(self, q, v, tau):
        state = self.mass.matrix_inv(self.system, self._state(q, v), 0)
        return state.mass_mx_inv @ (tau - self.dynamics.inverse(self.system, state))

    def jacobian(self, q):
        state = self._state(q, jnp.zeros(self.nv, q.dtype))
        position = state.x.pos[self.link]
        found = self.constraint.point_jacobian(
            self.system, state.root_com, state.cdof, position, jnp.array(self.link)
        )
        return jnp.concatenate([found.vel.T, found.ang.T])

    def step(self, q, v, tau):
        state = self.mass.matrix_inv(self.system, self._state(q, v), 0)
        state = state.replace(
            qf_smooth=tau - self.dynamics.inverse(self.system, state),
            qf_constraint=jnp.zeros_like(v),
        )
        state = self.integrator.integrate(self.system, state)
        return state.q, state.qd


def load(folder: pathlib.Path, robot: dict, dtype: np.dtype) -> Brax:
    _jax.setup(dtype)
    return Brax(folder, robot)
