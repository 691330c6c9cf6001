"""JaxSim, with velocities in the frame of the body and quaternions wxyz."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import jaxsim.api as js
import numpy as np
from jaxsim import VelRepr

from . import _jax


class Library(_jax.Library):
    """Arguments and results have the order of jaxrbd. The conversion of the order is timed too."""

    names = ("jaxsim",)

    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        super().__init__(folder, robot, dtype)
        self.model = js.model.JaxSimModel.build_from_model_description(
            (folder / "robot.sdf").read_text(), is_urdf=False, gravity=9.81
        )
        names = [joint["name"] for joint in robot["joints"][self.floating :]]
        joints, links = list(self.model.joint_names()), list(self.model.link_names())
        self.to_jaxsim = np.array([names.index(name) for name in joints])
        self.from_jaxsim = np.array([joints.index(name) for name in names])
        self.links = np.array([links.index(joint["link"]) for joint in robot["joints"]])
        self.frame = int(self.links[robot["frame"]])
        self.base = links.index(self.model.base_link())
        # The rows of the matrices of JaxSim, in the order of jaxrbd.
        self.first = 6 if self.floating else 0
        self.rows = np.array([*range(self.first), *(6 + self.from_jaxsim)])

    def _state(self, q, v):
        position, quaternion, twist = jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(6)
        if self.floating:
            position, quaternion, twist = q[:3], jnp.roll(q[3:7], 1), v[:6]
        joints = q[7:] if self.floating else q
        return js.data.JaxSimModelData.build(
            model=self.model,
            base_position=position,
            base_quaternion=quaternion,
            joint_positions=joints[self.to_jaxsim],
            base_linear_velocity=twist[:3],
            base_angular_velocity=twist[3:],
            joint_velocities=v[self.first :][self.to_jaxsim],
            velocity_representation=VelRepr.Body,
        )

    def _at_rest(self, q):
        return self._state(q, jnp.zeros(self.nv, q.dtype))

    def fk(self, q):
        X = js.model.forward_kinematics(self.model, self._at_rest(q))
        return X[:, :3, :3], X[:, :3, 3]

    def rnea(self, q, v, a):
        on_base, on_joints = js.model.inverse_dynamics(
            self.model,
            self._state(q, v),
            joint_accelerations=a[self.first :][self.to_jaxsim],
            base_acceleration=a[:6] if self.floating else None,
        )
        return jnp.concatenate([on_base[: self.first], on_joints[self.from_jaxsim]])

    def crba(self, q):
        return js.model.free_floating_mass_matrix(self.model, self._at_rest(q))

    def fd(self, q, v, tau):
        forces = jnp.zeros((self.model.number_of_links(), 6), tau.dtype)
        if self.floating:
            forces = forces.at[self.base].set(tau[:6])
        of_base, of_joints = js.model.forward_dynamics_aba(
            self.model,
            self._state(q, v),
            joint_forces=tau[self.first :][self.to_jaxsim],
            link_forces=forces,
        )
        return jnp.concatenate([of_base[: self.first], of_joints[self.from_jaxsim]])

    def jacobian(self, q):
        return js.link.jacobian(
            self.model,
            self._at_rest(q),
            link_index=self.frame,
            output_vel_repr=VelRepr.Mixed,
        )

    def euler(self, q, v, dt):
        """Euler's rule and a normalized quaternion, as in JaxSim's integrators."""
        if not self.floating:
            return self.integrate(q, v, dt)
        data = self._state(q, v)
        with data.switch_velocity_representation(VelRepr.Inertial):
            p_dot, quaternion_dot, _ = js.ode.system_position_dynamics(data)
        quaternion = data.base_orientation + dt * quaternion_dot
        quaternion = jnp.roll(quaternion / jnp.linalg.norm(quaternion), -1)
        return jnp.concatenate([data.base_position + dt * p_dot, quaternion, q[7:] + dt * v[6:]])

    def finish(self, job, arrays):
        if job == "fk":
            return [x[:, self.links] for x in arrays]
        if job == "crba":
            return [arrays[0][:, self.rows[:, None], self.rows]]
        return [arrays[0][:, :, self.rows]] if job == "jacobian" else arrays
