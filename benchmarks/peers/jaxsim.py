"""JaxSim, with velocities in the body's own frame; its quaternions are wxyz."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import jaxsim.api as js
import numpy as np
from jaxsim import VelRepr

from . import _jax


class Library(_jax.Library):
    """Arrays come and go in jaxrbd's order, which is turned into JaxSim's in what is timed."""

    names = ("jaxsim",)

    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        super().__init__(folder, robot, dtype)
        self.model = js.model.JaxSimModel.build_from_model_description(
            (folder / "robot.sdf").read_text(), is_urdf=False, gravity=9.81
        )
        own = [joint["name"] for joint in robot["joints"][self.floating :]]
        theirs, links = list(self.model.joint_names()), list(self.model.link_names())
        self.to = np.array([own.index(name) for name in theirs])
        self.back = np.array([theirs.index(name) for name in own])
        self.links = np.array([links.index(joint["link"]) for joint in robot["joints"]])
        self.frame = int(self.links[robot["frame"]])
        self.base = links.index(self.model.base_link())
        # The rows of its matrices that are ours, in our order.
        self.first = 6 if self.floating else 0
        self.rows = np.array([*range(self.first), *(6 + self.back)])

    def _state(self, q, v):
        place, turn, twist = jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(6)
        if self.floating:
            place, turn, twist = q[:3], jnp.roll(q[3:7], 1), v[:6]
        joints = q[7:] if self.floating else q
        return js.data.JaxSimModelData.build(
            model=self.model,
            base_position=place,
            base_quaternion=turn,
            joint_positions=joints[self.to],
            base_linear_velocity=twist[:3],
            base_angular_velocity=twist[3:],
            joint_velocities=v[self.first :][self.to],
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
            joint_accelerations=a[self.first :][self.to],
            base_acceleration=a[:6] if self.floating else None,
        )
        return jnp.concatenate([on_base[: self.first], on_joints[self.back]])

    def crba(self, q):
        return js.model.free_floating_mass_matrix(self.model, self._at_rest(q))

    def fd(self, q, v, tau):
        forces = jnp.zeros((self.model.number_of_links(), 6), tau.dtype)
        if self.floating:
            forces = forces.at[self.base].set(tau[:6])
        of_base, of_joints = js.model.forward_dynamics_aba(
            self.model,
            self._state(q, v),
            joint_forces=tau[self.first :][self.to],
            link_forces=forces,
        )
        return jnp.concatenate([of_base[: self.first], of_joints[self.back]])

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
            p_dot, turn_dot, _ = js.ode.system_position_dynamics(data)
        turn = data.base_orientation + dt * turn_dot
        turn = jnp.roll(turn / jnp.linalg.norm(turn), -1)
        return jnp.concatenate([data.base_position + dt * p_dot, turn, q[7:] + dt * v[6:]])

    def finish(self, job, arrays):
        if job == "fk":
            return [x[:, self.links] for x in arrays]
        if job == "crba":
            return [arrays[0][:, self.rows[:, None], self.rows]]
        return [arrays[0][:, :, self.rows]] if job == "jacobian" else arrays
