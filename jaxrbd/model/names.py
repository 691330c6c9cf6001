"""Frames, joints and bodies by name.

A frame is named by a link or by a joint. The frame of a joint is the moving frame of the joint,
which is the frame of its child link. If a link and a joint have the same name, the name means the
link.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ..errors import ArgumentError

if TYPE_CHECKING:
    from .model import Model


class JointPlace(NamedTuple):
    """Where a joint is: its slices of q (nq,) and of v (nv,), and the indices of its bodies.

    The slices are empty for a joint that follows others, such as a mimic joint. A compound joint
    has one body per stage. The last of these bodies is the child link of the compound joint.
    """

    q: slice
    v: slice
    bodies: tuple[int, ...]


def joint_of_coordinate(model: Model, i: int) -> str:
    """The name of the joint of entry i of q."""
    places = ((name, model.joint(name).q) for name in model.joint_names)
    return next(name for name, place in places if place.start <= i < place.stop)


def joint_of_dof(model: Model, i: int) -> str:
    """The name of the joint of entry i of v."""
    places = ((name, model.joint(name).v) for name in model.joint_names)
    return next(name for name, place in places if place.start <= i < place.stop)


def require_frame_name(frame: Any, argument: str, world: bool = True) -> None:
    """Raise ArgumentError, which names the argument, unless `frame` is a text or None.

    None means the world. `world`: whether `frame` may be None.
    """
    if isinstance(frame, str) or (world and frame is None):
        return
    given = described(frame) if isinstance(frame, jax.Array | np.ndarray) else repr(frame)
    or_none = ", or None" if world else ""
    raise ArgumentError(f"{argument} is {given}, expected the name of a frame{or_none}")


def frame_index(model: Model, frame: str | int) -> int:
    """Index in `frame_names` of a frame, given by the name of a link or a joint, or by its index.

    Negative indices count from the end. Raises ArgumentError if the model has no such frame.
    """
    names = model.frame_names
    if isinstance(frame, str):
        if frame in names:
            return names.index(frame)
        if bodies := bodies_of_joint(model, frame):
            return names.index(model.body_names[bodies[-1]])
        candidates = (*names, *model.joint_names)
        raise ArgumentError(unknown_name(model, "frame", frame, names, candidates))
    try:
        if isinstance(frame, bool):
            raise TypeError
        index = operator.index(frame)
    except TypeError:
        raise ArgumentError(
            f"frame is {described(frame)}, expected the name or the index of a frame of {model!r}"
        ) from None
    if not -len(names) <= index < len(names):
        raise ArgumentError(
            f"frame {index} out of range: {model!r} has frames {-len(names)} to {len(names) - 1}"
        )
    return index % len(names)


def joint_place(model: Model, name: str) -> JointPlace:
    """Where a joint is; see `Model.joint`. Raises ArgumentError for an unknown joint."""
    bodies = bodies_of_joint(model, name)
    if not bodies:
        raise ArgumentError(unknown_name(model, "joint", name, model.joint_names))
    q_all, v_all = np.cumsum([0, *model.topology.nqs]), np.cumsum([0, *model.joint_nvs])
    q = _independent_slice(model.coupling and model.coupling.q_independent, q_all, bodies)
    v = _independent_slice(model.coupling and model.coupling.v_independent, v_all, bodies)
    return JointPlace(q, v, bodies)


def body_index(model: Model, name: str) -> int:
    """Index of a moving body. Raises ArgumentError for an unknown body."""
    if name not in model.body_names:
        raise ArgumentError(unknown_name(model, "body", name, model.body_names))
    return model.body_names.index(name)


def unknown_name(
    model: Model,
    kind: str,
    name: str,
    names: Sequence[str],
    candidates: Sequence[str] | None = None,
) -> str:
    """The message for an unknown name, with the most similar `candidates` and all `names`.

    `kind`: "frame", "joint" or "body"; `candidates`: by default the names.
    """
    name = str(name)
    hint = similar_names(name, names if candidates is None else candidates)
    plural = "bodies" if kind == "body" else f"{kind}s"
    return f"no {kind} {name!r} in {model!r}{hint or ';'} {plural}: {list(names)}"


def similar_names(name: str, candidates: Sequence[str]) -> str:
    """The end of a message: "; did you mean" and up to three similar candidates, or empty."""
    close = [known for known in candidates if name and name.lower() in known.lower()]
    close += difflib.get_close_matches(name, [n for n in candidates if n not in close])
    return f"; did you mean {' or '.join(map(repr, close[:3]))}?" if close else ""


def described(x: Any) -> str:
    """An argument in words, for a message: the shape of an array or a tracer, None, or the type."""
    if x is None:
        return "None"
    if isinstance(x, (jax.Array, np.ndarray)):
        return f"an array of shape {x.shape}"
    return f"{type(x).__name__!r}"


def bodies_of_joint(model: Model, name: str) -> tuple[int, ...]:
    """The bodies that a joint moves, one per stage of a compound joint; empty if it is unknown."""
    if name in model.joint_names:
        return (model.joint_names.index(name),)
    bodies: list[int] = []
    for k in range(1, model.nb + 1):
        stage = f"{name}.{k}"
        if stage not in model.joint_names:
            break
        body = model.joint_names.index(stage)
        # Each stage except the last one moves a link that has the name of the stage.
        if bodies and (
            model.topology.parents[body] != bodies[-1]
            or model.body_names[bodies[-1]] != model.joint_names[bodies[-1]]
        ):
            break
        bodies.append(body)
    return tuple(bodies)


def _independent_slice(
    independent: tuple[int, ...] | None, starts: np.ndarray, bodies: Sequence[int]
) -> slice:
    """The slice of q (or v) for the joints that move `bodies`."""
    first, end = int(starts[bodies[0]]), int(starts[bodies[-1] + 1])
    if independent is None:
        return slice(first, end)
    return slice(*(sum(i < bound for i in independent) for bound in (first, end)))
