"""`python -m jaxrbd.conformance`: the table of what is right."""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import sys
from collections.abc import Sequence

from .adapters import QUANTITIES, Adapter, JaxRBD
from .report import MODES, PRECISIONS
from .robots import ALL_TREES, KINDS
from .states import CONDITIONS
from .suite import QUICK_ORDERS, run

# What `--quick` tests: a hinge, and the joints whose exponentials are of SE(2) and of SE(3). Their
# programs are compiled without optimisation, which would take half of the time.
_QUICK_KINDS = ("revolute", "planar", "free_flyer")
_QUICK_OPTIONS = {"xla_backend_optimization_level": 0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite, print its tables, and return 0 if all is right, else 1.

    `argv`: the words after the program's name; None means those of this process.
    """
    options = _parser().parse_args(argv)
    kinds = options.kinds or (_QUICK_KINDS if options.quick else tuple(KINDS))
    report = run(
        _adapter(options.adapter),
        trees=[tree for tree in ALL_TREES if tree.kind in kinds],
        conditions=[c for c in CONDITIONS if options.state in c.name],
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
        description="Compare a library's derivatives with the true ones.",
    )
    add = parser.add_argument
    add("--adapter", metavar="MODULE:OBJECT", help="the library (default: jaxrbd itself)")
    add(
        "--quick",
        action="store_true",
        help="under a minute: three joint kinds, second "
        "derivatives in forward mode and float64, first ones in reverse mode and float32",
    )
    add("--order", type=int, choices=(1, 2, 3), help="the highest derivative")
    add("--kinds", nargs="+", choices=tuple(KINDS), metavar="KIND", help=", ".join(KINDS))
    add("--quantities", nargs="+", choices=QUANTITIES, default=QUANTITIES, metavar="QUANTITY")
    add("--modes", nargs="+", choices=MODES, default=MODES, metavar="MODE")
    add("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS, metavar="PRECISION")
    add("--state", default="", metavar="TEXT", help="only states with this in their name")
    add("--details", action="store_true", help="list every case that is not right")
    add("--json", metavar="FILE", help="write every error")
    return parser


def _adapter(name: str | None) -> Adapter:
    if name is None:
        return JaxRBD()
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    return found() if isinstance(found, type) else found


if __name__ == "__main__":
    sys.exit(main())
