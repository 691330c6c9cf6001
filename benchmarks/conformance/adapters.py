"""The libraries of `benchmarks.peers` for the conformance suite.

    python -m jaxrbd.conformance --adapter benchmarks.conformance.adapters:MJX

An adapter runs in the environment of its library: `benchmarks/peers/NAME.txt`.
"""

from __future__ import annotations

import importlib
import pathlib
import tempfile

import jax.numpy as jnp
import numpy as np

from jaxrbd.conformance import STEP, Adapter, Functions

from .. import robots
from ..conventions import Ours
from .mjcf import Conversion, expressible, mjcf
from .sdf import sdf


class _Peer(Adapter):
    """A library of `benchmarks.peers`; a subclass names the module and the file of the robot."""

    module: str
    conversion: type = Conversion

    def write(self, robot: robots.Robot, folder: pathlib.Path) -> None:
        """Write the file of the robot that the library reads."""
        raise NotImplementedError

    def integrate(self, library, q, v):
        """The configuration after the time STEP, by the integration rule of the library."""
        return library.integrate(q, v, jnp.asarray(STEP, q.dtype))

    def load(self, robot):
        plain = robots.Robot("conformance", robot.links, robot.joints, robot.gravity)
        model = robot.model()
        facts = robots.numbers(plain) | {"nv": model.nv}
        module = importlib.import_module(f"benchmarks.peers.{self.module}")
        with tempfile.TemporaryDirectory() as folder:
            self.write(plain, pathlib.Path(folder))
            library = module.Library(pathlib.Path(folder), facts, jnp.zeros(()).dtype)
        convert = self.conversion(robot, model)
        links = [link.name for link in robot.links]
        tips = np.array([links.index(tip) for tip in robot.tips])

        def inverse_dynamics(q, v, a):
            state = convert.position(q), convert.motion(q, v), convert.acceleration(q, v, a)
            return convert.motion_back(q, library.rnea(*state))

        def forward_dynamics(q, v, tau):
            state = convert.position(q), convert.motion(q, v), convert.motion(q, tau)
            return convert.acceleration_back(q, v, library.fd(*state))

        def placement(q):
            poses = library.fk(convert.position(q))
            R, p = library.finish("fk", [x[None] for x in poses])
            return R[0, tips], p[0, tips]

        def step(q, v):
            moved = self.integrate(library, convert.position(q), convert.motion(q, v))
            return convert.position_back(moved)

        return Functions(inverse_dynamics, forward_dynamics, placement, step)


class MJX(_Peer):
    """MJX, the JAX form of MuJoCo."""

    name, module = "MJX", "mjx"

    def robots(self, trees):
        return [[tree for tree in trees if expressible(tree)]]

    def write(self, robot, folder):
        (folder / "robot.xml").write_text(mjcf(robot))


class Brax(MJX):
    """Brax's generalized pipeline: hinges, slides and free joints."""

    name, module = "Brax generalized", "brax"

    def robots(self, trees):
        return [[t for t in trees if expressible(t) and t.kind != "spherical"]]


class Frax(_Peer):
    """frax on a fixed base: hinges and slides."""

    name, module = "frax", "frax"

    def robots(self, trees):
        return [[tree for tree in trees if tree.kind in ("revolute", "prismatic")]]

    def write(self, robot, folder):
        (folder / "robot.urdf").write_text(robots.urdf(robot))


class _PoseInWorld(Ours):
    """jaxrbd's conventions, but the pose of a floating base is its pose in the world."""

    def __init__(self, robot, model):
        conversion = Conversion(robot, model)
        self.position, self.position_back = conversion.in_world, conversion.from_world


class JaxSim(_Peer):
    """JaxSim: hinges and slides on a fixed base, and a floating base."""

    name, module, conversion = "JaxSim", "jaxsim", _PoseInWorld

    def robots(self, trees):
        fixed = [tree for tree in trees if tree.kind in ("revolute", "prismatic")]
        floating = [[t] for t in trees if t.kind == "free_flyer" and t.place == "root"]
        return [fixed, *floating] if fixed else floating

    def write(self, robot, folder):
        (folder / "robot.sdf").write_text(sdf(robot, robot.floating))

    def integrate(self, library, q, v):
        return library.euler(q, v, STEP)
