"""The moments of a moving inertia: velocities, momentum and the rate of the inertia."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd import spatial
from support import zoo
from support.zoo import close


def test_the_velocity_moments_are_the_velocity_dependent_part_of_a_body():
    """`2 B x = v x* I x - I (v x x) + x x* I v`, `B + B^T` the rate of I, and the momentum."""
    rng = np.random.default_rng(3)
    inertia = jnp.array(zoo.random_inertia(rng))
    v, x, y = jnp.array(rng.normal(size=(3, 6)))
    moments = spatial.velocity_moments(inertia, v)
    I, cross = spatial.apply_inertia, spatial.cross_force
    Bx = spatial.apply_velocity_moments(moments, x)
    by_crosses = (
        cross(v, I(inertia, x)) - I(inertia, spatial.cross_motion(v, x)) + cross(x, I(inertia, v))
    )
    close(2 * Bx, by_crosses, 1e-13)
    close(spatial.apply_velocity_moments(moments, v), spatial.gyroscopic_force(inertia, v), 1e-13)
    close(y @ Bx, x[3:] @ spatial.apply_velocity_moments_transpose(moments, y), 1e-13)
    close(spatial.momentum_from_moments(moments), I(inertia, v), 1e-13)

    def moved(t):
        return spatial.transform_inertia(rbd.se3.exp(t * v), inertia)

    rate = jax.jvp(moved, (0.0,), (1.0,))[1]
    close(spatial.inertia_rate_from_moments(moments), rate, 1e-13)
