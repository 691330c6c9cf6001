"""The command `python -m jaxrbd.conformance`: test derivatives and print tables."""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import sys
from collections.abc import Sequence

from ..errors import ArgumentError, JaxRBDError
from ..io import load_model, load_urdf
from ..model import Model
from ..robots import load_robot, robot_names
from .adapters import QUANTITIES, Adapter, JaxRBD
from .distances import check_distances
from .report import MODES, PRECISIONS
from .robots import ALL_TREES, KINDS
from .solutions import check_solutions
from .states import CONDITIONS
from .suite import QUICK_ORDERS, run

# The joint kinds of `--quick`: a hinge, and the joints with the exponentials of SE(2) and SE(3).
# `--quick` compiles without optimization, because optimization would take half of the time.
_QUICK_KINDS = ("revolute", "planar", "free_flyer")
_QUICK_OPTIONS = {"xla_backend_optimization_level": 0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite, print its tables, and return 0 if all cases are correct, else 1.

    `argv`: the arguments of the program; None means the arguments of this process. Raises
    SystemExit with the status 2 for invalid options, as argparse does, and for a file of `--json`
    that cannot be written.
    """
    parser = _parser()
    defaults = vars(parser.parse_args([]))
    options = parser.parse_args(argv)
    for other_test in ("solutions", "distances"):
        if getattr(options, other_test):
            others = [n for n, x in vars(options).items() if n != other_test and x != defaults[n]]
            if others:
                parser.error(f"--{others[0]} cannot be used with --{other_test}")
    conditions = [c for c in CONDITIONS if options.state in c.name]
    if not conditions:
        parser.error(f"--state: no state has {options.state!r} in its name")
    try:
        robot = _robot(options.solutions) if options.solutions else None
        adapter = _adapter(options.adapter)
    except JaxRBDError as error:
        parser.error(str(error))
    if options.json:
        try:
            pathlib.Path(options.json).open("a").close()  # the content is written after the run
        except OSError as error:
            parser.error(f"--json {options.json}: {error.strerror or error}")
    if robot is not None:
        solutions = check_solutions(robot)
        print(solutions.table())
        return 1 if solutions.wrong else 0
    if options.distances:
        distances = check_distances()
        print(distances.table())
        return 1 if distances.wrong else 0
    kinds = options.kinds or (_QUICK_KINDS if options.quick else tuple(KINDS))
    report = run(
        adapter,
        trees=[tree for tree in ALL_TREES if tree.kind in kinds],
        conditions=conditions,
        quantities=options.quantities,
        order=options.order or (QUICK_ORDERS if options.quick else 3),
        modes=options.modes,
        precisions=options.precisions,
        compiler_options=_QUICK_OPTIONS if options.quick else None,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(report.tables())
    if options.details:
        print(report.details())
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report.json(), indent=1) + "\n")
    return 1 if report.wrong.any() else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jaxrbd.conformance",
        description="Compare a library's derivatives with central differences of its values, at "
        "states where derivatives often fail.",
    )
    add = parser.add_argument
    add("--adapter", metavar="MODULE:OBJECT", help="the adapter of a library (default: jaxrbd)")
    add(
        "--quick",
        action="store_true",
        help="test three joint kinds in less than a minute: second derivatives in forward mode in "
        "float64, first derivatives in reverse mode in float64 and in float32",
    )
    add("--order", type=int, choices=(1, 2, 3), help="the highest order of derivatives")
    add("--kinds", nargs="+", choices=tuple(KINDS), metavar="KIND", help=", ".join(KINDS))
    for option, labels, metavar in (
        ("--quantities", QUANTITIES, "QUANTITY"),
        ("--modes", MODES, "MODE"),
        ("--precisions", PRECISIONS, "PRECISION"),
    ):
        help = ", ".join(labels)
        add(option, nargs="+", choices=labels, default=labels, metavar=metavar, help=help)
    add("--state", default="", metavar="TEXT", help="only states whose name contains TEXT")
    add("--details", action="store_true", help="list every case that is not correct")
    add(
        "--solutions",
        metavar="ROBOT",
        help="instead of the suite, test the derivatives of the solutions of optimal control and "
        "inverse kinematics for a bundled robot, a URDF file or a .jaxrbd file",
    )
    add(
        "--distances",
        action="store_true",
        help="instead of the suite, test the derivatives of the distances of shapes",
    )
    add("--json", metavar="FILE", help="write all errors to FILE")
    return parser


def _robot(name: str) -> Model:
    """The model of a bundled robot, a URDF file or a model file."""
    if name in robot_names():
        return load_robot(name)
    return load_model(name) if name.endswith(".jaxrbd") else load_urdf(name)


def _adapter(name: str | None) -> Adapter:
    """The adapter with the name MODULE:OBJECT. Raises ArgumentError if there is no such adapter."""
    if name is None:
        return JaxRBD()
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(f"--adapter {name}: {error}, expected MODULE:OBJECT") from error
    if isinstance(found, type) and issubclass(found, Adapter):
        return found()
    if not isinstance(found, Adapter):
        raise ArgumentError(f"--adapter {name} is {found!r}, expected an Adapter")
    return found


if __name__ == "__main__":
    sys.exit(main())
