"""Pinocchio, in the loop `native/pinocchio_loop.cpp`."""

from __future__ import annotations

import ctypes
import importlib.metadata
import pathlib

import numpy as np

from .. import native
from . import Unsupported

KINDS = {"free_flyer": 0, "revolute": 1, "prismatic": 2}
# The definitions with which Pinocchio compiles its headers.
DEFINITIONS = {
    "BOOST_MPL_LIMIT_LIST_SIZE": 30,
    "BOOST_MPL_LIMIT_VECTOR_SIZE": 30,
    "BOOST_FUSION_INVOKE_MAX_ARITY": 12,
}


class Library(native.Loop):
    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        scalar = "double" if dtype == np.float64 else "float"
        flags = [f"-D{name}={value}" for name, value in DEFINITIONS.items()]
        flags += ["-DBOOST_MPL_CFG_NO_PREPROCESSED_HEADERS", f"-DSCALAR={scalar}"]
        # The headers use the mimic joint, which is not in the collection of joints of the loop.
        flags += ["-DBOOST_VARIANT_USE_RELAXED_GET_BY_DEFAULT"]
        library = native.build("pinocchio_loop.cpp", [*flags, *(f"-I{x}" for x in _headers())])
        joints = np.array([[j["parent"], KINDS[j["kind"]]] for j in robot["joints"]], np.int32)
        keys = ("axis", "R", "p", "mass", "com", "inertia")
        numbers = np.array(
            [np.concatenate([np.ravel(j[key]) for key in keys]) for j in robot["joints"]]
        )
        library.create.restype = ctypes.c_void_p
        handle = library.create(
            ctypes.c_int(len(joints)),
            ctypes.c_void_p(joints.ctypes.data),
            ctypes.c_void_p(numbers.ctypes.data),
            ctypes.c_int(robot["frame"]),
        )
        super().__init__(library, handle, dtype, native.shapes(robot))

    def versions(self) -> dict[str, str]:
        return {"pin": importlib.metadata.version("pin")}


def _headers() -> list[pathlib.Path]:
    """The folders with the headers of Pinocchio, Boost and Eigen."""
    prefixes = [
        pathlib.Path(str(file.locate())).parents[len(file.parts) - 3]
        for file in importlib.metadata.files("libpinocchio") or []
        if file.as_posix().endswith("include/pinocchio/config.hpp")
    ]
    if not prefixes:
        raise Unsupported("the wheel of Pinocchio has no headers")
    include = prefixes[0]
    for eigen in (include / "eigen3", pathlib.Path("/usr/include/eigen3")):
        if (eigen / "Eigen" / "Core").exists():
            return [include, eigen]
    raise Unsupported("no headers of Eigen: pip install cmeel-eigen, or apt install libeigen3-dev")
