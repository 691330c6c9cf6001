"""Parameters of tests of which only some run by default; the nightly run has them all."""

from collections.abc import Collection, Iterable

import pytest


def all_but(default: Collection, values: Iterable) -> list:
    """The values as parameters of a test, marked slow but for those in `default`."""
    marks = {True: (), False: (pytest.mark.slow,)}
    found = {value: pytest.param(value, marks=marks[value in default]) for value in values}
    unknown = [value for value in default if value not in found]
    assert not unknown, f"these are not among the values: {unknown}"
    return list(found.values())
