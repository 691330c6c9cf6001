"""JaxSim: `--adapter benchmarks.conformance.jaxsim_adapter:JaxSim`."""

import jax.numpy as jnp
import jaxsim.api as js
import numpy as np
from jaxsim import VelRepr

from jaxrbd.conformance import STEP, Adapter, Functions

from .mjcf import Conversion
from .sdf import sdf


class JaxSim(Adapter):
    """Hinges and slides on a fixed base, and a floating base."""

    name = "JaxSim"

    def robots(self, trees):
        fixed = [tree for tree in trees if tree.kind in ("revolute", "prismatic")]
        floating = [[t] for t in trees if t.kind == "free_flyer" and t.place == "root"]
        return [fixed, *floating] if fixed else floating

    def load(self, robot):
        floating = robot.trees[0].kind == "free_flyer"
        model = js.model.JaxSimModel.build_from_model_description(
            sdf(robot, floating), is_urdf=False, gravity=-robot.gravity[2]
        )
        own = [joint.name for joint in robot.joints[floating:]]
        theirs = list(model.joint_names())
        to, back = [own.index(n) for n in theirs], [theirs.index(n) for n in own]
        to, back = np.array(to), np.array(back)
        links = list(model.link_names())
        tips = np.array([links.index(tip) for tip in robot.tips])
        base = links.index(model.base_link())
        convert = Conversion(robot)
        nq, nv = (7, 6) if floating else (0, 0)

        def state(q, v):
            pose = (
                convert.position(q)[:nq] if floating else jnp.array([0.0] * 3 + [1.0] + [0.0] * 3)
            )
            twist = v[:nv] if floating else jnp.zeros(6)
            return js.data.JaxSimModelData.build(
                model=model,
                base_position=pose[:3],
                base_quaternion=pose[3:],
                joint_positions=q[nq:][to],
                base_linear_velocity=twist[:3],
                base_angular_velocity=twist[3:],
                joint_velocities=v[nv:][to],
                velocity_representation=VelRepr.Body,
            )

        def inverse_dynamics(q, v, a):
            on_base, on_joints = js.model.inverse_dynamics(
                model,
                state(q, v),
                joint_rate_derivatives=a[nv:][to],
                base_acceleration=a[:nv] if floating else None,
            )
            return jnp.concatenate([on_base[:nv], on_joints[back]])

        def forward_dynamics(q, v, tau):
            forces = jnp.zeros((len(links), 6), tau.dtype)
            if floating:
                forces = forces.at[base].set(tau[:nv])
            of_base, of_joints = js.model.forward_dynamics_aba(
                model, state(q, v), joint_forces=tau[nv:][to], link_forces=forces
            )
            return jnp.concatenate([of_base[:nv], of_joints[back]])

        def placement(q):
            X = state(q, jnp.zeros(robot_nv, q.dtype))._link_transforms[tips]
            return X[:, :3, :3], X[:, :3, 3]

        def step(q, v):
            """Euler's rule and a normalised quaternion, as in JaxSim's integrators."""
            data = state(q, v)
            with data.switch_velocity_representation(VelRepr.Inertial):
                p_dot, quaternion_dot, s_dot = js.ode.system_position_dynamics(data)
            s = (data.joint_positions + STEP * s_dot)[back]
            if not floating:
                return s
            p = data.base_position + STEP * p_dot
            quaternion = data.base_orientation + STEP * quaternion_dot
            quaternion = quaternion / jnp.linalg.norm(quaternion)
            return convert.position_back(jnp.concatenate([p, quaternion, s]))

        robot_nv = nv + len(own)
        return Functions(inverse_dynamics, forward_dynamics, placement, step)
