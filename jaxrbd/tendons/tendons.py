"""Tendons with their springs, damping, friction, limits and inertia."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul, solve_positive_definite
from .._math.polynomials import polynomial, spring_energy
from ..algorithms.equation_of_motion import equation_of_motion
from ..algorithms.kinematics import Kinematics, forward_kinematics
from ..configuration import integrate
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joints_by_name import parameters, polynomials, ranges
from .lengths import LengthsAndArms, lengths, lengths_and_arms, wrenches_on_bodies
from .paths import FixedTendon, RotationAngle, SpatialTendon, Tendon

# The properties that act on the robot. `rest` acts only with a stiffness.
_LAWS = ("stiffness", "damping", "friction", "armature", "limits")


class Tendons(eqx.Module):
    """n tendons of a robot, with the properties of each tendon.

    A tendon of the length l with the rate dl has the tension

        k(x) x + d(|dl|) dl,  x = l - clip(l, rest),

    which pulls if it is positive. The stiffness k and the damping d are constant, or polynomials:
    one row of p coefficients per tendon, `k(x) = c_0 + c_1 x + ... + c_(p-1) x^(p-1)`. The other
    properties act in `contact.contact_step`, and the armature also in `tendon_dynamics`. A property
    that is None, the default, does not act; the programs are smaller than with zeros.

    - `tendons`: `FixedTendon`s, `SpatialTendon`s and `RotationAngle`s, in any order;
    - `stiffness` (n,) or (n, p) in N/m, and `rest` (n, 2) in m, the lengths between which the
      spring has no tension; by default zero. With `(-inf, L)`, the tendon only pulls;
    - `damping` (n,) or (n, p) in N s/m;
    - `friction` (n,) in N: the largest tension of dry friction;
    - `armature` (n,) in kg: the inertia that moves with the rate of the length;
    - `limits` (n, 2) in m: the least and the largest length; they may be infinite.

    For a `RotationAngle`, read rad for m and N m for N. All properties are leaves of the pytree.
    Raises ArgumentError for a wrong shape, a value that is NaN, a stiffness, damping, friction or
    armature that is negative or infinite, and a lower bound above the upper bound. The coefficients
    of a polynomial stiffness may be negative, except c_0. Source: MuJoCo, chapter "Computation", on
    tendons and polynomial forces, and XML reference, tendon.
    """

    tendons: tuple[Tendon, ...]
    stiffness: Float[arguments.Parameter, "n ..."] | None
    rest: Float[arguments.Parameter, "n 2"]
    damping: Float[arguments.Parameter, "n ..."] | None
    friction: Float[arguments.Parameter, " n"] | None
    armature: Float[arguments.Parameter, " n"] | None
    limits: Float[arguments.Parameter, "n 2"] | None

    def __init__(
        self,
        tendons: Sequence[Tendon],
        stiffness: ArrayLike | Sequence | None = None,
        rest: ArrayLike | Sequence | None = None,
        damping: ArrayLike | Sequence | None = None,
        friction: ArrayLike | Sequence | None = None,
        armature: ArrayLike | Sequence | None = None,
        limits: ArrayLike | Sequence | None = None,
    ):
        self.tendons = arguments.sequence(tendons, "tendons", "tendons")
        for place, tendon in enumerate(self.tendons):
            if not isinstance(tendon, FixedTendon | SpatialTendon | RotationAngle):
                raise ArgumentError(
                    f"entry {place} of tendons is {tendon!r}, expected a FixedTendon, "
                    "a SpatialTendon or a RotationAngle"
                )
        n = len(self.tendons)

        def not_negative(x: ArrayLike | Sequence | None, name: str):
            if x is None:
                return None
            values = parameters(x, name, np.zeros(n))
            arguments.require_not_negative(values, name)
            return values

        self.stiffness = None if stiffness is None else polynomials(stiffness, "stiffness", n)
        if self.stiffness is not None:
            constants = self.stiffness if self.stiffness.ndim == 1 else self.stiffness[:, :1]
            arguments.require_not_negative(constants, "stiffness")
            arguments.require(self.stiffness, np.isfinite, "stiffness", "finite")
        self.rest = np.zeros((n, 2)) if rest is None else ranges(rest, "rest", n)
        self.damping = None if damping is None else polynomials(damping, "damping", n)
        if self.damping is not None:
            arguments.require_not_negative(self.damping, "damping")
        self.friction = not_negative(friction, "friction")
        self.armature = not_negative(armature, "armature")
        self.limits = None if limits is None else ranges(limits, "limits", n)

    @property
    def acting(self) -> bool:
        """Whether the tendons have a property that acts on the robot."""
        return any(getattr(self, name) is not None for name in _LAWS)

    def only_acting(self) -> Tendons:
        """The tendons with a limit, or a stiffness, damping, friction or armature that is not zero.

        Robots from files often have many other tendons, which only actuators pull. Programs are
        smaller without them. Raises ArgumentError for a traced property.
        """
        acts = np.zeros(len(self.tendons), bool)
        laws = {name: getattr(self, name) for name in _LAWS if getattr(self, name) is not None}
        for name, x in laws.items():
            if isinstance(x, Tracer):
                raise ArgumentError(f"{name} is traced, expected known values")
            values = np.asarray(x)  # also from a GPU
            found = np.isfinite(values) if name == "limits" else values != 0
            acts |= found.any(axis=tuple(range(1, found.ndim)))
        chosen = np.flatnonzero(acts)
        laws = {name: x[chosen] for name, x in laws.items()}
        return Tendons([self.tendons[i] for i in chosen], rest=self.rest[chosen], **laws)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tendons."""
        return tuple(tendon.name for tendon in self.tendons)

    def lengths(self, model: Model, q: Array | Kinematics) -> Float[Array, " n"]:
        """The lengths (n,) in m, for q (nq,) or its `Kinematics`.

        Where a tendon begins to touch a shape, the first derivatives are continuous. The second
        derivatives are not; JAX returns their values on one side. Raises ArgumentError for an
        unknown frame or joint, for a joint of a `FixedTendon` that does not have exactly one degree
        of freedom, and for a joint of a `RotationAngle` that is neither spherical nor a
        free-flyer.
        """
        return _lengths(model, self, q)

    def moment_arms(self, model: Model, q: Array | Kinematics) -> Float[Array, "n nv"]:
        """The derivatives (n, nv) of the lengths with respect to q, in the tangent space.

        The generalized force of tensions (n,) is `-moment_arms^T tensions`. Errors as for
        `lengths`.
        """
        return _moment_arms(model, self, q)

    def rates(self, model: Model, q: Array | Kinematics, v: ArrayLike) -> Float[Array, " n"]:
        """The rates (n,) of the lengths in m/s, for v (nv,). Errors as for `lengths`."""
        return _rates(model, self, q, v)

    def tensions(self, model: Model, q: Array | Kinematics, v: ArrayLike) -> Float[Array, " n"]:
        """The tensions (n,) in N of springs and damping, for v (nv,). Errors as for `lengths`."""
        return _tensions(model, self, q, v)

    def wrenches(
        self, model: Model, q: Array | Kinematics, tensions: ArrayLike
    ) -> Float[Array, "nb 6"]:
        """The forces of spatial tendons on the bodies, as the external forces `f_ext` of `rnea`.

        `tensions` (n,) in N, which pull if they are positive. A tendon acts at both ends of each
        straight part and on the shapes that it wraps. Fixed tendons and `RotationAngle`s act in
        joints, so their entries of `tensions` have no effect. Row i is in the frame of body i.
        Errors as for `lengths`.
        """
        return _wrenches(model, self, q, tensions)

    def __call__(self, model: Model, q: Array | Kinematics, v: ArrayLike) -> Float[Array, " nv"]:
        """The generalized force (nv,) of springs and damping. Errors as for `lengths`."""
        return _force(model, self, q, v)

    def energy(self, model: Model, q: Array | Kinematics) -> Float[Array, ""]:
        """The potential energy () of the springs in J. Errors as for `lengths`."""
        return _energy(model, self, q)


