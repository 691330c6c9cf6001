"""Parameters of tests of which only some run by default; the nightly run has them all."""

from collections.abc import Collection, Iterable

import pytest


def all_but(default: Collection, values: Iterable) -> list:
    """The values as parameters of a test, marked slow but for those in `default`."""
    values = list(values)
    unknown = [value for value in default if value not in values]
    assert not unknown, f"these are not among the values: {unknown}"
    return [pytest.param(x, marks=() if x in default else pytest.mark.slow) for x in values]
