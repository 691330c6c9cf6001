"""The command `python -m tests.mutants`: see README.md."""

from __future__ import annotations

import argparse
import sys

from . import (
    HERE,
    TIME_LIMIT,
    Fault,
    MutantError,
    counts_by_module,
    read_faults,
    run_faults,
    select,
    table,
    write_table,
)


def part_of(faults: list[Fault], part: str) -> list[Fault]:
    """The faults K, K + N, K + 2 N, ... for a part K/N; K is from 1 to N."""
    k, _, n = part.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise MutantError(f"--part is {part!r}, expected K/N with K from 1 to N")
    return faults[int(k) - 1 :: int(n)]


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 where every fault was noticed or is equivalent, 1 else, 2 on wrong input."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="areas, or parts of names or files (default all)")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time (default 1)")
    parser.add_argument("--limit", type=float, default=TIME_LIMIT, help="seconds a run of tests")
    parser.add_argument("--part", default="1/1", help="K/N: every Nth fault, from the Kth")
    parser.add_argument("--list", action="store_true", help="list the faults and run nothing")
    parser.add_argument("--table", action="store_true", help="write the table of README.md")
    options = parser.parse_args(arguments)
    try:
        faults = read_faults()
        chosen = part_of(select(faults, options.words), options.part)
        if not chosen:
            raise MutantError(f"no fault matches {' '.join(options.words)!r}")
        if options.list:
            for fault in chosen:
                print(f"{fault}\n    {fault.file}\n    {', '.join(fault.tests)}")
            return 0
        outcomes = run_faults(
            chosen, lambda line: print(line, flush=True), jobs=options.jobs, limit=options.limit
        )
    except MutantError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    print(f"\n{table(counts_by_module(outcomes))}")
    if options.table:
        write_table(outcomes, faults, HERE / "README.md")
    unexpected = [outcome for outcome in outcomes if not outcome.as_expected]
    for outcome in unexpected:
        print(f"{outcome.verdict}: {outcome.fault}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
