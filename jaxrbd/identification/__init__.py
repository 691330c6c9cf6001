"""Identification: inertias from joint forces, and any parameters from measurements.

`inertias` uses that joint forces are linear in the inertias. `parameters` fits the parameters of
any prediction, for example of a rollout, by its derivatives. The functions solve in numpy, in
double precision, and do not run under jit.
"""

from .inertias import (
    BaseParameters,
    Identification,
    base_parameters,
    identify_consistent_inertia,
    identify_inertia,
)
from .parameters import ParameterFit, identify_parameters

__all__ = [
    "BaseParameters",
    "Identification",
    "ParameterFit",
    "base_parameters",
    "identify_consistent_inertia",
    "identify_inertia",
    "identify_parameters",
]
