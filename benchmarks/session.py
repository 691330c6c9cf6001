"""A run of the benchmark: start the workers, prepare and check the jobs, and time them in turns.

A worker is the process of one library. A cell is one job of one robot, at one batch size and in one
precision, by one library.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import selectors
import statistics
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

import jaxrbd

from . import jobs, robots
from .conventions import Checker
from .environments import interpreter
from .peers import BASELINE, PEERS

ROOT = pathlib.Path(__file__).parents[1]
BURST = 0.05  # s, the length of a turn of one library
START, LOOP = 180, 1200  # s, time limits to start a library and to compile its C++ loop
LONGEST_LOOP = 8192  # largest batch for loops over samples, whose time per sample is constant


class Failed(Exception):
    """A worker answered that it failed, or did not answer in time."""


class Worker:
    """The process of a library; see `worker.py`."""

    def __init__(self, peer: str, python: str, folder: pathlib.Path, dtype: str, options, log):
        adapter = "jaxrbd" if peer == BASELINE else peer
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", adapter, str(folder), dtype],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(peer, options),
            cwd=checkout(peer, options),
        )
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.hello = self._answer(START + LOOP * PEERS[peer].loop)

    def ask(self, limit: float, **command) -> dict:
        """The answer to a command. Raises Failed after `limit` seconds."""
        self.process.stdin.write((json.dumps(command) + "\n").encode())
        self.process.stdin.flush()
        return self._answer(limit)

    def _answer(self, limit: float) -> dict:
        # The worker writes a whole line at once, so readline does not wait for the rest.
        if not self.selector.select(limit):
            self.stop()
            raise Failed(f"> {limit:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"its process ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "failed" in answer:
            raise Failed(answer["failed"])
        return answer

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.selector.close()


def checkout(peer: str, options: argparse.Namespace) -> pathlib.Path:
    """The folder of the benchmarks and of the jaxrbd that a worker imports."""
    return options.baseline if peer == BASELINE else ROOT


def environment(peer: str, options: argparse.Namespace) -> dict[str, str]:
    """The environment variables of a worker: one thread on one core, or the GPU."""
    gpu = options.platform == "gpu" and not PEERS[peer].loop
    own = dict(PEERS[peer].environment)
    one_thread = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    flags = f"{'' if gpu else one_thread} {'' if gpu else own.pop('XLA_FLAGS', '')}".strip()
    path = str(checkout(peer, options))
    found = {**os.environ, "NPROC": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **own}
    found |= {"XLA_FLAGS": flags, "BENCHMARK_CORE": "" if gpu else str(options.core)}
    found["JAX_PLATFORMS"] = "" if gpu else "cpu"
    # Every program is compiled again. No process reserves the memory of the GPU in advance.
    found.pop("JAX_COMPILATION_CACHE_DIR", None)
    found["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return found


def run(options: argparse.Namespace) -> dict:
    """The results of all cells, as a dict; after every row it is also written to results.json."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    pythons = {peer: interpreter(peer, options.environments) for peer in options.peers}
    results = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": "python -m benchmarks " + " ".join(sys.argv[1:]),
        "machine": machine(),
        "core": options.core,
        "platform": options.platform,
        "peers": list(options.peers),
        "versions": {},
        "robots": {},
        "cells": [],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, (options.out / "log.txt").open("w") as log:
        for name in options.robots:
            folder = pathlib.Path(scratch, name)
            checker = prepare_robot(name, folder, options)
            results["robots"][name] = {"nv": checker.model.nv, "nb": checker.model.nb}
            for dtype in options.dtypes:
                team = Team(pythons, folder, dtype, checker, options, log)
                try:
                    for job, batch in itertools.product(options.jobs, options.batches):
                        cells = team.measure(job, batch)
                        results["cells"] += cells
                        results["versions"] |= team.versions
                        show(cells)
                        text = json.dumps(results, indent=1) + "\n"
                        (options.out / "results.json").write_text(text)
                finally:
                    team.stop()
    return results


