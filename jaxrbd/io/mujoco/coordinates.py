"""The map between the coordinates of MuJoCo and of jaxrbd."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ... import so3
from ..._math.components import cross
from ..._math.linear import matmul
from ...errors import ArgumentError
from ...model import Model, arguments
from ...model.joint_space import (
    entries_of_all_joints,
    independent_entries,
    independent_joint_force,
    joint_coordinates,
    joint_rate_derivatives,
    joint_rates,
)
from ...spatial import Pose, inverse_rotate, rotate
from .source import Source


class MujocoCoordinates(eqx.Module):
    """The map between the coordinates of MuJoCo and of a model of `from_mujoco`.

    The names of methods are the names of their results: `qpos`, `qvel`, `qacc` and `qfrc` have the
    order and axes of MuJoCo, and `q`, `v`, `a` and `tau` have the order and axes of jaxrbd. All
    methods are pure functions for `jit`, `vmap` and `grad`. `model` is the model of the same
    import, with any values of its parameters. They raise ArgumentError for a model whose joints
    have another number of coordinates or velocities.

    The differences are:

    - a quaternion is wxyz in MuJoCo and xyzw in jaxrbd;
    - the linear velocity of a free joint is the velocity of the origin of the body. It has world
      axes in MuJoCo and body axes in jaxrbd. The angular velocity has body axes in both;
    - the linear acceleration of a free joint is the classical acceleration of the origin in MuJoCo.
      It is `R (a + w x v)`, with the spatial acceleration `[a; alpha]` of jaxrbd and the rotation R
      of the body;
    - joints that follow others (`mimic=True`) have entries in MuJoCo, and none in jaxrbd;
    - the order of the joints can differ.

    `v`, `a`, `tau` and `mass_matrix` need the configuration, as q or as MuJoCo's `qpos`. Both have
    the same length for most robots, so `qpos` in the place of q raises no error. Pass `qpos` by its
    name, as in `coordinates.v(model, qpos=qpos, qvel=qvel)`.

    Static fields: `q_index` (nq_mujoco,) and `v_index` (nv_mujoco,) are the indices in MuJoCo of
    the coordinates and velocities of all joints of the model, in the order of the model. `free` has
    two positions for each free joint: of its quaternion in `q_index`, and of its first velocity in
    `v_index`.
    """

    q_index: tuple[int, ...] = eqx.field(static=True)
    v_index: tuple[int, ...] = eqx.field(static=True)
    free: tuple[tuple[int, int], ...] = eqx.field(static=True)

    # ------------------------------------------------------------------------------- to MuJoCo

    def qpos(self, model: Model, q: ArrayLike) -> Float[Array, " nq_mujoco"]:
        """MuJoCo's configuration for q (nq,)."""
        return joint_coordinates(model, arguments.configuration(model, q))[self._places(model, "q")]

    def qvel(self, model: Model, q: ArrayLike, v: ArrayLike) -> Float[Array, " nv_mujoco"]:
        """MuJoCo's velocity for q (nq,) and v (nv,)."""
        q, v = arguments.configuration(model, q), arguments.velocity(model, v)
        return self._world_axes(model, q, joint_rates(model, q, v))[self._places(model, "v")]

    def qacc(
        self, model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike
    ) -> Float[Array, " nv_mujoco"]:
        """MuJoCo's acceleration for q (nq,), v (nv,) and a (nv,)."""
        q, v = arguments.configuration(model, q), arguments.velocity(model, v)
        rates = joint_rate_derivatives(model, q, v, arguments.velocity(model, a, "a"))
        classical = rates + self._cross_products(joint_rates(model, q, v))
        return self._world_axes(model, q, classical)[self._places(model, "v")]

    def qfrc(self, model: Model, q: ArrayLike, tau: ArrayLike) -> Float[Array, " nv_mujoco"]:
        """A generalized force of MuJoCo for q (nq,) and tau (nv,).

        The force of joints that follow others is zero.
        """
        q, tau = arguments.configuration(model, q), arguments.velocity(model, tau, "tau")
        tau = entries_of_all_joints(model, tau, "v")
        return self._world_axes(model, q, tau)[self._places(model, "v")]

    def mujoco_mass_matrix(
        self, model: Model, q: ArrayLike, M: ArrayLike
    ) -> Float[Array, "nv_mujoco nv_mujoco"]:
        """MuJoCo's mass matrix for q (nq,) and M (nv, nv).

        Raises ArgumentError if joints of the model follow others, because M has no entries for
        these joints.
        """
        q = arguments.configuration(model, q)
        M = arguments.array(model, M, "M", (model.nv, model.nv), "nv, nv")
        if model.coupling is not None:
            raise ArgumentError(f"joints of {model!r} follow others: M lacks their entries")
        half = self._world_axes(model, q, M)
        index = self._places(model, "v")
        return self._world_axes(model, q, half.T)[index][:, index]

    # ----------------------------------------------------------------------------- from MuJoCo

    def q(self, model: Model, qpos: ArrayLike) -> Float[Array, " nq"]:
        """The configuration (nq,) for MuJoCo's configuration."""
        all_joints = self._of_all_joints(model, qpos, "qpos", "q")
        return independent_entries(model, all_joints, "q")

    def v(
        self,
        model: Model,
        q: ArrayLike | None = None,
        qvel: ArrayLike | None = None,
        *,
        qpos: ArrayLike | None = None,
    ) -> Float[Array, " nv"]:
        """The velocity (nv,) for q (nq,), or `qpos` instead of q, and MuJoCo's velocity.

        Raises ArgumentError unless exactly one of q and `qpos` is given.
        """
        q, qvel = self._configuration(model, q, qpos), _given(qvel, "qvel")
        all_joints = self._of_all_joints(model, qvel, "qvel", "v")
        return independent_entries(model, self._body_axes(model, q, all_joints), "v")

    def a(
        self,
        model: Model,
        q: ArrayLike | None = None,
        v: ArrayLike | None = None,
        qacc: ArrayLike | None = None,
        *,
        qpos: ArrayLike | None = None,
        qvel: ArrayLike | None = None,
    ) -> Float[Array, " nv"]:
        """The acceleration (nv,) for q (nq,), v (nv,) and MuJoCo's acceleration.

        `qpos` may replace q, and `qvel` may replace v. Raises ArgumentError unless exactly one of
        each pair is given.
        """
        q, qacc = self._configuration(model, q, qpos), _given(qacc, "qacc")
        _exactly_one(v, qvel, "v", "qvel")
        v = self.v(model, q, qvel) if v is None else arguments.velocity(model, v)
        all_joints = self._of_all_joints(model, qacc, "qacc", "v")
        classical = self._body_axes(model, q, all_joints)
        rates = classical - self._cross_products(joint_rates(model, q, v))
        return independent_entries(model, rates, "v")

    def tau(
        self,
        model: Model,
        q: ArrayLike | None = None,
        qfrc: ArrayLike | None = None,
        *,
        qpos: ArrayLike | None = None,
    ) -> Float[Array, " nv"]:
        """The generalized force (nv,) for q (nq,), or `qpos`, and a generalized force of MuJoCo.

        The forces of joints that follow others are mapped to the joints that they follow. Raises
        ArgumentError unless exactly one of q and `qpos` is given.
        """
        q, qfrc = self._configuration(model, q, qpos), _given(qfrc, "qfrc")
        all_joints = self._of_all_joints(model, qfrc, "qfrc", "v")
        return independent_joint_force(model, q, self._body_axes(model, q, all_joints))

    def mass_matrix(
        self,
        model: Model,
        q: ArrayLike | None = None,
        M_mujoco: ArrayLike | None = None,
        *,
        qpos: ArrayLike | None = None,
    ) -> Float[Array, "nv nv"]:
        """The mass matrix (nv, nv) for q (nq,), or `qpos`, and MuJoCo's mass matrix (`mj_fullM`).

        Raises ArgumentError unless exactly one of q and `qpos` is given.
        """
        q, M_mujoco = self._configuration(model, q, qpos), _given(M_mujoco, "M_mujoco")
        n, index = len(self.v_index), self._index(model, "v")
        M = arguments.array(model, M_mujoco, "M_mujoco", (n, n), "nv_mujoco, nv_mujoco")
        half = self._body_axes(model, q, M[index][:, index])
        M = self._body_axes(model, q, half.T)
        return independent_joint_force(model, q, independent_joint_force(model, q, M).T)

    def _configuration(self, model: Model, q: ArrayLike | None, qpos: ArrayLike | None) -> Array:
        _exactly_one(q, qpos, "q", "qpos")
        if q is not None:
            return arguments.configuration(model, q)
        return self.q(model, _given(qpos, "qpos"))

    # -------------------------------------------------------------------------- order of entries

    def _index(self, model: Model, space: str) -> np.ndarray:
        """`q_index` or `v_index` (`space`: "q" or "v"), for a model with as many entries."""
        index = np.array(self.q_index if space == "q" else self.v_index, int)
        topology = arguments.robot(model).topology
        size = topology.nq if space == "q" else sum(model.joint_nvs)
        if size != len(index):
            what = "coordinates" if space == "q" else "velocities"
            raise ArgumentError(
                f"the joints of {model!r} have {size} {what}, expected {len(index)} as in MuJoCo"
            )
        return index

    def _places(self, model: Model, space: str) -> np.ndarray:
        """For each entry of MuJoCo, its index among the entries of all joints of the model."""
        return np.argsort(self._index(model, space))

    def _of_all_joints(self, model: Model, x: ArrayLike, name: str, space: str) -> Array:
        """The entries of an array of MuJoCo, in the order of all joints of the model."""
        index = self._index(model, space)
        return arguments.array(model, x, name, index.shape, f"the length of MuJoCo's {name}")[index]

    # ------------------------------------------------------------------------------ free joints

    def _rotations(self, model: Model, q: Array) -> Float[Array, "n 3 3"]:
        start = np.array([place for place, _ in self.free], int)[:, None] + np.arange(4)
        return so3.quaternion_to_matrix(joint_coordinates(model, q)[start])

    def _velocity_indices(self, offset: int = 0) -> np.ndarray:
        """The indices (n, 3) of the linear (`offset` 0) or angular (3) parts of the free joints."""
        return np.array([first for _, first in self.free], int)[:, None] + offset + np.arange(3)

    def _world_axes(self, model: Model, q: Array, x: Array) -> Array:
        """`x` (nv_mujoco, ...), with the linear parts of the free joints in world axes."""
        if not self.free:
            return x
        R, index = self._rotations(model, q), self._velocity_indices()
        return x.at[index].set(matmul(R, x[index]) if x.ndim > 1 else rotate(R, x[index]))

    def _body_axes(self, model: Model, q: Array, x: Array) -> Array:
        """The inverse of `_world_axes`."""
        if not self.free:
            return x
        R, index = self._rotations(model, q), self._velocity_indices()
        if x.ndim > 1:
            return x.at[index].set(matmul(jnp.swapaxes(R, 1, 2), x[index]))
        return x.at[index].set(inverse_rotate(R, x[index]))

    def _cross_products(self, rates: Array) -> Array:
        """`w x v` in the linear parts of the free joints, and zero elsewhere."""
        if not self.free:
            return jnp.zeros_like(rates)
        linear, angular = (rates[self._velocity_indices(k)] for k in (0, 3))
        return jnp.zeros_like(rates).at[self._velocity_indices()].set(cross(angular, linear))


