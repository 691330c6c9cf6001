"""Conversion of states to the conventions of a library, and of its results to those of jaxrbd.

`conformance/mjcf.py` converts values. The conversion of a derivative needs no further formula: the
Jacobians that the library returns define a linear function, which replaces the library's function.
This module composes the linear function with the conversions of its arguments and of its value, and
JAX differentiates the composition.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd

from . import jobs
from .conformance.mjcf import Conversion
from .robots import Robot


class Ours:
    """The identity conversion, for libraries with the conventions of jaxrbd and Pinocchio."""

    def __init__(self, robot, model):
        pass

    def position(self, q):
        return q

    def motion(self, q, v):
        return v

    def motion_back(self, q, v):
        return v

    def acceleration(self, q, v, a):
        return a

    def acceleration_back(self, q, v, a):
        return a


class Checker:
    """Compares the results of libraries for one robot with the reference.

    - `model`: the robot in jaxrbd, in double precision;
    - `reference`: the arrays that `reference.py` writes.
    """

    def __init__(self, robot: Robot, model: jaxrbd.Model, reference: dict[str, np.ndarray]):
        self.robot, self.model, self.reference = robot, model, reference
        self.states = jobs.states(model.nq, model.nv, robot.floating)

    def native(self, convention: str) -> dict[str, np.ndarray]:
        """All states of `jobs.states` in the convention of a library."""
        convert = self._conversion(convention)

        def one(q, v, a, tau):
            return {
                "q": convert.position(q),
                "v": convert.motion(q, v),
                "a": convert.acceleration(q, v, a),
                "tau": convert.motion(q, tau),
            }

        q, v, a, tau, taus = (self.states[name] for name in ("q", "v", "a", "tau", "taus"))
        found = jax.jit(jax.vmap(one))(q, v, a, tau)
        return {**{name: np.asarray(x) for name, x in found.items()}, "taus": taus}

    def error(self, job: str, convention: str, batch: int, found: list[np.ndarray]) -> float:
        """The largest relative error of a library's arrays; see `jobs.error`.

        `found` has the arrays of the job for the samples `jobs.checked(batch)`.
        """
        rows = jobs.checked(batch) % jobs.UNIQUE
        expected = []
        while f"{job}_{len(expected)}" in self.reference:
            expected.append(self.reference[f"{job}_{len(expected)}"][rows])
        if len(found) != len(expected):
            return float("inf")
        if self.in_world_axes(job, convention):
            expected = [self._gradient_in_world_axes[rows]]
        state = {name: x[rows] for name, x in self.states.items()}
        value = {"drnea": "rnea_0", "grad": "rnea_0", "dfd": "fd_0"}.get(job)
        if value is not None:
            state["value"] = self.reference[value][rows]
        back = self._back(job, convention, tuple(x.shape[-1] for x in found))
        if back is not None:
            found = [np.asarray(x) for x in back(state, [jnp.asarray(x) for x in found])]
        return max(jobs.error(x, y) for x, y in zip(found, expected))

    def in_world_axes(self, job: str, convention: str) -> bool:
        """Whether the job integrates the velocity of a floating base in the axes of the world."""
        return job == "rollout_grad" and convention == "mujoco" and self.robot.floating

    @functools.cached_property
    def _gradient_in_world_axes(self) -> np.ndarray:
        """The gradients of the first states by the step of MuJoCo, with jaxrbd's forward dynamics.

        MuJoCo integrates the linear velocity of a floating base in the axes of the world.
        """
        convert, model = Conversion(self.robot, self.model), self.model

        def step(state, row):
            q, qvel = state
            v = convert.motion_back(q, qvel)
            tau = jnp.concatenate([jnp.zeros(6), row])
            a = jaxrbd.forward_dynamics(model, q, v, tau)
            qvel = qvel + jobs.DT * convert.acceleration(q, v, a)
            moved = jaxrbd.integrate(model, q, jobs.DT * convert.motion_back(q, qvel))
            return (moved.at[:3].set(q[:3] + jobs.DT * qvel[:3]), qvel), None

        def loss(taus, q, v):
            (_, end), _ = jax.lax.scan(step, (q, convert.motion(q, v)), taus)
            return 0.5 * jnp.sum(end**2)

        first = [self.states[name][: jobs.CHECKED] for name in ("taus", "q", "v")]
        return np.asarray(jax.jit(jax.vmap(jax.grad(loss)))(*first))

    def _conversion(self, convention: str):
        return {"pinocchio": Ours, "mujoco": Conversion}[convention](self.robot, self.model)

    @functools.cache  # noqa: B019
    def _back(self, job: str, convention: str, widths: tuple[int, ...]):
        """The compiled conversion of a batch of results; None if they need no conversion.

        `widths` has the size of the last axis of each array.
        """
        convert, model = self._conversion(convention), self.model
        if job in ("fk", "rollout_grad"):
            return None
        if convention == "pinocchio" and widths[0] == model.nv:
            return None

        def motion_matrix(q):
            return jax.vmap(lambda e: convert.motion(q, e), out_axes=1)(jnp.eye(model.nv))

        def plain(state, found):
            q, v = state["q"], state["v"]
            if job == "rnea":
                return [convert.motion_back(q, found[0])]
            if job == "fd":
                return [convert.acceleration_back(q, v, found[0])]
            T = motion_matrix(q)
            J = jnp.matmul(found[0], T, precision="highest")
            return [J if job == "jacobian" else jnp.matmul(T.T, J, precision="highest")]

        def linear(state, found):
            third = "tau" if job == "dfd" else "a"
            at_q, at_v, at_x = (state[name] for name in ("q", "v", third))

            def arguments(dq, v, x):
                q = jaxrbd.integrate(model, at_q, dq)
                given = convert.motion(q, x) if job == "dfd" else convert.acceleration(q, v, x)
                return q, convert.position(q), convert.motion(q, v), given

            start = arguments(jnp.zeros(model.nv), at_v, at_x)[1:]

            def change(dq, v, x):
                """q, and the first-order change of the library's function from the state."""
                q, *at = arguments(dq, v, x)
                moved = [y - y0 for y, y0 in zip(at, start)]
                if widths[0] == model.nv:
                    moved[0] = convert.motion(at_q, dq)
                terms = [jnp.matmul(J, y, precision="highest") for J, y in zip(found, moved)]
                return q, sum(terms)

            zero = jnp.zeros(model.nv)
            if job == "grad":
                return jax.grad(lambda *args: change(*args)[1], (0, 1, 2))(zero, at_v, at_x)

            def ours(dq, v, x):
                q, more = change(dq, v, x)
                if job == "dfd":
                    value = convert.acceleration(at_q, at_v, state["value"])
                    return convert.acceleration_back(q, v, value + more)
                return convert.motion_back(q, convert.motion(at_q, state["value"]) + more)

            return jax.jacfwd(ours, (0, 1, 2))(zero, at_v, at_x)

        one = linear if job in ("drnea", "dfd", "grad") else plain
        return jax.jit(jax.vmap(one))
