"""Adapters: the functions of a library in the conventions of jaxrbd. `JaxRBD` adapts jaxrbd."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algorithms.forward_dynamics import forward_dynamics
from ..algorithms.kinematics import forward_kinematics
from ..algorithms.rnea import rnea
from ..configuration import integrate
from ..errors import JaxRBDError
from .robots import Robot, Tree


class Unsupported(JaxRBDError):
    """A library does not support a robot; the message states the reason."""


@dataclasses.dataclass(frozen=True)
class Functions:
    """The functions of a library for one robot. None stands for a function that is missing.

    JAX must be able to trace the functions. They take one state, not a batch. The dtype of the
    arrays is JAX's default float dtype at the time when the suite calls `Adapter.load`. The
    conventions are jaxrbd's: order of joints, quaternions xyzw, velocity of a free-flyer in the
    body frame. n is the number of trees of the robot.

    - `inverse_dynamics(q, v, a)`: tau (nv,);
    - `forward_dynamics(q, v, tau)`: a (nv,);
    - `placement(q)`: poses `(R, p)` of the links `robot.tips` in the world, (n, 3, 3) and (n, 3);
    - `step(q, v)`: the configuration (nq,) after `STEP` seconds at the constant velocity v, by the
      library's integration rule.
    """

    inverse_dynamics: Callable[[Array, Array, Array], Array] | None = None
    forward_dynamics: Callable[[Array, Array, Array], Array] | None = None
    placement: Callable[[Array], tuple[Array, Array]] | None = None
    step: Callable[[Array, Array], Array] | None = None


QUANTITIES = tuple(field.name for field in dataclasses.fields(Functions))
STEP = 0.5  # s, the time of `Functions.step`


class Adapter:
    """The base class of adapters; a subclass defines `name` and `load`."""

    name: str = "unnamed"

    def robots(self, trees: Sequence[Tree]) -> list[list[Tree]]:
        """The supported trees, in groups. The suite makes one robot from each group.

        The suite does not test a tree that is in no group. Default: one robot of all trees.
        """
        return [list(trees)]

    def load(self, robot: Robot) -> Functions:
        """The library's functions for a robot.

        The suite calls this method several times per robot, with `jax_enable_x64` on or off. Raises
        Unsupported if the library does not support the robot.
        """
        raise NotImplementedError


class JaxRBD(Adapter):
    """The adapter of jaxrbd."""

    name = "jaxrbd"

    def load(self, robot: Robot) -> Functions:
        model = robot.model()
        tips = np.array([model.body_names.index(tip) for tip in robot.tips])

        def placement(q: Array) -> tuple[Array, Array]:
            X_WB = forward_kinematics(model, q).X_WB
            return X_WB.R[tips], X_WB.p[tips]

        return Functions(
            inverse_dynamics=lambda q, v, a: rnea(model, q, v, a),
            forward_dynamics=lambda q, v, tau: forward_dynamics(model, q, v, tau),
            placement=placement,
            step=lambda q, v: integrate(model, q, jnp.asarray(STEP, v.dtype) * v),
        )