@arguments.compiled(arrays=("q",))
def _lengths(model: Model, tendons: Tendons, q: Array | Kinematics) -> Array:
    """See `Tendons.lengths`."""
    kinematics = forward_kinematics.unchecked(model, q)
    return lengths(model, tendons.tendons, kinematics)


@arguments.compiled(arrays=("q",))
def _moment_arms(model: Model, tendons: Tendons, q: Array | Kinematics) -> Array:
    """See `Tendons.moment_arms`."""
    kinematics = forward_kinematics.unchecked(model, q)
    return lengths_and_arms(model, tendons.tendons, kinematics).moment_arms


@arguments.compiled(arrays=("q", "v"))
def _rates(model: Model, tendons: Tendons, q: Array | Kinematics, v: Array) -> Array:
    """See `Tendons.rates`."""
    return matmul(_moment_arms.unchecked(model, tendons, q), v)


@arguments.compiled(arrays=("q", "v"))
def _tensions(model: Model, tendons: Tendons, q: Array | Kinematics, v: Array) -> Array:
    """See `Tendons.tensions`."""
    kinematics = forward_kinematics.unchecked(model, q)
    return _tensions_of(tendons, lengths_and_arms(model, tendons.tendons, kinematics), v)


@arguments.compiled(arrays=("q",))
def _wrenches(model: Model, tendons: Tendons, q: Array | Kinematics, tensions: ArrayLike) -> Array:
    """See `Tendons.wrenches`."""
    n = len(tendons.tendons)
    tensions = arguments.array(model, tensions, "tensions", (n,), "number of tendons")
    kinematics = forward_kinematics.unchecked(model, q)
    return wrenches_on_bodies(model, tendons.tendons, kinematics, tensions)


