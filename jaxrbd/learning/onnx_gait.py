"""The joint positions of a gait as operators of ONNX: the formulas of `plain_gait.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .plain_gait import GaitConstants


def add_gait_center(
    add: Callable[..., str],
    constant: Callable[..., str],
    arrays: Mapping[str, np.ndarray],
    observation: str,
) -> str:
    """The name of the output (batch, k) of nodes that compute `plain_gait.gait_center`.

    `add(operator, *inputs, **attributes)` adds a node, and `constant(value)` a constant; both
    return the name of the result. `arrays`: of `controller_arrays`; `observation` (batch, m): the
    name of the observation. All operators are in version 13 of the operators of ONNX, in float32.
    """
    gait = GaitConstants.of(arrays)

    def number(x: Any) -> str:
        return constant(np.asarray(x, np.float32))

    def plus(a: str, b: str) -> str:
        return add("Add", a, b)

    def minus(a: str, b: str) -> str:
        return add("Sub", a, b)

    def times(a: str, b: str) -> str:
        return add("Mul", a, b)

    def columns(indices: Any) -> str:
        return add("Gather", observation, constant(np.asarray(indices, np.int64)), axis=1)

    def with_axis(x: str, axis: int) -> str:
        return add("Unsqueeze", x, constant(np.array([axis])))

    def total(x: str, axis: int) -> str:
        return add("ReduceSum", x, constant(np.array([axis])), keepdims=0)

    zero, one, half_one = number(0), number(1), number(0.5)
    velocity, rate = columns(gait.command[:2]), columns(gait.command[2:])
    sine, cosine = (columns([i]) for i in gait.clock)
    half = plus(times(_angle(add, number, sine, cosine), number(1 / np.pi)), number(gait.advance))
    half = minus(half, times(add("Floor", times(half, half_one)), number(2)))
    second = add("GreaterOrEqual", half, one)
    s = minus(half, add("Where", second, one, zero))
    # The motion of the base.
    middle = minus(s, half_one)
    angle = times(middle, number(gait.angle))
    progress = times(add("Sinh", angle), number(gait.progress))
    nearness = minus(one, times(add("Cosh", angle), number(gait.sway)))
    away = add("Where", second, number(-gait.to_early), number(gait.to_early))
    sway = times(away, nearness)
    # The motion of the feet.
    swings = add("Xor", second, constant(gait.early[None]))
    swing = minus(times(times(s, s), minus(number(6), times(number(4), s))), one)
    lead = add("Where", swings, swing, zero)
    sine_of_swing = add("Sin", times(s, number(np.pi)))
    rise = add("Where", swings, times(sine_of_swing, sine_of_swing), zero)
    by_turning = times(with_axis(rate, 2), number(gait.turned))
    length = times(plus(with_axis(velocity, 1), by_turning), number(gait.half_period))
    level = plus(times(with_axis(minus(lead, progress), 2), length), with_axis(sway, 1))
    height = with_axis(times(rise, number(gait.height)), 2)
    displacement = add("Concat", level, height, axis=2)
    turn = times(times(minus(lead, middle), rate), number(gait.half_period))
    # Between the points of the grid, the joint positions are interpolated linearly.
    place = times(minus(displacement, number(gait.low)), number(gait.density))
    place = add("Max", add("Min", place, number(gait.cells)), zero)
    corner = add("Min", add("Floor", place), number(gait.cells - 1))
    fraction = with_axis(minus(place, corner), 2)
    first_row = with_axis(total(times(corner, number(gait.strides)), 2), 2)
    rows = add("Cast", plus(first_row, number(gait.offsets)), to=7)  # 7: int64
    factors = plus(times(fraction, number(gait.slopes)), number(gait.starts))
    weights = with_axis(add("ReduceProd", factors, axes=[3], keepdims=0), 3)
    corners = add("Gather", number(gait.positions), rows, axis=0)
    postures = plus(
        total(times(weights, corners), 2), times(with_axis(turn, 2), number(gait.turning))
    )
    return plus(total(times(number(gait.legs), postures), 1), number(gait.others))


def _angle(add: Callable[..., str], number: Callable[[Any], str], sine: str, cosine: str) -> str:
    """The angle in rad between -pi and 3 pi / 2 with a sine and a cosine; ONNX has no arctan2.

    Where the sine is larger, the angle is `pi / 2 - atan(cosine / sine)` or its negative.
    """
    zero = number(0)
    wide = add("GreaterOrEqual", add("Abs", cosine), add("Abs", sine))
    ratio = add(
        "Div",
        add("Where", wide, sine, add("Neg", cosine)),
        add("Where", wide, cosine, sine),
    )
    left = add("Where", add("Less", cosine, zero), number(np.pi), zero)
    below = add("Less", sine, zero)
    upright = add("Where", below, number(-np.pi / 2), number(np.pi / 2))
    return add("Add", add("Atan", ratio), add("Where", wide, left, upright))
