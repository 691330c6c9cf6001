"""The same jobs on the same robots for jaxrbd and its peers: `python -m benchmarks`.

Every result is compared with Pinocchio's before it is timed. The libraries take turns in short
bursts, all on one core. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import pathlib

from . import jobs, peers, robots

QUICK = {"robots": ("hyq", "g1", "talos"), "batches": (64, 1024), "dtypes": ("float64",)}
BATCHES = (1, 64, 1024, 8192)
DTYPES = ("float64", "float32")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    many = {"type": lambda text: tuple(text.split(","))}
    parser.add_argument("--robots", **many, help=f"of {','.join(robots.NAMES)}")
    parser.add_argument("--jobs", **many, default=tuple(jobs.JOBS), help=",".join(jobs.JOBS))
    parser.add_argument("--batches", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("--dtypes", **many, help="float64,float32")
    parser.add_argument("--peers", **many, default=tuple(peers.PEERS), help=",".join(peers.PEERS))
    parser.add_argument("--all", action="store_true", help="every robot, batch and precision")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timing, a cell")
    parser.add_argument("--limit", type=float, default=300, help="seconds to compile a cell")
    parser.add_argument("--core", type=int, help="that all run on; default: the last")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("benchmarks/results"))
    parser.add_argument(
        "--environments",
        type=pathlib.Path,
        default=pathlib.Path(__file__).parent / ".environments",
        help="folder with the libraries' environments, NAME/bin/python",
    )
    parser.add_argument(
        "--environment", action="append", default=[], metavar="NAME=PYTHON", help="one of them"
    )
    options = parser.parse_args()
    everything = {"robots": robots.NAMES, "batches": BATCHES, "dtypes": DTYPES}
    for name, value in (everything if options.all else QUICK).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.core is None:
        options.core = max(os.sched_getaffinity(0))
    return options


def main() -> None:
    options = arguments()
    from . import report, session

    results = session.run(options)
    report.write(results, options.out)


if __name__ == "__main__":
    main()
