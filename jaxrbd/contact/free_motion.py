"""The free rotation of root bodies in a time step, so that a spinning robot gains no energy.

Without forces, the linear momentum of a robot and its angular momentum L about the centre of mass
are constant in world axes. In the axes of a body that rotates with w, they rotate with -w. A
first-order step adds dt times the rate at the start of the step. So the norms of the momenta grow
in each step, and the kinetic energy grows. For each root body on a free-flyer or a ball joint, this
module corrects the step by terms of the order dt^2.

The correction is exact for a single rigid body. A tree of several bodies counts as one rigid body
in the neutral configuration, because with the inertia at q the gradient of a step would need about
120 more kernels. Let I be the rotational inertia of this body about its centre of mass or, for a
ball joint, about the joint. The angular velocity w' after a step without forces follows from the
implicit midpoint rule, in the axes of the body:

    I (w' - w) = -dt w_m x I w_m,     w_m = (w + w') / 2.

The rule preserves the kinetic energy. In the axes of the body, it turns L about -w_m by the angle
`2 atan(dt |w_m| / 2)`. The step turns the root body about w_m by the same angle, so L stays
constant in world axes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.components import Mat3, Vec3, cross
from .._math.linear import matmul
from .._math.rows import merge_rows, take_rows
from .._math.rules import implicit_root
from ..algorithms.common_frame import body_inertias
from ..algorithms.kinematics import forward_kinematics, root_centred
from ..configuration import displace, neutral, transport, turning_acceleration
from ..model import Model, arguments
from ..model.joint_space import independent_index
from ..model.model import joint_groups
from ..so3 import quaternion_exp, quaternion_rotate
from ..spatial import Pose, inertia_to_com, inverse_rotate, inverse_transform_inertia, rotate

# With three iterations of Newton's method, a body that turns by 1.2 rad in each step keeps its
# energy to 1e-6 per step. The length of L does not depend on the iterations.
ITERATIONS = 3


class FreeMotion(NamedTuple):
    """The free motion of k root bodies in a step; vectors are in the axes of the body.

    - `start` (nv,): the velocity v plus a correction, in the axes before the step. The acceleration
      at v, times dt, changes `start` to the velocity after the free step;
    - `centre` (k, 3) in m: the centre of mass of the tree, or zero for a ball joint;
    - `lag` (k, 3) in rad: the rotation vector of the body in the free step, minus `dt w'`.
    """

    start: Float[Array, " nv"]
    centre: Float[Array, "k 3"]
    lag: Float[Array, "k 3"]


class _Roots(NamedTuple):
    """The k root bodies on free-flyers and ball joints, and the indices of their velocities in v.

    - `bodies` (k,), and `free` (k,): whether the joint is a free-flyer;
    - `linear`, `angular` (k, 3): the indices; for a ball joint, `linear` is nv.
    """

    bodies: np.ndarray
    free: np.ndarray
    linear: np.ndarray
    angular: np.ndarray

    def spread(self, model: Model, linear: Array, angular: Array) -> Array:
        """Values (k, 3) of the linear and the angular velocities as a vector (nv,)."""
        places = np.concatenate([self.linear[self.free].ravel(), self.angular.ravel()])
        rest = np.setdiff1d(np.arange(model.nv), places)
        parts = [linear[np.flatnonzero(self.free)].ravel(), angular.ravel()]
        parts.append(jnp.zeros(len(rest), model.dtype))
        return merge_rows(parts, [places, rest], (), model.dtype)


def _roots(model: Model) -> _Roots:
    """The root bodies of the model on free-flyers and ball joints that follow no other joint."""
    parents = model.topology.parents
    place = {int(i): n for n, i in enumerate(independent_index(model, "v"))}
    found = []
    for group in joint_groups(model):
        for body, index in zip(group.bodies, group.index["v"]):
            if group.joint.angular is None or parents[body] >= 0 or int(index[0]) not in place:
                continue
            dofs = [place[int(i)] for i in index]
            free = len(dofs) == 6
            found.append((body, free, dofs[:3] if free else [model.nv] * 3, dofs[-3:]))
    found = sorted(found, key=lambda root: root[0])
    bodies, free, linear, angular = ([root[i] for root in found] for i in range(4))
    return _Roots(
        np.array(bodies, int),
        np.array(free, bool),
        np.array(linear, int).reshape(-1, 3),
        np.array(angular, int).reshape(-1, 3),
    )


def tree_inertias(model: Model) -> Float[Array, "k 10"]:
    """The inertia of the tree of each root body, in the frame of the body.

    The tree is one rigid body in the neutral configuration.
    """
    roots, topology = _roots(model), model.topology
    trees = topology.supports[roots.bodies]
    if np.all(trees.sum(axis=1) == 1):
        return take_rows(model.inertia, roots.bodies)
    X = root_centred(forward_kinematics.unchecked(model, neutral(model)))
    sums = matmul(jnp.asarray(trees, model.dtype), body_inertias(model, X))
    R = take_rows(X.R, roots.bodies)
    return inverse_transform_inertia(Pose(R, jnp.zeros_like(R[..., 0])), sums)


def free_motion(
    model: Model,
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
    inertias: ArrayLike | None,
) -> FreeMotion:
    """The free motion of the root bodies from the velocity v, in a step of dt seconds.

    `inertias` (k, 10): from `tree_inertias`, or None, which computes them.
    """
    roots, turning = _roots(model), dt * turning_acceleration.unchecked(model, v)
    if inertias is not None:
        inertias, shape = jnp.asarray(inertias), (len(roots.bodies), 10)
        inertias = arguments.array(model, inertias, "inverse_inertia.trees", shape, "k, 10")
    if not len(roots.bodies):
        none = jnp.zeros((0, 3), model.dtype)
        return FreeMotion(v + turning, none, none)
    inertias = tree_inertias(model) if inertias is None else inertias
    I, r = _about_centre(inertias, roots)
    w = Vec3.from_array(take_rows(v, roots.angular))
    gain, rotation = _free_step(I, w, dt)
    # The gyroscopic force at v changes w by `-dt I^-1 (w x I w)`.
    angular = gain + dt * (_inverse(I) @ w.cross(I @ w))
    # The linear velocity of the centre of mass, `v + w x r`, does not change. The acceleration at v
    # also changes the linear velocity v of the body by `-dt w x (w x r)`.
    linear = dt * w.cross(w.cross(r)) - angular.cross(r)
    lag = rotation - dt * (w + gain)
    start = v + turning + roots.spread(model, linear.array(), angular.array())
    return FreeMotion(start, r.array(), lag.array())


def move(
    model: Model,
    motion: FreeMotion,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The configuration after a step with the velocity v, and v in the axes after the step.

    A root body turns about the centre of mass of the tree, by `dt w + lag`.
    """
    roots, dx = _roots(model), dt * v
    if not len(roots.bodies):
        return displace.unchecked(model, q, dx), transport.unchecked(model, v, dx)
    w, r = take_rows(v, roots.angular), motion.centre
    turn = quaternion_exp(dt * w + motion.lag)
    orbit = cross(w, r)  # the velocity of the centre of mass relative to the origin
    shift = dt * orbit + r - quaternion_rotate(turn, r)
    change = orbit - quaternion_rotate(turn, orbit)
    dx = dx + roots.spread(model, shift, motion.lag)
    v = v + roots.spread(model, change, jnp.zeros_like(change))
    return displace.unchecked(model, q, dx), transport.unchecked(model, v, dx)


