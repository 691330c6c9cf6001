"""Programs for a GPU, compiled without a GPU: kernels, loops and bytes per sample.

The tests need the plug-in of JAX for CUDA (180 MB), which benchmarks/studies/gpu_programs.py
describes. Without it they are skipped.
"""

import importlib.util
import re
import subprocess
import sys

import pytest

from benchmarks.studies import gpu_programs
from benchmarks.studies.common import ROOT

BATCH = 65536
# Bounds for the humanoid in float32: kernels, and kB per sample. No program here has loops. By
# products, forward dynamics and its derivatives have loops.
BOUNDS = {
    ("fk", "products"): (19, 25),
    ("fk", "kernels"): (15, 10),
    ("rnea", "products"): (46, 60),
    ("rnea", "kernels"): (24, 20),
    ("crba", "products"): (31, 60),
    ("crba", "kernels"): (23, 36),
    ("fd", "kernels"): (36, 60),
    ("drnea", "products"): (90, 280),
    ("drnea", "kernels"): (39, 128),
    ("dfd", "kernels"): (61, 240),
    ("gradient", "products"): (67, 90),
    ("gradient", "kernels"): (33, 33),
}
MISSING = importlib.util.find_spec("jax_cuda12_plugin") is None
needs_plugin = pytest.mark.skipif(MISSING, reason="jax-cuda12-plugin is not installed")


def counted(robot, jobs, implementations):
    """Counts by job and implementation; another process, because JAX reads its settings once."""
    words = ["--robot", robot, "--jobs", ",".join(sorted(jobs))]
    words += ["--implementations", ",".join(sorted(implementations)), "--batch", str(BATCH)]
    command = [sys.executable, "-m", gpu_programs.__name__, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"(?m)^\| (\w+) \| (\w+) \| (\d+) \| (\d+) \| ([\d.]+) \|", done.stdout)
    return {
        (job, implementation): {"kernels": int(kernels), "steps": int(steps), "kB": float(size)}
        for job, implementation, kernels, steps, size in rows
    }


@needs_plugin
def test_kernels_and_bytes_have_bounds():
    found = {}
    for implementation in ("products", "kernels"):
        jobs = {job for job, other in BOUNDS if other == implementation}
        found |= counted("humanoid", jobs, {implementation})
    for key, (kernels, kilobytes) in BOUNDS.items():
        assert found[key]["steps"] == 0, key
        assert found[key]["kernels"] <= kernels, key
        assert found[key]["kB"] <= kilobytes, key


@needs_plugin
def test_kernels_do_not_depend_on_the_number_of_bodies():
    jobs = {"rnea", "crba", "fd", "drnea", "dfd"}
    small, large = (counted(f"chain{n}", jobs, {"kernels"}) for n in (30, 33))
    assert {k: x["kernels"] for k, x in small.items()} == {
        k: x["kernels"] for k, x in large.items()
    }


PROGRAM = """
HloModule jit_f

%fused_a (param_0: f32[10,4], param_1: s32[]) -> f32[1,4] {
  %param_0 = f32[10,4]{1,0} parameter(0)
  %param_1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,4]{1,0} dynamic-slice(%param_0, %param_1, %zero), dynamic_slice_sizes={1,4}
  ROOT %double = f32[1,4]{1,0} add(%row, %row)
}

%body (state: (s32[], f32[10,4])) -> (s32[], f32[10,4]) {
  %state = (s32[], f32[10,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[10,4]{1,0} get-tuple-element(%state), index=1
  %row.1 = f32[1,4]{1,0} fusion(%x, %i), kind=kLoop, calls=%fused_a
  %zero.1 = s32[] constant(0)
  %y = f32[10,4]{1,0} dynamic-update-slice(%x, %row.1, %i, %zero.1)
  ROOT %next = (s32[], f32[10,4]{1,0}) tuple(%i, %y)
}

ENTRY %main (x: f32[10,4]) -> f32[10,4] {
  %x.1 = f32[10,4]{1,0} parameter(0)
  %start = s32[] constant(0)
  %both = (s32[], f32[10,4]{1,0}) tuple(%start, %x.1)
  %loop = (s32[], f32[10,4]{1,0}) while(%both), body=%body, config={"known_trip_count":{"n":"10"}}
  %z = f32[10,4]{1,0} get-tuple-element(%loop), index=1
  ROOT %copy = f32[10,4]{1,0} copy(%z)
}
"""


def test_the_counts_of_a_program():
    """Ten steps, each with a kernel that reads and writes one row, and a write of one row."""
    row, scalar, whole = 16, 4, 160
    steps = 10 * ((row + scalar + row) + 2 * row)
    assert gpu_programs.count(PROGRAM) == {"kernels": 21, "steps": 10, "bytes": steps + 2 * whole}
