"""Springs in joints."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import so3
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import independent_joint_force, joint_coordinates
from ..model.joints_by_name import parameters, scalar_joints


class JointSprings(eqx.Module):
    """Linear springs in joints, without damping.

    A joint with one degree of freedom has the force `-stiffness (q - rest)`. A spherical joint with
    the quaternion q has the torque `-stiffness log(rest^-1 q)`, in the body frame.

    - `joints`: the names of n joints with one degree of freedom;
    - `stiffness` (n,) in N/m or N m/rad, and `rest` (n,), the coordinates without force; by default
      zero;
    - `balls`: the names of m spherical joints;
    - `ball_stiffness` (m,) in N m/rad, and `ball_rest` (m, 4), the quaternions xyzw without torque,
      of any length; by default the identity.

    Raises ArgumentError for a wrong shape and a value that is NaN. Source: MuJoCo, XML reference,
    body/joint, attributes stiffness and springref.
    """

    joints: tuple[str, ...] = eqx.field(static=True)
    balls: tuple[str, ...] = eqx.field(static=True)
    stiffness: Float[arguments.Parameter, " n"]
    rest: Float[arguments.Parameter, " n"]
    ball_stiffness: Float[arguments.Parameter, " m"]
    ball_rest: Float[arguments.Parameter, "m 4"]

    def __init__(
        self,
        joints: Sequence[str] = (),
        stiffness: ArrayLike | Sequence = (),
        rest: ArrayLike | Sequence | None = None,
        balls: Sequence[str] = (),
        ball_stiffness: ArrayLike | Sequence = (),
        ball_rest: ArrayLike | Sequence | None = None,
    ):
        for name, given in (("joints", joints), ("balls", balls)):
            if isinstance(given, str):
                raise ArgumentError(f"{name} is {given!r}, expected a sequence of names")
        self.joints, self.balls = tuple(joints), tuple(balls)
        n, m = len(self.joints), len(self.balls)
        self.stiffness = parameters(stiffness, "stiffness", np.zeros(n))
        self.rest = parameters(rest, "rest", np.zeros(n))
        self.ball_stiffness = parameters(ball_stiffness, "ball_stiffness", np.zeros(m))
        identity = np.tile([0.0, 0.0, 0.0, 1.0], (m, 1))
        self.ball_rest = parameters(ball_rest, "ball_rest", identity)

    def __call__(self, model: Model, q: ArrayLike) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N and N m, for q (nq,).

        The force of a joint that follows others is mapped to the joints that it follows. Raises
        ArgumentError for an unknown joint or a joint of another size.
        """
        return _spring_force(model, self, q)

    def energy(self, model: Model, q: ArrayLike) -> Float[Array, ""]:
        """The potential energy in J, for q (nq,). Errors as in `__call__`."""
        return _spring_energy(model, self, q)


@arguments.compiled(arrays=("q",))
def _spring_force(model: Model, springs: JointSprings, q: Array) -> Float[Array, " nv"]:
    """The generalized force (nv,) of `JointSprings`; see `JointSprings.__call__`."""
    stretch, turn, index, index_balls = _deflections(model, springs, q)
    stiffness, ball_stiffness = (
        jnp.asarray(x, model.dtype) for x in (springs.stiffness, springs.ball_stiffness)
    )
    forces = jnp.zeros(sum(model.joint_nvs), model.dtype).at[index].add(-stiffness * stretch)
    if springs.balls:
        forces = forces.at[index_balls].add(-ball_stiffness[:, None] * turn)
    return independent_joint_force(model, q, forces)


@arguments.compiled(arrays=("q",))
def _spring_energy(model: Model, springs: JointSprings, q: Array) -> Float[Array, ""]:
    """The potential energy in J of `JointSprings`; see `JointSprings.energy`."""
    stretch, turn, _, _ = _deflections(model, springs, q)
    stiffness, ball_stiffness = (
        jnp.asarray(x, model.dtype) for x in (springs.stiffness, springs.ball_stiffness)
    )
    balls = jnp.sum(ball_stiffness * jnp.sum(turn * turn, axis=-1))
    return (jnp.sum(stiffness * stretch * stretch) + balls) / 2


def _deflections(
    model: Model, springs: JointSprings, q: Array
) -> tuple[Array, Array, np.ndarray, np.ndarray]:
    """The deflections (n,) and (m, 3) of the springs, and the indices of their velocities."""
    coordinates = joint_coordinates(model, q)
    index = scalar_joints(model, springs.joints)
    stretch = coordinates[index.q] - jnp.asarray(springs.rest, model.dtype)
    ball_q, ball_v = _ball_places(model, springs.balls)
    rest = so3.quaternion_normalize(jnp.asarray(springs.ball_rest, model.dtype))
    rotation = so3.quaternion_normalize(coordinates[ball_q])
    deflection = so3.quaternion_multiply(so3.quaternion_conjugate(rest), rotation)
    turn = so3.unit_quaternion_log(deflection)
    return stretch, turn, index.v, ball_v


def _ball_places(model: Model, balls: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the quaternions (m, 4) and velocities (m, 3) in the values of all joints."""
    v_start = np.cumsum([0, *model.joint_nvs])
    q, v = [], []
    for name in balls:
        body = model.joint(name).bodies[0]
        if (model.topology.nqs[body], model.topology.nvs[body]) != (4, 3):
            raise ArgumentError(f"joint {name!r} is no spherical joint")
        q.append(model.topology.q_start[body])
        v.append(v_start[body])
    first_q, first_v = np.array(q, int)[:, None], np.array(v, int)[:, None]
    return first_q + np.arange(4), first_v + np.arange(3)
