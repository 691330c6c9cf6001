"""Checks of what a caller passes, made while tracing: what is wrong is named, never guessed at.

Shapes and dtypes are known while JAX traces. Values are not: `compiled` checks them outside of the
compiled program, at each call, where `known` can read them.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from ..errors import ArgumentError
from .model import Model


def configuration(model: Model, q: ArrayLike, name: str = "q") -> Array:
    """`q` as an array (nq,) of the model's dtype.

    Raises ArgumentError where its shape or dtype is another, and where `model` is no Model; batches
    go through `jax.vmap`.
    """
    return array(model, q, name, (robot(model).nq,), "nq")


def velocity(model: Model, v: ArrayLike, name: str = "v") -> Array:
    """A vector over the degrees of freedom (v, a, tau, ...) as an array (nv,); see above."""
    return array(model, v, name, (robot(model).nv,), "nv")


def wrenches(model: Model, f_ext: ArrayLike, name: str = "f_ext") -> Array:
    """One spatial force a body as an array (nb, 6); see above."""
    return array(model, f_ext, name, (robot(model).nb, 6), "nb, 6")


def array(model: Model, x: ArrayLike, name: str, shape: tuple[int, ...], sizes: str) -> Array:
    """`x` as an array of the given shape and the model's dtype; see `configuration`."""
    x = jnp.asarray(_not_a_model(robot(model), x, name))
    if x.shape != shape:
        hint = "; batch with jax.vmap" if x.ndim > len(shape) else ""
        raise ArgumentError(
            f"{name} has shape {x.shape}, expected {shape} ({sizes}) for {model!r}{hint}"
        )
    if x.dtype != model.dtype:
        raise ArgumentError(
            f"{name} of shape {x.shape} has dtype {x.dtype}, expected {model.dtype} for {model!r}; "
            f"cast it, or the model with model.astype"
        )
    return x


def number(model: Model, x: ArrayLike, name: str) -> Array:
    """A number as an array () of the model's dtype; see `configuration`."""
    x = jnp.asarray(_not_a_model(robot(model), x, name), model.dtype)
    return array(model, x, name, (), "a number")


def robot(model: Model, place: str = "the first argument") -> Model:
    """The model, once it is known to be one: arguments given in another order end here.

    Raises ArgumentError where it is something else.
    """
    if isinstance(model, Model):
        return model
    raise ArgumentError(f"{place} is {_described(model)}, expected the Model of a robot")


def _not_a_model(model: Model, x: Any, name: str) -> Any:
    if isinstance(x, Model):
        raise ArgumentError(f"{name} is {x!r}, expected an array; {model!r} came before it")
    return x


def _described(x: Any) -> str:
    """What was given instead of something else; a tracer as the array that it stands for."""
    if isinstance(x, (jax.Array, np.ndarray)):
        return f"an array of shape {x.shape}"
    return f"{type(x).__name__!r}"


def frame_index(model: Model, frame: str | int) -> int:
    """Index of a frame given by name or by index; negative indices count from the last frame.

    Raises ArgumentError where the model has no such frame.
    """
    names = robot(model).frame_names
    if isinstance(frame, str):
        if frame in names:
            return names.index(frame)
        raise ArgumentError(unknown_name(model, "frame", frame, names))
    try:
        index = operator.index(frame)
    except TypeError:
        raise ArgumentError(
            f"frame is {_described(frame)}, expected the name or the index of a frame of {model!r}"
        ) from None
    if not -len(names) <= index < len(names):
        raise ArgumentError(
            f"frame {index} out of range: {model!r} has frames {-len(names)} to {len(names) - 1}"
        )
    return index % len(names)


def unknown_name(model: Model, kind: str, name: str, names: Sequence[str]) -> str:
    """The message for a name that the model lacks, with the names that look most like it."""
    close = [known for known in names if name and name.lower() in known.lower()]
    close += difflib.get_close_matches(name, [n for n in names if n not in close])
    hint = f"; did you mean {' or '.join(map(repr, close[:3]))}?" if close else ""
    return f"no {kind} {name!r} in {model!r}{hint}; {kind}s: {list(names)}"


REFERENCES = ("local", "world", "local_world_aligned")


def reference_frame(reference: str) -> str:
    """Check the name of a reference frame.

    Raises ArgumentError where it is not one of `REFERENCES`.
    """
    if reference not in REFERENCES:
        raise ArgumentError(f"reference is {reference!r}, expected one of {REFERENCES}")
    return reference


# ------------------------------------------------------------------------------ checks of values


def known(x: Any) -> np.ndarray | None:
    """The values of an argument that can be read without a transfer, else None.

    They are those of numbers, of lists of numbers, of numpy arrays and of JAX arrays in the memory
    of a CPU (a call waits for such an array). None for a tracer: the values of an argument of a
    function under `jit`, `vmap` or `grad` are unknown; and for an array on another device, where
    reading would make every call wait for the device.
    """
    if isinstance(x, Array):
        if isinstance(x, Tracer) or not x.is_fully_addressable:
            return None
        return np.asarray(x) if next(iter(x.devices())).platform == "cpu" else None
    if isinstance(x, (np.ndarray, np.generic, int, float)):
        return np.asarray(x)
    if isinstance(x, list) and all(isinstance(number, (int, float)) for number in x):
        return np.asarray(x)
    return None


