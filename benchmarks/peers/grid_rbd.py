"""GRiD: CUDA code that is generated for one robot, one largest batch and one job.

JAX calls the code, whose functions take batches. The compilation time contains the generation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import grid_rbd.jax
import jax.numpy as jnp
import numpy as np

from . import Prepared, Unsupported, _jax

# The algorithms of GRiD for each job.
ALGORITHMS = {
    "rnea": ["inverse_dynamics"],
    "crba": ["crba"],
    "fd": ["aba"],
    "jacobian": ["frame_jacobian"],
    "drnea": ["inverse_dynamics_gradient", "crba"],
    "dfd": ["forward_dynamics_gradient", "minv"],
    "grad": ["inverse_dynamics", "inverse_dynamics_gradient", "crba"],
}


class Library(_jax.Library):
    names = ("grid-rbd",)
    batched = True

    def prepare(self, job: str, arrays: Sequence[np.ndarray]) -> Prepared:
        if job not in ALGORITHMS:
            raise Unsupported("no such function")
        start = time.perf_counter()
        self.handle = grid_rbd.jax.register_robot(
            f"{self.robot['name']}_{job}_{len(arrays[0])}",
            str(self.folder / "robot.urdf"),
            floating_base=self.floating,
            max_batch_size=len(arrays[0]),
            algorithm_list=ALGORITHMS[job],
            dtype=str(self.dtype),
            cache_dir=self.folder / "grid",
        )
        registering = time.perf_counter() - start
        prepared = super().prepare(job, arrays)
        prepared.facts["compile_s"] += registering
        return prepared

    def rnea(self, q, v, a):
        return self.handle.inverse_dynamics(q, v, a)

    def crba(self, q):
        return self.handle.crba(q)

    def fd(self, q, v, tau):
        return self.handle.aba(q, v, tau)

    def jacobian(self, q):
        return self.handle.frame_jacobian(q, target_jid=self.robot["frame"])

    def drnea(self, q, v, a):
        J = self.handle.inverse_dynamics_gradient(q, v, a)
        return J[..., : self.nv], J[..., self.nv :], self.handle.crba(q)

    def dfd(self, q, v, tau):
        J = self.handle.forward_dynamics_gradient(q, v, tau)
        return J[..., : self.nv], J[..., self.nv :], self.handle.minv(q)

    def grad(self, q, v, a):
        tau = self.rnea(q, v, a)
        return tuple(
            jnp.einsum("bi,bij->bj", tau, J, precision="highest") for J in self.drnea(q, v, a)
        )
