"""Time the same jobs on the same robots with jaxrbd and other libraries: `python -m benchmarks`.

Every result is compared with the result of Pinocchio before it is timed. On a CPU, all libraries
run on one core, in turns of 50 ms. benchmarks/README.md describes the method.
"""

from __future__ import annotations

import argparse
import os
import pathlib

import jaxrbd

from . import environments, jobs, peers, robots

BATCHES = (64, 1024)
GPU_BATCHES = (64, 1024, 65536, 1_000_000)


def arguments() -> argparse.Namespace:
    """The options of the command line; options that it omits get their default values."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = {"type": lambda text: tuple(text.split(",")), "metavar": "A,B"}

    def add(option: str, known, default: tuple[str, ...] | None, note: str = "") -> None:
        text = f"some of {','.join(known)}{note}"
        parser.add_argument(option, **names, default=default, help=text)

    add("--robots", robots.NAMES, ("hyq", "g1", "talos"), ", or bundled robots")
    add("--jobs", jobs.JOBS, tuple(jobs.JOBS))
    add("--dtypes", ("float64", "float32"), ("float64",))
    add("--peers", peers.PEERS, None)
    parser.add_argument("--batches", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument(
        "--baseline",
        type=pathlib.Path,
        metavar="FOLDER",
        help="a checkout of another version of jaxrbd, which takes part as the library 'baseline'",
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="time of timing per cell")
    parser.add_argument("--limit", type=float, default=300, help="seconds to compile a cell")
    parser.add_argument("--platform", choices=("cpu", "gpu"), help="default: gpu if there is one")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("benchmarks/results"))
    parser.add_argument(
        "--gpu-day",
        action="store_true",
        help="only time the implementations of the passes for eight minutes on a GPU",
    )
    parser.add_argument("--install", action="store_true", help="only make the environments")
    parser.add_argument(
        "--environments",
        type=pathlib.Path,
        default=environments.FOLDER,
        help="folder with an environment for each library: NAME/bin/python",
    )
    options = parser.parse_args()
    options.platform = options.platform or ("gpu" if environments.cuda() else "cpu")
    gpu = options.platform == "gpu"
    options.batches = tuple(sorted(options.batches or (GPU_BATCHES if gpu else BATCHES)))
    if options.peers is None:
        there = {name: gpu or not peer.optional for name, peer in peers.PEERS.items()}
        there[peers.BASELINE] = False
        options.peers = tuple(name for name in there if there[name])
    if options.baseline is not None:
        if not (options.baseline / "benchmarks" / "worker.py").is_file():
            parser.error(
                f"--baseline: {options.baseline} is not a checkout with benchmarks/worker.py"
            )
        options.baseline = options.baseline.resolve()
        options.peers = tuple(dict.fromkeys((*options.peers, peers.BASELINE)))
    elif peers.BASELINE in options.peers:
        parser.error("--peers: baseline needs --baseline FOLDER")
    known_robots = (*robots.NAMES, *jaxrbd.robot_names())
    for name, known in (("robots", known_robots), ("jobs", jobs.JOBS), ("peers", peers.PEERS)):
        unknown = set(getattr(options, name)) - set(known)
        if unknown:
            parser.error(f"--{name}: no {', '.join(unknown)}; there are {', '.join(known)}")
    options.core = max(os.sched_getaffinity(0))  # of all processes
    return options


def main() -> None:
    options = arguments()
    if options.gpu_day:
        from . import gpu_day

        gpu_day.run(options.out)
        return None
    if options.install:
        return environments.install(options.peers, options.environments)
    from . import report, session

    return report.write(session.run(options), options.out)


if __name__ == "__main__":
    main()
