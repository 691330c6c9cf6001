"""frax, whose floating base has the conventions of MuJoCo."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import numpy as np
from frax.core.robot import Robot

from . import _jax

UPWARDS = (0.0, 0.0, 9.81, 0.0, 0.0, 0.0)
# frax reads only files in which the fixed link has an inertia.
WORLD = """<link name="world"><inertial><origin xyz="0 0 0" rpy="0 0 0"/><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>"""


class Library(_jax.Library):
    names = ("frax",)

    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        super().__init__(folder, robot, dtype)
        names = [joint["name"] for joint in robot["joints"][self.floating :]]
        path = folder / "frax.urdf"
        path.write_text((folder / "robot.urdf").read_text().replace('<link name="world" />', WORLD))
        base = "quaternion" if self.floating else None
        self.frax = Robot(str(path), joint_ordering=names, floating_base=base)
        assert list(self.frax.joint_names)[-len(names) :] == names
        # The floating base of frax is six joints; the last one moves the root link.
        skipped = 5 if self.floating else 0
        self.bodies = skipped + np.arange(len(robot["joints"]))
        parents, chain = [joint["parent"] for joint in robot["joints"]], []
        body = robot["frame"]
        while body >= 0:
            chain.append(body + skipped)
            body = parents[body]
        self.chain = np.array([*range(skipped), *reversed(chain)])

    def fk(self, q):
        X = self.frax.joint_to_world_transforms(q)[self.bodies]
        return X[:, :3, :3], X[:, :3, 3]

    def rnea(self, q, v, a):
        return self.frax.rnea(q, v, a, jnp.array(UPWARDS, q.dtype), None)

    def crba(self, q):
        return self.frax.crba(q)

    def fd(self, q, v, tau):
        return self.frax.forward_dynamics(q, v, tau, None)

    def jacobian(self, q):
        X = self.frax.joint_to_world_transforms(q)
        return self.frax._frame_jacobian(X, jnp.eye(4, dtype=q.dtype), self.chain)

    def integrate(self, q, v, dt):
        return self.frax.integrate(q, v, dt)