def prepare_robot(name: str, folder: pathlib.Path, options: argparse.Namespace) -> Checker:
    """Write the files and the states of a robot, and return a Checker with Pinocchio's results."""
    robot = robots.make(name)
    robots.write(robot, folder)
    path, root_joint = folder / "robot.urdf", "free_flyer" if robot.floating else None
    model = jaxrbd.load_urdf(path, root_joint=root_joint)
    np.savez(folder / "states.npz", **jobs.states(model.nq, model.nv, robot.floating))
    python = interpreter("pinocchio", options.environments)
    if python is None:
        raise SystemExit("Pinocchio, the reference of all results, is missing: pip install pin")
    command = [python, "-m", "benchmarks.reference", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    with np.load(folder / "reference.npz") as file:
        return Checker(robot, model, dict(file))


class Team:
    """The workers of all libraries for one robot and one precision."""

    def __init__(self, pythons, folder, dtype, checker, options, log):
        self.pythons, self.folder, self.dtype = pythons, folder, dtype
        self.checker, self.options, self.log = checker, options, log
        self.workers: dict[str, Worker] = {}
        self.hopeless: dict[tuple[str, str | None], str] = {}  # reasons; job None: all jobs
        self.versions: dict[str, dict] = {}
        for convention in {peer.convention for peer in PEERS.values()}:
            np.savez(folder / f"{convention}.npz", **checker.native(convention))

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.stop()

    def measure(self, job: str, batch: int) -> list[dict]:
        """The cells of all libraries for one job and batch: checked, then timed in turns."""
        cells = [self._prepare(peer, job, batch) for peer in self.pythons]
        bursts: dict[str, list[dict]] = {c["peer"]: [] for c in cells if "failed" not in c}
        for _ in range(max(3, round(self.options.seconds / BURST))):
            for cell in cells:
                if "failed" not in cell and not self._enough(bursts[cell["peer"]]):
                    try:
                        worker = self.workers[cell["peer"]]
                        answer = worker.ask(self.options.limit, do="time", seconds=BURST)
                        bursts[cell["peer"]].append(answer)
                    except Failed as error:
                        cell["failed"] = str(error)
                        self.workers.pop(cell["peer"]).stop()
        for cell in cells:
            if "failed" not in cell:
                cell |= summary(bursts[cell["peer"]], batch)
        return cells

    def _enough(self, bursts: list[dict]) -> bool:
        wall, seconds = sum(burst["wall"] for burst in bursts), self.options.seconds
        return wall > 10 * seconds or (len(bursts) >= 3 and wall > seconds)

    def _prepare(self, peer: str, job: str, batch: int) -> dict:
        cell = {"robot": self.checker.robot.name, "job": job, "batch": batch}
        cell |= {"dtype": self.dtype, "peer": peer}
        why = self.hopeless.get((peer, None)) or self.hopeless.get((peer, job))
        if PEERS[peer].loop and batch > LONGEST_LOOP:
            why = f"a loop over samples, not measured above a batch of {LONGEST_LOOP}"
        if why is None:
            try:
                return cell | self._checked(peer, job, batch)
            except Failed as error:
                why = str(error)
                self.hopeless[peer, job if peer in self.workers else None] = why
                if peer in self.workers and self.workers[peer].process.poll() is not None:
                    self.workers.pop(peer).stop()
        return cell | {"failed": why}

    def _checked(self, peer: str, job: str, batch: int) -> dict:
        if self.pythons[peer] is None:
            raise Failed("not installed")
        if peer not in self.workers:
            arguments = self.pythons[peer], self.folder, self.dtype, self.options, self.log
            self.workers[peer] = Worker(peer, *arguments)
            self.versions[peer] = self.workers[peer].hello["versions"]
        outputs, convention = self.folder / f"{peer}-outputs.npz", PEERS[peer].convention
        command = {"do": "prepare", "job": job, "batch": batch, "outputs": str(outputs)}
        command["inputs"] = str(self.folder / f"{convention}.npz")
        facts = self.workers[peer].ask(self.options.limit, **command)
        with np.load(outputs) as file:
            found = [file[key] for key in file.files]
        facts["error"] = self.checker.error(job, convention, batch, found)
        condition = float(self.checker.reference["condition"])
        coarse = facts.get("note") == "fd" or self.checker.in_world_axes(job, convention)
        allowed = jobs.tolerance(job, self.dtype, condition, coarse)
        if not facts["error"] <= allowed:
            facts["failed"] = f"wrong: {facts['error']:.0e}"
        return facts


def summary(bursts: list[dict], batch: int) -> dict:
    """The times of a cell, in microseconds per sample, and the fraction of the core's time.

    `min_us` and `median_us` are wall-clock times of single calls.
    """
    calls = [seconds for burst in bursts for seconds in burst["seconds"]]
    wall = sum(burst["wall"] for burst in bursts)
    return {
        "calls": len(calls),
        "min_us": 1e6 * min(calls) / batch,
        "median_us": 1e6 * statistics.median(calls) / batch,
        "share": sum(burst["cpu"] for burst in bursts) / wall,
    }


def machine() -> dict:
    """The processor, the number of cores, the operating system and the Python version."""
    model = platform.processor() or platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":")[1].strip() if lines else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def show(cells: list[dict]) -> None:
    """Print one line with the minimum times, or the failures, of all libraries."""
    first = cells[0]
    parts = [
        f"{c['peer']} {c['failed'] if 'failed' in c else format(c['min_us'], '.3g')}" for c in cells
    ]
    head = f"{first['robot']} {first['job']} {first['batch']} {first['dtype']}"
    print(f"{time.strftime('%H:%M:%S')} {head}: {'; '.join(parts)}", flush=True)
