"""Checks of arguments: shapes and dtypes while JAX traces, values at each call.

The shape and the dtype of an argument are checked once. A public function checks the argument, or
passes it to another function that checks it, such as `forward_kinematics`. A function of the
package that has checked arrays calls the form `unchecked` of a public function, see `compiled`. A
public function that is not `compiled`, such as an integrator, calls the checked forms, because they
also check the values.

Values are unknown while JAX traces. So `compiled` checks the values of arguments before each call
of the compiled program, if the function `known` can read the values.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import PRNGKeyArray

from .._math.cast import is_integer as is_integer
from ..errors import ArgumentError
from .model import Model, require_one_robot
from .names import described
from .parameters import (
    Parameter as Parameter,
    as_array as as_array,
    entries as entries,
    floats as floats,
    names as names,
    parameter as parameter,
    pose_parameter as pose_parameter,
    real_array as real_array,
    require as require,
    require_direction as require_direction,
    require_flag as require_flag,
    require_function as require_function,
    require_not_negative as require_not_negative,
    require_type as require_type,
    sequence as sequence,
    text as text,
)


def configuration(model: Model, q: ArrayLike, name: str = "q") -> Array:
    """`q` as an array (nq,) of the model's dtype.

    Raises ArgumentError for another shape or dtype, and if `model` is no Model.
    """
    return array(model, q, name, (robot(model).nq,), "nq")


def velocity(model: Model, v: ArrayLike, name: str = "v") -> Array:
    """`v`, or another vector over the degrees of freedom, as an array (nv,).

    Errors as in `configuration`.
    """
    return array(model, v, name, (robot(model).nv,), "nv")


def wrenches(model: Model, f_ext: ArrayLike, name: str = "f_ext") -> Array:
    """Spatial forces, one per body, as an array (nb, 6); errors as in `configuration`."""
    return array(model, f_ext, name, (robot(model).nb, 6), "nb, 6")


def array(model: Model, x: ArrayLike, name: str, shape: tuple[int, ...], sizes: str) -> Array:
    """`x` as an array of the given shape and of the model's dtype.

    `sizes`: the shape in symbols, such as "nb, 6", for the message. Errors as in `configuration`.
    """
    x = _given(robot(model), x, name)
    if x.shape != shape:
        hint = "; batch with jax.vmap" if x.ndim > len(shape) else ""
        raise ArgumentError(
            f"{name} has shape {x.shape}, expected {shape} ({sizes}) for {model!r}{hint}"
        )
    if x.dtype != model.dtype:
        raise ArgumentError(
            f"{name} of shape {x.shape} has dtype {x.dtype}, expected {model.dtype} for {model!r}; "
            f"cast it, or cast the model with model.astype"
        )
    return x


def number(model: Model, x: ArrayLike, name: str) -> Array:
    """`x` as an array () of the model's dtype; errors as in `configuration`, and for a bool."""
    x = _given(robot(model), x, name)
    return array(model, real_array(x, name, model.dtype), name, (), "a number")


def robot(model: Model, place: str = "the first argument", *, batch: bool = False) -> Model:
    """`model`, if it is the Model of one robot; else raises ArgumentError.

    `place`: the words for the argument in the message; `batch`: whether the arrays of the model may
    have leading axes.
    """
    if isinstance(model, Model):
        if not batch:
            require_one_robot(model)
        return model
    raise ArgumentError(f"{place} is {described(model)}, expected the Model of a robot")


def _given(model: Model, x: Any, name: str) -> Array:
    """`x` as an array. Raises ArgumentError for a Model, which a caller may have passed twice."""
    if isinstance(x, Model):
        raise ArgumentError(f"{name} is {x!r}, expected an array; the model was given before")
    return as_array(x, name)


def frame_index(model: Model, frame: str | int) -> int:
    """`Model.frame_index`, for a model that is checked to be a Model."""
    return robot(model).frame_index(frame)


REFERENCES = ("local", "world", "local_world_aligned")


def reference_frame(reference: str) -> str:
    """`reference`, if it is in `REFERENCES`; else raises ArgumentError."""
    if reference not in REFERENCES:
        raise ArgumentError(f"reference is {reference!r}, expected one of {REFERENCES}")
    return reference


# ------------------------------------------------------------------------------ checks of values


def require_finite(name: str, values: np.ndarray) -> None:
    """Raise ArgumentError, which names the values, if an entry is infinite or NaN."""
    if not np.all(np.isfinite(values)):
        raise ArgumentError(f"{name} is {values}, expected finite entries")


