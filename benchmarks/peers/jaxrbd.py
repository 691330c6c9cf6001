"""jaxrbd, as its users call it: jit of vmap, the model an argument."""

from __future__ import annotations

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from .. import jobs
from . import _jax


class JaxRBD(_jax.Library):
    """Gradients are taken in the tangent space."""

    def __init__(self, folder: pathlib.Path, robot: dict):
        import jaxrbd

        super().__init__(robot)
        self.rbd, self.frame = jaxrbd, robot["joints"][robot["frame"]]["link"]
        root_joint = "free_flyer" if self.floating else None
        self.shared = (jaxrbd.load_urdf(folder / "robot.urdf", root_joint=root_joint),)

    def versions(self) -> dict[str, str]:
        import jaxlib

        return {
            "jaxrbd": self.rbd.__version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
        }

    def fk(self, model, q):
        X_WB = self.rbd.forward_kinematics(model, q).X_WB
        return X_WB.R, X_WB.p

    def rnea(self, model, q, v, a):
        return self.rbd.rnea(model, q, v, a)

    def crba(self, model, q):
        return self.rbd.crba(model, q)

    def fd(self, model, q, v, tau):
        return self.rbd.forward_dynamics(model, q, v, tau)

    def jacobian(self, model, q):
        return self.rbd.frame_jacobian(model, q, self.frame)

    def drnea(self, model, q, v, a):
        return tuple(self.rbd.rnea_derivatives(model, q, v, a))

    def dfd(self, model, q, v, tau):
        return tuple(self.rbd.forward_dynamics_derivatives(model, q, v, tau))

    def grad(self, model, q, v, a):
        def loss(dq, v, a):
            tau = self.rbd.rnea(model, self.rbd.integrate(model, q, dq), v, a)
            return 0.5 * jnp.sum(tau**2)

        return jax.grad(loss, (0, 1, 2))(jnp.zeros_like(v), v, a)

    def rollout_grad(self, model, q, v, taus):
        rbd = self.rbd

        def step(q, v, row):
            tau = jnp.concatenate([jnp.zeros(6 * self.floating, row.dtype), row])

            def dynamics(q, v):
                return rbd.forward_dynamics(model, q, v, tau)

            return rbd.semi_implicit_euler(model, dynamics, q, v, jobs.DT)

        def loss(taus):
            _, vs = rbd.rollout(step, (q, v), taus)
            return 0.5 * jnp.sum(vs[-1] ** 2)

        return jax.grad(loss)(taus)


def load(folder: pathlib.Path, robot: dict, dtype: np.dtype) -> JaxRBD:
    _jax.setup(dtype)
    return JaxRBD(folder, robot)
