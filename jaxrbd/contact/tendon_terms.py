"""Impulses of tendons in a time step.

Each term acts on the rate u of the length l of a tendon, as the terms of `joint_terms.py` act on
the velocity of a joint, with the impulse

    gamma = clip(conductance (target - u), lower, upper).

    term            conductance        target                               lower, upper
    least length    1 / R              (l_min - l) / time                   0, inf
    largest length  1 / R              (l_max - l) / time                   -inf, 0
    dry friction    1 / R              0                                    -dt f, dt f
    damping         dt d               0                                    -inf, inf
    spring, short   dt^2 k             (rest_0 - l) / dt                    0, inf
    spring, long    dt^2 k             (rest_1 - l) / dt                    -inf, 0
    servo           dt (k_d + dt k_p)  (k_p e + k_d u_d) / (k_d + dt k_p)   dt force range

The time of a limit is dt, or `dt + recovery` for a length beyond the limit. R is a fraction of the
inverse inertia of the tendon. The friction force is f, the damping coefficient is d, and the
stiffness is k. If k or d is a polynomial, it has the value for the length and the rate before the
step. A negative stiffness would make the function of u concave. So its force before the step acts
as a constant impulse. `TendonServo` has the gains k_p and k_d and the rate u_d; e is its `length`
minus l. So springs, damping and servos act with the length and the rate after the step, and a step
is stable for any stiffness of 0 or more.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._math.cast import cast
from .._math.polynomials import polynomial
from ..model import Model
from ..tendons import Tendons
from ..tendons.tendons import stretches
from .joint_terms import ClippedLaw, TendonServo


def tendon_law(
    model: Model,
    tendons: Tendons,
    lengths: Float[Array, " n"],
    rates: Float[Array, " n"],
    dt: Float[Array, ""],
    recovery: Float[Array, ""],
    conductance: Float[Array, " n"],
) -> ClippedLaw:
    """The impulses of the table at the head of the module; `conductance`: 1 / R of each tendon.

    `lengths` and `rates`: before the step.
    """
    zero, unbounded = jnp.zeros_like(lengths), jnp.full_like(lengths, jnp.inf)
    rows = []
    tendons = cast(tendons, model.dtype)
    stiffness = None
    if tendons.stiffness is not None:
        stretch = stretches(tendons, lengths)
        stiffness = polynomial(tendons.stiffness, stretch)
        # Only a polynomial can have negative values. They give a constant impulse.
        if jnp.ndim(tendons.stiffness) == 2:
            push = -dt * jnp.minimum(stiffness, 0) * stretch
            rows.append((conductance, zero, push, push))
            stiffness = jnp.maximum(stiffness, 0)
    for side, (low, high) in enumerate([(zero, unbounded), (-unbounded, zero)]):
        if tendons.limits is not None:
            bound = tendons.limits[:, side]
            limited = jnp.isfinite(bound)
            gap = jnp.where(limited, bound, 0) - lengths
            beyond = gap >= 0 if side == 0 else gap <= 0
            target = gap / jnp.where(beyond, dt + recovery, dt)
            rows.append((jnp.where(limited, conductance, 0), target, low, high))
        if stiffness is not None:
            bound = jnp.asarray(tendons.rest)[:, side]
            bounded = jnp.isfinite(bound)
            distance = jnp.where(bounded, bound, 0) - lengths
            gain = jnp.where(bounded, dt * dt * stiffness, 0)
            rows.append((gain, distance / dt, low, high))
    if tendons.friction is not None:
        friction = dt * tendons.friction
        rows.append((jnp.where(friction > 0, conductance, 0), zero, -friction, friction))
    if tendons.damping is not None:
        damping = polynomial(tendons.damping, jnp.abs(rates))
        rows.append((dt * damping, zero, -unbounded, unbounded))
    return ClippedLaw(*map(jnp.stack, zip(*(rows or [(zero, zero, zero, zero)]))))


def tendon_servo_law(
    servo: TendonServo, lengths: Float[Array, " n"], dt: Float[Array, ""]
) -> ClippedLaw:
    """The last row of the table at the head of the module."""
    stiffness, damping, force_range, length, rate = map(jnp.asarray, servo[1:])
    # Below, a bound that is NaN counts as infinite. So a value that is NaN or out of range must
    # make the gain NaN.
    right = (stiffness >= 0) & (damping >= 0) & (force_range[:, 0] <= force_range[:, 1])
    gain = jnp.where(right, damping + dt * stiffness, jnp.nan)
    driven = gain > 0
    push = stiffness * (length - lengths) + damping * rate
    bounded = jnp.isfinite(force_range)
    unbounded = jnp.where(force_range > 0, jnp.inf, -jnp.inf)
    bounds = jnp.where(bounded, dt * jnp.where(bounded, force_range, 0), unbounded)
    bounds = jnp.where(driven[:, None], bounds, 0)
    rows = dt * gain, push / jnp.where(driven, gain, 1), bounds[:, 0], bounds[:, 1]
    return ClippedLaw(*(x[None] for x in rows))
