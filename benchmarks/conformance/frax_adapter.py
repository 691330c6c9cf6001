"""frax: `--adapter benchmarks.conformance.frax_adapter:Frax`."""

import pathlib
import tempfile

import jax.numpy as jnp
import numpy as np
from frax.core.robot import Robot as FraxRobot

from jaxrbd.conformance import STEP, Adapter, Functions, urdf

# Its reader wants an inertia of the fixed link.
WORLD = """<link name="world"><inertial><origin xyz="0 0 0" rpy="0 0 0"/><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>"""


class Frax(Adapter):
    """Its URDF robots on a fixed base: hinges and slides."""

    name = "frax"

    def robots(self, trees):
        return [[tree for tree in trees if tree.kind in ("revolute", "prismatic")]]

    def load(self, robot):
        names = [joint.name for joint in robot.joints]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "robot.urdf")
            path.write_text(urdf(robot).replace('<link name="world" />', WORLD))
            frax = FraxRobot(str(path), joint_ordering=names)
        assert list(frax.joint_names) == names
        tips = np.array([[joint.child for joint in robot.joints].index(tip) for tip in robot.tips])
        gravity = (0.0, 0.0, 9.81, 0.0, 0.0, 0.0)

        def placement(q):
            X = frax.joint_to_world_transforms(q)[tips]
            return X[:, :3, :3], X[:, :3, 3]

        return Functions(
            inverse_dynamics=lambda q, v, a: frax.rnea(q, v, a, jnp.array(gravity), None),
            forward_dynamics=lambda q, v, tau: frax.forward_dynamics(q, v, tau, None),
            placement=placement,
            step=lambda q, v: frax.integrate(q, v, STEP),
        )
