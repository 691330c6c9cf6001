"""The sum of the passive forces of a robot."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..algorithms.kinematics import Kinematics, configuration_of, forward_kinematics
from ..errors import ArgumentError
from ..model import Model, arguments
from .armature import FixedAxesArmature
from .damping import PolynomialDamping
from .fluid import FluidForces
from .gravity import GravityCompensation
from .springs import JointSprings


class PassiveForces(eqx.Module):
    """The passive forces of a robot, which depend on its state and on no control.

    A part that is None, the default, does not act, and it is not in the compiled program.

    - `springs`: springs in joints;
    - `gravity_compensation`: forces against the weights of links;
    - `damping`: nonlinear damping of joints;
    - `armature`: a correction of the armature of free-flyers;
    - `fluid`: drag, viscosity and lift of a fluid.

    The linear damping and the dry friction of joints are no parts: they are `Model.damping` and
    `Model.friction`. The springs of tendons are a part of `tendons.Tendons`.
    """

    springs: JointSprings | None = None
    gravity_compensation: GravityCompensation | None = None
    damping: PolynomialDamping | None = None
    armature: FixedAxesArmature | None = None
    fluid: FluidForces | None = None

    def __check_init__(self):
        for name, kind in (
            ("springs", JointSprings),
            ("gravity_compensation", GravityCompensation),
            ("damping", PolynomialDamping),
            ("armature", FixedAxesArmature),
            ("fluid", FluidForces),
        ):
            part = getattr(self, name)
            if part is not None and not isinstance(part, kind):
                raise ArgumentError(f"{name} is {part!r}, expected {kind.__name__} or None")

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts that are not None."""
        return tuple(name for name, part in vars(self).items() if part is not None)

    def __call__(self, model: Model, q: Array | Kinematics, v: ArrayLike) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N and N m, for q (nq,) or its `Kinematics`, and v (nv,).

        Errors as for the parts.
        """
        return _passive_force(model, self, q, v)

    def energy(self, model: Model, q: Array | Kinematics) -> Float[Array, ""]:
        """The potential energy () in J of the springs and of the gravity compensation.

        q (nq,) or its `Kinematics`. Errors as for the parts.
        """
        return _passive_energy(model, self, q)


@arguments.compiled(arrays=("q", "v"))
def _passive_force(
    model: Model, passive: PassiveForces, q: Array | Kinematics, v: Array
) -> Float[Array, " nv"]:
    """See `PassiveForces.__call__`."""
    tau = jnp.zeros_like(v)
    if passive.springs is not None:
        tau = tau + passive.springs(model, configuration_of(q))
    if passive.gravity_compensation is not None:
        kinematics = forward_kinematics.unchecked(model, q)
        tau = tau + passive.gravity_compensation(model, kinematics)
    if passive.damping is not None:
        tau = tau + passive.damping(model, configuration_of(q), v)
    if passive.armature is not None:
        tau = tau + passive.armature(model, configuration_of(q), v)
    if passive.fluid is not None:
        tau = tau + passive.fluid(model, forward_kinematics.unchecked(model, q), v)
    return tau


@arguments.compiled(arrays=("q",))
def _passive_energy(
    model: Model, passive: PassiveForces, q: Array | Kinematics
) -> Float[Array, ""]:
    """See `PassiveForces.energy`."""
    energy = jnp.zeros((), model.dtype)
    if passive.springs is not None:
        energy = energy + passive.springs.energy(model, configuration_of(q))
    if passive.gravity_compensation is not None:
        energy = energy + passive.gravity_compensation.energy(model, q)
    return energy
