"""MuJoCo Warp. A job calls only the stages of the pipeline that it needs, for all samples at once.

On a GPU the stages are recorded as a CUDA graph, as the documentation of MuJoCo Warp advises.
"""

from __future__ import annotations

import functools
import importlib.metadata
import pathlib
import time
from collections.abc import Sequence

import mujoco
import mujoco_warp
import numpy as np
import warp

from .. import jobs
from . import Prepared, Unsupported, call_seconds

JOBS = ("fk", "rnea", "crba", "fd", "jacobian")


@warp.kernel
def subtract(
    tau: warp.array2d(dtype=float),
    bias: warp.array2d(dtype=float),
    force: warp.array2d(dtype=float),
):
    i, j = warp.tid()
    force[i, j] = tau[i, j] - bias[i, j]


class Library:
    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        if dtype != np.float32:
            raise Unsupported("single precision only")
        warp.config.quiet = True
        warp.config.kernel_cache_dir = str(folder / "warp")  # so that all kernels are compiled
        self.plain = mujoco.MjModel.from_xml_path(str(folder / "robot.xml"))
        self.model = mujoco_warp.put_model(self.plain)
        self.body, self.nv = robot["frame"] + 1, robot["nv"]

    def versions(self) -> dict[str, str]:
        names = ("mujoco-warp", "warp-lang")
        return {name: importlib.metadata.version(name) for name in names}

    def prepare(self, job: str, arrays: Sequence[np.ndarray]) -> Prepared:
        if job not in JOBS:
            raise Unsupported("no such function")
        self.batch = len(arrays[0])
        self.data = mujoco_warp.make_data(self.plain, nworld=self.batch, nconmax=0, njmax=0)
        fields = {"q": "qpos", "v": "qvel", "a": "qacc", "tau": "qfrc_applied"}
        for name, array in zip(jobs.JOBS[job].inputs, arrays):
            warp.copy(getattr(self.data, fields[name]), warp.array(array, dtype=warp.float32))
        self.force, self.found = (self._zeros(self.nv) for _ in range(2))
        self.linear, self.angular = (self._zeros(3, self.nv) for _ in range(2))
        self.bodies = warp.full(self.batch, self.body, dtype=int)
        self.points = warp.zeros(self.batch, dtype=warp.vec3)
        stages = getattr(self, job)
        start = time.perf_counter()
        stages()
        warp.synchronize()
        if warp.get_device().is_cuda:
            with warp.ScopedCapture() as capture:
                stages()
            stages = functools.partial(warp.capture_launch, capture.graph)

        def run() -> None:
            stages()
            warp.synchronize()

        run()
        facts = {"compile_s": time.perf_counter() - start, "platform": str(warp.get_device())}
        outputs = functools.partial(self.outputs, job)
        return Prepared(functools.partial(call_seconds, run), outputs, facts)

    def _zeros(self, *shape: int):
        return warp.zeros((self.batch, *shape), dtype=warp.float32)

    def outputs(self, job: str, samples: np.ndarray) -> Sequence[np.ndarray]:
        data = self.data
        if job == "fk":
            return data.xmat.numpy()[samples, 1:], data.xpos.numpy()[samples, 1:]
        if job == "crba":  # the entries of the lower triangle, row by row
            rows = np.repeat(np.arange(self.nv), self.plain.M_rownnz)
            M = np.zeros((len(samples), self.nv, self.nv))
            M[:, rows, np.asarray(self.plain.M_colind)] = data.M.numpy()[samples][:, : len(rows)]
            return [M + np.tril(M, -1).transpose(0, 2, 1)]
        if job == "jacobian":
            parts = [x.numpy()[samples] for x in (self.linear, self.angular)]
            return [np.concatenate(parts, axis=1)]
        return [{"rnea": data.qfrc_bias, "fd": self.found}[job].numpy()[samples]]

    def fk(self) -> None:
        mujoco_warp.kinematics(self.model, self.data)

    def _kinematics(self) -> None:
        mujoco_warp.kinematics(self.model, self.data)
        mujoco_warp.com_pos(self.model, self.data)

    def rnea(self) -> None:
        self._kinematics()
        mujoco_warp.com_vel(self.model, self.data)
        mujoco_warp.rne(self.model, self.data, flg_acc=True)

    def crba(self) -> None:
        self._kinematics()
        mujoco_warp.crb(self.model, self.data)

    def fd(self) -> None:
        self.crba()
        mujoco_warp.factor_m(self.model, self.data)
        mujoco_warp.com_vel(self.model, self.data)
        mujoco_warp.rne(self.model, self.data)
        operands = [self.data.qfrc_applied, self.data.qfrc_bias]
        warp.launch(subtract, (self.batch, self.nv), inputs=operands, outputs=[self.force])
        mujoco_warp.solve_m(self.model, self.data, self.found, self.force)

    def jacobian(self) -> None:
        self._kinematics()
        warp.copy(self.points, self.data.xpos[:, self.body].contiguous())
        mujoco_warp.jac(self.model, self.data, self.linear, self.angular, self.points, self.bodies)
