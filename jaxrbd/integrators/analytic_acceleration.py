"""Forward dynamics whose first and second derivatives by q, v and tau are analytic."""

from __future__ import annotations

from jax import Array

from ..algorithms.analytic_rules import FirstOrder, SecondOrder, with_analytic_derivatives
from ..algorithms.forward_dynamics import forward_dynamics
from ..algorithms.rnea_derivatives import ForwardDynamicsDerivatives, acceleration_and_derivatives
from ..algorithms.second_order import second_order_from_first
from ..model import Model, arguments

Constants = tuple[Model, Array | None]
"""The model and the external forces."""


def analytic_acceleration(model: Model, q: Array, v: Array, tau: Array) -> Array:
    """`forward_dynamics` (nv,), with analytic derivatives with respect to q, v and tau."""
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    return acceleration((model, None), q, v, arguments.velocity(model, tau, "tau"))


def _value(constants: Constants, q: Array, v: Array, tau: Array) -> Array:
    model, f_ext = constants
    return forward_dynamics.unchecked(model, q, v, tau, f_ext)


def _first_order(constants: Constants, q: Array, v: Array, tau: Array) -> FirstOrder:
    model, f_ext = constants
    a, derivatives = acceleration_and_derivatives(model, q, v, tau, f_ext)
    return FirstOrder(a, tuple(derivatives))


def _second_order(
    constants: Constants, q: Array, v: Array, _: Array, first: FirstOrder, weights: Array
) -> SecondOrder:
    model, f_ext = constants
    D = ForwardDynamicsDerivatives(*first.columns)
    found = second_order_from_first(model, q, v, first.value, D, weights, f_ext)
    return (
        (found.dq_dq, found.dq_dv, found.dq_dtau),
        (found.dq_dv.T, found.dv_dv, None),
        (found.dq_dtau.T, None, None),
    )


acceleration = with_analytic_derivatives(_value, _first_order, _second_order)
"""`forward_dynamics` of (constants, q, v, tau), without checks of the arguments."""
