"""adam-robotics, with velocities in the frame of the body."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import numpy as np
from adam import Representations
from adam.jax import KinDynComputations

from . import Unsupported, _jax


class Library(_jax.Library):
    """Inverse dynamics is the mass matrix times the acceleration, plus the bias force.

    Every robot of adam has a floating base. For a fixed base, the rows and columns of the base are
    left out, and forward dynamics is a solve with the rest of the mass matrix.
    """

    names = ("adam-robotics",)

    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        super().__init__(folder, robot, dtype)
        if any(joint["kind"] == "prismatic" for joint in robot["joints"]):
            raise Unsupported("no prismatic joints")
        names = [joint["name"] for joint in robot["joints"][self.floating :]]
        gravity = jnp.array([0, 0, -9.81, 0, 0, 0], dtype)
        path = str(folder / "robot.urdf")
        self.adam = KinDynComputations(path, names, dtype=dtype, gravity=gravity)
        self.adam.set_frame_velocity_representation(Representations.BODY_FIXED_REPRESENTATION)
        self.links = [joint["link"] for joint in robot["joints"]]
        self.frame = self.links[robot["frame"]]
        self.skipped = 0 if self.floating else 6

    def _configuration(self, q):
        if not self.floating:
            return jnp.eye(4, dtype=q.dtype), q
        x, y, z, w = q[3:7]
        top = jnp.concatenate([_jax.rotation(w, x, y, z), q[:3, None]], axis=1)
        return jnp.concatenate([top, jnp.array([[0, 0, 0, 1]], q.dtype)]), q[7:]

    def _velocity(self, v):
        return (v[:6], v[6:]) if self.floating else (jnp.zeros(6, v.dtype), v)

    def fk(self, q):
        at = self._configuration(q)
        X = jnp.stack([self.adam.forward_kinematics(link, *at) for link in self.links])
        return X[:, :3, :3], X[:, :3, 3]

    def _bias(self, q, v):
        return self.adam.bias_force(*self._configuration(q), *self._velocity(v))[self.skipped :]

    def rnea(self, q, v, a):
        return jnp.matmul(self.crba(q), a, precision="highest") + self._bias(q, v)

    def crba(self, q):
        return self.adam.mass_matrix(*self._configuration(q))[self.skipped :, self.skipped :]

    def fd(self, q, v, tau):
        if not self.floating:
            return jnp.linalg.solve(self.crba(q), tau - self._bias(q, v))
        on_base = {self.links[0]: tau[:6]}
        return self.adam.aba(*self._configuration(q), *self._velocity(v), tau[6:], on_base)

    def jacobian(self, q):
        at = self._configuration(q)
        J = self.adam.jacobian(self.frame, *at)[:, self.skipped :]
        R = self.adam.forward_kinematics(self.frame, *at)[:3, :3]
        in_world = [jnp.matmul(R, part, precision="highest") for part in (J[:3], J[3:])]
        return jnp.concatenate(in_world)
