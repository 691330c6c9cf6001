"""Nonlinear damping of joints."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import so3
from .._math.polynomials import polynomial
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_indices import free_indices, is_free
from ..model.joint_space import independent_joint_force, joint_coordinates, joint_rates
from ..model.joints_by_name import polynomials


class PolynomialDamping(eqx.Module):
    """Joint damping. Its coefficient is a polynomial of the speed.

    A velocity u of a joint has the force `-d(|u|) u`, with

        d(s) = c_0 + c_1 s + ... + c_(p-1) s^(p-1).

    The linear velocity of a free-flyer is damped along the axes in which its position is given: for
    a floating base, along world axes. The linear velocity of a planar joint is damped along the
    axes of the child, in which it is given. The velocities of joints that follow others are damped
    too.

    - `joints`: the names of joints. The forces of a joint that is named twice add up;
    - `coefficients` (n, p), or (n,) for constants: one row per velocity of the joints, in the order
      of `joints`. The units of c_k are N (s/m)^(k+1) or N m (s/rad)^(k+1).

    `Model.damping` is separate from this damping, and the two add up. `contact_step` computes
    `Model.damping` with the velocity after the step, and a passive force with the velocity before
    the step. Raises ArgumentError for a wrong shape and a value that is not finite. Source: MuJoCo,
    chapter "Computation", on polynomial forces, and XML reference, body/joint, attribute damping.
    """

    joints: tuple[str, ...] = eqx.field(static=True)
    coefficients: Float[arguments.Parameter, "n ..."]

    def __init__(self, joints: Sequence[str], coefficients: ArrayLike | Sequence):
        self.joints = arguments.names(joints, "joints")
        self.coefficients = polynomials(coefficients, "coefficients", None)
        arguments.require(self.coefficients, np.isfinite, "coefficients", "finite")

    def __call__(self, model: Model, q: ArrayLike, v: ArrayLike) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N and N m, for q (nq,) and v (nv,).

        The force of a joint that follows others is mapped to the joints that it follows. Raises
        ArgumentError for an unknown joint, and if there is not one row of coefficients per velocity
        of the joints.
        """
        return _damping_force(model, self, q, v)


@arguments.compiled(arrays=("q", "v"))
def _damping_force(
    model: Model, damping: PolynomialDamping, q: Array, v: Array
) -> Float[Array, " nv"]:
    """See `PolynomialDamping.__call__`."""
    index = _velocity_indices(model, damping.joints)
    if len(damping.coefficients) != len(index):
        raise ArgumentError(
            f"coefficients has {len(damping.coefficients)} rows, expected {len(index)}, the count "
            f"of the velocities of {', '.join(map(repr, damping.joints)) or 'no joints'}"
        )
    rates = joint_rates(model, q, v)
    free = [name for name in damping.joints if is_free(model, model.joint(name).bodies[0])]
    places = free_indices(model, free)
    linear = places.v[:, :3]
    # The linear velocities of free-flyers are damped in the axes of their positions.
    attitude = so3.quaternion_normalize(joint_coordinates(model, q)[places.q[:, 3:]])
    if free:
        rates = rates.at[linear].set(so3.quaternion_rotate(attitude, rates[linear]))
    rates = rates[index]
    damped = -polynomial(damping.coefficients, jnp.abs(rates)) * rates
    forces = jnp.zeros(sum(model.joint_nvs), model.dtype).at[index].add(damped)
    if free:
        back = so3.quaternion_rotate(so3.quaternion_conjugate(attitude), forces[linear])
        forces = forces.at[linear].set(back)
    return independent_joint_force(model, q, forces)


def _velocity_indices(model: Model, joints: Sequence[str]) -> np.ndarray:
    """The indices of the velocities of joints among the velocities of all joints."""
    start = np.cumsum([0, *model.joint_nvs])
    bodies = [model.joint(name).bodies for name in joints]
    ranges = [np.arange(start[found[0]], start[found[-1] + 1]) for found in bodies]
    return np.concatenate([np.zeros(0, int), *ranges])
