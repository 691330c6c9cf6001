"""Armature of translations along axes that do not turn with the body."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.components import cross
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_indices import free_indices
from ..model.joint_space import independent_joint_force, joint_rates


class FixedAxesArmature(eqx.Module):
    """The force that makes the armature of free-flyers act along axes that do not turn.

    The linear velocity v of a free-flyer is in body axes. So its armature A, the same along the
    three axes, needs the force `A dv/dt`, where dv/dt is the rate of the body coordinates of v,
    without the rotation of the axes. In MuJoCo the armature acts along world axes and needs the
    force `A (dv/dt + w x v)`, with the angular velocity w. This class adds the force `-A w x v`,
    which has no power. A is the first entry of the joint in `Model.armature`.

    `joints`: the names of free-flyers. Source: MuJoCo, XML reference, body/joint, attribute
    armature.
    """

    joints: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, joints: Sequence[str]):
        self.joints = arguments.names(joints, "joints")
        if len(set(self.joints)) < len(self.joints):
            raise ArgumentError(f"joints is {self.joints!r}, expected each joint once")

    def __call__(self, model: Model, q: ArrayLike, v: ArrayLike) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N, for q (nq,) and v (nv,).

        Raises ArgumentError for an unknown joint or a joint of another kind.
        """
        return _armature_force(model, self, q, v)


@arguments.compiled(arrays=("q", "v"))
def _armature_force(
    model: Model, armature: FixedAxesArmature, q: Array, v: Array
) -> Float[Array, " nv"]:
    """See `FixedAxesArmature.__call__`."""
    places = free_indices(model, armature.joints).v
    linear, angular = places[:, :3], places[:, 3:]
    rates = joint_rates(model, q, v)
    turning = cross(rates[angular], rates[linear])
    forces = jnp.zeros_like(rates).at[linear].add(-model.armature[linear[:, :1]] * turning)
    return independent_joint_force(model, q, forces)
