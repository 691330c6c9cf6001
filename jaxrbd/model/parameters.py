"""Checks of the parameters of pytrees other than the model, for example of the sizes of shapes.

The module `arguments` has the same names, for modules that import `arguments` anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from .._math.cast import real_values
from ..errors import ArgumentError
from ..spatial import Pose
from .names import described

# A parameter of a pytree: an array of JAX, or a constant whose dtype is not chosen yet.
Parameter = Array | np.ndarray
# The lengths of the axes of an array. None or a symbol such as "p" means any length.
Shape = tuple[int | str | None, ...]


def parameter(x: ArrayLike | Sequence, name: str, *shapes: Shape) -> Parameter:
    """A parameter of a pytree as an array of floats; constants stay in float64.

    A function that uses the parameter casts it to the model's dtype. `shapes`: the shapes that the
    array may have, where None or a symbol such as "p" means any length; without `shapes`, every
    shape is accepted. A list may contain numbers that JAX traces. Raises ArgumentError for another
    shape, for lists of different lengths, for texts, bools and complex values, for ints that are
    too large, and for a JAX array whose dtype is not floating.
    """
    try:
        array = _with_tracers(x)
        array = real_values(x) if array is None else array
    except OverflowError:
        raise ArgumentError(f"{name} has a number that is too large for a float") from None
    if array is None:
        raise ArgumentError(f"{name} is {x!r}, expected an array of floats")
    fits = not shapes or any(_fits(array.shape, shape) for shape in shapes)
    if not fits or not jnp.issubdtype(array.dtype, jnp.floating):
        sizes = " or ".join(map(_in_symbols, shapes))
        expected = f"{sizes} of floats" if sizes else "floats"
        raise ArgumentError(
            f"{name} has shape {array.shape} and dtype {array.dtype}, expected {expected}"
        )
    return array


def _with_tracers(x: Any) -> Array | None:
    """x as an array of JAX, if it is one or if it is a list with arrays that JAX traces."""
    if isinstance(x, Array):
        return x
    if isinstance(x, list | tuple) and any(isinstance(y, Tracer) for y in jax.tree.leaves(x)):
        try:
            return jnp.asarray(x)
        except (TypeError, ValueError):  # texts, or lists of several lengths
            pass
    return None


def as_array(x: ArrayLike | Sequence, name: str) -> Array:
    """`x` as an array of JAX.

    Raises ArgumentError for texts, None, other objects, and lists of different lengths.
    """
    try:
        if not isinstance(x, str):  # JAX would take some texts for names of dtypes
            return jnp.asarray(x)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ArgumentError(f"{name} is {x!r}, expected an array")


def floats(x: ArrayLike | Sequence, name: str, shape: tuple[int, ...]) -> Array:
    """`x` as an array of JAX.

    Raises ArgumentError for another shape, and for a dtype that is not floating.
    """
    array = as_array(x, name)
    if array.shape != shape or not jnp.issubdtype(array.dtype, jnp.floating):
        raise ArgumentError(
            f"{name} has shape {array.shape} and dtype {array.dtype}, expected {shape} of floats"
        )
    return array


def real_array(x: ArrayLike | Sequence, name: str, dtype: Any) -> Array:
    """`x` as an array of JAX of the given dtype.

    Raises ArgumentError as `as_array`, and for complex numbers and truth values.
    """
    array = as_array(x, name)
    if jnp.iscomplexobj(array) or array.dtype == bool:
        raise ArgumentError(f"{name} has dtype {array.dtype}, expected real numbers")
    return array.astype(dtype)


def _fits(found: tuple[int, ...], shape: Shape) -> bool:
    return len(found) == len(shape) and all(
        n is None or isinstance(n, str) or n == m for n, m in zip(shape, found)
    )


def _in_symbols(shape: Shape) -> str:
    """A shape for a message; for example "(n, 3)" for (None, 3)."""
    return str(tuple("n" if n is None else n for n in shape)).replace("'", "")


def text(x: str, name: str) -> str:
    """The text. Raises ArgumentError for another object."""
    if not isinstance(x, str):
        raise ArgumentError(f"{name} is {x!r}, expected a name")
    return x


def entries(x: Any) -> tuple[Any, ...] | None:
    """The entries of a sequence, or None for a text, a mapping and an object without entries."""
    try:
        return None if isinstance(x, str | Mapping) else tuple(x)
    except TypeError:
        return None


def sequence(x: Any, what: str, kind: str) -> tuple[Any, ...]:
    """The entries of a sequence as a tuple. Raises ArgumentError for another object.

    A text and a mapping are no sequences here.

    For the message, `what` names the sequence, and `kind` says what its entries are.
    """
    found = entries(x)
    if found is None:
        given = described(x) if isinstance(x, Array) else repr(x)
        raise ArgumentError(f"{what} is {given}, expected a sequence of {kind}")
    return found


def require_type(x: Any, name: str, kind: type) -> None:
    """Raise ArgumentError, which names the argument x, if it is no object of this class."""
    if not isinstance(x, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ArgumentError(f"{name} is {described(x)}, expected {article} {kind.__name__}")


def require_flag(x: Any, name: str) -> None:
    """Raise ArgumentError, which names the argument, unless x is True or False."""
    if not isinstance(x, bool | np.bool_):
        raise ArgumentError(f"{name} is {x!r}, expected True or False")


def require_function(x: Any, name: str, expected: str) -> None:
    """Raise ArgumentError, which names the argument x, if it is no function."""
    if not callable(x):
        given = described(x) if isinstance(x, Array) else repr(x)
        raise ArgumentError(f"{name} is {given}, expected {expected}")


def names(x: Sequence[str] | None, what: str) -> tuple[str, ...]:
    """A sequence of names as a tuple. Raises ArgumentError for None and other objects.

    `what`: the name of the argument.
    """
    found = sequence(x, what, "names")
    for name in found:
        if not isinstance(name, str):
            raise ArgumentError(f"{what} has the entry {name!r}, expected a name")
    return tuple(map(str, found))


def pose_parameter(X: Pose, name: str, place: str = "") -> Pose:
    """A pose of a pytree with entries from `parameter`.

    A message names the entries `name`.R and `name`.p; `place` says where they belong. Raises
    ArgumentError for an object other than a Pose and for other shapes. Unless JAX traces the
    entries, raises ArgumentError for a position that is not finite, and for a matrix that is no
    rotation to 1e-4, which a product of many rotations in float32 satisfies.
    """
    place = place and f" {place}"
    if not isinstance(X, Pose):
        raise ArgumentError(f"{name}{place} is {described(X)}, expected a Pose")
    R = parameter(X.R, f"{name}.R{place}", (3, 3))
    p = parameter(X.p, f"{name}.p{place}", (3,))
    require(p, np.isfinite, f"{name}.p{place}", "finite")
    require(R, are_rotations, f"{name}.R{place}", "a rotation matrix")
    constants: Any = R, p  # NumPy arrays stay, until the dtype of the model is known
    return Pose(*constants)


def are_rotations(R: np.ndarray) -> bool:
    """Whether all matrices of R (..., 3, 3) are rotations, to 1e-4 per entry of `R R^T`.

    The matrices may be in float32. For descriptions in float64, `joints.is_rotation` has a smaller
    tolerance.
    """
    exact = np.asarray(R, float)
    if not np.all(np.isfinite(exact)):
        return False
    x, y, z = np.moveaxis(exact, -2, 0)
    is_orthogonal = np.abs(exact @ exact.mT - np.eye(3)) < 1e-4
    return bool(np.all(is_orthogonal) and np.all(np.sum(np.cross(x, y) * z, axis=-1) > 0))


def is_symmetric(x: np.ndarray) -> bool:
    """Whether a matrix is symmetric, to the rounding errors of float32; True for entries of NaN."""
    return not np.any(np.abs(x - x.T) > 1e-6 * np.max(np.abs(x), initial=0))


def require_direction(x: Parameter, name: str) -> None:
    """Raise ArgumentError for a vector that is zero or not finite, unless JAX traces it."""
    require(x, lambda x: np.all(np.isfinite(x)) and np.any(x), name, "a direction, not zero")


def require_not_negative(x: Parameter, name: str) -> None:
    """Raise ArgumentError for an entry that is negative or not finite, unless JAX traces x."""
    require(x, lambda x: (x >= 0) & np.isfinite(x), name, "finite, 0 or more")


def require(x: Parameter, test: Callable[[np.ndarray], Any], name: str, expected: str) -> None:
    """Raise ArgumentError if the values of a parameter fail a test, unless JAX traces them.

    `test`: whether each entry, or the array as a whole, is right; `expected`: the same in words.
    """
    if not isinstance(x, Tracer) and not np.all(test(np.asarray(x))):
        raise ArgumentError(f"{name} is {x}, expected {expected}")
