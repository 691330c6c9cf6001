"""What a checkpoint states of the robot, so that no other robot continues a training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from ..model import Model
from ..model.model import joint_kinds

# The lists of names in a record, and the word for one of the names.
_NAMES = {"joints": "joint", "links": "link", "actuators": "actuator"}


def robot_record(params: Any) -> dict[str, Any] | None:
    """The record of the robot in the parameters of an environment; None without a model.

    - `name`: of the model. It is not compared, because a file can be renamed;
    - `joints`, `links`, `actuators`: the names in their order. `actuators` is None unless the
      parameters have a field `actuators` with names;
    - `digest`: of the kinds of the joints and of the parents of the bodies.

    Values of parameters, such as masses, are not in the record.
    """
    model = getattr(params, "model", None)
    if not isinstance(model, Model):
        return None
    actuators = getattr(getattr(params, "actuators", None), "names", None)
    kinds = [kind.__name__ for kind in joint_kinds(model)]
    structure = json.dumps([kinds, [int(parent) for parent in model.topology.parents]])
    return {
        "name": model.name,
        "joints": [*model.joint_names],
        "links": [*model.body_names],
        "actuators": None if actuators is None else [*actuators],
        "digest": hashlib.sha256(structure.encode("ascii")).hexdigest()[:16],
    }


def robot_differences(found: Any, expected: Any) -> Iterator[tuple[str, Any, Any]]:
    """The names of the differences of two records, with the values of both.

    An older file has no record: then there is no difference.
    """
    if found is None or expected is None:
        return
    found = found if isinstance(found, dict) else {}
    for key, word in _NAMES.items():
        given, wanted = found.get(key), expected[key]
        if given == wanted:
            continue
        if isinstance(given, list) and isinstance(wanted, list):
            for i, (x, y) in enumerate(zip(given, wanted)):
                if x != y:
                    yield f"{word} {i}", x, y
            if len(given) != len(wanted):
                yield f"number of {key}", len(given), len(wanted)
        else:
            yield f"list of {key}", given, wanted
    if found.get("digest") != expected["digest"]:
        name = f"digest of the joints of {found.get('name')!r}"
        yield name, found.get("digest"), expected["digest"]