class Requirement(NamedTuple):
    """What a number must satisfy. Another shape than a number's is left to the function.

    `expected` says it in words, after "expected"; `holds` tells it of a numpy or JAX array ().
    """

    expected: str
    holds: Callable[[Any], Any]

    def __call__(self, name: str, values: np.ndarray, model: Any = None) -> None:
        """Raise ArgumentError where a number does not satisfy the requirement; NaN never does."""
        if values.shape == () and values.dtype.kind in "fiu" and not self.holds(values):
            raise ArgumentError(f"{name} is {values}, expected {self.expected}")

    def or_nan(self, x: Array) -> Array:
        """`x` with NaN for each value that does not satisfy the requirement, for traced values."""
        return jnp.where(self.holds(x), x, jnp.nan)


POSITIVE = Requirement("a number above 0", lambda x: x > 0)
NOT_NEGATIVE = Requirement("0 or more", lambda x: x >= 0)
FRACTION = Requirement("a number from 0 to 1", lambda x: (x >= 0) & (x <= 1))


def unit_quaternions(name: str, values: np.ndarray, model: Any) -> None:
    """Raise ArgumentError where a quaternion of a configuration (nq,) is zero, and so no rotation.

    Quaternions of any other length are normalised where they are read. `configuration` tells of a
    wrong shape or dtype.
    """
    if values.ndim != 1 or not isinstance(model, Model):
        return
    for joint, start in _quaternions(model):
        if not any(values[start : start + 4].tolist()):
            if values.shape != (model.nq,) or jnp.result_type(values) != model.dtype:
                return
            raise ArgumentError(
                f"{name} has the zero quaternion for joint {joint!r} "
                f"({name}[{start}:{start + 4}]), expected a rotation; "
                f"start from jaxrbd.neutral(model)"
            )


# By id, models that were asked about, and their `quaternions`: looking them up by structure would
# take longer than all else that a check does.
_asked: dict[int, tuple[weakref.ref, tuple[tuple[str, int], ...]]] = {}


def _quaternions(model: Model) -> tuple[tuple[str, int], ...]:
    """`model.quaternions`, found once for each model."""
    key = id(model)
    entry = _asked.get(key)
    if entry is None or entry[0]() is not model:
        entry = weakref.ref(model, lambda _: _asked.pop(key, None)), model.quaternions
        _asked[key] = entry
    return entry[1]


# A parameter of these names is a configuration, in every function of the package.
CONFIGURATIONS = ("q", "q0", "q1")

Check = Callable[[str, np.ndarray, Any], None]


class Compiled:
    """A jitted function that checks the values of its arguments at each call; see `compiled`."""

    # Not in __dict__, which JAX copies to what it makes of a function (jit, vmap, grad).
    __slots__ = ("__dict__", "__weakref__", "_checks", "_jitted")
    __qualname__: str
    __wrapped__: Callable

    def __init__(
        self, function: Callable, jitted: Any, checks: Iterable[tuple[int, str, Check]]
    ) -> None:
        functools.update_wrapper(self, function)
        self._jitted, self._checks = jitted, tuple(checks)

    def __call__(self, *args, **kwargs):
        for place, name, check in self._checks:
            values = known(args[place] if place < len(args) else kwargs.get(name))
            if values is not None:
                check(name, values, args[0] if args else kwargs.get("model"))
        return self._jitted(*args, **kwargs)

    def lower(self, *args, **kwargs):
        """As of a jitted function; like the two that follow, without checks of values."""
        return self._jitted.lower(*args, **kwargs)

    def trace(self, *args, **kwargs):
        """As of a jitted function."""
        return self._jitted.trace(*args, **kwargs)

    def eval_shape(self, *args, **kwargs):
        """As of a jitted function."""
        return self._jitted.eval_shape(*args, **kwargs)

    def __reduce__(self):
        return self.__qualname__  # pickled by its name, like a function

    def __repr__(self):
        return repr(self.__wrapped__)


def compiled(
    function: Callable | None = None,
    *,
    static_argnames: str | Iterable[str] = (),
    checks: Mapping[str, Check] | None = None,
) -> Any:
    """`jax.jit` of a public function, with checks of the values that its arguments have.

    - `static_argnames`: as for `jax.jit`;
    - `checks`: by name of the parameter, a `Requirement` or another function of (name, values,
      model) that raises ArgumentError. It is called before the compiled function is, where `known`
      finds values, and not while JAX traces. Parameters that are configurations (`CONFIGURATIONS`)
      have the check `unit_quaternions`.

    The result has the methods of a jitted function (`lower`, `trace`, `eval_shape`). The function
    itself says what it returns for values that are known to the device alone.
    """
    if function is None:
        return functools.partial(compiled, static_argnames=static_argnames, checks=checks)
    jitted: Any = jax.jit(function, static_argnames=static_argnames)
    places = {name: place for place, name in enumerate(inspect.signature(function).parameters)}
    by_name: dict[str, Check] = {n: unit_quaternions for n in CONFIGURATIONS if n in places}
    by_name.update(checks or {})
    each = [(places[name], name, check) for name, check in by_name.items()]
    if not each:
        return jitted

    return Compiled(function, jitted, each)
