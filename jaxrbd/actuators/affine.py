"""Actuators whose force is affine in the control, the position and the velocity of a joint."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import independent_joint_force, joint_coordinates, joint_rates
from .joints_by_name import parameters, ranges, scalar_joints


class AffineActuators(eqx.Module):
    """n actuators on joints with one degree of freedom, the affine actuators of MuJoCo.

    The actuator i has the length `l = gear_i q` and the velocity `dl = gear_i v`, for the
    coordinate q and the velocity v of its joint. Its force is

        u = clip(control_i, control_range_i)
        f = clip(gain_i . [1, l, dl] u + bias_i . [1, l, dl], force_range_i)

    The force on the joint is the sum of `gear_i f` over the actuators of the joint, clipped to the
    `joint_force_range` of the joint. A motor has the default gain and bias. A position servo
    with the stiffness kp and the damping kd has `gain = [kp, 0, 0]` and `bias = [0, -kp, -kd]`.

    - `joints`: the names of the joints, one per actuator. A joint may have several actuators;
    - `gain`, `bias`: (n, 3), coefficients of 1, l and dl; by default [1, 0, 0] and [0, 0, 0];
    - `gear`: (n,), by default 1;
    - `control_range`, `force_range`: (n, 2), lower and upper bounds, by default infinite;
    - `joint_force_range`: (m, 2) in N or N m, for the m different joints in the order in which
      `joints` first names them (`driven_joints`), by default infinite;
    - `names`: the names of the actuators, by default the names of the joints.

    The derivative of a clipped value is zero. Raises ArgumentError for a wrong shape, a value that
    is NaN, and a lower bound above the upper bound. Source: MuJoCo, chapter "Computation", section
    "Actuation model". The control of an actuator with activation dynamics is the result of a
    `Filter`.
    """

    joints: tuple[str, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    gain: Float[arguments.Parameter, "n 3"]
    bias: Float[arguments.Parameter, "n 3"]
    gear: Float[arguments.Parameter, " n"]
    control_range: Float[arguments.Parameter, "n 2"]
    force_range: Float[arguments.Parameter, "n 2"]
    joint_force_range: Float[arguments.Parameter, "m 2"]

    def __init__(
        self,
        joints: Sequence[str],
        gain: ArrayLike | Sequence | None = None,
        bias: ArrayLike | Sequence | None = None,
        gear: ArrayLike | Sequence | None = None,
        control_range: ArrayLike | Sequence | None = None,
        force_range: ArrayLike | Sequence | None = None,
        joint_force_range: ArrayLike | Sequence | None = None,
        names: Sequence[str] | None = None,
    ):
        if isinstance(joints, str):
            raise ArgumentError(f"joints is {joints!r}, expected a sequence of names")
        self.joints = tuple(joints)
        n, m = len(self.joints), len(self.driven_joints)
        self.names = self.joints if names is None else tuple(names)
        if len(self.names) != n:
            raise ArgumentError(f"names has {len(self.names)} entries, expected {n}")
        self.gain = parameters(gain, "gain", np.tile([1.0, 0.0, 0.0], (n, 1)))
        self.bias = parameters(bias, "bias", np.zeros((n, 3)))
        self.gear = parameters(gear, "gear", np.ones(n))
        self.control_range = ranges(control_range, "control_range", n)
        self.force_range = ranges(force_range, "force_range", n)
        self.joint_force_range = ranges(joint_force_range, "joint_force_range", m)

    @property
    def values(self) -> tuple[arguments.Parameter, ...]:
        """`gain`, `bias`, `gear`, `control_range`, `force_range` and `joint_force_range`."""
        ranges = self.control_range, self.force_range, self.joint_force_range
        return self.gain, self.bias, self.gear, *ranges

    @property
    def driven_joints(self) -> tuple[str, ...]:
        """The names of the driven joints, each once."""
        return tuple(dict.fromkeys(self.joints))

    def __call__(
        self, model: Model, q: ArrayLike, v: ArrayLike, control: ArrayLike
    ) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N and N m, for q (nq,), v (nv,) and `control` (n,).

        The force of a joint that follows others is mapped to the joints that it follows. Raises
        ArgumentError for an unknown joint or a joint without exactly one degree of freedom.
        """
        return _affine_force(model, self, q, v, control)


@arguments.compiled(arrays=("q", "v"))
def _affine_force(
    model: Model, actuators: AffineActuators, q: Array, v: Array, control: ArrayLike
) -> Float[Array, " nv"]:
    """The generalized force (nv,) of `AffineActuators`; see `AffineActuators.__call__`."""
    n = len(actuators.joints)
    control = arguments.array(model, control, "control", (n,), "number of actuators")
    gain, bias, gear, control_range, force_range, joint_range = (
        jnp.asarray(x, model.dtype) for x in actuators.values
    )
    driven = actuators.driven_joints
    index = scalar_joints(model, driven)
    order = np.array([driven.index(name) for name in actuators.joints], int)
    length = gear * joint_coordinates(model, q)[index.q][order]
    speed = gear * joint_rates(model, q, v)[index.v][order]
    control = jnp.clip(control, control_range[:, 0], control_range[:, 1])
    gain, bias = (x[:, 0] + x[:, 1] * length + x[:, 2] * speed for x in (gain, bias))
    force = gear * jnp.clip(gain * control + bias, force_range[:, 0], force_range[:, 1])
    if len(driven) < n:
        force = jnp.zeros(len(driven), model.dtype).at[order].add(force)
    force = jnp.clip(force, joint_range[:, 0], joint_range[:, 1])
    forces = jnp.zeros(sum(model.joint_nvs), model.dtype).at[index.v].set(force)
    return independent_joint_force(model, q, forces)
