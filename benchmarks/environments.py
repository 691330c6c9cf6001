"""One Python environment per library, because their requirements conflict.

`python -m benchmarks --install` makes the environments.
"""

from __future__ import annotations

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import venv

from .peers import PEERS

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / ".environments"


def cuda() -> bool:
    """Whether this machine has an NVIDIA GPU."""
    tool = shutil.which("nvidia-smi")
    return tool is not None and subprocess.run([tool], capture_output=True).returncode == 0


def install(names: tuple[str, ...], folder: pathlib.Path) -> None:
    """Make the missing environments from `peers/NAME.txt`, and print which installations failed.

    On a machine with an NVIDIA GPU, install JAX for CUDA.
    """
    for name in names:
        requirements = HERE / "peers" / f"{name}.txt"
        home = folder / name
        if not requirements.exists() or (home / "installed").exists():
            continue
        print(f"installing {name}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        lines = [*requirements.read_text().splitlines(), "numpy"]
        if cuda():
            lines = [line.replace("jax==", "jax[cuda12]==") for line in lines]
        wanted = [line for line in lines if line and not line.startswith("#")]
        command = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "ERROR" in line]
            print(f"{name} could not be installed: {lines[-1] if lines else done.stderr[-300:]}")
        else:
            (home / "installed").touch()


def interpreter(name: str, folder: pathlib.Path) -> str | None:
    """The Python interpreter for a library, or None if no interpreter has the library.

    It is the interpreter of the library's environment in `folder`, else this interpreter if the
    library is installed here.
    """
    own = folder / name / "bin" / "python"
    if own.exists():
        return str(own.absolute())
    package, *_ = PEERS[name].module.split(".")
    found = importlib.util.find_spec(package) and importlib.util.find_spec(PEERS[name].module)
    return sys.executable if found else None
