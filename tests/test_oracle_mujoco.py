"""Comparison with MuJoCo on ten robots. It finds errors that Pinocchio and jaxrbd may share.

MuJoCo reads the file itself, without mimic joints and without meshes, which need other files. Its
joints have the order of the file and are matched by name. Its free joint has quaternions wxyz, the
linear velocity in the world's axes and the angular velocity in the base's axes. With R the base's
rotation and `G = blkdiag(R^T, 1)`, `v = G v_mujoco` and `tau_mujoco = G^T tau`. The acceleration of
the base is the classical one in MuJoCo: `a = G a_mujoco - [w x v; 0]`.
"""

import functools

import mujoco
import numpy as np
import pytest
from lxml import etree

from support import oracles, real_robots

pytestmark = pytest.mark.skipif(not real_robots.FILES, reason="example-robot-data: no wheel here")

SEEDS = range(3)


@pytest.mark.parametrize(
    ("name", "root_joint"),
    real_robots.with_both_bases(real_robots.VARIED, real_robots.ONE_EXAMPLE),
)
def test_every_quantity(name, root_joint):
    model = real_robots.load(name, root_joint)
    oracle = MuJoCo(name, model, floating=root_joint is not None)
    for seed in SEEDS:
        state = oracles.random_state(model, seed)
        ours, theirs = oracles.our_results(model, state), oracle.results(state)
        oracles.assert_agree(f"{name}, seed {seed}", ours, theirs)


