"""Actuators whose force is affine in the control, and in a length and its rate.

The length is the position of a joint, or the length of a tendon.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul
from ..algorithms.kinematics import forward_kinematics
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import independent_joint_force, joint_coordinates, joint_rates
from ..model.joints_by_name import parameters, ranges, scalar_joints
from ..tendons.lengths import lengths_and_arms
from ..tendons.paths import FixedTendon, SpatialTendon, Tendon


class AffineActuators(eqx.Module):
    """n actuators on joints with one degree of freedom or tendons: the affine actuators of MuJoCo.

    The actuator i has the length `l = gear_i x` and the velocity `dl = gear_i dx`, for the
    coordinate x of its joint or the length x of its tendon, and the rate dx. Its force is

        u = clip(control_i, control_range_i)
        f = clip(gain_i . [1, l, dl] u + bias_i . [1, l, dl], force_range_i)

    The force on the joint is the sum of `gear_i f` over the actuators of the joint, clipped to the
    `joint_force_range` of the joint. The force on a tendon is the sum of `gear_i f` too, and is
    positive if it makes the tendon longer. If the sum of the f of its actuators is outside its
    `tendon_force_range`, all f are multiplied by one factor, so
    that their sum is the limit. A motor has the default gain and
    bias. A position servo with the stiffness kp and the damping kd has `gain = [kp, 0, 0]` and
    `bias = [0, -kp, -kd]`.

    - `joints`: for each actuator the name of its joint, or its tendon: a `FixedTendon` or a
      `SpatialTendon`. A joint or a tendon may have several actuators; a tendon is then the same
      object each time. The attribute has None for each tendon, and the attribute `tendons` has the
      k different tendons;
    - `gain`, `bias`: (n, 3), coefficients of 1, l and dl; by default [1, 0, 0] and [0, 0, 0];
    - `gear`: (n,), by default 1;
    - `control_range`, `force_range`: (n, 2), lower and upper bounds, by default infinite;
    - `joint_force_range`: (m, 2) in N or N m, for the m different joints in the order in which
      `joints` first names them (`driven_joints`), by default infinite;
    - `names`: the names of the actuators, by default the names of the joints and tendons;
    - `tendon_force_range`: (k, 2) in N, for the tendons, by default infinite.

    The derivative of a clipped value is zero. Raises ArgumentError for a wrong shape, a value that
    is NaN, and a lower bound above the upper bound. Source: MuJoCo, chapter "Computation", section
    "Actuation model". The control of an actuator with activation dynamics is the result of a
    `Filter`.
    """

    joints: tuple[str | None, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    # For each actuator the index of its joint among `driven_joints`, or of its tendon, after them.
    outputs: tuple[int, ...] = eqx.field(static=True)
    tendons: tuple[Tendon, ...]
    gain: Float[arguments.Parameter, "n 3"]
    bias: Float[arguments.Parameter, "n 3"]
    gear: Float[arguments.Parameter, " n"]
    control_range: Float[arguments.Parameter, "n 2"]
    force_range: Float[arguments.Parameter, "n 2"]
    joint_force_range: Float[arguments.Parameter, "m 2"]
    tendon_force_range: Float[arguments.Parameter, "k 2"]

    def __init__(
        self,
        joints: Sequence[str | Tendon],
        gain: ArrayLike | Sequence | None = None,
        bias: ArrayLike | Sequence | None = None,
        gear: ArrayLike | Sequence | None = None,
        control_range: ArrayLike | Sequence | None = None,
        force_range: ArrayLike | Sequence | None = None,
        joint_force_range: ArrayLike | Sequence | None = None,
        names: Sequence[str] | None = None,
        tendon_force_range: ArrayLike | Sequence | None = None,
    ):
        if isinstance(joints, str):
            raise ArgumentError(f"joints is {joints!r}, expected a sequence of names")
        ends = tuple(joints)
        for place, end in enumerate(ends):
            if not isinstance(end, str | FixedTendon | SpatialTendon):
                raise ArgumentError(
                    f"entry {place} of joints is {end!r}, expected the name of a joint, a "
                    "FixedTendon or a SpatialTendon"
                )
        self.joints = tuple(end if isinstance(end, str) else None for end in ends)
        different = {id(end): end for end in ends if not isinstance(end, str)}
        self.tendons = tuple(different.values())
        driven = [*self.driven_joints, *different]
        self.outputs = tuple(driven.index(x if isinstance(x, str) else id(x)) for x in ends)
        n, m, k = len(ends), len(self.driven_joints), len(different)
        if names is None:
            names = [end if isinstance(end, str) else end.name for end in ends]
        self.names = tuple(names)
        if len(self.names) != n:
            raise ArgumentError(f"names has {len(self.names)} entries, expected {n}")
        self.gain = parameters(gain, "gain", np.tile([1.0, 0.0, 0.0], (n, 1)))
        self.bias = parameters(bias, "bias", np.zeros((n, 3)))
        self.gear = parameters(gear, "gear", np.ones(n))
        self.control_range = ranges(control_range, "control_range", n)
        self.force_range = ranges(force_range, "force_range", n)
        self.joint_force_range = ranges(joint_force_range, "joint_force_range", m)
        self.tendon_force_range = ranges(tendon_force_range, "tendon_force_range", k)

    @property
    def values(self) -> tuple[arguments.Parameter, ...]:
        """`gain`, `bias`, `gear`, `control_range`, `force_range` and `joint_force_range`."""
        ranges = self.control_range, self.force_range, self.joint_force_range
        return self.gain, self.bias, self.gear, *ranges

    @property
    def driven_joints(self) -> tuple[str, ...]:
        """The names of the driven joints, each once."""
        return tuple(dict.fromkeys(name for name in self.joints if name is not None))

    def joints_without_tendons(self) -> tuple[str, ...]:
        """The joint of each actuator. Raises ArgumentError, which names an actuator of a tendon."""
        for name, joint in zip(self.names, self.joints):
            if joint is None:
                raise ArgumentError(f"actuator {name!r} drives a tendon, expected a joint")
        return tuple(joint for joint in self.joints if joint is not None)

    def __call__(
        self, model: Model, q: ArrayLike, v: ArrayLike, control: ArrayLike
    ) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N and N m, for q (nq,), v (nv,) and `control` (n,).

        The force of a joint that follows others is mapped to the joints that it follows. Raises
        ArgumentError for an unknown joint or frame, or a joint without exactly one degree of
        freedom.
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
    index = scalar_joints(model, actuators.driven_joints)
    lengths, rates = joint_coordinates(model, q)[index.q], joint_rates(model, q, v)[index.v]
    kinematics = forward_kinematics.unchecked(model, q)
    cables, J = lengths_and_arms(model, actuators.tendons, kinematics)
    lengths, rates = (jnp.concatenate(x) for x in ((lengths, cables), (rates, matmul(J, v))))
    order = np.array(actuators.outputs, int)
    length, speed = gear * lengths[order], gear * rates[order]
    control = jnp.clip(control, control_range[:, 0], control_range[:, 1])
    gain, bias = (x[:, 0] + x[:, 1] * length + x[:, 2] * speed for x in (gain, bias))
    force = jnp.clip(gain * control + bias, force_range[:, 0], force_range[:, 1])

    def sums(x: Array) -> Array:
        """The sums over the actuators of each joint and each tendon."""
        if len(lengths) < n:
            return jnp.zeros(len(lengths), model.dtype).at[order].add(x)
        return x[np.argsort(order)]

    found, count = sums(gear * force), len(index.v)
    on_joints = jnp.clip(found[:count], joint_range[:, 0], joint_range[:, 1])
    forces = jnp.zeros(sum(model.joint_nvs), model.dtype).at[index.v].set(on_joints)
    tau = independent_joint_force(model, q, forces)
    if not actuators.tendons:
        return tau
    # As in MuJoCo, the limits are for the forces without the gears.
    total, limits = sums(force)[count:], jnp.asarray(actuators.tendon_force_range, model.dtype)
    bounded = jnp.clip(total, limits[:, 0], limits[:, 1])
    outside = (bounded != total) & (total != 0)
    part = jnp.where(outside, bounded / jnp.where(outside, total, 1), 1)
    return tau + matmul(part * found[count:], J)