def _about_centre(inertias: Array, roots: _Roots) -> tuple[Mat3, Vec3]:
    """The rotational inertia about the centre of mass or the ball joint, and this centre."""
    kept = np.ones((len(roots.free), 10))
    kept[~roots.free, 1:4] = 0  # without first moments, the centre is the ball joint
    _, centre, I = inertia_to_com(jnp.asarray(kept, inertias.dtype) * inertias)
    return Mat3.from_array(I), Vec3.from_array(centre)


def _free_step(I: Mat3, w: Vec3, dt: Array) -> tuple[Vec3, Vec3]:
    """The change `w' - w` and the rotation vector of the body in a free step."""

    def residual(gain: Vec3, I: Mat3, w: Vec3, dt: Array) -> Vec3:
        middle = w + 0.5 * gain
        return I @ gain + dt * middle.cross(I @ middle)

    I_0, dt_0 = Mat3.from_array(lax.stop_gradient(I.array())), lax.stop_gradient(dt)
    w_0 = Vec3.from_array(lax.stop_gradient(w.array()))

    def inverse_slope(gain: Vec3) -> Mat3:
        middle = w_0 + 0.5 * gain
        slope = Mat3.skew(middle) @ I_0 - Mat3.skew(I_0 @ middle)
        return _inverse(I_0 + Mat3(*(dt_0 / 2 * row for row in slope.rows)))

    def newton(gain, _):
        x = Vec3.from_array(gain)
        return (x - inverse_slope(x) @ residual(x, I_0, w_0, dt_0)).array(), None

    found = Vec3.from_array(lax.scan(newton, jnp.zeros_like(w_0.array()), length=ITERATIONS)[0])
    # The rotation of the free step turns L. So the length of L is exact, whatever the error of the
    # iterations is.
    half, L = dt_0 / 2 * (w_0 + 0.5 * found), I_0 @ w_0
    turned = half.cross(half.cross(L) - L)
    value = (_inverse(I_0) @ (2 / (1 + half.dot(half)) * turned)).array()

    def solve_tangent(linear, b):
        inverse = inverse_slope(Vec3.from_array(value)).array()
        return lax.custom_linear_solve(
            linear, b, lambda _, b: rotate(inverse, b), lambda _, b: inverse_rotate(inverse, b)
        )

    # JAX differentiates the equation of the midpoint rule, and not the iterations.
    gain = implicit_root(
        lambda gain: residual(Vec3.from_array(gain), I, w, dt).array(),
        lambda: value,
        solve_tangent,
    )
    gain = Vec3.from_array(gain)
    middle = w + 0.5 * gain
    return gain, dt * _arc(dt * dt / 4 * middle.dot(middle)) * middle


def _arc(square: Array) -> Array:
    """`atan(x) / x` for the square of x."""
    small = square < 1e-5
    x = jnp.sqrt(jnp.where(small, 1, square))
    return jnp.where(small, 1 - square / 3 + square**2 / 5, jnp.arctan(x) / x)


def _inverse(A: Mat3) -> Mat3:
    """The inverse of A; zero if A is singular, as the inertia of a point on a ball joint."""
    first, second, third = A.rows
    size = abs(first.x) + abs(second.y) + abs(third.z)
    a, b, c = (1 / jnp.where(size > 0, size, 1) * row for row in A.rows)
    bc, ca, ab = b.cross(c), c.cross(a), a.cross(b)
    determinant = a.dot(bc)
    regular = abs(determinant) > 10 * jnp.finfo(determinant.dtype).eps
    scale = jnp.where(regular, 1 / jnp.where(regular, determinant * size, 1), 0)
    return Mat3(scale * bc, scale * ca, scale * ab).T