def require_callable(name: str, f: Any, call: str) -> None:
    """Raise ArgumentError if f is no function, or if it cannot be called as in `call`."""
    require_function(f, name, "a function")
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):  # some functions of compiled modules have no signature
        return
    try:
        signature.bind(*call.split(","))
    except TypeError:
        raise ArgumentError(
            f"{name} has the arguments {signature}, expected the call {name}{call}"
        ) from None


def require_counts(*, least: int = 1, **values: Any) -> None:
    """Raise ArgumentError, which names the value, unless each is an integer of `least` or more."""
    for name, count in values.items():
        if not is_integer(count) or count < least:
            raise ArgumentError(f"{name} is {count!r}, expected an integer of {least} or more")


def random_key(seed: Any) -> PRNGKeyArray:
    """The random key of a seed, an integer of 64 bits, also where the integers of JAX have 32 bits.

    Raises ArgumentError for another object.
    """
    if not is_integer(seed) or not -(2**63) <= seed < 2**63:
        raise ArgumentError(f"seed is {seed!r}, expected an integer of 64 bits")
    if -(2**31) <= seed < 2**32:
        return jax.random.key(int(seed))
    with jax.enable_x64(True):  # otherwise JAX ignores the upper 32 bits
        return jax.random.key(int(seed))


def typed_keys(keys: ArrayLike, name: str, axes: int) -> Array:
    """`keys` as keys of `jax.random.key`; `keys` may also be keys of `jax.random.PRNGKey`.

    `axes`: the number of axes of the keys. Raises ArgumentError for other arrays, and for keys with
    another number of axes.
    """
    keys = as_array(keys, name)
    typed = keys
    if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        try:
            typed = jax.random.wrap_key_data(keys)
        except TypeError:
            typed = None
    if typed is None or typed.ndim != axes:
        expected = (
            "keys (n,) of jax.random.split(jax.random.key(seed), n)"
            if axes
            else "one key of jax.random.key(seed)"
        )
        raise ArgumentError(
            f"{name} has shape {keys.shape} and dtype {keys.dtype}, expected {expected}"
        )
    return typed


def known(x: Any) -> np.ndarray | None:
    """The values of an argument, if they can be read without a transfer; else None.

    The values of scalars, sequences of scalars, NumPy arrays and JAX arrays in the memory of a CPU
    can be read (the call waits until JAX has computed the array). The values of a tracer (under
    `jit`, `vmap` or `grad`) are unknown. An array on another device is not read, because every call
    would wait for the device. An array that is spread over several processes is not read either.
    """
    if isinstance(x, Array):
        if isinstance(x, Tracer) or not x.is_fully_addressable:
            return None
        return np.asarray(x) if next(iter(x.devices())).platform == "cpu" else None
    if isinstance(x, (np.ndarray, np.generic, int, float)):
        return np.asarray(x)
    if isinstance(x, (list, tuple)) and all(isinstance(number, (int, float)) for number in x):
        return np.asarray(x)
    return None


class Requirement(NamedTuple):
    """A condition on a scalar argument. Only arrays of shape () are tested.

    - `expected`: the condition in words, for the message;
    - `holds`: whether a NumPy or JAX array () satisfies the condition.
    """

    expected: str
    holds: Callable[[Any], Any]

    def __call__(self, name: str, values: np.ndarray, model: Any = None) -> None:
        """Raise ArgumentError if the scalar does not satisfy the condition, or is NaN."""
        if values.shape == () and values.dtype.kind in "fiu" and not self.holds(values):
            raise ArgumentError(f"{name} is {values}, expected {self.expected}")

    def check_known(self, name: str, x: Any) -> None:
        """Raise ArgumentError as `__call__` does, if `known` can read the value of x."""
        values = known(x)
        if values is not None:
            self(name, values)

    def or_nan(self, x: Array) -> Array:
        """`x` with NaN in place of each value that does not satisfy the condition.

        It is for traced values, which cannot raise an error.
        """
        return jnp.where(self.holds(x), x, jnp.nan)


POSITIVE = Requirement("a finite number above 0", lambda x: (x > 0) & (x < np.inf))
FINITE = Requirement("finite", np.isfinite)
NOT_NEGATIVE = Requirement("0 or more", lambda x: x >= 0)
FINITE_NOT_NEGATIVE = Requirement("finite, 0 or more", lambda x: (x >= 0) & (x < np.inf))
FRACTION = Requirement("a number from 0 to 1", lambda x: (x >= 0) & (x <= 1))


