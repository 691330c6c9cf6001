"""JaxSim, with velocities in the body's own frame; its quaternions are wxyz."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import numpy as np

from . import _jax


class JaxSim(_jax.Library):
    """Arrays come and go in jaxrbd's order, which is turned into JaxSim's in what is timed."""

    names = ("jaxsim",)

    def __init__(self, folder: pathlib.Path, robot: dict):
        import jaxsim.api as js
        from jaxsim import VelRepr

        super().__init__(robot)
        self.js, self.VelRepr = js, VelRepr
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
        if self.floating:
            place, turn = q[:3], jnp.roll(q[3:7], 1)
            twist, joints = v[:6], q[7:]
        else:
            place, turn, twist = jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(6)
            joints = q
        return self.js.data.JaxSimModelData.build(
            model=self.model,
            base_position=place,
            base_quaternion=turn,
            joint_positions=joints[self.to],
            base_linear_velocity=twist[:3],
            base_angular_velocity=twist[3:],
            joint_velocities=v[self.first :][self.to],
            velocity_representation=self.VelRepr.Body,
        )

    def _at_rest(self, q):
        return self._state(q, jnp.zeros(self.nv, q.dtype))

    def fk(self, q):
        X = self.js.model.forward_kinematics(self.model, self._at_rest(q))
        return X[:, :3, :3], X[:, :3, 3]

    def rnea(self, q, v, a):
        on_base, on_joints = self.js.model.inverse_dynamics(
            self.model,
            self._state(q, v),
            joint_rate_derivatives=a[self.first :][self.to],
            base_acceleration=a[:6] if self.floating else None,
        )
        return jnp.concatenate([on_base[: self.first], on_joints[self.back]])

    def crba(self, q):
        return self.js.model.free_floating_mass_matrix(self.model, self._at_rest(q))

    def fd(self, q, v, tau):
        forces = jnp.zeros((self.model.number_of_links(), 6), tau.dtype)
        if self.floating:
            forces = forces.at[self.base].set(tau[:6])
        of_base, of_joints = self.js.model.forward_dynamics_aba(
            self.model,
            self._state(q, v),
            joint_forces=tau[self.first :][self.to],
            link_forces=forces,
        )
        return jnp.concatenate([of_base[: self.first], of_joints[self.back]])

    def jacobian(self, q):
        return self.js.link.jacobian(
            self.model,
            self._at_rest(q),
            link_index=self.frame,
            output_vel_repr=self.VelRepr.Mixed,
        )

    def finish(self, job, arrays):
        if job == "fk":
            return [x[:, self.links] for x in arrays]
        if job == "crba":
            return [arrays[0][:, self.rows[:, None], self.rows]]
        return [arrays[0][:, :, self.rows]] if job == "jacobian" else arrays

    step = _jax.vector_step


def load(folder: pathlib.Path, robot: dict, dtype: np.dtype) -> JaxSim:
    _jax.setup(dtype)
    return JaxSim(folder, robot)
