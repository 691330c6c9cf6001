"""Springs in joints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import so3
from .._math.components import safe_norm
from .._math.polynomials import polynomial, spring_energy
from ..model import Model, arguments
from ..model.joint_indices import ball_indices, free_indices
from ..model.joint_space import independent_joint_force, joint_coordinates
from ..model.joints_by_name import parameters, polynomials, scalar_joints


class JointSprings(eqx.Module):
    """Springs in joints, without damping.

    - A joint with one degree of freedom and the deflection `x = q - rest` has the force `-k(x) x`.
    - A spherical joint with the quaternion q has the torque `-k(r) log(rest^-1 q)`, in the body
      frame, where r is the angle between q and rest. A free-flyer can have the same torque.
    - A free-flyer with the position y has the force `-k(r) d`, with `d = y - rest` and r = |d|, in
      the axes in which y is given: for a floating base, world axes.

    The stiffness k is constant, or a polynomial of the deflection: one row of p coefficients per
    spring, `k(x) = c_0 + c_1 x + ... + c_(p-1) x^(p-1)`.

    - `joints`: the names of n joints with one degree of freedom;
    - `stiffness` (n,) or (n, p), in N/m or N m/rad, and `rest` (n,), the coordinates at which the
      force is zero; by default zero;
    - `balls`: the names of m spherical joints and free-flyers with a spring of the rotation;
    - `ball_stiffness` (m,) or (m, p) in N m/rad, and `ball_rest` (m, 4), the quaternions xyzw, of
      any length above 0, at which the torque is zero; by default the identity;
    - `positions`: the names of l free-flyers with a spring of the translation;
    - `position_stiffness` (l,) or (l, p) in N/m, and `position_rest` (l, 3), the positions in m at
      which the force is zero; by default zero.

    Raises ArgumentError for a wrong shape, a value that is not finite and a zero quaternion.
    Source: MuJoCo, XML reference, body/joint, attributes stiffness and springref.
    """

    joints: tuple[str, ...] = eqx.field(static=True)
    balls: tuple[str, ...] = eqx.field(static=True)
    positions: tuple[str, ...] = eqx.field(static=True)
    stiffness: Float[arguments.Parameter, "n ..."]
    rest: Float[arguments.Parameter, " n"]
    ball_stiffness: Float[arguments.Parameter, "m ..."]
    ball_rest: Float[arguments.Parameter, "m 4"]
    position_stiffness: Float[arguments.Parameter, "l ..."]
    position_rest: Float[arguments.Parameter, "l 3"]

    def __init__(
        self,
        joints: Sequence[str] = (),
        stiffness: ArrayLike | Sequence = (),
        rest: ArrayLike | Sequence | None = None,
        balls: Sequence[str] = (),
        ball_stiffness: ArrayLike | Sequence = (),
        ball_rest: ArrayLike | Sequence | None = None,
        positions: Sequence[str] = (),
        position_stiffness: ArrayLike | Sequence = (),
        position_rest: ArrayLike | Sequence | None = None,
    ):
        self.joints = arguments.names(joints, "joints")
        self.balls = arguments.names(balls, "balls")
        self.positions = arguments.names(positions, "positions")
        n, m, k = len(self.joints), len(self.balls), len(self.positions)
        self.stiffness = polynomials(stiffness, "stiffness", n)
        self.rest = parameters(rest, "rest", np.zeros(n))
        self.ball_stiffness = polynomials(ball_stiffness, "ball_stiffness", m)
        identity = np.tile([0.0, 0.0, 0.0, 1.0], (m, 1))
        self.ball_rest = parameters(ball_rest, "ball_rest", identity)
        self.position_stiffness = polynomials(position_stiffness, "position_stiffness", k)
        self.position_rest = parameters(position_rest, "position_rest", np.zeros((k, 3)))
        for name in ("stiffness", "rest"):
            for prefix in ("", "ball_", "position_"):
                whole_name = prefix + name
                arguments.require(getattr(self, whole_name), np.isfinite, whole_name, "finite")
        arguments.require(self.ball_rest, lambda x: x.any(axis=1), "ball_rest", "no zero rows")

    def __call__(self, model: Model, q: ArrayLike) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N and N m, for q (nq,).

        The force of a joint that follows others is mapped to the joints that it follows. Raises
        ArgumentError for an unknown joint or a joint of another kind.
        """
        return _spring_force(model, self, q)

    def energy(self, model: Model, q: ArrayLike) -> Float[Array, ""]:
        """The potential energy in J, for q (nq,). Errors as in `__call__`."""
        return _spring_energy(model, self, q)