class MuJoCo:
    """A robot in MuJoCo. Arguments and results are in our order and axes."""

    def __init__(self, name, ours, *, floating):
        self.ours, self.floating = ours, floating
        self.model = load_oracle(name, floating)
        self.data = mujoco.MjData(self.model)
        joints = [self.model.joint(joint) for joint in ours.joint_names[floating:]]
        self.q_index = [*range(7 * floating), *(joint.qposadr[0] for joint in joints)]
        self.v_index = [*range(6 * floating), *(joint.dofadr[0] for joint in joints)]
        self.bodies = [self.model.body(body).id for body in ours.body_names]
        self.frames = [self.model.body(frame).id for frame in ours.frame_names]

    def results(self, state):
        """Quantities by the names of `oracles.our_results`, without integration steps."""
        forward_dynamics = self._forward_dynamics(state)
        model, data = self.model, self.data
        M, Minv = self._matrices()
        mass = np.where(model.body_weldid == 0, 0, model.body_mass)  # 0: the world
        static = model.body_mass - mass
        poses = np.concatenate([data.xmat.reshape(-1, 3, 3), data.xpos[..., None]], axis=-1)
        results = {
            "forward_dynamics": forward_dynamics,
            "aba": forward_dynamics,
            "bias_force": self._from(data.qfrc_bias) + M @ self._turning(state.v),
            "crba": M,
            "minverse": Minv,
            "total_mass": np.sum(mass),
            "center_of_mass": mass @ data.xipos / np.sum(mass),
            "potential_energy": data.energy[0] + static @ data.xipos @ model.opt.gravity,
            "kinetic_energy": data.energy[1],
            "body placements": poses[self.bodies],
            "all frame placements": poses[self.frames],
            "rnea": self._inverse_dynamics(state),
        }
        for probe, frame in oracles.probes(self.ours).items():
            results |= self._kinematics(probe, self.frames[frame])
        results["gravity_force"] = self._gravity_force()
        return results

    def _forward_dynamics(self, state):
        """Set the state and its forces, so that `data` has all quantities of the state."""
        data = self.data
        data.qpos[self.q_index] = state.q
        if self.floating:
            data.qpos[3:7] = np.roll(state.q[3:7], 1)
        mujoco.mj_fwdPosition(self.model, data)
        self.R = data.xmat[self.bodies[0]].reshape(3, 3).copy() if self.floating else None
        data.qvel[:] = self._to(state.v)
        data.qfrc_applied[:] = self._to(state.tau) + self._external_force(state)
        mujoco.mj_forward(self.model, data)
        return self._from(data.qacc) - self._turning(state.v)

    def _inverse_dynamics(self, state):
        self.data.qacc[:] = self._to(state.a + self._turning(state.v))
        mujoco.mj_inverse(self.model, self.data)
        return self._from(self.data.qfrc_inverse - self._external_force(state))

    def _gravity_force(self):
        self.data.qvel[:] = 0
        mujoco.mj_forward(self.model, self.data)
        return self._from(self.data.qfrc_bias)

    def _external_force(self, state):
        """The generalized force of our `f_ext`, which is in the bodies' frames."""
        total = np.zeros(self.model.nv)
        for body, wrench in zip(self.bodies, state.f_ext):
            R, p = self.data.xmat[body].reshape(3, 3), self.data.xpos[body]
            mujoco.mj_applyFT(self.model, self.data, R @ wrench[:3], R @ wrench[3:], p, body, total)
        return total

    def _kinematics(self, probe, body):
        J = np.zeros((6, self.model.nv))
        mujoco.mj_jacBody(self.model, self.data, J[:3], J[3:], body)
        results = {f"frame_jacobian of {probe}": self._from(J)}
        if "local" in oracles.references(probe):
            V = self._motion(mujoco.mj_objectVelocity, body, 1)
            results[f"frame_velocity of {probe}, local"] = V
        if "local_world_aligned" in oracles.references(probe):
            mujoco.mj_rnePostConstraint(self.model, self.data)
            A = self._motion(mujoco.mj_objectAcceleration, body, 0)
            A[:3] += self.model.opt.gravity  # MuJoCo's world accelerates upwards
            results[f"frame_acceleration of {probe}, local_world_aligned"] = A
        return results

    def _motion(self, function, body, local):
        out = np.zeros(6)
        function(self.model, self.data, mujoco.mjtObj.mjOBJ_XBODY, body, out, local)
        return np.roll(out, 3)  # MuJoCo's are [angular; linear]

    def _matrices(self):
        """M and its inverse, row by row, by MuJoCo's products."""
        unit = np.eye(self.model.nv)
        M, Minv = np.zeros_like(unit), np.zeros_like(unit)
        for row, column in zip(M, unit):
            mujoco.mj_mulM(self.model, self.data, row, column)
        mujoco.mj_solveM(self.model, self.data, Minv, unit)
        return [self._from(self._from(matrix).T) for matrix in (M, Minv)]

    def _from(self, x):
        """From MuJoCo's dofs, along the last axis, to ours: by G for motions and forces."""
        x = x[..., self.v_index]
        if self.floating:
            x[..., :3] = x[..., :3] @ self.R
        return x

    def _to(self, x):
        """To MuJoCo's dofs: the inverse of `_from`."""
        x, out = x.copy(), np.zeros(self.model.nv)
        if self.floating:
            x[:3] = self.R @ x[:3]
        out[self.v_index] = x
        return out

    def _turning(self, v):
        """`[w x v; 0]`: the base's classical acceleration minus its spatial acceleration."""
        out = np.zeros_like(v)
        if self.floating:
            out[:3] = np.cross(v[3:6], v[:3])
        return out


@functools.cache
def load_oracle(name, floating):
    """The model that MuJoCo reads from a file."""
    robot = etree.parse(real_robots.path_of(name)).getroot()
    for element in [*robot.iter("visual", "collision", "mimic"), *robot.findall("mujoco")]:
        element.getparent().remove(element)
    etree.SubElement(etree.SubElement(robot, "mujoco"), "compiler", fusestatic="false")
    spec = mujoco.MjSpec.from_string(etree.tostring(robot).decode())
    if floating:
        spec.worldbody.bodies[0].add_freejoint()
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT  # limits and friction
    spec.option.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    model = spec.compile()
    model.dof_damping[:] = 0
    return model
