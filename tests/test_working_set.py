"""Newton's method of `contact_step` on the few contacts that can act."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd._math.tiles import RETRY_BLOCK, retried
from jaxrbd.collision import PlacedShape, Sphere
from jaxrbd.contact import (
    Material,
    Scene,
    collision_pairs,
    contact_step,
    contact_step_derivatives,
    convex,
    working_set,
)
from jaxrbd.contact.branches import Partition
from support.zoo import close
from test_collision_pairs import two_bodies

DT = 4e-3
RADIUS = 0.02


def plate_and_ball():
    """A plate on 36 spheres, and a ball that can touch 25 spheres on top of the plate."""
    model = two_bodies((1.0, 0.4), (0.5, 0.2))
    feet = [(x, y, -0.05) for x in np.linspace(-0.3, 0.3, 6) for y in np.linspace(-0.3, 0.3, 6)]
    tops = [(x, y, 0.05) for x in np.linspace(-0.2, 0.2, 5) for y in np.linspace(-0.2, 0.2, 5)]
    ball = PlacedShape(Sphere(0.1), "body1")
    pairs = [(PlacedShape(Sphere(RADIUS), "body0", top), ball) for top in tops]
    scene = Scene(
        ["body0"] * len(feet),
        RADIUS,
        offsets=np.array(feet),
        material=Material(0.8, torsional=0.01),
        pairs=collision_pairs(pairs),
    )
    return model, scene


def states(model):
    """In the air; on an edge; flat on the ground; the ball rolls on the plate, which is tilted."""
    high, flat, tilt = 0.5, 0.05 + RADIUS - 2e-4, 0.4
    edge = [0, 0, 0.3 * np.sin(tilt) + 0.05 * np.cos(tilt) + RADIUS - 1e-4]
    level, turned = [0, 0, 0, 1], [0, np.sin(tilt / 2), 0, np.cos(tilt / 2)]
    far, above = [0, 3, 1, *level], [0.03, 0.02, flat + 0.05 + 0.113, *level]
    q = [
        [0, 0, high, *level, *far],
        [*edge, *turned, *far],
        [0, 0, flat, *level, *far],
        [0, 0, flat, *level, *above],
        [0, 0, high + flat, *level, *np.add(above, [0, 0, high, 0, 0, 0, 0])],
    ]
    v = np.zeros((len(q), model.nv))
    v[:, 6] = 0.3  # of the ball
    v[2, :3] = 0.5, -0.2, -0.3
    return jnp.asarray(q), jnp.asarray(v)


def without_working_set(model, scene, others):
    return working_set.partitions_of(model, scene, others)._replace(working=None)


@pytest.mark.slow
def test_a_working_set_gives_the_step_of_all_contacts(monkeypatch):
    """In a batch of states, in some of which more contacts act than the set has.

    Only these are solved again.
    """
    model, scene = plate_and_ball()
    q, v = states(model)

    @jax.jit
    def steps(with_all):
        """One program: with `with_all`, every state is solved again with all contacts."""

        def marked(function, failed, operands, found):
            found = retried(function, failed | with_all, operands, found)
            return found._replace(residual=jnp.where(failed, -1, found.residual))

        def step(q, v):
            step = contact_step.__wrapped__(model, scene, q, v, jnp.zeros(model.nv), DT)
            return (step.v, step.impulse, step.moment), step.residual

        with monkeypatch.context() as patched:
            patched.setattr(working_set, "retried", marked)
            return jax.vmap(step)(q, v)

    chosen, mark = steps(False)
    expected, _ = steps(True)
    acts, expected_acts = (np.any(np.asarray(x[1]) != 0, axis=-1) for x in (chosen, expected))
    np.testing.assert_array_equal(acts, expected_acts)
    acting = np.count_nonzero(acts, axis=1)
    assert acting[0] == 0
    assert np.all(acting[[1, 4]] > 0)
    np.testing.assert_array_equal(mark == -1, acting > working_set.LEAST_SIZE)
    assert (mark == -1).tolist() == [False, False, True, True, False]
    jax.tree.map(lambda x, y: close(x, y, 1e-9), chosen, expected)


@pytest.mark.slow
def test_the_derivatives_with_a_working_set(monkeypatch):
    """Of `contact_step` in both modes, and of `contact_step_derivatives`."""
    model, scene = plate_and_ball()
    q, v = states(model)
    tau = jnp.zeros(model.nv)

    def found():
        def step(q, v):
            step = contact_step.__wrapped__(model, scene, q, v, tau, DT)
            return step.q, step.v, step.impulse, step.moment

        def of_state(q, v):
            ends, transpose = jax.vjp(step, q, v)
            forward = jax.jvp(step, (q, v), (0 * q, jnp.ones_like(v)))[1]
            AB = contact_step_derivatives.__wrapped__(model, scene, q, v, tau, DT)
            return transpose(jax.tree.map(jnp.ones_like, ends)), forward, AB

        return jax.jit(jax.vmap(of_state))(q, v)

    chosen = found()
    monkeypatch.setattr(convex, "partitions_of", without_working_set)
    jax.tree.map(lambda x, y: close(x, y, 1e-9), chosen, found())


def test_the_partition_of_a_working_set():
    """A working set is used where it saves half of the work, also with constraints."""
    model, scene = plate_and_ball()
    assert isinstance(working_set.partitions_of(model, scene, 3).working, Partition)
    small = Scene(["body0"] * 20, RADIUS)
    assert working_set.partitions_of(model, small, 0).working is None


@pytest.mark.parametrize("count", [1, 3, 2 * RETRY_BLOCK + 3])
def test_samples_that_failed(count):
    """In nested batches, with operands that some samples share."""
    rng = np.random.default_rng(0)
    x, shared = jnp.asarray(rng.normal(size=(count, 2, 3))), jnp.arange(3.0)
    by_row = jnp.asarray(rng.normal(size=count))
    failed = jnp.asarray(rng.random((count, 2)) < 0.7)

    def one(failed, x, by_row):
        again = retried(lambda x, y, z: (x * y + z,), failed, (x, shared, by_row), (x,))
        return again[0]

    found = jax.jit(jax.vmap(jax.vmap(one, (0, 0, None))))(failed, x, by_row)
    expected = jnp.where(failed[..., None], x * shared + by_row[:, None, None], x)
    close(found, expected, 1e-15)
    close(jax.jit(one)(failed[0, 0], x[0, 0], by_row[0]), expected[0, 0], 1e-15)
