"""Optimal control problems, and dynamics made from an integrator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, PyTree

from ..constraints import ConstrainedDynamics, Constraint, constrained_dynamics
from ..constraints.implicit import require_stabilisation
from ..constraints.rows import checked_constraints
from ..errors import ArgumentError
from ..integrators.analytic_acceleration import analytic_acceleration
from ..joints import as_module
from ..model import Model, arguments
from ..model.names import described
from .spaces import Space


class Problem(eqx.Module):
    """The cost, the dynamics and the constraints of a trajectory with N stages.

    - `space`: the space of the states, from `state_space`, `vector_space` or `product_space`;
    - `dynamics(t, x, u, p)`: the state after stage t;
    - `cost(t, x, u, p)`: a residual vector r, whose cost is `|r|^2 / 2`, or a scalar cost;
    - `terminal_cost(x, p)`: likewise for the last state (default 0);
    - `control_bounds`: the pair of the lower and the upper bounds of u, each (m,) or (); infinite
      entries are no bounds (default none);
    - `path(t, x, u, p)`: the pair (equalities, inequalities) of the constraints of each stage; the
      solution has equalities 0 and inequalities of at most 0. Each is a vector or None;
    - `terminal(x, p)`: likewise for the last state;
    - `shared(t, x, u, p)`: a value that dynamics, cost and path use, for example contact forces
      (default none). It is computed once per stage. Dynamics, cost and path then take it as a fifth
      argument.

    t () is the index of the stage, an array of dtype int; x is the state, u (m,) the control. p is
    any pytree of parameters, and the solution can be differentiated by p. A function is a plain
    function or an `eqx.Module`. A program is compiled for each new function, so define the
    functions once, and put all values that change into p. Raises ArgumentError for a lower bound
    above the upper bound, for a bound that is NaN, for a lower bound of infinity, for an upper
    bound of minus infinity, and for a function that cannot be called as above.
    """

    space: Space
    dynamics: Callable
    cost: Callable
    terminal_cost: Callable | None
    control_bounds: tuple[arguments.Parameter, arguments.Parameter] | None
    path: Callable | None
    terminal: Callable | None
    shared: Callable | None

    def __init__(
        self,
        space: Space,
        dynamics: Callable,
        cost: Callable,
        terminal_cost: Callable | None = None,
        control_bounds: Sequence[ArrayLike | Sequence[int | float]] | None = None,
        path: Callable | None = None,
        terminal: Callable | None = None,
        shared: Callable | None = None,
    ):
        if not isinstance(space, Space):
            raise ArgumentError(f"space is {space!r}, expected a Space, such as state_space(model)")
        self.space = space
        stage_call = "(t, x, u, p)" if shared is None else "(t, x, u, p, shared)"
        functions = {
            "dynamics": (dynamics, stage_call),
            "cost": (cost, stage_call),
            "path": (path, stage_call),
            "terminal_cost": (terminal_cost, "(x, p)"),
            "terminal": (terminal, "(x, p)"),
            "shared": (shared, "(t, x, u, p)"),
        }
        for name, (f, call) in functions.items():
            if f is not None or name in ("dynamics", "cost"):
                arguments.require_callable(name, f, call)
        self.dynamics, self.cost = as_module(dynamics), as_module(cost)
        self.path, self.terminal_cost, self.terminal, self.shared = (
            None if f is None else as_module(f) for f in (path, terminal_cost, terminal, shared)
        )
        self.control_bounds = None
        if control_bounds is not None:
            if not isinstance(control_bounds, (tuple, list)) or len(control_bounds) != 2:
                raise ArgumentError(
                    f"control_bounds is {control_bounds!r}, expected the pair (lower, upper)"
                )
            lower, upper = (
                arguments.parameter(x, f"control_bounds[{i}]", (), (None,))
                for i, x in enumerate(control_bounds)
            )
            arguments.require(
                lower, lambda x: x < np.inf, "control_bounds[0]", "numbers below infinity"
            )
            arguments.require(
                upper, lambda x: x > -np.inf, "control_bounds[1]", "numbers above minus infinity"
            )
            if () not in (lower.shape, upper.shape) and lower.shape != upper.shape:
                raise ArgumentError(
                    f"control_bounds have shapes {lower.shape} and {upper.shape}, expected () or "
                    "one shape (m,)"
                )
            arguments.require(
                jnp.asarray(upper, float) - jnp.asarray(lower, float),
                lambda x: x >= 0,
                "control_bounds[1] - control_bounds[0]",
                "0 or more",
            )
            self.control_bounds = lower, upper

    def step(self, t: ArrayLike, x: PyTree, u: Array, p: PyTree) -> PyTree:
        """The state after stage t from the state x with the control u."""
        found = self.dynamics(t, x, u, p, *self.common(t, x, u, p))
        return self.space.checked(found, "the result of dynamics")

    def common(self, t: ArrayLike, x: PyTree, u: Array, p: PyTree) -> tuple[PyTree, ...]:
        """The tuple with the fifth argument of dynamics, cost and path; empty without `shared`."""
        return () if self.shared is None else (self.shared(t, x, u, p),)


class ShootingStep(eqx.Module):
    """One time step of a robot as the dynamics of a `Problem`; `shooting_step` makes it."""

    model: Model
    acceleration: Callable
    dt: Float[arguments.Parameter, ""]
    integrator: Callable = eqx.field(static=True)

    def __call__(self, t: ArrayLike, x: PyTree, u: Array, p: PyTree) -> PyTree:
        """The state (q, v) after a step from the state x = (q, v) with the control u."""
        q, v = state_pair(x)

        def dynamics(q, v):
            return self.acceleration(t, q, v, u, p)

        dt = arguments.POSITIVE.or_nan(jnp.asarray(self.dt, self.model.dtype))
        return self.integrator(self.model, dynamics, q, v, dt)


def shooting_step(
    model: Model, acceleration: Callable, integrator: Callable, dt: ArrayLike
) -> ShootingStep:
    """The dynamics (t, x, u, p) -> x' of a `Problem`: one step of an integrator.

    - `acceleration(t, q, v, u, p)`: the acceleration (nv,) of the robot, with t, u and p as in
      `Problem`; for example `joint_torques(model)`;
    - `integrator`: a step of `jaxrbd.integrators`;
    - `dt` in s, more than 0.

    The state x is (q, v), a state of `state_space(model)`. Raises ArgumentError if acceleration or
    integrator is no function, or cannot be called as above or as a step, for `joint_torques` with
    an `impact`, and for a dt that is not above 0 or not finite. A traced dt out of this range gives
    a state of NaN.
    """
    arguments.require_callable("acceleration", acceleration, "(t, q, v, u, p)")
    if isinstance(acceleration, JointTorques) and acceleration.impact is not None:
        raise ArgumentError(
            "acceleration has an impact, a change of v that the integrator would multiply by dt; "
            "expected joint_torques without impact, or dynamics of your own"
        )
    arguments.require_callable("integrator", integrator, "(model, dynamics, q, v, dt)")
    return ShootingStep(
        arguments.robot(model),
        as_module(acceleration),
        positive_number(dt, "dt"),
        integrator,
    )


def at_stage(tables: PyTree, t: ArrayLike) -> PyTree:
    """The rows t of tables with one row per stage, such as a contact schedule or a reference.

    - `tables`: a pytree of arrays (N, ...) with N >= 1; integers and bools become floats;
    - `t`: the stage, an integer from 0.

    If t is beyond the last row of a table, its entries are NaN, and `solve` ends with the status
    `FAILED`. The indexing `table[t]` of JAX would return the last row. Raises ArgumentError for an
    array without rows, for tables with different numbers of rows, and for a t that is no integer.
    """
    t = arguments.as_array(t, "t")
    if t.shape != () or not jnp.issubdtype(t.dtype, jnp.integer):
        raise ArgumentError(f"t is {described(t)}, expected an integer")
    arrays = [arguments.as_array(x, "tables") for x in jax.tree.leaves(tables)]
    shapes = [x.shape for x in arrays]
    if not arrays or len({shape[:1] for shape in shapes}) != 1 or shapes[0][:1] in ((), (0,)):
        raise ArgumentError(f"tables have the shapes {shapes}, expected one row for each stage")

    def row(x: Array) -> Array:
        x = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)
        return jnp.where((t >= 0) & (t < len(x)), x[t], jnp.nan)

    return jax.tree.unflatten(jax.tree.structure(tables), map(row, arrays))


def positive_number(x: ArrayLike, name: str) -> arguments.Parameter:
    """x as an array (). Raises ArgumentError, unless it is a finite number above 0 or traced."""
    x = arguments.parameter(x, name, ())
    arguments.require(x, arguments.POSITIVE.holds, name, arguments.POSITIVE.expected)
    return x


def state_pair(x: PyTree) -> tuple[Array, Array]:
    """The pair (q, v) of a state. Raises ArgumentError for an x that is no pair."""
    pair = arguments.sequence(x, "x", "q and v")
    if len(pair) != 2:
        raise ArgumentError(f"x has {len(pair)} entries, expected q and v")
    if isinstance(pair[0], tuple):
        raise ArgumentError(
            "x[0] is a tuple, expected q; of a product of spaces, pass the pair (q, v)"
        )
    return pair


class JointTorques(eqx.Module):
    """The acceleration of a robot whose controls are joint forces; `joint_torques` makes it."""

    model: Model
    constraints: tuple[Constraint, ...]
    stabilisation: arguments.Parameter
    active: Callable | None
    impact: Callable | None
    dofs: tuple[int, ...] | None = eqx.field(static=True)

    def __call__(self, t: ArrayLike, q: Array, v: Array, u: Array, p: PyTree) -> Array:
        """The acceleration (nv,) of the state q, v under the forces u."""
        if self.constraints or self.active is not None or self.impact is not None:
            return self.constrained(t, q, v, u, p).acceleration
        return analytic_acceleration(self.model, q, v, force_of_controls(self.model, u, self.dofs))

    def constrained(
        self, t: ArrayLike, q: Array, v: Array, u: Array, p: PyTree
    ) -> ConstrainedDynamics:
        """The acceleration and the constraint forces of the state q, v under the forces u."""
        return constrained_dynamics(
            self.model,
            q,
            v,
            force_of_controls(self.model, u, self.dofs),
            self.constraints,
            stabilisation=jnp.asarray(self.stabilisation, self.model.dtype),
            active=None if self.active is None else self.active(t, p),
            impact=None if self.impact is None else self.impact(t, p),
        )


def force_of_controls(model: Model, u: Array, dofs: tuple[int, ...] | None) -> Array:
    """The generalized force (nv,) of the control u on these dofs; None stands for all."""
    u = arguments.as_array(u, "u")
    n = model.nv if dofs is None else len(dofs)
    if u.shape != (n,):
        raise ArgumentError(f"u has shape {u.shape}, expected ({n},)")
    if dofs is None:
        return u
    return jnp.zeros(model.nv, u.dtype).at[np.array(dofs, int)].set(u)


def checked_dofs(model: Model, dofs: Sequence[int] | None) -> tuple[int, ...] | None:
    """The dofs as a tuple. Raises ArgumentError for a dof out of range or one that occurs twice."""
    nv = arguments.robot(model).nv
    if dofs is None:
        return None
    dofs = arguments.sequence(dofs, "dofs", f"different ints from 0 to {nv - 1}")
    ints = all(map(arguments.is_integer, dofs))
    if not ints or len(set(dofs)) < len(dofs) or not all(0 <= dof < nv for dof in dofs):
        raise ArgumentError(f"dofs is {dofs}, expected different ints from 0 to {nv - 1}")
    return tuple(map(int, dofs))


def joint_torques(
    model: Model,
    dofs: Sequence[int] | None = None,
    constraints: Sequence[Constraint] = (),
    stabilisation: ArrayLike | Sequence[float] = 0.0,
    active: Callable | None = None,
    impact: Callable | None = None,
) -> JointTorques:
    """The acceleration (t, q, v, u, p) of a robot that is driven by the forces u on its joints.

    - `dofs`: the index in v of each entry of u. The entries of u are in N m or N; by default u is
      (nv,). The forces on all other dofs are zero;
    - `constraints`, `stabilisation`: as for `constrained_dynamics`, for example feet on the ground.
      The method `constrained` of the result returns the constraint forces too;
    - `active(t, p)`: whether each constraint acts in stage t, (number of constraints,) of bool or
      numbers; for example `at_stage(p, t)` for a table p. So one program serves all contact
      phases. By default all constraints act;
    - `impact(t, p)`: whether stage t is an impact, in which its active constraints begin to act, a
      bool or a number. Then the acceleration is the change of v, and the forces are impulses, as
      for `constrained_dynamics`. `shooting_step` refuses such accelerations, because it would
      multiply the change by dt. By default no stage is an impact.

    The first derivatives are analytic (`forward_dynamics_derivatives`,
    `constrained_dynamics_derivatives`). Raises ArgumentError for a dof that is out of range or
    occurs twice, for constraints that are no `Constraint`, for a stabilisation that is no rate and
    no pair of gains, and if active or impact cannot be called as above.
    """
    dofs = checked_dofs(model, dofs)
    for name, function in (("active", active), ("impact", impact)):
        if function is not None:
            arguments.require_callable(name, function, "(t, p)")
    stabilisation = arguments.parameter(stabilisation, "stabilisation")
    require_stabilisation("stabilisation", stabilisation)
    return JointTorques(
        model,
        checked_constraints(constraints),
        stabilisation,
        None if active is None else as_module(active),
        None if impact is None else as_module(impact),
        dofs,
    )


__all__ = [
    "JointTorques",
    "Problem",
    "ShootingStep",
    "at_stage",
    "joint_torques",
    "shooting_step",
]
