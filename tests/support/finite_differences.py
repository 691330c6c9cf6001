"""Central differences of functions of one number, the references of derivatives."""

import jax
import jax.numpy as jnp


def slope(function, h=1e-4):
    """The derivative of a function at 0, with an error of order h^4. The result may be a pytree."""
    # with a dtype: a weakly typed argument would compile `function` once more
    values = [function(jnp.asarray(h * t, float)) for t in (-2.0, -1.0, 1.0, 2.0)]
    # NumPy: JAX would compile a program for each operation and shape
    return jax.tree.map(
        lambda a, b, c, d: (a - 8 * b + 8 * c - d) / (12 * h), *jax.device_get(values)
    )


def central(function, h):
    """As `slope`, with an error of order h^2 and half of the calls."""
    low, high = (jax.device_get(function(jnp.asarray(t, float))) for t in (-h, h))
    return jax.tree.map(lambda a, b: (b - a) / (2 * h), low, high)
