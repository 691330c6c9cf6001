"""How the tests see JAX: double precision, no silent promotion, checked shapes, one shared cache.

The environment is set before JAX is imported, so processes that a test starts inherit it too.
"""

import itertools
import os
import pathlib

from support import xla_flags

ROOT = pathlib.Path(__file__).resolve().parents[1]

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
# Keep every compiled program, shared by the workers and by the next run.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
# Most of a run is compilation: see xla_flags.py. JAXRBD_TEST_OPTIMIZED=1 (the nightly run) tests
# the programs as users compile them.
if "JAXRBD_TEST_OPTIMIZED" not in os.environ:
    cheap = " ".join(xla_flags.as_arguments(xla_flags.known_flags(xla_flags.QUICK_COMPILATION)))
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {cheap}"
if "PYTEST_XDIST_WORKER" in os.environ:
    # One worker a core: the threads of a single matrix product would only get in each other's way.
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    )

import jaxtyping

# Shape and type annotations of the package are checked while the tests run, and only then.
jaxtyping.install_import_hook("jaxrbd", "beartype.beartype")

import jax
import numpy as np
import pytest

_counter = itertools.count(1)


@pytest.fixture(autouse=True)
def _room_for_programs():
    """Forget compiled programs before there are too many.

    Each takes memory maps of the process, of which Linux allows 65,530: beyond, XLA crashes.
    """
    yield
    maps = pathlib.Path("/proc/self/maps")
    if next(_counter) % 20 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()


@pytest.fixture
def rng() -> np.random.Generator:
    """A numpy generator, the same for every test."""
    return np.random.default_rng(0)


@pytest.fixture
def key() -> jax.Array:
    """A JAX random key, the same for every test."""
    return jax.random.key(0)
