"""Kinematics of frames that are welded to a body or to the world."""

import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd import spatial
from support import finite_differences, zoo
from support.zoo import close


def test_a_frame_welded_to_a_body():
    """Its velocity is the rate of its pose and equals `J v`; a force on it has power `f . V`."""
    rng = np.random.default_rng(4)
    links = [rbd.model.Link(name, zoo.random_inertia(rng)) for name in ("arm", "tool")]
    specs = [
        rbd.model.JointSpec("ball", rbd.joints.Spherical(), None, "arm", zoo.random_placement(rng)),
        rbd.model.JointSpec("weld", rbd.model.Fixed(), "arm", "tool", zoo.random_placement(rng)),
    ]
    model = rbd.build_model(links, specs)
    q, v, _, _ = zoo.state(model)
    R = rbd.frame_placement(model, q, "tool").R

    def pose(t):
        return spatial.pose_matrix(
            rbd.frame_placement(model, rbd.integrate(model, q, t * v), "tool")
        )

    rate = finite_differences.slope(pose)
    spin = R.T @ rate[:3, :3]
    turning = R @ jnp.array([spin[2, 1], spin[0, 2], spin[1, 0]])
    V = rbd.frame_velocity(model, q, v, "tool")
    close(V, jnp.concatenate([rate[:3, 3], turning]), 1e-10)
    close(rbd.frame_jacobian(model, q, "tool") @ v, V)
    wrench = jnp.array([1.0, -2.0, 0.5, 0.3, 0.7, -0.2])
    f_ext = rbd.external_force(model, q, "tool", wrench)
    V_arm = rbd.frame_velocity(model, q, v, "arm", "local")
    close(f_ext[0] @ V_arm, wrench @ V)


def test_a_frame_welded_to_the_world():
    base = rbd.model.Link("base")
    arm = rbd.model.Link("arm", rbd.model.link_inertia(1.0, (0, 0, 1)))
    joints = [
        rbd.model.JointSpec("weld", rbd.model.Fixed(), None, "base"),
        rbd.model.JointSpec("hinge", rbd.joints.Revolute((0, 1, 0)), "base", "arm"),
    ]
    model = rbd.build_model([base, arm], joints)
    q = jnp.zeros(1)
    close(rbd.algorithms.point_jacobian(model, q, "base", jnp.ones(3)), jnp.zeros((3, 1)))
    close(
        rbd.algorithms.point_jacobian(model, q, "arm", jnp.array([0, 0, 2.0])),
        jnp.array([[2.0], [0], [0]]),
    )
    zero = jnp.zeros(1)
    for found in rbd.algorithms.frame_acceleration_derivatives(model, q, zero, zero, "base"):
        close(found, jnp.zeros((6, 1)))
    close(rbd.frame_jacobian_dot(model, q, zero, "base"), jnp.zeros((6, 1)))
