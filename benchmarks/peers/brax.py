"""The generalized pipeline of Brax."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import numpy as np
from brax import kinematics
from brax.generalized import constraint, dynamics, integrator, mass
from brax.generalized.base import State
from brax.io import mjcf

from .. import jobs
from . import _jax


class Library(_jax.Library):
    """Inverse dynamics is the mass matrix times the acceleration, plus the bias force."""

    names = ("brax",)

    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        super().__init__(folder, robot, dtype)
        self.system = system = mjcf.load(folder / "robot.xml")
        self.link = system.link_names.index(robot["joints"][robot["frame"]]["link"])
        names = list(system.link_names)
        self.order = [names.index(joint["link"]) for joint in robot["joints"]]

    def _state(self, q, v):
        x, xd = kinematics.forward(self.system, q, v)
        return dynamics.transform_com(self.system, State.init(q, v, x, xd))

    def fk(self, q):
        x, _ = kinematics.forward(self.system, q, jnp.zeros(self.nv, q.dtype))
        return x.rot, x.pos

    def finish(self, job, arrays):
        if job != "fk":
            return arrays
        quaternions, positions = (x[:, self.order] for x in arrays)
        return [_jax.rotation(*jnp.moveaxis(quaternions, -1, 0)), positions]

    def rnea(self, q, v, a):
        state = self._state(q, v)
        M = mass.matrix(self.system, state)
        return M @ a + dynamics.inverse(self.system, state)

    def crba(self, q):
        return mass.matrix(self.system, self._state(q, jnp.zeros(self.nv, q.dtype)))

    def fd(self, q, v, tau):
        state = mass.matrix_inv(self.system, self._state(q, v), 0)
        return state.mass_mx_inv @ (tau - dynamics.inverse(self.system, state))

    def jacobian(self, q):
        state = self._state(q, jnp.zeros(self.nv, q.dtype))
        position = state.x.pos[self.link]
        found = constraint.point_jacobian(
            self.system, state.root_com, state.cdof, position, jnp.array(self.link)
        )
        return jnp.concatenate([found.vel.T, found.ang.T])

    def step(self, q, v, tau):
        state = mass.matrix_inv(self.system, self._state(q, v), 0)
        return self._advance(state, tau - dynamics.inverse(self.system, state), jobs.DT)

    def integrate(self, q, v, dt):
        state = self._state(q, v).replace(mass_mx=jnp.eye(self.nv, dtype=q.dtype))
        return self._advance(state, jnp.zeros_like(v), dt)[0]

    def _advance(self, state, force, dt):
        system = self.system.replace(opt=self.system.opt.replace(timestep=dt))
        state = state.replace(qf_smooth=force, qf_constraint=jnp.zeros_like(force))
        state = integrator.integrate(system, state)
        return state.q, state.qd
