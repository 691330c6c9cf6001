"""MuJoCo Warp: the stages of its pipeline that a job needs, for all samples at once.

On a GPU the stages are recorded once and replayed, as its documentation advises.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import time
from collections.abc import Callable, Sequence

import numpy as np

from .. import jobs
from . import Prepared, Unsupported


class Warp:
    def __init__(self, folder: pathlib.Path, robot: dict):
        import mujoco
        import mujoco_warp
        import warp

        warp.config.quiet = True
        warp.config.kernel_cache_dir = str(folder / "warp")  # what is compiled is compiled anew
        self.warp, self.mjw = warp, mujoco_warp
        self.plain = mujoco.MjModel.from_xml_path(str(folder / "robot.xml"))
        self.model = mujoco_warp.put_model(self.plain)
        self.body, self.nv = robot["frame"] + 1, robot["nv"]
        # Where the entries of its matrices stand: the lower triangle, row by row.
        rows = np.repeat(np.arange(self.nv), self.plain.M_rownnz)
        self.entries = rows, np.asarray(self.plain.M_colind)

    def versions(self) -> dict[str, str]:
        names = ("mujoco-warp", "warp-lang")
        return {name: importlib.metadata.version(name) for name in names}

    def prepare(self, job: str, arrays: Sequence[np.ndarray]) -> Prepared:
        if not hasattr(self, f"_{job}"):
            raise Unsupported("no such function")
        warp, batch = self.warp, len(arrays[0])
        data = self.mjw.make_data(self.plain, nworld=batch, nconmax=0, njmax=0)
        for name, field in zip(jobs.JOBS[job].inputs, ("qpos", "qvel", "qacc")):
            array = arrays[jobs.JOBS[job].inputs.index(name)]
            target = getattr(data, "qfrc_applied" if name == "tau" else field)
            warp.copy(target, warp.array(array, dtype=warp.float32))
        stages, results = getattr(self, f"_{job}")(data, batch)
        start = time.perf_counter()
        stages()
        warp.synchronize()
        run: Callable = stages
        if warp.get_device().is_cuda:
            with warp.ScopedCapture() as capture:
                stages()

            def run():
                warp.capture_launch(capture.graph)

        run()
        warp.synchronize()
        facts = {"compile_s": time.perf_counter() - start, "platform": str(warp.get_device())}

        def timed(calls: int) -> list[float]:
            seconds = []
            for _ in range(calls):
                start = time.perf_counter()
                run()
                warp.synchronize()
                seconds.append(time.perf_counter() - start)
            return seconds

        return Prepared(timed, results, facts)

    def _fk(self, d, batch):
        def stages():
            self.mjw.kinematics(self.model, d)

        def results(samples):
            return d.xmat.numpy()[samples, 1:], d.xpos.numpy()[samples, 1:]

        return stages, results

    def _rnea(self, d, batch):
        def stages():
            self.mjw.kinematics(self.model, d)
            self.mjw.com_pos(self.model, d)
            self.mjw.com_vel(self.model, d)
            self.mjw.rne(self.model, d, flg_acc=True)

        return stages, lambda samples: [d.qfrc_bias.numpy()[samples]]

    def _crba(self, d, batch):
        def stages():
            self.mjw.kinematics(self.model, d)
            self.mjw.com_pos(self.model, d)
            self.mjw.crb(self.model, d)

        def results(samples):
            M = np.zeros((len(samples), self.nv, self.nv))
            rows, columns = self.entries
            M[:, rows, columns] = d.M.numpy()[samples][:, : len(rows)]
            return [M + np.tril(M, -1).transpose(0, 2, 1)]

        return stages, results

    def _fd(self, d, batch):
        warp = self.warp
        force, found = (warp.zeros((batch, self.nv), dtype=warp.float32) for _ in range(2))

        def stages():
            self.mjw.kinematics(self.model, d)
            self.mjw.com_pos(self.model, d)
            self.mjw.crb(self.model, d)
            self.mjw.factor_m(self.model, d)
            self.mjw.com_vel(self.model, d)
            self.mjw.rne(self.model, d)
            warp.launch(
                _less(warp),
                dim=(batch, self.nv),
                inputs=[d.qfrc_applied, d.qfrc_bias],
                outputs=[force],
            )
            self.mjw.solve_m(self.model, d, found, force)

        return stages, lambda samples: [found.numpy()[samples]]

    def _jacobian(self, d, batch):
        warp = self.warp
        linear, angular = (warp.zeros((batch, 3, self.nv), dtype=warp.float32) for _ in range(2))
        bodies = warp.full(batch, self.body, dtype=int)
        points = warp.zeros(batch, dtype=warp.vec3)

        def stages():
            self.mjw.kinematics(self.model, d)
            self.mjw.com_pos(self.model, d)
            warp.copy(points, d.xpos[:, self.body].contiguous())
            self.mjw.jac(self.model, d, linear, angular, points, bodies)

        def results(samples):
            return [np.concatenate([linear.numpy()[samples], angular.numpy()[samples]], axis=1)]

        return stages, results


def _less(warp):
    """The kernel of `force = tau - bias`."""

    @warp.kernel
    def less(
        tau: warp.array2d(dtype=float),
        bias: warp.array2d(dtype=float),
        force: warp.array2d(dtype=float),
    ):
        i, j = warp.tid()
        force[i, j] = tau[i, j] - bias[i, j]

    return less


def load(folder: pathlib.Path, robot: dict, dtype: np.dtype) -> Warp:
    if dtype != np.float32:
        raise Unsupported("single precision only")
    return Warp(folder, robot)
