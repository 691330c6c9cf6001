"""Motion of a robot without contact, for the environments that need no ground."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jax import Array
from jaxtyping import Float

from ..algorithms.forward_dynamics import forward_dynamics
from ..integrators import semi_implicit_euler
from ..model import Model
from .environment import repeat


class Motion(NamedTuple):
    """A state of motion of a robot: q (nq,) and v (nv,)."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]


def move(
    model: Model,
    motion: Motion,
    torque: Callable[[Array, Array], Array],
    time_step: float,
    count: int,
) -> Motion:
    """The motion after a time step, which consists of `count` steps of `semi_implicit_euler`.

    `torque(q, v)` returns the joint forces (nv,).
    """

    def dynamics(q, v):
        return forward_dynamics(model, q, v, torque(q, v))

    def step(motion: Motion) -> Motion:
        return Motion(*semi_implicit_euler(model, dynamics, *motion, time_step / count))

    return repeat(step, motion, count)
