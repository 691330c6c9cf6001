"""Brax's generalized pipeline: `--adapter benchmarks.conformance.brax_adapter:Brax`."""

import jax.numpy as jnp
from brax import kinematics
from brax.generalized import dynamics, integrator, mass
from brax.generalized.base import State
from brax.io import mjcf as brax_mjcf

from jaxrbd import so3
from jaxrbd.conformance import Adapter, Functions

from .mjcf import Conversion, expressible, mjcf


class Brax(Adapter):
    """Its joints are hinges, slides and free joints."""

    name = "Brax generalized"

    def robots(self, trees):
        return [[t for t in trees if expressible(t) and t.kind != "spherical"]]

    def load(self, robot):
        system = brax_mjcf.loads(mjcf(robot))
        convert = Conversion(robot)
        tips = jnp.array([system.link_names.index(tip) for tip in robot.tips])

        def state(q, v):
            qpos, qvel = convert.position(q), convert.motion(q, v)
            x, xd = kinematics.forward(system, qpos, qvel)
            return dynamics.transform_com(system, State.init(qpos, qvel, x, xd))

        def inverse_dynamics(q, v, a):
            s = state(q, v)
            M = mass.matrix(system, s)
            force = M @ convert.acceleration(q, v, a) + dynamics.inverse(system, s)
            return convert.motion_back(q, force)

        def forward_dynamics(q, v, tau):
            s = mass.matrix_inv(system, state(q, v), 0)
            qacc = s.mass_mx_inv @ (convert.motion(q, tau) - dynamics.inverse(system, s))
            return convert.acceleration_back(q, v, qacc)

        def placement(q):
            x, _ = kinematics.forward(system, convert.position(q), jnp.zeros(system.qd_size()))
            return so3.quaternion_to_matrix(jnp.roll(x.rot[tips], -1, axis=1)), x.pos[tips]

        def step(q, v):
            qpos, qvel = convert.position(q), convert.motion(q, v)
            zero = jnp.zeros_like(qvel)
            s = State.init(qpos, qvel, *kinematics.forward(system, qpos, qvel)).replace(
                mass_mx=jnp.eye(len(qvel)), qf_smooth=zero, qf_constraint=zero
            )
            return convert.position_back(integrator.integrate(system, s).q)

        return Functions(inverse_dynamics, forward_dynamics, placement, step)