@arguments.compiled(arrays=("q",))
def _spring_force(model: Model, springs: JointSprings, q: Array) -> Float[Array, " nv"]:
    """The generalized force (nv,) of `JointSprings`; see `JointSprings.__call__`."""
    found = _deflections(model, springs, q)
    forces = jnp.zeros(sum(model.joint_nvs), model.dtype)
    if springs.joints:
        push = -polynomial(springs.stiffness, found.stretch) * found.stretch
        forces = forces.at[found.joint_index].add(push)
    if springs.balls:
        stiffness = polynomial(springs.ball_stiffness, found.angle)
        forces = forces.at[found.ball_index].add(-stiffness[:, None] * found.turn)
    if springs.positions:
        stiffness = polynomial(springs.position_stiffness, found.distance)
        push = so3.quaternion_rotate(
            so3.quaternion_conjugate(found.attitude), -stiffness[:, None] * found.offset
        )
        forces = forces.at[found.position_index].add(push)
    return independent_joint_force(model, q, forces)


@arguments.compiled(arrays=("q",))
def _spring_energy(model: Model, springs: JointSprings, q: Array) -> Float[Array, ""]:
    """The potential energy in J of `JointSprings`; see `JointSprings.energy`."""
    found = _deflections(model, springs, q)
    parts = [
        spring_energy(springs.stiffness, found.stretch),
        spring_energy(springs.ball_stiffness, found.angle),
        spring_energy(springs.position_stiffness, found.distance),
    ]
    return jnp.sum(jnp.concatenate(parts))


class _Deflections(NamedTuple):
    """The deflections of all springs.

    - `stretch` (n,): deflections of the joints with one dof;
    - `turn` (m, 3), `angle` (m,): rotation vectors and their lengths;
    - `offset` (l, 3), `distance` (l,): displacements and their lengths;
    - `attitude` (l, 4): the unit quaternions of the free-flyers with a spring of the translation;
    - `joint_index` (n,), `ball_index` (m, 3), `position_index` (l, 3): the indices of the deflected
      dofs among the velocities of all joints.
    """

    stretch: Array
    joint_index: np.ndarray
    turn: Array
    angle: Array
    ball_index: np.ndarray
    offset: Array
    distance: Array
    position_index: np.ndarray
    attitude: Array


def _deflections(model: Model, springs: JointSprings, q: Array) -> _Deflections:
    coordinates = joint_coordinates(model, q)
    scalar, balls = scalar_joints(model, springs.joints), ball_indices(model, springs.balls)
    free = free_indices(model, springs.positions)
    stretch = coordinates[scalar.q] - jnp.asarray(springs.rest, model.dtype)
    rest = so3.quaternion_normalize(jnp.asarray(springs.ball_rest, model.dtype))
    rotation = so3.quaternion_normalize(coordinates[balls.q])
    turn = so3.unit_quaternion_log(
        so3.quaternion_multiply(so3.quaternion_conjugate(rest), rotation)
    )
    offset = coordinates[free.q[:, :3]] - jnp.asarray(springs.position_rest, model.dtype)
    attitude = so3.quaternion_normalize(coordinates[free.q[:, 3:]])
    angle, distance = (safe_norm(x) for x in (turn, offset))
    return _Deflections(
        stretch, scalar.v, turn, angle, balls.v, offset, distance, free.v[:, :3], attitude
    )
