"""A disk on which files cannot grow."""

import contextlib

import pytest


@contextlib.contextmanager
def full_disk(size=1000):
    """The disk accepts `size` bytes of every file that this process writes."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
