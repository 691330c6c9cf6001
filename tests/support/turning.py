"""The velocity after a contact step in the axes before the step."""

import jax.numpy as jnp

from jaxrbd._math.components import cross
from jaxrbd.configuration import transport
from jaxrbd.contact.free_motion import _roots, free_motion


def in_first_axes(model, v, after, dt):
    """The velocity from which forces accelerate the robot, and `after` in the axes of v.

    `v` (nv,): the velocity before the step; `after` (nv,): the velocity in the `ContactStep`.
    """
    dt = jnp.asarray(dt, v.dtype)
    motion, roots = free_motion(model, v, dt, None), _roots(model)
    dx, shift = dt * after, 0 * after
    if len(roots.bodies):
        orbit = cross(after[roots.angular], motion.centre)
        dx = dx + roots.spread(model, 0 * orbit, motion.lag)
        shift = roots.spread(model, orbit, 0 * orbit)
    return motion.start, transport(model, after + shift, -dx) - shift
