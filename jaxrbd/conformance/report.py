"""The report of the suite: the errors of all cases, and tables of the errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..errors import ArgumentError
from .robots import PLACES, Tree
from .states import DIRECTIONS, Condition

MODES = ("forward", "reverse")
PRECISIONS = ("float64", "float32")

# Tolerances of the value (order 0) and of the derivatives of order 1 to 3. They are relative to the
# scale of `Report.errors`. In float64 they are the accuracy of the central differences.
# In float32 they allow for the rounding errors of forward dynamics: mass matrices with condition
# numbers up to 200 amplify the rounding (1.2e-7). A derivative that is wrongly zero has a relative
# error of about 1.
TOLERANCE = {"float64": (1e-11, 1e-10, 1e-9, 1e-8), "float32": (1e-4, 1e-4, 1e-4, 1e-4)}

# Codes in `Report.errors` in place of an error. The entry of a case that is not tested is NaN.
NOT_FINITE = np.inf
ERROR = -1.0  # the library raised an exception
UNSURE = -2.0  # the reference derivative is too uncertain
_WORDS = {NOT_FINITE: "nan", ERROR: "error", UNSURE: "unsure"}


@dataclasses.dataclass
class Report:
    """The errors of one library in all cases.

    - `errors`: an array, whose axes `axes` lists. An entry is the relative error of a case; or
      `NOT_FINITE`, `ERROR` or `UNSURE`; or NaN for a case that was not tested. There is one scale
      of the errors for each tree, quantity and order n: the largest absolute value, over all smooth
      states and all directions, of the quantity and of its n-th derivative;
    - `uncertainty` (4,): the largest uncertainty of the reference derivatives of each order,
      divided by the scale of the errors;
    - `notes`: the failures of the library, with the reasons.
    """

    library: str
    trees: tuple[Tree, ...]
    conditions: tuple[Condition, ...]
    quantities: tuple[str, ...]
    order: int
    notes: list[str] = dataclasses.field(default_factory=list)
    uncertainty: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(4))
    errors: np.ndarray = dataclasses.field(init=False)

    def __post_init__(self):
        self.errors = np.full([len(labels) for labels in self.axes.values()], np.nan)

    @property
    def axes(self) -> dict[str, tuple]:
        """The labels along each axis of `errors`."""
        return {
            "quantity": self.quantities,
            "precision": PRECISIONS,
            "mode": MODES,
            "order": tuple(range(self.order + 1)),
            "condition": self.conditions,
            "direction": DIRECTIONS,
            "tree": self.trees,
        }

    @property
    def tolerance(self) -> np.ndarray:
        """The tolerance of each entry, in a shape that broadcasts with `errors`."""
        table = np.array([TOLERANCE[precision][: self.order + 1] for precision in PRECISIONS])
        return table[:, None, :, None, None, None]

    @property
    def wrong(self) -> np.ndarray:
        """Whether each case is tested and not correct, with the shape of `errors`."""
        with np.errstate(invalid="ignore"):
            right = (self.errors >= 0) & (self.errors <= self.tolerance)
        return ~np.isnan(self.errors) & ~right

    def select(self, **labels) -> tuple[np.ndarray, np.ndarray]:
        """`errors` and `wrong` of the cases with the given labels, as flat arrays.

        `labels`: a label or a list of labels for an axis, by the name of the axis. An axis that is
        not given includes all its labels. Raises ArgumentError for an unknown axis or label.
        """
        index = []
        for name, known in self.axes.items():
            chosen = labels.pop(name, known)
            chosen = chosen if isinstance(chosen, (list, tuple)) else [chosen]
            for label in chosen:
                if label not in known:
                    raise ArgumentError(f"the axis {name} has no label {label!r}")
            index.append([known.index(label) for label in chosen])
        if labels:
            raise ArgumentError(f"no axis {sorted(labels)}; axes: {list(self.axes)}")
        cases = np.ix_(*index)
        return self.errors[cases].ravel(), self.wrong[cases].ravel()

    def verdict(self, **labels) -> str:
        """The text of a table cell for the cases with the given labels; see `select`.

        If all cases are correct: "ok" with the largest error. Otherwise: the count of each kind of
        incorrect case. If no case was tested: "-". "differs" counts wrong values (order 0), and
        "WRONG" counts wrong derivatives.
        """
        errors, wrong = self.select(**labels)
        tested = int(np.sum(~np.isnan(errors)))
        if not tested:
            return "-"
        if not np.any(wrong):
            return f"ok {np.nanmax(errors):.0e}".replace("e-0", "e-")
        faults = errors[wrong]
        off = "differs" if labels.get("order") == 0 else "WRONG"
        counts = {
            off: np.sum((faults >= 0) & (faults < NOT_FINITE)),
            "nan": np.sum(faults == NOT_FINITE),
            "error": np.sum(faults == ERROR),
            "unsure": np.sum(faults == UNSURE),
        }
        return " ".join(f"{word} {n}" for word, n in counts.items() if n) + f" of {tested}"

    # -------------------------------------------------------------------------------- tables

    def by_condition(self, precision: str) -> str:
        """A table with one row per condition and one column per order and mode."""
        rows = {condition.name: {"condition": condition} for condition in self.conditions}
        return self._table("state", rows, self._derivatives(precision))

    def by_quantity(self, precision: str) -> str:
        """A table with one row per quantity and one column per order and mode."""
        rows = {quantity.replace("_", " "): {"quantity": quantity} for quantity in self.quantities}
        return self._table("quantity", rows, self._derivatives(precision))

    def by_joint(self) -> str:
        """A table with one row per joint kind and one column per place, for all orders.

        A condition is a special state of the tested joint alone, or of all joints
        (`states.Condition`). The table leaves out the conditions that set the state of all joints,
        because in such a state another joint can cause the error.
        """
        conditions = [condition for condition in self.conditions if not condition.whole]
        orders = list(range(1, self.order + 1))
        lines = []
        for kind in dict.fromkeys(tree.kind for tree in self.trees):
            trees = [[t for t in self.trees if t == Tree(kind, place)] for place in PLACES]
            cells = [self.verdict(tree=t, condition=conditions, order=orders) for t in trees]
            lines.append([kind, *cells])
        return markdown(["joint", "at the root", "in the middle", "at the leaf"], lines)

    def _derivatives(self, precision: str) -> dict[str, dict]:
        columns = {"value": {"order": 0, "precision": precision}}
        for order in range(1, self.order + 1):
            for mode in MODES:
                name = f"{order} {mode}"
                columns[name] = {"order": order, "mode": mode, "precision": precision}
        return columns

    def _table(self, corner: str, rows: dict[str, dict], columns: dict[str, dict]) -> str:
        lines = [
            [name, *(self.verdict(**row, **column) for column in columns.values())]
            for name, row in rows.items()
        ]
        return markdown([corner, *columns], lines)

    def tables(self) -> str:
        """All tables, the summary and the notes, as Markdown."""
        parts = [f"## {self.library}"]
        for precision in PRECISIONS:
            if np.all(np.isnan(self.select(precision=precision)[0])):
                continue
            parts += [f"{precision}, by state:", self.by_condition(precision)]
            parts += [f"{precision}, by quantity:", self.by_quantity(precision)]
        parts += ["Derivatives, by the tested joint:", self.by_joint()]
        parts.append(self.summary())
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in dict.fromkeys(self.notes)))
        return "\n\n".join(parts)

    def summary(self) -> str:
        """The counts of cases, the tolerances, and the uncertainty of the reference derivatives."""
        tested, wrong = int(np.sum(~np.isnan(self.errors))), int(np.sum(self.wrong))
        uncertainties = " ".join(f"{x:.0e}" for x in self.uncertainty[: self.order + 1])
        tolerances = [
            f"{precision} " + " ".join(f"{x:.0e}" for x in TOLERANCE[precision][: self.order + 1])
            for precision in PRECISIONS
        ]
        return (
            f"{tested} cases, {wrong} not correct. The reference for values is jaxrbd, except for "
            "the quantity named step; the reference for derivatives is central differences of the "
            "library's values. Errors are relative. "
            f"Tolerances for order 0, 1, ...: {'; '.join(tolerances)}. Uncertainties of the "
            f"references: {uncertainties}."
        )

    def details(self) -> str:
        """One line per case that is not correct."""
        lines = []
        axes = self.axes
        for index in np.argwhere(self.wrong):
            case = {name: labels[i] for (name, labels), i in zip(axes.items(), index)}
            error = float(self.errors[tuple(index)])
            what = _WORDS.get(error, f"off by {error:.1e}")
            lines.append(
                f"{case['quantity']}, {case['precision']}, {case['mode']}, order {case['order']}, "
                f"{case['tree'].name}, {case['condition'].name}, along {case['direction']}: {what}"
            )
        return "\n".join(lines)

    def json(self) -> dict:
        """The report as data for JSON. The keys of the errors are indices along the axes."""
        return {
            "library": self.library,
            "axes": {
                name: [getattr(label, "name", label) for label in labels]
                for name, labels in self.axes.items()
            },
            "errors": {
                " / ".join(str(i) for i in index): _WORDS.get(float(error), float(f"{error:.3g}"))
                for index, error in np.ndenumerate(self.errors)
                if not np.isnan(error)
            },
            "tolerance": TOLERANCE,
            "uncertainty": self.uncertainty.tolist(),
            "notes": list(self.notes),
        }


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown with aligned columns."""
    widths = [max(len(row[i]) for row in [header, *lines]) for i in range(len(header))]
    rule = ["-" * width for width in widths]
    rows = []
    for row in [header, rule, *lines]:
        cells = " | ".join(cell.ljust(width) for cell, width in zip(row, widths))
        rows.append(f"| {cells} |")
    return "\n".join(rows)
