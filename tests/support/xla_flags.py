"""Which of the XLA flags that the tests want the installed JAX knows. Imports no JAX itself.

XLA ends a process whose `XLA_FLAGS` name a flag that it does not know, and its flags come and go
with its versions. So a process of its own tries them; its answer is kept in the environment, where
the workers, and every process that a test starts, find it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping

# Compile quickly rather than well: most of a run is compilation, and most of that is optimisation
# that programs which run a few times never pay back. Without it one compiles in a quarter of the
# time. JAX 0.11 dropped the second flag.
QUICK_COMPILATION = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}

_ANSWER = "JAXRBD_TEST_KNOWN_XLA_FLAGS"  # the environment variable that keeps the answer
_TRY = "import jax; jax.jit(lambda x: x + 1)(1.0)"


def known_flags(wanted: Mapping[str, int | bool]) -> dict[str, int | bool]:
    """Those of the wanted flags that the installed JAX knows, as `compiler_options` of `jax.jit`.

    The answer of the first call is kept for this process and for those that it starts.
    """
    answers: dict[str, bool] = json.loads(os.environ.get(_ANSWER, "{}"))
    unknown = [name for name in wanted if name not in answers]
    if unknown:
        accepted = _starts(as_arguments({name: wanted[name] for name in unknown}))
        for name in unknown:
            alone = accepted or _starts(as_arguments({name: wanted[name]}))
            answers[name] = alone
        os.environ[_ANSWER] = json.dumps(answers)
    return {name: value for name, value in wanted.items() if answers[name]}


def as_arguments(flags: Mapping[str, int | bool]) -> list[str]:
    """The flags as `XLA_FLAGS` spells them."""
    return [f"--{name}={json.dumps(value)}" for name, value in flags.items()]


def _starts(arguments: Iterable[str]) -> bool:
    """Whether a process with these flags, and no others, compiles a program."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(arguments)}
    done = subprocess.run([sys.executable, "-c", _TRY], env=environment, capture_output=True)
    return done.returncode == 0
