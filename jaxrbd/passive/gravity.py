"""Gravity compensation of links."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul
from ..algorithms.kinematics import Kinematics, forward_kinematics
from ..algorithms.places import find_places, places_from_first_root
from ..model import Model, arguments
from ..model.joints_by_name import required_parameters
from ..spatial import Pose
from .point_forces import generalized_force_at_points


class GravityCompensation(eqx.Module):
    """Forces that balance the weights of n links, in part or in whole.

    Link i has the force `-factors[i] masses[i] g` at its center of mass, where g is the gravity of
    the model. With the factor 1, the link has no weight. With a factor above 1, it is buoyant.

    - `frames`: the names of n frames, usually the frames of links;
    - `factors` (n,): the compensated fractions of the weights;
    - `masses` (n,) in kg, and `centers` (n, 3) in m: the masses of the links, and their centers of
      mass in the frames. They do not change the inertia of the robot.

    Raises ArgumentError for a wrong shape, a value that is not finite, and a negative mass. Source:
    MuJoCo, XML reference, body, attribute gravcomp.
    """

    frames: tuple[str, ...] = eqx.field(static=True)
    factors: Float[arguments.Parameter, " n"]
    masses: Float[arguments.Parameter, " n"]
    centers: Float[arguments.Parameter, "n 3"]

    def __init__(
        self,
        frames: Sequence[str],
        factors: ArrayLike | Sequence,
        masses: ArrayLike | Sequence,
        centers: ArrayLike | Sequence,
    ):
        self.frames = arguments.names(frames, "frames")
        n = len(self.frames)
        self.factors = required_parameters(factors, "factors", (n,))
        self.masses = required_parameters(masses, "masses", (n,))
        arguments.require_not_negative(self.masses, "masses")
        self.centers = required_parameters(centers, "centers", (n, 3))
        for name in ("factors", "centers"):
            arguments.require(getattr(self, name), np.isfinite, name, "finite")

    def __call__(self, model: Model, q: Array | Kinematics) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N and N m, for q (nq,) or its `Kinematics`.

        Raises ArgumentError for an unknown frame.
        """
        return _compensation(model, self, q)

    def energy(self, model: Model, q: Array | Kinematics) -> Float[Array, ""]:
        """The potential energy () in J, for q (nq,) or its `Kinematics`.

        The energy is zero if all centers of mass are at the world origin.

        Errors as in `__call__`.
        """
        return _compensation_energy(model, self, q)


@arguments.compiled(arrays=("q",))
def _compensation(model: Model, compensation: GravityCompensation, q: Array | Kinematics) -> Array:
    """See `GravityCompensation.__call__`."""
    kinematics = forward_kinematics.unchecked(model, q)
    centers, forces = _centers(model, compensation), _forces(model, compensation)
    places, X = places_from_first_root(model, kinematics, compensation.frames, centers)
    return generalized_force_at_points(model, kinematics, places.bodies, X.p, forces)


@arguments.compiled(arrays=("q",))
def _compensation_energy(
    model: Model, compensation: GravityCompensation, q: Array | Kinematics
) -> Array:
    """See `GravityCompensation.energy`."""
    kinematics = forward_kinematics.unchecked(model, q)
    centers = _centers(model, compensation)
    places = find_places(model, kinematics, compensation.frames, centers)
    return -jnp.sum(_forces(model, compensation) * places.X.X_WF.p)


def _centers(model: Model, compensation: GravityCompensation) -> Pose:
    """The poses of the centers of mass in the frames."""
    p = jnp.asarray(compensation.centers, model.dtype)
    return Pose(jnp.broadcast_to(jnp.eye(3, dtype=model.dtype), (len(p), 3, 3)), p)


def _forces(model: Model, compensation: GravityCompensation) -> Float[Array, "n 3"]:
    """The forces in world axes, in N."""
    factors, masses = (
        jnp.asarray(x, model.dtype) for x in (compensation.factors, compensation.masses)
    )
    return matmul((-factors * masses)[:, None], model.gravity[None])
