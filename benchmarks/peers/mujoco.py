"""The C library of MuJoCo, in the loop `native/mujoco_loop.cpp`."""

from __future__ import annotations

import ctypes
import importlib.metadata
import pathlib

import mujoco
import numpy as np

from .. import native
from . import Prepared, Unsupported


class Library(native.Loop):
    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        if dtype != np.float64:
            raise Unsupported("double precision only")
        home = pathlib.Path(mujoco.__file__).parent
        shared = next(home.glob("libmujoco.so*"), None)
        if shared is None or not (home / "include" / "mujoco" / "mujoco.h").exists():
            raise Unsupported("no headers beside MuJoCo's wheel")
        flags = [f"-I{home / 'include'}", str(shared), f"-Wl,-rpath,{home}"]
        library = native.build("mujoco_loop.cpp", flags)
        library.create.restype = ctypes.c_void_p
        error = ctypes.create_string_buffer(1000)
        path = str(folder / "robot.xml").encode()
        handle = library.create(path, ctypes.c_int(robot["frame"]), error, ctypes.c_int(1000))
        if not handle:
            raise Unsupported(error.value.decode())
        shapes = native.shapes(robot)
        for job in ("dfd", "grad", "rollout_grad"):
            del shapes[job]
        super().__init__(library, handle, dtype, shapes)

    def versions(self) -> dict[str, str]:
        return {"mujoco": importlib.metadata.version("mujoco")}

    def prepare(self, job: str, arrays: list[np.ndarray]) -> Prepared:
        prepared = super().prepare(job, arrays)
        return prepared._replace(facts={"note": "fd"}) if job == "drnea" else prepared
