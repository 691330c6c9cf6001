"""Random parameters for each environment of a batch, and batches of different robots."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import PRNGKeyArray

from .._math.cast import stacked
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.model import joint_kinds
from .environment import Params

# Draws another value of a leaf: a function of a key and the usual value.
Distribution = Callable[[PRNGKeyArray, Array], Array]


class _Bounded(eqx.Module):
    """A distribution with a lower and an upper bound."""

    low: ArrayLike
    high: ArrayLike

    def __check_init__(self):
        for name in ("low", "high"):
            bound = arguments.parameter(getattr(self, name), name)
            arguments.require(bound, np.isfinite, name, "finite")
        values = [arguments.known(x) for x in (self.low, self.high)]
        if values[0] is not None and values[1] is not None and not np.all(values[0] <= values[1]):
            raise ArgumentError(f"low is {self.low} and high is {self.high}, expected low <= high")
        arguments.require_flag(getattr(self, "per_row", False), "per_row")

    def _draw(
        self, key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any, widest: tuple[int, ...] = ()
    ) -> Array:
        """An array of this shape with uniform random entries between the bounds.

        `widest`: the shape to which the shapes of the bounds must broadcast.
        """
        for name in ("low", "high"):
            found = np.shape(getattr(self, name))
            pairs = zip(found[::-1], widest[::-1])
            if len(found) > len(widest) or any(n not in (1, m) for n, m in pairs):
                raise ArgumentError(
                    f"{name} of {type(self).__name__} has shape {found}, expected {widest}"
                )
        values = [arguments.known(x) for x in (self.low, self.high)]
        if values[0] is not None and values[1] is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                width = values[1].astype(dtype) - values[0].astype(dtype)
            if not np.all(np.isfinite(width)):
                raise ArgumentError(
                    f"low is {self.low} and high is {self.high}, expected a difference that "
                    f"{jnp.dtype(dtype).name} can represent"
                )
        low, high = (jnp.asarray(bound, dtype) for bound in (self.low, self.high))
        return low + (high - low) * jax.random.uniform(key, shape, dtype)


class Uniform(_Bounded):
    """The distribution of values from `low` to `high`, whatever the usual value is.

    The call `Uniform(low, high)(key, x)` returns an array of the shape of x. The shapes of `low`
    and `high` must broadcast to the shape of x. Each entry is drawn independently.
    """

    def __call__(self, key: PRNGKeyArray, x: Array) -> Array:
        """A random array of the shape and dtype of x."""
        x = _floats(x)
        return self._draw(key, x.shape, x.dtype, x.shape)


class Scale(_Bounded):
    """The distribution of the usual value times a factor from `low` to `high`.

    `low`, `high`: (). With `per_row`, each row x[i] has another factor; otherwise all entries have
    the same factor. For example, `Scale(0.8, 1.2, per_row=True)` for "model.inertia" changes the
    mass of each body and keeps its centre of mass.
    """

    per_row: bool = eqx.field(static=True, default=False)

    def __call__(self, key: PRNGKeyArray, x: Array) -> Array:
        """The array x, scaled."""
        x = _floats(x)
        return x * self._draw(key, _draws_shape(x, self.per_row), x.dtype)


class Shift(_Bounded):
    """The distribution of the usual value plus a shift from `low` to `high`.

    `low`, `high`: (). With `per_row`, each row x[i] has another shift.
    """

    per_row: bool = eqx.field(static=True, default=False)

    def __call__(self, key: PRNGKeyArray, x: Array) -> Array:
        """The array x, shifted."""
        x = _floats(x)
        return x + self._draw(key, _draws_shape(x, self.per_row), x.dtype)


class Randomised(NamedTuple):
    """Parameters of n environments.

    - `params`: the parameters; the randomised leaves have a first axis of size n;
    - `axes`: the same structure, with 0 for the randomised leaves and None for the others: the
      argument `params_axes` of `vectorize`.
    """

    params: Params
    axes: Any


def randomise(
    params: Params, distributions: Mapping[str, Distribution], key: PRNGKeyArray, size: int
) -> Randomised:
    """The parameters of `size` environments, with random values for the named leaves.

    - `params`: the parameters of one environment;
    - `distributions`: maps the name of a leaf to its distribution. A name is the path of the leaf
      in `params`, such as "model.inertia", "scene.material.friction" or "model.joints[0].axis". A
      distribution is a `Uniform`, `Scale`, `Shift` or another function of a key and the usual
      value, which returns an array of the same shape and dtype. `jax.vmap` maps it over one key per
      environment;
    - `key`: a key of `jax.random`. The values of a leaf do not depend on the names of other leaves.

    The other leaves are shared by all environments, so they take no more memory. The result may
    also be computed inside of `jax.jit`. Raises ArgumentError for a name that is no leaf of floats,
    and for a distribution that gives another shape or dtype.
    """
    arguments.require_counts(size=size)
    key = arguments.typed_keys(key, "key", 0)
    axes = jax.tree.map(lambda _: None, params)
    if not isinstance(distributions, Mapping):
        raise ArgumentError(f"distributions is {distributions!r}, expected a mapping from names")
    arguments.names(tuple(distributions), "distributions")
    for name, distribution in distributions.items():
        x = _leaf(params, name)
        if not callable(distribution):
            raise ArgumentError(
                f"the distribution of {name!r} is {distribution!r}, expected a Uniform, Scale, "
                f"Shift or a function of a key and an array"
            )
        code = int.from_bytes(name.encode()) % (2**31 - 1)
        keys = jax.random.split(jax.random.fold_in(key, code), size)
        drawn = jax.eval_shape(distribution, keys[0], x)
        if not isinstance(drawn, jax.ShapeDtypeStruct):
            raise ArgumentError(f"the distribution of {name!r} gives {drawn!r}, expected an array")
        if (drawn.shape, drawn.dtype) != (x.shape, x.dtype):
            raise ArgumentError(
                f"the distribution of {name!r} gives shape {drawn.shape} and dtype {drawn.dtype}, "
                f"expected {x.shape} and {x.dtype}"
            )
        values = jax.vmap(distribution, (0, None))(keys, x)
        params = _replaced(params, name, values)
        axes = _replaced(axes, name, 0)
    return Randomised(params, axes)


def stack_models(models: Sequence[Model]) -> Model:
    """The robots as one model, whose arrays have a first axis: an argument of `vmap`.

    The robots have the same structure: the same joints, bodies and frames in the same order, with
    the same names, and the same dtype. Their parameters differ. The result has the name of the
    first robot. Raises ArgumentError, which names the first difference, for other robots:
    `jaxrbd.padded.pad` takes robots of different structure.
    """
    robots = arguments.entries(models)
    if not robots:
        raise ArgumentError(f"models is {models!r}, expected a sequence of one robot or more")
    first, *others = (arguments.robot(model, f"models[{i}]") for i, model in enumerate(robots))
    for i, model in enumerate(others, 1):
        _check_same_structure(first, model, i)
    renamed = [dataclasses.replace(model, name=first.name) for model in robots]
    return stacked(renamed)


def _check_same_structure(first: Model, model: Model, i: int) -> None:
    """Raise ArgumentError, which names the first difference, if the structures differ."""
    for field in ("joint_names", "body_names", "frame_names", "frame_bodies", "dissipative"):
        _check_equal(i, field, getattr(model, field), getattr(first, field))
    _check_equal(i, "topology.parents", tuple(model.topology.parents), first.topology.parents)
    kinds = zip(first.joint_names, joint_kinds(model), joint_kinds(first))
    for name, found, expected in kinds:
        if found is not expected:
            raise ArgumentError(
                f"joint {name!r} of models[{i}] is {found.__name__}, expected {expected.__name__} "
                f"as in models[0]"
            )
    leaves, expected_leaves = (jax.tree_util.tree_leaves_with_path(m) for m in (model, first))
    for (path, x), (_, expected) in zip(leaves, expected_leaves):
        found, wanted = (x.shape, x.dtype), (expected.shape, expected.dtype)
        if found != wanted:
            name = jax.tree_util.keystr(path).lstrip(".")
            raise ArgumentError(
                f"{name} of models[{i}] has shape {found[0]} and dtype {found[1]}, expected "
                f"{wanted[0]} and {wanted[1]} as in models[0]"
            )
    renamed = dataclasses.replace(model, name=first.name)
    found, expected = (jax.tree.structure(m) for m in (renamed, first))
    if found != expected:
        raise ArgumentError(
            f"models[{i}] differs from models[0] in the coupling of joints or in the functions of "
            f"joints, expected the same structure"
        )


def _check_equal(i: int, field: str, found: Any, expected: Any) -> None:
    """Raise ArgumentError, which names the first difference, if a field of models[i] differs."""
    if found == expected:
        return
    if not isinstance(expected, tuple):
        raise ArgumentError(
            f"{field} of models[{i}] is {found!r}, expected {expected!r} as in models[0]"
        )
    if len(found) != len(expected):
        raise ArgumentError(
            f"models[{i}] has {len(found)} {field}, expected {len(expected)} as in models[0]"
        )
    place = next(k for k, (x, y) in enumerate(zip(found, expected)) if x != y)
    raise ArgumentError(
        f"{field}[{place}] of models[{i}] is {found[place]!r}, expected {expected[place]!r} as in "
        f"models[0]"
    )


# ------------------------------------------------------------------------------ leaves by name

_STEP = re.compile(r"([A-Za-z_]\w*)|\[(0|[1-9]\d*)\]")


def _path(name: str) -> list[str | int]:
    """The attributes, keys and indices of a name such as "model.joints[0].axis"."""
    steps, place = [], 0
    while place < len(name):
        dotted = bool(steps) and name[place] == "."
        found = _STEP.match(name, place + dotted)
        # A dot stands before each name but the first one, and before no index.
        if not found or (bool(steps) and dotted != (found[1] is not None)):
            raise ArgumentError(f"{name!r} is no name of a parameter, such as 'model.inertia'")
        steps.append(found[1] if found[2] is None else int(found[2]))
        place = found.end()
    return steps


def _child(owner: Any, step: str | int) -> Any:
    if isinstance(owner, Mapping) or isinstance(step, int):
        return owner[step]
    return getattr(owner, step)


def _leaf(params: Params, name: str) -> Array:
    """The named leaf as an array."""
    x = params
    for step in _path(name):
        try:
            if isinstance(x, Array | np.ndarray):
                raise TypeError("an array is a leaf")
            x = _child(x, step)
        except (AttributeError, KeyError, IndexError, TypeError):
            raise ArgumentError(
                f"params has no {name!r}: {type(x).__name__} has no {step!r}, expected one of "
                f"{', '.join(_names(x))}"
            ) from None
    if not isinstance(x, Array | np.ndarray) or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ArgumentError(
            f"{name!r} is {type(x).__name__!r}, expected an array of floats in params"
        )
    return jnp.asarray(x)


def _names(x: Any) -> list[str]:
    """The names that a path can have after x."""
    if isinstance(x, Mapping):
        return [str(key) for key in x]
    if hasattr(x, "_fields"):
        return list(x._fields)
    if dataclasses.is_dataclass(x):
        return [field.name for field in dataclasses.fields(x)]
    return [f"[{i}]" for i in range(len(x))] if isinstance(x, tuple | list) else ["nothing"]


def _replaced(params: Params, name: str, value: Any) -> Params:
    """The parameters with another value of the named leaf."""
    steps = _path(name)

    def where(tree: Any) -> Any:
        for step in steps:
            tree = _child(tree, step)
        return tree

    return eqx.tree_at(where, params, value, is_leaf=lambda x: x is None)


def _floats(x: ArrayLike) -> Array:
    """x as an array of JAX. Raises ArgumentError for another object than an array of floats."""
    x = arguments.as_array(x, "x")
    return arguments.floats(x, "x", x.shape)


def _draws_shape(x: Array, per_row: bool) -> tuple[int, ...]:
    """The shape of the random numbers for x: (), or (n, 1, ...) for x with n rows."""
    if per_row and not x.ndim:
        raise ArgumentError("per_row is True, expected False for a number, which has no rows")
    return (x.shape[0], *(1,) * (x.ndim - 1)) if per_row else ()
