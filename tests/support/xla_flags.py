"""Find the XLA flags that the installed JAX supports. This module does not import JAX.

XLA ends a process whose `XLA_FLAGS` have an unknown flag, and its flags change with its versions.
So a separate process tries them. The answer is stored in the environment, for the workers and for
all processes that a test starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping

# Most of the time of a test run is compilation, and most of the compilation is optimization, which
# is useless for programs that run a few times. Without it compilation takes a quarter of the time.
# JAX 0.11 removed the second flag. With the first two flags alone, JAX 0.10.2 makes wrong programs
# (`test_derivatives_of_a_return_are_central_differences` in test_envs.py). Whether a program is
# wrong depends on how XLA divides it into parts that are compiled in parallel. The third flag turns
# this division off. It changes the time of the compilation by a few percent.
QUICK_COMPILATION = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}

_ANSWER = "JAXRBD_TEST_KNOWN_XLA_FLAGS"  # the environment variable that keeps the answer
_TRY = "import jax; jax.jit(lambda x: x + 1)(1.0)"


def known_flags(wanted: Mapping[str, int | bool]) -> dict[str, int | bool]:
    """The wanted flags that the installed JAX supports, as `compiler_options` of `jax.jit`.

    The answer of the first call is stored for this process and for the processes that it starts.
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
    """The flags in the form of `XLA_FLAGS`."""
    return [f"--{name}={json.dumps(value)}" for name, value in flags.items()]


def _starts(arguments: Iterable[str]) -> bool:
    """Whether a process with only these flags compiles a program."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(arguments)}
    done = subprocess.run([sys.executable, "-c", _TRY], env=environment, capture_output=True)
    return done.returncode == 0