class MujocoPose(NamedTuple):
    """A pose as in MuJoCo: the position `xpos` (3,) in m and the quaternion `xquat` (4,) wxyz."""

    xpos: Float[Array, "... 3"]
    xquat: Float[Array, "... 4"]


def mujoco_pose(X: Pose) -> MujocoPose:
    """The position and the quaternion wxyz of a pose. Leading axes are allowed."""
    arguments.require_type(X, "X", Pose)
    return MujocoPose(X.p, jnp.roll(so3.quaternion_from_matrix(X.R), 1, axis=-1))


def pose_from_mujoco(xpos: Float[ArrayLike, "... 3"], xquat: Float[ArrayLike, "... 4"]) -> Pose:
    """The pose with a position (3,) in m and a quaternion (4,) wxyz. Leading axes are allowed.

    Raises ArgumentError for other shapes, and for entries that are not finite.
    """
    p = _as_floats(arguments.as_array(xpos, "xpos"))
    wxyz = _as_floats(arguments.as_array(xquat, "xquat"))
    if p.shape[-1:] != (3,) or wxyz.shape != (*p.shape[:-1], 4):
        raise ArgumentError(
            f"xpos has shape {p.shape} and xquat {wxyz.shape}, expected (..., 3) and (..., 4)"
        )
    for name, x in (("xpos", p), ("xquat", wxyz)):
        arguments.require(x, np.isfinite, name, "finite")
    return Pose(so3.quaternion_to_matrix(jnp.roll(wxyz, -1, axis=-1)), p)


