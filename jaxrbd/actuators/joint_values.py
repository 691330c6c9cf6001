"""Parameters per degree of freedom, from values per joint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..errors import ArgumentError
from ..model import Model, arguments


def joints_of_dofs(model: Model, joints: Sequence[str], argument: str = "joints") -> np.ndarray:
    """The index in `joints` of the joint of each degree of freedom, (nv,).

    It is `len(joints)` for the degrees of freedom of all other joints. Raises ArgumentError for an
    unknown joint, a joint that is named twice, and a joint without a velocity in v, which is fixed
    or follows others. `argument`: the name of `joints` in messages.
    """
    joints = arguments.names(joints, argument)
    owner = np.full(arguments.robot(model).nv, len(joints))
    for i, name in enumerate(joints):
        dofs = model.joint(name).v
        if dofs.start == dofs.stop:
            raise ArgumentError(
                f"joint {name!r} of {model!r} has no velocity in v, because it is fixed or follows "
                f"other joints; expected a joint with an independent velocity"
            )
        if np.any(owner[dofs] != len(joints)):
            raise ArgumentError(f"joint {name!r} is twice in {argument}, expected each joint once")
        owner[dofs] = i
    return owner


class ValuesOfDofs(eqx.Module):
    """Actuators whose fields have one value per degree of freedom, (nv,).

    `RANGES`: for each field, the range of its values.
    """

    RANGES: ClassVar[Mapping[str, arguments.Requirement]]

    def require_ranges(self) -> None:
        """Raise ArgumentError, which names the field, for a value out of its range, or NaN."""
        for name, requirement in self.RANGES.items():
            arguments.require(getattr(self, name), requirement.holds, name, requirement.expected)

    def checked_values(self, model: Model, prefix: str = "") -> list[Array]:
        """The fields as arrays (nv,) of the model's dtype.

        A value out of its range becomes NaN, because a traced value cannot raise an error. Raises
        ArgumentError for a shape other than (nv,). In its message, `prefix` is before the name of
        the field.
        """
        return [
            requirement.or_nan(
                arguments.velocity(
                    model, jnp.asarray(getattr(self, name), model.dtype), prefix + name
                )
            )
            for name, requirement in self.RANGES.items()
        ]


def values_of_dofs(
    owner: np.ndarray, x: ArrayLike | Sequence, n: int, name: str, rest: float
) -> arguments.Parameter:
    """One value per degree of freedom, (nv,), from one value for all n joints or one per joint.

    - `owner` (nv,): the result of `joints_of_dofs` for n joints;
    - `x`: () or (n,); `name`: the name of x for the message of an error;
    - `rest`: the value of the degrees of freedom of all other joints.
    """
    x = arguments.parameter(x, name, (), (n,))
    xp = jnp if isinstance(x, Array) else np
    per_joint = xp.broadcast_to(x, (n,))
    return xp.concatenate([per_joint, xp.asarray([rest], x.dtype)])[owner]
