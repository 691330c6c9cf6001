"""The mass matrix and the bias force together, with one backward pass for both."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..model import Model
from ..model.joint_space import armature_and_dissipation_force, independent_force
from ..spatial import apply_inertia, gyroscopic_force, transform_force, transform_inertia
from .common_frame import accelerations, subtree_sums, velocities
from .crba import mass_matrix
from .kinematics import Kinematics, configuration_and_poses
from .rnea import gravity_acceleration


class EquationOfMotion(NamedTuple):
    """The terms of `M a + bias = tau`, and the dof columns that give Jacobians.

    - `M` (nv, nv), `bias` (nv,): as from `crba` and `bias_force`;
    - `columns` (nv_tree, 6): the dof columns in the frame of `root_centred`.
    """

    M: Float[Array, "nv nv"]
    bias: Float[Array, " nv"]
    columns: Float[Array, "nv_tree 6"]


def equation_of_motion(
    model: Model,
    q: Array | Kinematics,
    v: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> EquationOfMotion:
    """M and the bias force with fewer kernels than by `crba` and `bias_force`.

    Arguments as for `bias_force`. The composite inertias give M. The composite forces at zero
    acceleration give the bias force. One backward pass computes both.
    Source: Featherstone, tables 5.1 and 6.2.
    """
    q, X = configuration_and_poses(model, q)
    zero = jnp.zeros_like(v)
    inertia = transform_inertia(X, model.inertia)
    velocity = velocities(model, X, q, v)
    A, _ = accelerations(model, q, v, zero, velocity, gravity_acceleration(model))
    force = apply_inertia(inertia, A) + gyroscopic_force(inertia, velocity.V)
    if f_ext is not None:
        force = force - transform_force(X, f_ext)
    composite_inertia, composite_force = subtree_sums(model, inertia, force)
    M = mass_matrix(model, q, velocity.J, apply_inertia(composite_inertia, velocity.J))
    bias = independent_force(model, q, jnp.sum(velocity.J * composite_force, axis=-1))
    bias = bias + armature_and_dissipation_force(model, q, v, zero)
    return EquationOfMotion(M, bias, velocity.J)
