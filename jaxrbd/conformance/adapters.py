"""How the suite sees a library: functions of a robot in jaxrbd's conventions, and jaxrbd's own."""

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
    """A library cannot express a robot; the message says why."""


@dataclasses.dataclass(frozen=True)
class Functions:
    """What a library computes of one robot, as functions that JAX traces; None where it does not.

    All are unbatched, of arrays of JAX's default float dtype at the time of `Adapter.load`, and in
    jaxrbd's conventions: order of joints, quaternions xyzw, `v` of a free-flyer in the body's
    frame; n is the number of the robot's trees.

    - `inverse_dynamics(q, v, a)`: tau (nv,);
    - `forward_dynamics(q, v, tau)`: a (nv,);
    - `placement(q)`: of the links `robot.tips` in the world, `(R, p)`, (n, 3, 3) and (n, 3);
    - `step(q, v)`: the configuration (nq,) after a time of `STEP` at the velocity v, by whatever
      rule the library integrates a configuration.
    """

    inverse_dynamics: Callable[[Array, Array, Array], Array] | None = None
    forward_dynamics: Callable[[Array, Array, Array], Array] | None = None
    placement: Callable[[Array], tuple[Array, Array]] | None = None
    step: Callable[[Array, Array], Array] | None = None


QUANTITIES = tuple(field.name for field in dataclasses.fields(Functions))
STEP = 0.5  # s


class Adapter:
    """A library under test. Derive from it and define `name` and `load`."""

    name: str = "unnamed"

    def robots(self, trees: Sequence[Tree]) -> list[list[Tree]]:
        """The trees that the library can express, in groups that it can take as one robot.

        Trees that are in no group count as not supported. Default: one robot of all of them.
        """
        return [list(trees)]

    def load(self, robot: Robot) -> Functions:
        """The library's functions of a robot; called anew for each precision.

        Raises Unsupported where the library cannot express it.
        """
        raise NotImplementedError


class JaxRBD(Adapter):
    """jaxrbd itself."""

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
