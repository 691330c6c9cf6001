"""The mass matrix and the bias force together, with one backward pass for both."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..model import Model
from ..model.joint_space import armature_and_dissipation_force, independent_force
from ..spatial import Pose, apply_inertia, transform_force
from ..tree import map_rows, sum_to_root
from .common_frame import (
    Velocities,
    body_accelerations,
    body_inertias,
    body_quantities,
    velocities,
)
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
    f_common = None if f_ext is None else transform_force(X, f_ext)
    terms = equation_terms(model, q, X, v, f_common)
    return EquationOfMotion(terms.M, terms.bias, terms.velocity.J)


class EquationTerms(NamedTuple):
    """M and the bias force, and the quantities that give them.

    - `M` (nv, nv), `bias` (nv,): as from `crba` and `bias_force`;
    - `velocity`, `acceleration`: from `velocities`, and from `body_accelerations` for a = 0;
    - `sums` (nb, n): the sums of the `body_quantities` over the subtrees;
    - `F` (nv_tree, 6): the composite force of each dof per unit of its acceleration.
    """

    M: Array
    bias: Array
    velocity: Velocities
    acceleration: tuple[Array, Array]
    sums: Array
    F: Array


def equation_terms(
    model: Model,
    q: Array,
    X: Pose,
    v: Array,
    f_common: Array | None,
    moments: bool = False,
    few_kernels: bool = False,
) -> EquationTerms:
    """The `EquationTerms`, for poses X of the bodies in the common frame.

    `f_common` (nb, 6): external forces in this frame, or None; `moments`: as in `body_quantities`;
    `few_kernels`: as in `sum_to_leaves`.
    """
    zero, gravity = jnp.zeros_like(v), gravity_acceleration(model)
    velocity = velocities(model, X, q, v, few_kernels)
    acceleration = body_accelerations(model, q, v, zero, velocity, gravity, few_kernels)
    inertia = body_inertias(model, X)
    bodies = body_quantities(inertia, velocity.V, acceleration[0], f_common, moments)
    sums = sum_to_root(model.topology, bodies)

    def column_and_force(row, J):
        return apply_inertia(row[..., :10], J), jnp.sum(J * row[..., -6:], axis=-1)

    F, force = map_rows(column_and_force, sums, velocity.J, indices=(model.topology.dof_body,))
    M = mass_matrix(model, q, velocity.J, F)
    bias = independent_force(model, q, force)
    bias = bias + armature_and_dissipation_force(model, q, v, zero)
    return EquationTerms(M, bias, velocity, acceleration, sums, F)
