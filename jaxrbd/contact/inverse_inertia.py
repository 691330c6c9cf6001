"""The inverse inertia of a robot at its contacts and joints.

In a contact step, R is `regularisation` times these values; `softness.py` has the R of soft
contacts and limits.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._math.linear import einsum, inverse_positive_definite, matmul
from ..algorithms.common_frame import dof_columns
from ..algorithms.crba import crba
from ..algorithms.kinematics import forward_kinematics, root_centred
from ..configuration import integrate, neutral
from ..model import Model, arguments
from ..model.joint_space import joint_rates
from .contacts import contact_bodies, reference_spheres, relative
from .free_motion import tree_inertias
from .points import point_jacobians
from .scene import InverseInertias, Scene, scene_for

# The distance in rad and m of a second configuration from the neutral configuration. If a value at
# the neutral configuration is smaller than the fraction _SINGULAR of the value at the second
# configuration, the value at the second configuration is used.
_NEARBY, _SINGULAR = 0.1, 1e-4


@arguments.compiled
def inverse_inertias(model: Model, scene: Scene) -> InverseInertias:
    """The inverse inertia of a robot at each contact and joint, and the inertias of its trees.

    All values are for the neutral configuration. Some contacts, and some joints that follow others,
    cannot move there, but can move in a configuration nearby, as the foot of a leg that is a
    parallelogram. For them, the value is for a configuration about 0.1 rad or 0.1 m away.

    For a point of a body with the Jacobian J, the mean over all directions of the inverse inertia
    is a third of the trace of `J M^-1 J^T`. The value of a sphere is the mean over all points of
    the sphere. For a pair of shapes, each shape is replaced by a sphere around its centre. (The
    centre of a `ConvexMesh` is the middle of the box around it, along the axes of its frame.) The
    value of the pair is the mean of the inverse inertia for the relative velocity of opposite
    points of the two spheres. A joint has one value per velocity: the diagonal entry of M^-1 or,
    for a joint that follows others, of `J M^-1 J^T`, with the derivative J of the velocities of
    this joint with respect to v.

    `contact_step` computes these values if `scene.inverse_inertia` is None. Many steps are faster
    with `dataclasses.replace(scene, inverse_inertia=inverse_inertias(model, scene))`. The values
    depend on the frames, offsets, radii and shapes of the scene and on the model. Raises
    ArgumentError for an unknown frame or a frame that is fixed to the world.
    """
    scene = scene_for(model, scene)
    q = neutral(model)
    step = _NEARBY * jnp.cos(jnp.arange(model.nv, dtype=model.dtype))
    both = jnp.stack([q, integrate.unchecked(model, q, step)])
    contacts, joints = (
        jnp.where(x[0] > _SINGULAR * x[1], *x)
        for x in jax.vmap(lambda q: _inverse_inertias(model, scene, q))(both)
    )
    return InverseInertias(contacts, joints, tree_inertias(model))


def _inverse_inertias(model: Model, scene: Scene, q: Array) -> tuple[Array, Array]:
    """The values (n + m,) of the contacts and (nv_joint,) of the joints at a configuration."""
    kinematics = forward_kinematics.unchecked(model, q)
    columns = dof_columns(model, root_centred(kinematics))
    centres, sizes = reference_spheres(model, scene)
    J = point_jacobians(model, kinematics, columns, contact_bodies(model, scene), centres)
    # A point in the direction n from the centre has the additional velocity `size w x n`. The two
    # directions of a pair are opposite, so the sizes of the second shapes are negative.
    linear = relative(scene, J[:, :3])
    angular = relative(scene, sizes[:, None, None] * J[:, 3:])
    J = jnp.concatenate([linear, angular], axis=1)
    inverse_M = inverse_positive_definite(crba(model, kinematics))
    inverse = jnp.sum(J * einsum("nij,jk->nik", J, inverse_M), axis=-1)
    # The mean of `|w x n|^2` over all directions of n is `(2 / 3) |w|^2`.
    contacts = (jnp.sum(inverse[:, :3], axis=1) + 2 / 3 * jnp.sum(inverse[:, 3:], axis=1)) / 3
    J_joints = joint_jacobian(model, kinematics.q)
    if J_joints is None:
        joints = jnp.diagonal(inverse_M)
    else:
        joints = jnp.sum(J_joints * matmul(J_joints, inverse_M), axis=1)
    return contacts, joints


def joint_jacobian(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv_joint nv"] | None:
    """The Jacobian of the velocities of all joints; None if these are the velocities v."""
    if model.coupling is None:
        return None
    unit_velocities = jnp.eye(model.nv, dtype=model.dtype)
    return jax.vmap(lambda v: joint_rates(model, q, v), out_axes=1)(unit_velocities)
