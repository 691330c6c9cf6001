"""Settings of JAX for the tests: double precision, strict promotion, one cache.

The environment is set before JAX is imported. Processes that a test starts inherit it.
"""

import gc
import itertools
import os
import pathlib
import traceback

from support import xla_flags

ROOT = pathlib.Path(__file__).resolve().parents[1]

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
# Store every compiled program, for all workers and for the next run.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
# JAX compares paths of files in each traceback that it shortens: one second in forty of the tests.
os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
# The instructions of a program need no lines of Python: one twentieth of the time.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# Compile quickly, see xla_flags.py. With JAXRBD_TEST_OPTIMIZED=1, as in the nightly run, programs
# are compiled as for users.
if "JAXRBD_TEST_OPTIMIZED" not in os.environ:
    cheap = " ".join(xla_flags.as_arguments(xla_flags.known_flags(xla_flags.QUICK_COMPILATION)))
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {cheap}"
if "PYTEST_XDIST_WORKER" in os.environ:
    # Each worker has one core, so a single matrix product should use one thread.
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    )

# With JAXRBD_TEST_ANNOTATIONS=1, as in the nightly run, each call of a function of the package
# checks its arguments and its result against its annotations: one sixth of the time of the tests.
# tests/test_annotations.py does this in the default run, for one call of each algorithm.
ANNOTATIONS = "JAXRBD_TEST_ANNOTATIONS" in os.environ
if ANNOTATIONS:
    import jaxtyping

    from support import annotations  # noqa: F401 (the hook reads it from the package)

    # With this checker, an int is also a float, as for type checkers (PEP 484).
    jaxtyping.install_import_hook("jaxrbd", "support.annotations.checked")

import jax
import numpy as np
import pytest

if "JAXRBD_TEST_OPTIMIZED" not in os.environ:
    from support import lowering

    lowering.share_contexts()

# JAX makes many objects while it traces, and few of them are garbage. With the defaults of Python,
# their collection takes a seventh of the time of the tests.
gc.set_threshold(100_000, 10, 10)

_counter = itertools.count(1)


@pytest.fixture(autouse=True)
def _room_for_programs():
    """Remove compiled programs from memory before there are too many.

    Each program takes memory maps of the process. Linux allows 65,530, and XLA crashes beyond.
    """
    yield
    maps = pathlib.Path("/proc/self/maps")
    if next(_counter) % 20 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > 40_000:
        jax.clear_caches()
        gc.collect()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("cpu") and jax.default_backend() != "cpu":
        pytest.skip("programs and checks differ on other devices")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function):
    """Skip a test that passes a wrong type on purpose, where the annotations refuse it first."""
    try:
        return (yield)
    except TypeError as error:
        if ANNOTATIONS and isinstance(error, jaxtyping.TypeCheckError):
            frames = traceback.extract_tb(error.__traceback__)
            files = [pathlib.Path(frame.filename) for frame in frames]
            folders = ROOT / "jaxrbd", ROOT / "tests"
            own = [file for file in files if any(map(file.is_relative_to, folders))]
            if own and own[-1].is_relative_to(ROOT / "tests"):
                pytest.skip("the annotations refuse an argument of the test")
        raise


@pytest.fixture(autouse=True)
def _nan_on_purpose(request):
    """With JAX_DEBUG_NANS=True, as in a nightly run, these tests run without the check."""
    if request.node.get_closest_marker("gives_nan"):
        with jax.debug_nans(False):
            yield
    else:
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A numpy generator, the same for every test."""
    return np.random.default_rng(0)


@pytest.fixture
def key() -> jax.Array:
    """A JAX random key, the same for every test."""
    return jax.random.key(0)
