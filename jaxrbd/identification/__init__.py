"""Identification: inertias from joint forces, and any parameters from measurements.

`identify_inertia` and `identify_consistent_inertia` use that joint forces are linear in the
inertias. `identify_parameters` fits the parameters of any prediction, for example of a rollout,
with the derivatives of the prediction. The functions solve in numpy, in double precision, and do
not run under jit.
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