def _as_floats(x: Array) -> Array:
    """The array; integers as floats of JAX's default dtype."""
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)


def read_coordinates(source: Source, model: Model) -> MujocoCoordinates:
    """The map for a model that has all joints of the source."""
    m, joint_ids = source.m, {name: joint for joint, name in enumerate(source.joints)}
    q_index, v_index, free = [], [], []
    for name in model.joint_names:
        joint = joint_ids[name]
        if source.is_free(joint):
            free.append((len(q_index) + 3, len(v_index)))
        q, v = int(m.jnt_qposadr[joint]), int(m.jnt_dofadr[joint])
        if source.is_scalar(joint):
            width, order = 1, [0]
        elif source.is_free(joint):
            width, order = 6, [0, 1, 2, 4, 5, 6, 3]
        else:
            width, order = 3, [1, 2, 3, 0]
        q_index += [q + k for k in order]
        v_index += [v + k for k in range(width)]
    return MujocoCoordinates(tuple(q_index), tuple(v_index), tuple(free))


def _given(x: ArrayLike | None, name: str) -> ArrayLike:
    if x is None:
        raise ArgumentError(f"{name} is missing")
    return x


def _exactly_one(x: ArrayLike | None, y: ArrayLike | None, x_name: str, y_name: str) -> None:
    if (x is None) == (y is None):
        found = "neither" if x is None else "both"
        raise ArgumentError(f"expected one of {x_name} and {y_name}, found {found}")
