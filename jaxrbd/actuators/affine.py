"""Actuators whose force is affine in the control.

The force also depends on a length and its rate. The length is the position of a joint, the length
of a tendon, or the length of another transmission.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.clip import clip_within
from .._math.linear import matmul
from ..algorithms.kinematics import Kinematics, configuration_of, forward_kinematics
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import (
    independent_index,
    independent_joint_force,
    joint_coordinates,
    joint_rates,
)
from ..model.joints_by_name import parameters, ranges, scalar_joints
from ..tendons.paths import Tendon
from .muscle import Muscles, muscle_forces
from .transmissions import Transmission, transmission_lengths_and_arms


class ActuatorStates(NamedTuple):
    """The length l, its rate dl, and the force f of each of n actuators; see `AffineActuators`.

    For the gear 1, the units are rad, rad/s and N m for a hinge, and m, m/s and N for a slide or a
    tendon.
    """

    length: Float[Array, " n"]
    rate: Float[Array, " n"]
    force: Float[Array, " n"]


class AffineActuators(eqx.Module):
    """n actuators on joints with one degree of freedom, tendons, or other transmissions.

    These are actuators of MuJoCo. Let x be the coordinate of the joint of actuator i, or the length
    of its tendon or other transmission, and dx the rate of x. The actuator has the length
    `l = gear_i x` and the rate `dl = gear_i dx`. Its force is

        u = clip(control_i, control_range_i) + (the multiple of period_i that brings u nearest to l)
        gain = gain_i . [1, l, dl] + (gain of the muscle i)
        bias = bias_i . [1, l, dl] + (bias of the muscle i)
        f = clip(share (gain u + bias), force_range_i)

    The share of an actuator on a tendon is `clip(s, tendon_force_range) / s`, or 1 for s = 0, where
    s is the sum of `gain u + bias` over all actuators on this tendon. Other actuators have the
    share 1.

    The force on a joint, a tendon or another transmission is the sum of `gear_i f` over its
    actuators. The force on a tendon is positive if it makes the tendon longer. The force on each
    joint in `limited_joints` is clipped to its `joint_force_range`. For an independent joint, the
    clipped force is the sum of the forces of its actuators, of tendons and of other transmissions.
    For a joint that follows others, it is the force of its actuators only, and this force is not a
    part of the clipped forces on the joints that it follows.

    A motor has the default gain and bias. A position servo with the stiffness kp and the damping kd
    has `gain = [kp, 0, 0]` and `bias = [0, -kp, -kd]`. A muscle has `gain = bias = [0, 0, 0]`.

    - `joints`: for each actuator the name of its joint, or a tendon (`FixedTendon`,
      `SpatialTendon`), or another transmission (`FrameForce`, `FrameDisplacement`, `SliderCrank`,
      `BallTorque`). A joint or a tendon may have several actuators; a tendon is then the same
      object each time. The attribute `joints` has None for an actuator that drives no joint. The
      attributes `tendons` and `transmissions` have the k tendons and the other transmissions, each
      once;
    - `gain`, `bias`: (n, 3), coefficients of 1, l and dl; by default [1, 0, 0] and [0, 0, 0], and
      with `muscles` both are zero by default;
    - `gear`: (n,), by default 1;
    - `control_range`, `force_range`: (n, 2), lower and upper bounds, by default infinite;
    - `joint_force_range`: (m, 2) in N or N m, for the m joints `limited_joints`, by default
      infinite;
    - `names`: the names of the actuators, by default the names of the joints, tendons and other
      transmissions;
    - `tendon_force_range`: (k, 2) in N, for the tendons, by default infinite;
    - `muscles`: `Muscles` with n entries, or None. An actuator that is no muscle has the peak force
      0 there;
    - `limited_joints`: names of joints with one degree of freedom; by default `driven_joints`, the
      different joints in the order in which `joints` first names them;
    - `periods`: (n,), above 0, in the unit of l; by default infinite: then u is the clipped
      control. If the length is an angle in rad, a position servo with the period `2 pi` turns the
      shortest way.

    The derivative of a clipped value is zero beyond its bounds, and one at a bound. Raises
    ArgumentError for a wrong shape, a value that is NaN, a gain, bias or gear that is infinite, a
    lower bound above the upper bound, and a period that is not above 0. Source: MuJoCo, chapter
    "Computation", section "Actuation model". The control of an actuator with activation dynamics is
    the result of a `Filter`.
    """

    joints: tuple[str | None, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    limited_joints: tuple[str, ...] = eqx.field(static=True)
    # For each actuator the index of its output (a joint, a tendon or another transmission) in the
    # list of all `driven_joints`, then all `tendons`, then all `transmissions`.
    outputs: tuple[int, ...] = eqx.field(static=True)
    tendons: tuple[Tendon, ...]
    transmissions: tuple[Transmission, ...]
    gain: Float[arguments.Parameter, "n 3"]
    bias: Float[arguments.Parameter, "n 3"]
    gear: Float[arguments.Parameter, " n"]
    control_range: Float[arguments.Parameter, "n 2"]
    force_range: Float[arguments.Parameter, "n 2"]
    joint_force_range: Float[arguments.Parameter, "m 2"]
    tendon_force_range: Float[arguments.Parameter, "k 2"]
    muscles: Muscles | None
    periods: Float[arguments.Parameter, " n"] | None

    def __init__(
        self,
        joints: Sequence[str | Tendon | Transmission],
        gain: ArrayLike | Sequence | None = None,
        bias: ArrayLike | Sequence | None = None,
        gear: ArrayLike | Sequence | None = None,
        control_range: ArrayLike | Sequence | None = None,
        force_range: ArrayLike | Sequence | None = None,
        joint_force_range: ArrayLike | Sequence | None = None,
        names: Sequence[str] | None = None,
        tendon_force_range: ArrayLike | Sequence | None = None,
        muscles: Muscles | None = None,
        limited_joints: Sequence[str] | None = None,
        periods: ArrayLike | Sequence | None = None,
    ):
        given = arguments.entries(joints)
        if given is None:
            raise ArgumentError(f"joints is {joints!r}, expected a sequence of names")
        driven = tuple(str(x) if isinstance(x, str) else x for x in given)
        for place, x in enumerate(driven):
            if not isinstance(x, str | Tendon | Transmission):
                raise ArgumentError(
                    f"entry {place} of joints is {x!r}, expected the name of a joint, a tendon or "
                    "another transmission"
                )
        self.joints = tuple(x if isinstance(x, str) else None for x in driven)
        different = {id(x): x for x in driven if not isinstance(x, str)}
        self.tendons = tuple(x for x in different.values() if isinstance(x, Tendon))
        self.transmissions = tuple(x for x in different.values() if not isinstance(x, Tendon))
        outputs = [*self.driven_joints, *map(id, self.tendons), *map(id, self.transmissions)]
        self.outputs = tuple(outputs.index(x if isinstance(x, str) else id(x)) for x in driven)
        if limited_joints is None:
            limited_joints = self.driven_joints
        self.limited_joints = arguments.names(limited_joints, "limited_joints")
        if len(set(self.limited_joints)) < len(self.limited_joints):
            raise ArgumentError(
                f"limited_joints is {self.limited_joints!r}, expected each joint once"
            )
        n, m, k = len(driven), len(self.limited_joints), len(self.tendons)
        if names is None:
            names = [x if isinstance(x, str) else x.name for x in driven]
        self.names = arguments.names(names, "names")
        if len(self.names) != n:
            raise ArgumentError(f"names has {len(self.names)} entries, expected {n}")
        if muscles is not None and not isinstance(muscles, Muscles):
            raise ArgumentError(f"muscles is {muscles!r}, expected Muscles or None")
        if muscles is not None and len(muscles.peak_force) != n:
            raise ArgumentError(f"muscles has {len(muscles.peak_force)} entries, expected {n}")
        self.muscles = muscles
        motor = [1.0 if muscles is None else 0.0, 0.0, 0.0]
        self.gain = parameters(gain, "gain", np.tile(motor, (n, 1)))
        self.bias = parameters(bias, "bias", np.zeros((n, 3)))
        self.gear = parameters(gear, "gear", np.ones(n))
        for name in ("gain", "bias", "gear"):
            arguments.require(getattr(self, name), np.isfinite, name, "finite")
        self.control_range = ranges(control_range, "control_range", n)
        self.force_range = ranges(force_range, "force_range", n)
        self.joint_force_range = ranges(joint_force_range, "joint_force_range", m)
        self.tendon_force_range = ranges(tendon_force_range, "tendon_force_range", k)
        self.periods = None
        if periods is not None:
            self.periods = parameters(periods, "periods", np.full(n, np.inf))
            arguments.require(self.periods, lambda x: x > 0, "periods", "above 0 in each entry")

    @property
    def values(self) -> tuple[arguments.Parameter, ...]:
        """`gain`, `bias`, `gear`, `control_range`, `force_range` and `joint_force_range`."""
        ranges = self.control_range, self.force_range, self.joint_force_range
        return self.gain, self.bias, self.gear, *ranges

    @property
    def coupled(self) -> tuple[Tendon | Transmission, ...]:
        """All `tendons`, then all `transmissions`. Each of them may act on several joints."""
        return (*self.tendons, *self.transmissions)

    @property
    def driven_joints(self) -> tuple[str, ...]:
        """The names of the driven joints, each once."""
        return tuple(dict.fromkeys(name for name in self.joints if name is not None))

    def require_joints(self) -> tuple[str, ...]:
        """The joint of each actuator. Raises ArgumentError for an actuator without a joint."""
        for name, joint in zip(self.names, self.joints):
            if joint is None:
                raise ArgumentError(f"actuator {name!r} drives no joint, expected a joint")
        return tuple(joint for joint in self.joints if joint is not None)

    def __call__(
        self, model: Model, q: ArrayLike | Kinematics, v: ArrayLike, control: ArrayLike
    ) -> Float[Array, " nv"]:
        """The generalized force (nv,) in N and N m.

        `q` (nq,) or its `Kinematics`, `v` (nv,), `control` (n,). The force on a joint that follows
        others is mapped to the joints that it follows. Raises ArgumentError for an unknown joint or
        frame, or a joint without exactly one degree of freedom.
        """
        return _affine_force(model, self, q, v, control)

    def states(
        self, model: Model, q: ArrayLike | Kinematics, v: ArrayLike, control: ArrayLike
    ) -> ActuatorStates:
        """The length, its rate and the force of each actuator, (n,) each.

        Arguments and errors as for a call.
        """
        return _actuator_states(model, self, q, v, control)


@arguments.compiled(arrays=("q", "v"))
def _actuator_states(
    model: Model,
    actuators: AffineActuators,
    q: Array | Kinematics,
    v: Array,
    control: ArrayLike,
) -> ActuatorStates:
    """See `AffineActuators.states`."""
    return _states_and_arms(model, actuators, q, v, control)[0]


@arguments.compiled(arrays=("q", "v"))
def _affine_force(
    model: Model,
    actuators: AffineActuators,
    q: Array | Kinematics,
    v: Array,
    control: ArrayLike,
) -> Float[Array, " nv"]:
    """The generalized force (nv,) of `AffineActuators`; see `AffineActuators.__call__`."""
    states, J = _states_and_arms(model, actuators, q, v, control)
    gear, joint_range = (
        jnp.asarray(x, model.dtype) for x in (actuators.gear, actuators.joint_force_range)
    )
    index = scalar_joints(model, actuators.driven_joints)
    limited = scalar_joints(model, actuators.limited_joints)
    # The forces on the driven joints, then the forces on tendons and other transmissions.
    on_outputs, n_joints = _sums(actuators, gear * states.force), len(index.v)
    configuration = configuration_of(q)
    forces = jnp.zeros(sum(model.joint_nvs), model.dtype).at[index.v].set(on_outputs[:n_joints])
    if not actuators.coupled:
        forces = _clipped(forces, limited.v, joint_range)
        return independent_joint_force(model, configuration, forces)
    # First the forces on followers are clipped. Then the forces of tendons and other transmissions,
    # which act on v, are added to the forces on independent joints, and the sums are clipped. At
    # the end, the clipped forces on followers are mapped to the joints that they follow.
    follows = np.array([_follows(model, x) for x in actuators.limited_joints], bool)
    forces = _clipped(forces, limited.v[follows], joint_range[follows])
    independent = independent_index(model, "v")
    tau = forces[independent] + matmul(on_outputs[n_joints:], J)
    dofs = [model.joint(x).v.start for x, f in zip(actuators.limited_joints, follows) if not f]
    tau = _clipped(tau, np.array(dofs, int), joint_range[~follows])
    if model.coupling is None:
        return tau
    follower_forces = forces.at[independent].set(0)
    return tau + independent_joint_force(model, configuration, follower_forces)


def _states_and_arms(
    model: Model, actuators: AffineActuators, q: Array | Kinematics, v: Array, control: ArrayLike
) -> tuple[ActuatorStates, Array]:
    """The states of the actuators, and the moment arms of `actuators.coupled`, a row (nv,) each."""
    n = len(actuators.joints)
    control = arguments.array(model, control, "control", (n,), "number of actuators")
    gear, control_range, force_range = (
        jnp.asarray(x, model.dtype)
        for x in (actuators.gear, actuators.control_range, actuators.force_range)
    )
    index, configuration = scalar_joints(model, actuators.driven_joints), configuration_of(q)
    lengths = joint_coordinates(model, configuration)[index.q]
    rates = joint_rates(model, configuration, v)[index.v]
    J = jnp.zeros((0, model.nv), model.dtype)
    if actuators.coupled:
        kinematics = forward_kinematics.unchecked(model, q)
        others, J = transmission_lengths_and_arms(model, actuators.coupled, kinematics)
        lengths, rates = (jnp.concatenate(x) for x in ((lengths, others), (rates, matmul(J, v))))
    outputs = np.array(actuators.outputs, int)
    length, rate = gear * lengths[outputs], gear * rates[outputs]
    control = clip_within(control, control_range[:, 0], control_range[:, 1])
    control = near_lengths(actuators, control, length)
    gain, bias = gain_and_bias(actuators, length, rate)
    force = gain * control + bias
    first, k = len(index.v), len(actuators.tendons)
    if k:
        shares = jnp.ones(len(lengths), model.dtype)
        on_tendons = _sums(actuators, force)[first : first + k]
        shares = shares.at[first : first + k].set(_shares_of_tendons(actuators, on_tendons))
        force = shares[outputs] * force
    force = clip_within(force, force_range[:, 0], force_range[:, 1])
    return ActuatorStates(length, rate, force), J


def _sums(actuators: AffineActuators, x: Float[Array, " n"]) -> Array:
    """The sums of x over the actuators of each joint, tendon and other transmission."""
    outputs = np.array(actuators.outputs, int)
    count = len(actuators.driven_joints) + len(actuators.coupled)
    if count < len(x):
        return jnp.zeros(count, x.dtype).at[outputs].add(x)
    return x[np.argsort(outputs)]  # each output has one actuator


def _follows(model: Model, joint: str) -> bool:
    """Whether a joint follows others, so that it has no velocity in v."""
    dofs = model.joint(joint).v
    return dofs.start == dofs.stop


def _clipped(forces: Array, index: np.ndarray, limits: Array) -> Array:
    """The forces, where the entries with the indices (m,) are clipped to limits (m, 2)."""
    if not len(index):
        return forces
    return forces.at[index].set(clip_within(forces[index], limits[:, 0], limits[:, 1]))


def _shares_of_tendons(actuators: AffineActuators, forces: Array) -> Float[Array, " k"]:
    """The factors (k,) that bring the forces (k,) on the tendons into `tendon_force_range`."""
    limits = jnp.asarray(actuators.tendon_force_range, forces.dtype)
    bounded = clip_within(forces, limits[:, 0], limits[:, 1])
    outside = (bounded != forces) & (forces != 0)
    return jnp.where(outside, bounded / jnp.where(outside, forces, 1), 1)


def near_lengths(
    actuators: AffineActuators, control: Float[Array, " n"], length: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The controls plus the multiples of the periods for which they are nearest to the lengths."""
    if actuators.periods is None:
        return control
    period = jnp.asarray(actuators.periods, control.dtype)
    has_period = jnp.isfinite(period)
    period = jnp.where(has_period, period, 1)
    turns = lax.stop_gradient(jnp.round((control - length) / period))
    return control - jnp.where(has_period, turns * period, 0)


def gain_and_bias(
    actuators: AffineActuators, length: Float[Array, " n"], rate: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The gain and the bias of each actuator, for its l and dl; see `AffineActuators`."""
    gain, bias = (
        x[:, 0] + x[:, 1] * length + x[:, 2] * rate
        for x in (jnp.asarray(x, length.dtype) for x in (actuators.gain, actuators.bias))
    )
    if actuators.muscles is None:
        return gain, bias
    muscles = muscle_forces(actuators.muscles, length, rate)
    return gain + muscles.gain, bias + muscles.bias
