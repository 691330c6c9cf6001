"""Regressors: forces and energies as linear functions of the inertial parameters.

The parameters are `model.inertia.ravel()`, (10 nb,). A regressor does not depend on the values of
the parameters.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul
from .._math.ranks import plus
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import independent_force, motion_subspace, relative_velocities
from ..spatial import Pose, cross_force, inertia_regressor, inverse_rotate, transform_force
from ..tree import propagate
from .common_frame import dof_columns, row_products
from .kinematics import (
    Kinematics,
    configuration_of,
    forward_kinematics,
    motions,
    poses_in_parents,
    root_centred,
)
from .rnea import gravity_acceleration


@arguments.compiled
def body_regressor(V: ArrayLike, A: ArrayLike) -> Float[Array, "... 6 10"]:
    """Regressor Y of one rigid body, (..., 6, 10): `Y @ inertia = I A + V x* (I V)`.

    `V`, `A` (..., 6): spatial velocity `[v; w]` and acceleration of the body, in m/s, rad/s, m/s^2
    and rad/s^2, in the frame of the inertia; leading axes are broadcast.
    Source: Featherstone (5.9), as a matrix times the inertial parameters; Atkeson, An and
    Hollerbach (1986).
    """
    V, A = _spatial_vector("V", V), _spatial_vector("A", A)
    if V.dtype != A.dtype:
        raise ArgumentError(f"V has dtype {V.dtype} and A has {A.dtype}, expected the same dtype")
    try:
        np.broadcast_shapes(V.shape, A.shape)
    except ValueError:
        raise ArgumentError(
            f"V has shape {V.shape} and A has {A.shape}, expected shapes that broadcast"
        ) from None
    # (..., 10, 6): for a unit of each parameter
    momenta = jnp.swapaxes(inertia_regressor(V), -1, -2)
    rates = jnp.swapaxes(cross_force(V[..., None, :], momenta), -1, -2)
    return plus(inertia_regressor(A), rates)


@arguments.compiled(arrays=("q", "v", "a"))
def joint_torque_regressor(
    model: Model, q: Array | Kinematics, v: Array, a: Array
) -> Float[Array, "nv parameters"]:
    """Regressor Y of inverse dynamics, (nv, 10 nb), without the armature.

    `Y @ model.inertia.ravel() = rnea(model, q, v, a)` for a model without armature and dissipation.
    `q` (nq,) or its `Kinematics`, `v` (nv,), `a` (nv,). The entries are in N or N m per unit of the
    parameter, and include gravity. With the columns of S and the body regressors in world axes, the
    block of Y for one dof and one body is `S^T Y_body` if the dof supports the body, else zero.
    Source: Atkeson, An and Hollerbach (1986).
    """
    kinematics = forward_kinematics.unchecked(model, q)
    topology = model.topology
    V, A = motions(model, kinematics, v, a, gravity_acceleration(model))
    X = root_centred(kinematics)
    forces = transform_force(  # (nb, 10, 6), for a unit of each parameter, in world axes
        Pose(X.R[:, None], X.p[:, None]), jnp.swapaxes(body_regressor(V, A), -1, -2)
    )
    Y = row_products(dof_columns(model, X), forces.reshape(-1, 6))
    supports = np.repeat(topology.supports[topology.dof_body], 10, axis=1)
    return independent_force(model, kinematics.q, jnp.where(supports, Y, 0))


def regressor_bounds(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, "nv parameters"]:
    """Bounds on the sizes of the entries of `joint_torque_regressor`, (nv, 10 nb).

    A bound has the unit of its entry. Each entry is a sum of terms; the terms and the placements in
    them are rounded. So an entry much smaller than its bound has few correct digits. An entry for a
    dof of the tree is the power `f . (v_J + w_J x (p - p0)) + n . w_J`: [f; n] is the force on the
    body with origin p for a unit of the parameter, and [v_J; w_J] is the motion column of the dof,
    whose body has the origin p0. The bound is the largest value of this power over all directions
    of the six vectors, at their given lengths: `|v_J| |f| + |w_J| |n| + |w_J| |f| (|p| + |p0|)`.
    Positions are relative to the root body of the tree. `|G^T|` maps the bounds for the dofs of the
    tree to bounds for the entries of v.
    """
    topology = model.topology
    kinematics = forward_kinematics.unchecked(model, q)
    V, A = motions(model, kinematics, v, a, gravity_acceleration(model))
    forces = body_regressor(V, A)  # (nb, 6, 10)
    f, n = (jnp.linalg.norm(x, axis=1).ravel() for x in (forces[:, :3], forces[:, 3:]))
    p = jnp.linalg.norm(root_centred(kinematics).p, axis=-1)
    S, bodies = motion_subspace(model), topology.dof_body
    linear, angular = (jnp.linalg.norm(x, axis=1)[:, None] for x in (S[:, :3], S[:, 3:]))
    reach = p[bodies][:, None] + jnp.repeat(p, 10)[None]
    f, n = f[None], n[None]
    rows = linear * f + angular * (n + f * reach)
    rows = jnp.where(np.repeat(topology.supports[bodies], 10, axis=1), rows, 0)
    if model.velocity_map_is_identity:
        return rows
    G_transposed = independent_force(model, q, jnp.eye(len(S), dtype=model.dtype))
    return matmul(jnp.abs(G_transposed), rows)


@arguments.compiled(arrays=("q", "v"))
def kinetic_energy_regressor(
    model: Model, q: Array | Kinematics, v: Array
) -> Float[Array, " parameters"]:
    """Regressor y of the kinetic energy, (10 nb,), without the armature.

    `y @ model.inertia.ravel() = kinetic_energy(model, q, v)` for a model without armature.
    `q` (nq,) or its `Kinematics`, `v` (nv,). The entries are in J per unit of the parameter.
    Source: Featherstone (2.67), linear in the inertia.
    """
    X = poses_in_parents(model, q)
    q = configuration_of(q)
    V = propagate(model.topology, X, relative_velocities(model, q, v))
    return jnp.sum(V[:, :, None] * inertia_regressor(V), axis=1).ravel() / 2


@arguments.compiled(arrays=("q",))
def potential_energy_regressor(model: Model, q: Array | Kinematics) -> Float[Array, " parameters"]:
    """Regressor y of the potential energy, (10 nb,).

    `y @ model.inertia.ravel() = potential_energy(model, q)`. `q` (nq,) or its `Kinematics`. The
    entries are in J per unit of the parameter. For a body with the world pose (R, p), the entry of
    the mass is `-g . p`, the entries of the first moments of mass are `-R^T g`, and the entries of
    the rotational inertia are zero.
    """
    X_WB = forward_kinematics.unchecked(model, q).X_WB
    by_mass = -jnp.sum(X_WB.p * model.gravity[None], axis=-1, keepdims=True)
    by_moment = -inverse_rotate(X_WB.R, model.gravity)
    by_rotation = jnp.zeros((model.nb, 6), model.dtype)
    return jnp.concatenate([by_mass, by_moment, by_rotation], axis=-1).ravel()


def _spatial_vector(name: str, given: ArrayLike) -> Array:
    """A spatial vector (..., 6) of a floating dtype."""
    x = arguments.as_array(given, name)
    if x.shape[-1:] != (6,):
        raise ArgumentError(f"{name} has shape {x.shape}, expected (..., 6)")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ArgumentError(f"{name} has dtype {x.dtype}, expected a floating dtype")
    return x
