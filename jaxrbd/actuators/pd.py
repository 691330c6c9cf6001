"""PD control of joint positions, with a limit of the effort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.clip import clip_within
from ..configuration import difference
from ..model import Model, arguments
from .joint_values import ValuesOfDofs, joints_of_dofs, values_of_dofs


class PD(ValuesOfDofs):
    """PD control: a spring to a target position and a damper to a target velocity, per dof.

    - `stiffness`: (nv,), in N m/rad (N/m for a dof that is a translation), 0 or more;
    - `damping`: (nv,), in N m s/rad (N s/m), 0 or more;
    - `effort`: (nv,), the largest absolute value of the joint force in N m (N), 0 or more, infinite
      where there is no limit (the default). `model.effort_limit` has the limits of a robot file.

    A dof with zero stiffness and zero damping gets no force. All fields are leaves, so `vmap` and
    `grad` work over the gains. A call casts them to the model's dtype. Raises ArgumentError for a
    negative, NaN or infinite stiffness or damping, and for a negative or NaN effort. The force of a
    traced value out of its range is NaN.
    """

    RANGES: ClassVar = {
        "stiffness": arguments.FINITE_NOT_NEGATIVE,
        "damping": arguments.FINITE_NOT_NEGATIVE,
        "effort": arguments.NOT_NEGATIVE,
    }

    stiffness: Float[arguments.Parameter, " nv"]
    damping: Float[arguments.Parameter, " nv"]
    effort: Float[arguments.Parameter, " nv"]

    def __init__(
        self,
        stiffness: ArrayLike | Sequence[int | float],
        damping: ArrayLike | Sequence[int | float],
        effort: ArrayLike | Sequence[int | float] | None = None,
    ):
        self.stiffness = arguments.parameter(stiffness, "stiffness", (None,))
        shape = self.stiffness.shape
        self.damping = arguments.parameter(damping, "damping", shape)
        effort = np.full(shape, np.inf) if effort is None else effort
        self.effort = arguments.parameter(effort, "effort", shape)
        self.require_ranges()

    @classmethod
    def for_joints(
        cls,
        model: Model,
        joints: Sequence[str],
        stiffness: ArrayLike | Sequence[int | float],
        damping: ArrayLike | Sequence[int | float],
        effort: ArrayLike | Sequence[int | float] | None = None,
    ) -> PD:
        """The PD control of the named joints of a robot; all other dofs get no force.

        - `joints`: n names of joints. A joint with several dofs has the same values for each dof;
        - `stiffness`, `damping`, `effort`: () for all joints or (n,), one value per joint.

        Raises ArgumentError for an unknown joint, a joint that is named twice, and a joint that
        follows others.
        """
        joints = arguments.names(joints, "joints")
        owner, n = joints_of_dofs(model, joints), len(joints)
        return cls(
            values_of_dofs(owner, stiffness, n, "stiffness", 0.0),
            values_of_dofs(owner, damping, n, "damping", 0.0),
            None if effort is None else values_of_dofs(owner, effort, n, "effort", np.inf),
        )

    def __call__(
        self,
        model: Model,
        q: ArrayLike,
        v: ArrayLike,
        position: ArrayLike,
        velocity: ArrayLike | None = None,
    ) -> Float[Array, " nv"]:
        """The joint forces (nv,) in N m (N), for `forward_dynamics` or `contact_step`.

        - `q` (nq,), `v` (nv,): the state;
        - `position` (nq,): the target configuration;
        - `velocity` (nv,): the target velocity (default 0).

        With the stiffness K, the damping D and the effort e, the result is

            clip(K difference(model, q, position) + D (velocity - v), -e, e).

        So the position error of a ball joint or a floating base is a rotation vector or a twist in
        the child frame, and needs no special case. A clipped force has the derivative zero with
        respect to the state and the gains. Raises ArgumentError if the fields are not (nv,).
        """
        return _pd_force(model, self, q, v, position, velocity)


@arguments.compiled(arrays=("q", "v"), checks={"position": arguments.nonzero_quaternions})
def _pd_force(
    model: Model,
    pd: PD,
    q: Array,
    v: Array,
    position: ArrayLike,
    velocity: ArrayLike | None,
) -> Float[Array, " nv"]:
    position = arguments.configuration(model, position, "position")
    stiffness, damping, effort = pd.checked_values(model)
    target = 0 if velocity is None else arguments.velocity(model, velocity, "velocity")
    force = stiffness * difference.unchecked(model, q, position) + damping * (target - v)
    return clip_within(force, -effort, effort)
