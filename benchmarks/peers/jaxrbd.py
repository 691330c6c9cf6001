"""jaxrbd, as its users call it: jit of vmap."""

from __future__ import annotations

import pathlib

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

import jaxrbd as rbd

from .. import jobs
from . import _jax


class Library(_jax.Library):
    """Gradients are taken in the tangent space."""

    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        super().__init__(folder, robot, dtype)
        self.frame = robot["joints"][robot["frame"]]["link"]
        root_joint = "free_flyer" if self.floating else None
        self.model = rbd.load_urdf(folder / "robot.urdf", root_joint=root_joint)

    def versions(self) -> dict[str, str]:
        return {module.__name__: module.__version__ for module in (rbd, jax, jaxlib)}

    def fk(self, q):
        X_WB = rbd.forward_kinematics(self.model, q).X_WB
        return X_WB.R, X_WB.p

    def rnea(self, q, v, a):
        return rbd.rnea(self.model, q, v, a)

    def crba(self, q):
        return rbd.crba(self.model, q)

    def fd(self, q, v, tau):
        return rbd.forward_dynamics(self.model, q, v, tau)

    def jacobian(self, q):
        return rbd.frame_jacobian(self.model, q, self.frame)

    def drnea(self, q, v, a):
        return tuple(rbd.rnea_derivatives(self.model, q, v, a))

    def dfd(self, q, v, tau):
        return tuple(rbd.forward_dynamics_derivatives(self.model, q, v, tau))

    def grad(self, q, v, a):
        def loss(dq, v, a):
            tau = rbd.rnea(self.model, rbd.integrate(self.model, q, dq), v, a)
            return 0.5 * jnp.sum(tau**2)

        return jax.grad(loss, (0, 1, 2))(jnp.zeros_like(v), v, a)

    def rollout_grad(self, q, v, taus):
        def step(q, v, row):
            # The step of Pinocchio; `semi_implicit_euler` adds linear velocities in fixed axes.
            tau = jnp.concatenate([jnp.zeros(6 * self.floating, row.dtype), row])
            v = v + jobs.DT * rbd.forward_dynamics(self.model, q, v, tau)
            return rbd.integrate(self.model, q, jobs.DT * v), v

        def loss(taus):
            _, vs = rbd.integrators.rollout(step, (q, v), taus)
            return 0.5 * jnp.sum(vs[-1] ** 2)

        return jax.grad(loss)(taus)
