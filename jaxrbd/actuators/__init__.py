"""Joint forces: actuators with a control, and springs.

An actuator is a pytree, and all of its parameters are leaves. A call returns the generalized force
tau (nv,) for `forward_dynamics`.
"""

from .affine import AffineActuators
from .springs import JointSprings

__all__ = ["AffineActuators", "JointSprings"]
