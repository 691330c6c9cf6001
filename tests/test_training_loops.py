"""The loops of docs/training_loops.md learn the swing-up of the cart-pole."""

import os
import re
import subprocess
import sys

import pytest

from support import pages

TEXT = (pages.DOCS / "training_loops.md").read_text()
BLOCKS = re.findall(r"^## (.*?)\n.*?```py\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE)
# the packages that a loop needs, and the least mean return after it
LOOPS = {
    "optax and Equinox": (["optax"], -1300),
    "Brax": (["brax"], -2500),
    "PyTorch with Gymnasium": (["torch", "gymnasium"], -900),
    "PyTorch with gradients of JAX": (["torch"], -1700),
}


def test_every_loop_of_the_page_is_a_program():
    assert [name for name, _ in BLOCKS] == [*LOOPS]
    assert TEXT.count("```") == 2 * len(BLOCKS)
    for name, block in BLOCKS:
        compile(block, name, "exec")
        assert len([line for line in block.splitlines() if line]) < 75


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_the_loop_of(name, tmp_path):
    """In a process of its own, with single precision and one thread, as for the table."""
    packages, least = LOOPS[name]
    for package in packages:
        pytest.importorskip(package)
    program = tmp_path / "loop.py"
    end = "\nimport time\nprint(float(before), float(after), time.process_time())\n"
    program.write_text(dict(BLOCKS)[name] + end)
    usual = {k: x for k, x in os.environ.items() if not k.startswith(("JAX", "XLA"))}
    one = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    found = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        check=False,
        env={**usual, **one, "JAX_PLATFORMS": "cpu"},
    )
    assert found.returncode == 0, found.stderr
    before, after, seconds = map(float, found.stdout.splitlines()[-1].split())
    print(f"{name}: before {before:.4g}, after {after:.4g}, {seconds:.0f} s")
    assert before < 2 * least
    assert after > least