@arguments.compiled(arrays=("q", "v"))
def _force(model: Model, tendons: Tendons, q: Array | Kinematics, v: Array) -> Array:
    """See `Tendons.__call__`."""
    kinematics = forward_kinematics.unchecked(model, q)
    found = lengths_and_arms(model, tendons.tendons, kinematics)
    return -matmul(_tensions_of(tendons, found, v), found.moment_arms)


@arguments.compiled(arrays=("q",))
def _energy(model: Model, tendons: Tendons, q: Array | Kinematics) -> Array:
    """See `Tendons.energy`."""
    if tendons.stiffness is None:
        return jnp.zeros((), model.dtype)
    stretch = stretches(tendons, _lengths.unchecked(model, tendons, q))
    return jnp.sum(spring_energy(tendons.stiffness, stretch))


@arguments.compiled(arrays=("q", "v", "tau", "f_ext"))
def tendon_dynamics(
    model: Model,
    tendons: Tendons,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    f_ext: Array | None = None,
) -> Float[Array, " nv"]:
    """The acceleration (nv,) of a robot with the springs, damping and armature of its tendons.

    Other arguments as for `forward_dynamics`. The friction and the limits of the tendons act only
    in `contact.contact_step`. With the moment arms J and the armature A, the equation
    is

        (M + J^T A J) a + bias + J^T A dJ/dt v = tau - J^T tension.

    Errors as for `Tendons.lengths`.
    """
    arguments.require_type(tendons, "tendons", Tendons)
    kinematics = forward_kinematics.unchecked(model, q)
    motion = equation_of_motion(model, kinematics, v, f_ext)
    found = lengths_and_arms(model, tendons.tendons, kinematics)
    tension, J = _tensions_of(tendons, found, v), found.moment_arms
    inertia = armature_terms(model, tendons, kinematics.q, v, J)
    M, push = motion.M, tau - matmul(tension, J) - motion.bias
    if inertia is not None:
        M, push = M + inertia.M, push - inertia.bias
    return solve_positive_definite(M, push)


class ArmatureTerms(NamedTuple):
    """The terms of the armature in the equation of motion.

    - `M` (nv, nv): `J^T A J`; `bias` (nv,): `J^T A dJ/dt v`.
    """

    M: Float[Array, "nv nv"]
    bias: Float[Array, " nv"]


def armature_terms(
    model: Model,
    tendons: Tendons,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    J: Float[Array, "n nv"],
) -> ArmatureTerms | None:
    """The terms of the armature at a state, or None without armature.

    `J` (n, nv): the moment arms at q.
    """
    if tendons.armature is None:
        return None
    known = arguments.known(tendons.armature)
    kept = np.arange(len(J)) if known is None else np.flatnonzero(known)
    with_armature = Tendons([tendons.tendons[i] for i in kept])

    def rates(t: Array) -> Array:
        return _rates.unchecked(model, with_armature, integrate.unchecked(model, q, t * v), v)

    zero, one = jnp.zeros((), model.dtype), jnp.ones((), model.dtype)
    change = jax.jvp(rates, (zero,), (one,))[1]
    A, J = jnp.asarray(tendons.armature, model.dtype)[kept], J[kept]
    return ArmatureTerms(matmul(J.T * A[None], J), matmul(A * change, J))


def stretches(tendons: Tendons, lengths: Array) -> Array:
    """The stretches (n,) of the springs, `x = l - clip(l, rest)` for the lengths l."""
    least, largest = jnp.asarray(tendons.rest, lengths.dtype).T
    # The derivative is 1 where the length, `least` and `largest` are equal.
    return jnp.where(
        lengths >= largest,
        lengths - largest,
        jnp.where(lengths <= least, lengths - least, 0),
    )


def _tensions_of(tendons: Tendons, found: LengthsAndArms, v: Array) -> Array:
    tensions = jnp.zeros_like(found.lengths)
    if tendons.stiffness is not None:
        stretch = stretches(tendons, found.lengths)
        tensions = tensions + polynomial(tendons.stiffness, stretch) * stretch
    if tendons.damping is not None:
        rates = matmul(found.moment_arms, v)
        tensions = tensions + polynomial(tendons.damping, jnp.abs(rates)) * rates
    return tensions