def nonzero_quaternions(name: str, values: np.ndarray, model: Any) -> None:
    """Raise ArgumentError if a quaternion in a configuration (nq,) is zero.

    Quaternions of any other length are valid, because the joints normalize them. An array of
    another shape or dtype raises nothing here: the function `configuration` refuses it.
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


# `Model.quaternions` of each model. The key is the id of the model, because a look-up by the
# structure of the model would take longer than the rest of the check.
_quaternion_cache: dict[int, tuple[weakref.ref, tuple[tuple[str, int], ...]]] = {}


def _quaternions(model: Model) -> tuple[tuple[str, int], ...]:
    """`model.quaternions`, computed once per model."""
    key = id(model)
    entry = _quaternion_cache.get(key)
    if entry is None or entry[0]() is not model:
        entry = weakref.ref(model, lambda _: _quaternion_cache.pop(key, None)), model.quaternions
        _quaternion_cache[key] = entry
    return entry[1]


# In every `compiled` function, a parameter with one of these names is a configuration.
CONFIGURATIONS = ("q", "q0", "q1")

Check = Callable[[str, np.ndarray, Any], None]


class Compiled:
    """A jitted function that checks the values of its arguments at each call; see `compiled`."""

    # These are not in __dict__, because JAX copies __dict__ to transformed functions (jit, vmap,
    # grad).
    __slots__ = ("__dict__", "__weakref__", "_checks", "_jitted", "_static", "unchecked")
    __qualname__: str
    __wrapped__: Callable

    def __init__(
        self,
        function: Callable,
        jitted: Any,
        unchecked: Any,
        checks: Iterable[tuple[int, str, Check]],
        static: Mapping[str, int],
    ) -> None:
        functools.update_wrapper(self, function)
        self._jitted, self.unchecked, self._checks = jitted, unchecked, []
        for place, whole_name, check in checks:
            name, *attributes = whole_name.split(".")
            self._checks.append((place, name, attributes, whole_name, check))
        self._static = static

    def __call__(self, *args, **kwargs):
        for place, name, attributes, whole_name, check in self._checks:
            given = args[place] if place < len(args) else kwargs.get(name)
            for attribute in attributes:
                given = getattr(given, attribute, None)
            values = known(given)
            if values is not None:
                check(whole_name, values, args[0] if args else kwargs.get("model"))
        if self._static:
            args, kwargs = self._with_tuples(args, kwargs)
        try:
            return self._jitted(*args, **kwargs)
        except (TypeError, ValueError):  # a ValueError for a static argument without a hash
            self._require_types(args, kwargs)
            raise

    def _require_types(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Raise ArgumentError for an argument of a type that JAX refuses.

        These are arguments that contain objects other than arrays, and static arguments without a
        hash. JAX refuses them before the function can check them.
        """
        names = [*inspect.signature(self.__wrapped__).parameters]
        for name, x in [*zip(names, args), *kwargs.items()]:
            if name in self._static:
                try:
                    hash(x)
                except TypeError:
                    raise ArgumentError(f"{name} is {x!r}, expected names or numbers") from None
                continue
            others = [leaf for leaf in jax.tree.leaves(x) if not is_array(leaf)]
            if others:
                if name == "model":
                    robot(x)
                verb = "is" if others[0] is x else "contains"
                message = f"{name} {verb} {described(others[0])}, expected arrays"
                raise ArgumentError(message) from None

    def _with_tuples(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments, with tuples in place of lists that are static: JAX cannot hash a list."""
        places = self._static.values()
        args = tuple(_tuple(x) if i in places else x for i, x in enumerate(args))
        return args, {k: _tuple(x) if k in self._static else x for k, x in kwargs.items()}

    def lower(self, *args, **kwargs):
        """`lower` of the jitted function, without checks of values."""
        return self._jitted.lower(*args, **kwargs)

    def trace(self, *args, **kwargs):
        """`trace` of the jitted function, without checks of values."""
        return self._jitted.trace(*args, **kwargs)

    def eval_shape(self, *args, **kwargs):
        """`eval_shape` of the jitted function, without checks of values."""
        return self._jitted.eval_shape(*args, **kwargs)

    def __reduce__(self):
        return self.__qualname__  # pickled by name, as functions are

    def __repr__(self):
        return repr(self.__wrapped__)


def is_array(x: Any) -> bool:
    """Whether x is an array or a number of JAX, NumPy or Python."""
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.kind in "biufcV"
    return isinstance(x, (Array, bool, int, float, complex)) or hasattr(x, "__jax_array__")


def _tuple(x: Any) -> Any:
    return tuple(x) if isinstance(x, list) else x


# The checks of shapes and dtypes, by the name of the parameter.
ARRAYS: dict[str, Callable[..., Array]] = {
    **dict.fromkeys((*CONFIGURATIONS, "rate"), configuration),
    **dict.fromkeys(("v", "a", "tau", "dv", "dx", "u", "w", "x", "weights"), velocity),
    "f_ext": wrenches,
}


def _with_arrays(function: Callable, names: Sequence[str]) -> Callable:
    """The function, whose arguments with these names are checked and become arrays."""
    parameters = inspect.signature(function).parameters
    places = {name: list(parameters).index(name) for name in names}
    # The functions that accept a `Kinematics` state this in the annotation of the parameter.
    may_be_kinematics = {n for n in names if "Kinematics" in str(parameters[n].annotation)}

    def array_of(name: str, x: Any, model: Any) -> Any:
        if x is None and parameters[name].default is None:
            return None
        if x is None or not hasattr(x, "X_PB"):
            return ARRAYS[name](model, x, name)
        if name not in may_be_kinematics:
            raise ArgumentError(
                f"{name} is a Kinematics, expected an array; a Kinematics has the attribute q"
            )
        # The configuration in a `Kinematics` was checked when the poses were computed.
        found, expected = (x.q.shape, x.X_PB.p.shape), ((robot(model).nq,), (model.nb, 3))
        if found != expected:
            raise ArgumentError(
                f"{name} is a Kinematics with q of shape {found[0]} and positions of bodies of "
                f"shape {found[1]}, expected {expected[0]} and {expected[1]} for {model!r}"
                f"{'; batch with jax.vmap' if x.q.ndim > 1 else ''}"
            )
        return x

    @functools.wraps(function)
    def checked(*args, **kwargs):
        given, model = list(args), args[0] if args else kwargs.get("model")
        for name, place in places.items():
            if place < len(given):
                given[place] = array_of(name, given[place], model)
            elif name in kwargs:
                kwargs[name] = array_of(name, kwargs[name], model)
        return function(*given, **kwargs)

    return checked


def compiled(
    function: Callable | None = None,
    *,
    arrays: Sequence[str] = (),
    static_argnames: str | Iterable[str] = (),
    checks: Mapping[str, Check] | None = None,
) -> Any:
    """`jax.jit` of a public function, with checks of its arguments.

    - `arrays`: names of parameters in `ARRAYS`. While JAX traces, their shapes and dtypes are
      checked, and they become arrays, before the function is called. So the type of these
      parameters is `Array`, and callers may pass any `ArrayLike`. An optional argument may be None.
      A parameter may be a `Kinematics` if its annotation says so. The attribute `unchecked` of the
      result is `jax.jit` of the function, for arguments that are already checked;
    - `static_argnames`: as for `jax.jit`; a list becomes a tuple;
    - `checks`: maps the name of a parameter, or of an attribute of it as in "servo.position", to a
      check, which is a `Requirement` or another function of (name, values, model) that raises
      ArgumentError. The check is called before the compiled function, if `known` can read the
      values. The default check of a parameter in `CONFIGURATIONS` is `nonzero_quaternions`.

    The result has the methods of a jitted function (`lower`, `trace`, `eval_shape`).
    """
    if function is None:
        return functools.partial(
            compiled, arrays=arrays, static_argnames=static_argnames, checks=checks
        )
    unchecked: Any = jax.jit(function, static_argnames=static_argnames)
    jitted = unchecked
    if arrays:
        jitted = jax.jit(_with_arrays(function, arrays), static_argnames=static_argnames)
    places = {name: place for place, name in enumerate(inspect.signature(function).parameters)}
    named_checks: dict[str, Check] = {n: nonzero_quaternions for n in CONFIGURATIONS if n in places}
    named_checks.update(checks or {})
    placed_checks = [
        (places[name.split(".")[0]], name, check) for name, check in named_checks.items()
    ]
    names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
    static = {name: places[name] for name in names}
    return Compiled(function, jitted, unchecked, placed_checks, static)
