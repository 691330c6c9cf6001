"""The suite: compare derivatives of a library's functions with reference derivatives.

For each quantity and tree, the suite computes one scalar: the sum of the entries, multiplied by
random weights. Along a curve of `states.py`, this scalar is a function of one parameter t per tree.
Trees do not interact, so one program computes the derivatives of all trees with respect to t. A
batch of curves gives the derivatives at all states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..errors import ArgumentError
from ..model import arguments
from .adapters import QUANTITIES, Adapter, Functions, JaxRBD, Unsupported
from .report import ERROR, MODES, NOT_FINITE, PRECISIONS, TOLERANCE, UNSURE, Report
from .robots import ALL_TREES, Robot, Tree, make_robot
from .states import CONDITIONS, DIRECTIONS, Condition, Curves, applies, curves, layout
from .truth import true_derivatives

Progress = Callable[[str], None]
# The highest order of derivatives for each tested (precision, mode).
Orders = Mapping[tuple[str, str], int]
HIGHEST_ORDER = 3
# The orders of `--quick` find all common faults. Second derivatives in reverse mode or in single
# precision take most of the time of a full run, and rarely find more faults.
QUICK_ORDERS: Orders = {
    ("float64", "forward"): 2,
    ("float64", "reverse"): 1,
    ("float32", "reverse"): 1,
}
# A quantity as one scalar per tree: a function of t (trees,) and one curve, with values (trees,).
Contracted = Callable[[Array, Curves], Array]
# A function of t (trees,) that returns the scalars and their derivatives up to some order, each
# (trees,).
Tower = Callable[[Array], tuple[Array, ...]]


class _Truth(NamedTuple):
    """The reference derivatives `value` of order 0 to 3, and their uncertainty `gap`.

    Both have the shape (4, curves, trees).
    """

    value: np.ndarray
    gap: np.ndarray


def run(
    adapter: Adapter | None = None,
    *,
    trees: Sequence[Tree] = ALL_TREES,
    conditions: Sequence[Condition] = CONDITIONS,
    quantities: Sequence[str] = QUANTITIES,
    order: int | Orders = 3,
    modes: Sequence[str] = MODES,
    precisions: Sequence[str] = PRECISIONS,
    compiler_options: dict[str, Any] | None = None,
    progress: Progress = lambda line: None,
) -> Report:
    """Compare a library's derivatives with reference derivatives.

    - `adapter`: the adapter of the library (default: jaxrbd);
    - `trees`, `conditions`, `quantities`, `modes`, `precisions`: the cases to test, from
      `ALL_TREES`, `CONDITIONS`, `QUANTITIES`, `MODES` and `PRECISIONS` (default: all);
    - `order`: the highest order of derivatives, at most 3; or a dict from (precision, mode) to the
      highest order, such as `QUICK_ORDERS`. Combinations that are not in the dict are not tested;
    - `compiler_options`: the options of `jax.jit` for the programs of the derivatives;
    - `progress`: a function of one line of text. The suite calls it at the start with an estimate
      of the time, and after each program.

    The reference derivatives are central differences of the library's values in float64 (see
    `truth.py`). The reference values are jaxrbd's values in float64; for `step` they are the
    library's values in float64. The function does not change JAX's settings.

    Raises ArgumentError for an unknown quantity, mode or precision, for an order that is no integer
    from 0 to 3, for objects of another type, and if there is nothing to test.
    """
    adapter = JaxRBD() if adapter is None else adapter
    arguments.require_type(adapter, "adapter", Adapter)
    arguments.require_callable("progress", progress, "(line)")
    checked = []
    for name, given, is_known, expected in (
        ("trees", trees, lambda x: isinstance(x, Tree), "objects of type Tree"),
        ("conditions", conditions, lambda x: isinstance(x, Condition), "objects of type Condition"),
        ("quantities", quantities, QUANTITIES.__contains__, "entries of QUANTITIES"),
        ("modes", modes, MODES.__contains__, "entries of MODES"),
        ("precisions", precisions, PRECISIONS.__contains__, "entries of PRECISIONS"),
    ):
        entries = arguments.sequence(given, name, expected)
        for x in entries:
            if not is_known(x):
                raise ArgumentError(f"{name} has {x!r}, expected {expected}")
        if not entries:
            raise ArgumentError(f"{name} is empty, expected at least one entry")
        checked.append(entries)
    trees, conditions, quantities, modes, precisions = checked
    known_cases = list(product(PRECISIONS, MODES))
    if not isinstance(order, Mapping):
        if not arguments.is_integer(order):
            raise ArgumentError(f"order is {order!r}, expected an integer or a dict")
        order = dict.fromkeys(known_cases, order)
    orders: dict[Any, int] = dict(order)
    for case, highest in orders.items():
        if case not in known_cases:
            raise ArgumentError(f"order has {case!r}, expected keys (precision, mode)")
        if not arguments.is_integer(highest) or not 0 <= highest <= HIGHEST_ORDER:
            raise ArgumentError(f"order is {highest!r} for {case}, expected 0 to {HIGHEST_ORDER}")
    # Grouped by precision, so `jax_enable_x64` changes once per robot and precision.
    orders = {(p, m): orders[p, m] for p in precisions for m in modes if (p, m) in orders}
    if not orders:
        raise ArgumentError("order has no entry for the given precisions and modes")
    highest = max(orders.values())
    report = Report(adapter.name, tuple(trees), tuple(conditions), tuple(quantities), highest)
    groups = adapter.robots(trees)
    clock = _Clock(groups, report.quantities, orders, progress)
    for group in groups:
        robot = make_robot(group)
        try:
            _test(report, adapter, robot, orders, compiler_options, clock)
        except Unsupported as reason:
            report.notes.append(f"{_names(robot)}: {reason}")
    return report


class _Clock:
    """Reports the progress and an estimate of the remaining time.

    The cost of a program is an estimate of its time in seconds, for jaxrbd on one core of a CPU of
    2026. The remaining time is the cost of the remaining programs, multiplied by a factor: the time
    of the finished programs, divided by their cost.
    """

    # The cost of a first derivative in forward mode, for a robot with four joint kinds. `_TRUTH` is
    # the relative cost of the reference derivatives, and `_BY_ORDER` of the derivatives up to order
    # 0, 1, 2 and 3.
    _SECONDS: ClassVar = {
        "inverse_dynamics": 2.0,
        "forward_dynamics": 4.5,
        "placement": 1.0,
        "step": 3.0,
    }
    _TRUTH = 0.8
    _BY_ORDER: ClassVar = {"forward": (0.5, 1.0, 1.6, 2.7), "reverse": (0.5, 1.3, 3.2, 8.0)}

    def __init__(
        self,
        groups: Sequence[Sequence[Tree]],
        quantities: Sequence[str],
        orders: Orders,
        progress: Progress,
    ):
        self._progress, self._done, self._start = progress, 0.0, time.perf_counter()
        self._total = sum(
            self.truth(group, quantity)
            + sum(self.derivatives(group, quantity, mode, n) for (_, mode), n in orders.items())
            for group in groups
            for quantity in quantities
        )
        programs = len(groups) * len(quantities) * (1 + len(orders))
        progress(f"{programs} programs to compile and run, in about {_duration(self._total)}")

    def truth(self, group: Sequence[Tree], quantity: str) -> float:
        """The cost of the samples for the reference derivatives."""
        return self._TRUTH * self._first(group, quantity)

    def derivatives(self, group: Sequence[Tree], quantity: str, mode: str, order: int) -> float:
        """The cost of the derivatives up to an order."""
        return self._BY_ORDER[mode][order] * self._first(group, quantity)

    def _first(self, group: Sequence[Tree], quantity: str) -> float:
        """The cost of a first derivative in forward mode."""
        kinds = len({tree.kind for tree in group})
        return self._SECONDS.get(quantity, 1.0) * (0.5 + kinds / 8)

    def tick(self, cost: float, what: str, seconds: float) -> None:
        """Report that a program with this cost is finished."""
        self._done += cost
        elapsed = time.perf_counter() - self._start
        left = elapsed * max(self._total / self._done - 1, 0.0)
        done = min(self._done / self._total, 1.0)
        self._progress(f"{done:4.0%}, {_duration(left)} left: {what}, {seconds:.1f} s")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _test(
    report: Report,
    adapter: Adapter,
    robot: Robot,
    orders: Orders,
    compiler_options: dict[str, Any] | None,
    clock: _Clock,
) -> None:
    """Write the errors of one robot into the report."""
    batch, trees = curves(robot, report.conditions), len(robot.trees)
    truths: dict[str, _Truth] = {}
    with jax.enable_x64(True):
        contracted = _contract_all(adapter.load(robot), robot, report.quantities)
        reference = _contract_all(JaxRBD().load(robot), robot, report.quantities)
        for quantity, function in contracted.items():
            start = time.perf_counter()
            truth = _Truth(*true_derivatives(_values(function, batch, trees)))
            # Libraries integrate a free-flyer by different rules: along a screw, or position and
            # rotation separately. So jaxrbd's value is no reference for `step`.
            if quantity != "step" and not isinstance(adapter, JaxRBD):
                truth.value[0] = _values(reference[quantity], batch, trees)(0.0)
            truths[quantity] = truth
            cost, seconds = clock.truth(robot.trees, quantity), time.perf_counter() - start
            clock.tick(cost, f"{_names(robot)}: {quantity}, truth", seconds)
    for precision in dict.fromkeys(precision for precision, _ in orders):
        inputs = Curves(*(np.asarray(x, precision) for x in batch))
        modes = {mode: order for (known, mode), order in orders.items() if known == precision}
        with jax.enable_x64(precision == "float64"):
            contracted = _contract_all(adapter.load(robot), robot, report.quantities)
            for quantity, function in contracted.items():
                for mode, order in modes.items():
                    start = time.perf_counter()
                    results, failure = _derivatives(
                        function, inputs, trees, mode, order, compiler_options
                    )
                    program = (quantity, precision, mode, order)
                    _record(report, robot, program, results, truths[quantity])
                    what = f"{_names(robot)}: {quantity}, {precision}, {mode}"
                    cost = clock.derivatives(robot.trees, quantity, mode, order)
                    clock.tick(cost, what, time.perf_counter() - start)
                    if failure:
                        report.notes.append(f"{what}, order {len(results)}: {failure}")


def _names(robot: Robot) -> str:
    first, *rest = (tree.name for tree in robot.trees)
    return f"{first} and {len(rest)} more" if rest else first


# ------------------------------------------------------------------------- one scalar per tree


def _contract_all(
    functions: Functions, robot: Robot, quantities: Sequence[str]
) -> dict[str, Contracted]:
    """The `Contracted` function of each quantity that the library has."""
    return {
        quantity: _contract(getattr(functions, quantity), robot, quantity)
        for quantity in quantities
        if getattr(functions, quantity) is not None
    }


def _contract(function: Callable, robot: Robot, quantity: str) -> Contracted:
    """One scalar per tree: the sum of the entries of a quantity, multiplied by random weights."""
    q_tree, v_tree = layout(robot)
    n = len(robot.trees)
    out_tree = {"placement": np.repeat(np.arange(n), 12), "step": q_tree}.get(quantity, v_tree)
    weights = np.empty(len(out_tree))
    for i, tree in enumerate(robot.trees):
        entries = out_tree == i
        weights[entries] = tree.rng(f"weights of {quantity}").normal(size=np.sum(entries))

    def contracted(t: Array, curve: Curves) -> Array:
        t_q, t_v = t[q_tree], t[v_tree]
        q = curve.A * jnp.cos(curve.r * t_q) + curve.B * jnp.sin(curve.r * t_q) + curve.C * t_q
        v, u = curve.v + curve.dv * t_v, curve.u + curve.du * t_v
        if quantity == "placement":
            R, p = function(q)
            out = jnp.concatenate([R.reshape(n, 9), p.reshape(n, 3)], axis=1).reshape(-1)
        else:
            out = function(q, v) if quantity == "step" else function(q, v, u)
        # In a product with a 0/1 matrix, a NaN of one tree would spread to all trees.
        return jnp.zeros_like(t).at[out_tree].add(jnp.asarray(weights, t.dtype) * out)

    return contracted


# -------------------------------------------------------------------------- truth and derivatives


def _values(function: Contracted, batch: Curves, trees: int) -> Callable[[float], np.ndarray]:
    """A function of a scalar t, the parameter of all trees, with values (curves, trees)."""
    program = jax.jit(jax.vmap(function, (None, 0)))
    return lambda t: np.array(program(jnp.full(trees, t, jnp.float64), batch))


def _derivatives(
    function: Contracted,
    inputs: Curves,
    trees: int,
    mode: str,
    order: int,
    compiler_options: dict[str, Any] | None,
) -> tuple[list[np.ndarray], str | None]:
    """Derivatives of order 0, 1, ..., each (curves, trees), and the last failure, or None.

    One program computes all orders. If it fails, the function tries again with one order less.
    """
    failure = None
    for n in range(order, -1, -1):

        def derivatives(curve: Curves, n: int = n) -> tuple[Array, ...]:
            def value(t: Array) -> tuple[Array, ...]:
                return (function(t, curve),)

            tower: Tower = value
            for _ in range(n):
                tower = NEXT_ORDER[mode](tower)
            return tower(jnp.zeros(trees, curve.A.dtype))

        try:
            program = jax.jit(jax.vmap(derivatives), compiler_options=compiler_options)
            results = program(inputs)
            return [np.asarray(x, np.float64) for x in results], failure
        except Exception as error:  # a library under test can raise any exception
            failure = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
    return [], failure


def _forward(tower: Tower) -> Tower:
    """The tower with one more derivative, in forward mode."""

    def higher(t: Array) -> tuple[Array, ...]:
        values, tangents = jax.jvp(tower, (t,), (jnp.ones_like(t),))
        return (*values, tangents[-1])

    return higher


def _reverse(tower: Tower) -> Tower:
    """The tower with one more derivative, in reverse mode."""

    def top(t: Array) -> tuple[Array, tuple[Array, ...]]:
        values = tower(t)
        return jnp.sum(values[-1]), values

    def higher(t: Array) -> tuple[Array, ...]:
        slope, values = jax.grad(top, has_aux=True)(t)
        return (*values, slope)

    return higher


NEXT_ORDER: dict[str, Callable[[Tower], Tower]] = {"forward": _forward, "reverse": _reverse}


# ------------------------------------------------------------------------------------------ errors


def _record(
    report: Report,
    robot: Robot,
    program: tuple[str, str, str, int],
    results: Sequence[np.ndarray],
    truth: _Truth,
) -> None:
    """Write the errors of one program into the report.

    `program`: its quantity, precision, mode and highest order; `results`: the derivatives of order
    0, 1, ..., each (curves, trees). If the library failed at a higher order, this order is missing.
    """
    conditions = report.conditions
    smooth = np.repeat([c.smooth for c in conditions], len(DIRECTIONS))
    applicable = np.repeat([applies(robot, c) for c in conditions], len(DIRECTIONS), axis=0)
    tree_index = [report.trees.index(tree) for tree in robot.trees]
    quantity, precision, mode = (
        labels.index(label) for labels, label in zip(list(report.axes.values())[:3], program)
    )
    for n in range(program[3] + 1):
        scale = _scale(truth.value[[0, n]][:, smooth])
        with np.errstate(invalid="ignore"):
            uncertainty = truth.gap[n] / scale
        errors = np.full(truth.gap[n].shape, ERROR)
        if n < len(results):
            with np.errstate(invalid="ignore"):
                errors = np.abs(results[n] - truth.value[n]) / scale
            unsure = uncertainty > TOLERANCE[program[1]][n] / 3
            errors[unsure | ~np.isfinite(truth.value[n])] = UNSURE
            errors[~smooth] = 0.0  # in a state without derivatives, each finite value is correct
            errors[~np.isfinite(results[n])] = NOT_FINITE
        tested = applicable & (smooth[:, None] | (n == 0))
        errors = np.where(tested, errors, np.nan)
        rows = errors.reshape(len(conditions), len(DIRECTIONS), len(tree_index))
        report.errors[quantity, precision, mode, n][:, :, tree_index] = rows
        known = tested & smooth[:, None] & np.isfinite(uncertainty)
        report.uncertainty[n] = max(report.uncertainty[n], np.max(uncertainty[known], initial=0))


def _scale(sizes: np.ndarray) -> np.ndarray:
    """The scale of the errors of each tree, (trees,): the largest finite entry of `sizes`."""
    sizes = np.abs(sizes)
    largest = np.max(np.where(np.isfinite(sizes), sizes, 0), axis=(0, 1))
    return np.maximum(largest, np.finfo(float).tiny)
