"""Terrain on a grid: the surface, its smoothness and errors, and contact with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, sensors
from jaxrbd.contact import HeightGrid, Material, Plane, Scene
from support import zoo
from support.finite_differences import slope
from support.zoo import close

G = 9.81
DT = 2e-3


@jax.jit
def surface(grid, points):
    """The elevations of points xy (n, 2), their gradients and their second derivatives."""
    z = grid.elevation
    return jax.vmap(lambda xy: (z(xy), jax.grad(z)(xy), jax.hessian(z)(xy)))(points)


@jax.jit
def distances(grid, points):
    return jax.vmap(jax.value_and_grad(grid.distance))(points)


def nodes(shape, spacing, origin):
    """The x and y of all nodes, each of the given shape."""
    axes = [o + d * np.arange(n) for o, d, n in zip(origin, spacing, shape)]
    return np.meshgrid(*axes, indexing="ij")


SHAPE, SPACING, ORIGIN = (7, 6), (0.3, 0.2), (-0.5, 0.4)
LOWER, UPPER = np.array(ORIGIN), np.array([-0.5 + 6 * 0.3, 0.4 + 5 * 0.2])


def grid_of(function):
    return HeightGrid(function(*nodes(SHAPE, SPACING, ORIGIN)), SPACING, ORIGIN)


@pytest.fixture
def rough(rng):
    return HeightGrid(rng.normal(size=SHAPE), SPACING, ORIGIN)


def inside_points(rng, n=200):
    return rng.uniform(LOWER, UPPER, (n, 2))


# -------------------------------------------------------------------------------- the surface


def test_the_surface_contains_the_nodes(rough):
    x, y = nodes(SHAPE, SPACING, ORIGIN)
    z, _, _ = surface(rough, jnp.stack([x.ravel(), y.ravel()], axis=1))
    close(z, rough.heights.ravel(), 1e-13)


def test_planes_and_parabolas_are_exact(rng):
    """Also in the cells at the border, for heights, slopes and second derivatives."""

    def quadratic(x, y):
        return 0.3 + 0.5 * x - 0.2 * y + 0.7 * x * x - 0.4 * x * y + 0.6 * y * y + x * x * y * y

    points = inside_points(rng)
    x, y = points.T
    found = surface(grid_of(quadratic), jnp.asarray(points))
    close(found[0], quadratic(x, y), 1e-14)
    by_x = 0.5 + 1.4 * x - 0.4 * y + 2 * x * y * y
    by_y = -0.2 - 0.4 * x + 1.2 * y + 2 * x * x * y
    close(found[1], np.stack([by_x, by_y], axis=1), 1e-13)
    close(found[2][:, 0, 1], -0.4 + 4 * x * y, 1e-12)
    # The distance from a plane, and its gradient, also far from the plane.
    grid = grid_of(lambda x, y: 0.4 * x - 0.3 * y + 0.2)
    plane = Plane((-0.4, 0.3, 1), 0.2 / np.sqrt(1 + 0.4**2 + 0.3**2))
    x = jnp.asarray(np.concatenate([points, 3 * rng.normal(size=(200, 1))], axis=1))
    value, gradient = distances(grid, x)
    expected, normal = distances(plane, x)
    close(value, expected, 1e-14)
    close(gradient, normal, 1e-13)


def test_the_distance_is_the_height_above_the_surface_divided_by_its_steepness(rough, rng):
    """In the rectangle and outside, for the slope by JAX."""
    xy = rng.uniform(LOWER - 1, UPPER + 1, (300, 2))
    z = rng.normal(size=300)
    height, gradient, _ = surface(rough, jnp.asarray(xy))
    found, _ = distances(rough, jnp.asarray(np.column_stack([xy, z])))
    close(found, (z - height) / np.sqrt(1 + np.sum(gradient**2, axis=1)), 1e-13)
    inside = np.all((xy > LOWER) & (xy < UPPER), axis=1)
    assert 50 < inside.sum() < 250


def test_height_slope_and_curvature_are_continuous_across_cells(rough, rng):
    """On both sides of each line between two cells, along both axes."""
    eps = 1e-11
    for axis in range(2):
        points = inside_points(rng, 60)
        line = rng.integers(1, SHAPE[axis] - 1, 60)
        points[:, axis] = ORIGIN[axis] + SPACING[axis] * line
        shift = eps * np.eye(2)[axis]
        sides = [surface(rough, jnp.asarray(points + s)) for s in (-shift, shift)]
        for before, after in zip(*sides):
            close(before, after, 1e-7)
        z = rng.uniform(-1, 1, (60, 1))
        sides = [
            distances(rough, jnp.asarray(np.concatenate([points + s, z], axis=1)))
            for s in (-shift, shift)
        ]
        for before, after in zip(*sides):
            close(before, after, 1e-7, "distance and gradient, also off the surface")


def test_the_errors_of_the_surface_and_of_bilinear_surfaces():
    """The table in the docstring of the module, and the orders of convergence."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(0, 1, (20_000, 2))

    def wave(x, y):
        return 0.2 * np.sin(2 * np.pi * x) * np.cos(2 * np.pi * y)

    def gradient(x, y):
        a, b = 2 * np.pi * x, 2 * np.pi * y
        return 0.4 * np.pi * np.stack([np.cos(a) * np.cos(b), -np.sin(a) * np.sin(b)], axis=-1)

    def bilinear(values, u):
        """The surface between the nodes, and its slopes per cell."""
        i = np.floor(u).astype(int)
        (s, t), (i, j) = (u - i).T, i.T
        corners = [values(i, j), values(i + 1, j), values(i, j + 1), values(i + 1, j + 1)]
        a, b, c, d = corners
        height = (1 - s) * (1 - t) * a + s * (1 - t) * b + (1 - s) * t * c + s * t * d
        by_s, by_t = (1 - t) * (b - a) + t * (d - c), (1 - s) * (c - a) + s * (d - b)
        return height, np.stack([by_s, by_t], axis=-1)

    def errors(n):
        d = 1 / n
        x, y = nodes((n + 7, n + 7), (d, d), (-3 * d, -3 * d))
        ours = surface(HeightGrid(wave(x, y), d, (-3 * d, -3 * d)), jnp.asarray(xy))
        exact = wave(*xy.T), gradient(*xy.T)
        height, by_cell = bilinear(lambda i, j: wave(i * d, j * d), xy / d)
        smoothed = [
            bilinear(
                lambda i, j, e=e: (
                    (wave(i * d + e[0], j * d + e[1]) - wave(i * d - e[0], j * d - e[1])) / (2 * d)
                ),
                xy / d,
            )[0]
            for e in d * np.eye(2)
        ]
        return [
            np.max(np.abs(a - b))
            for a, b in (
                (height, exact[0]),
                (by_cell / d, exact[1]),
                (np.stack(smoothed, axis=-1), exact[1]),
                (ours[0], exact[0]),
                (ours[1], exact[1]),
            )
        ]

    coarse, fine = errors(16), errors(32)
    np.testing.assert_allclose(coarse, [7.3e-3, 0.24, 0.076, 0.36e-3, 0.032], rtol=0.03)
    order = np.log2(np.array(coarse) / np.array(fine))
    np.testing.assert_allclose(order, [2, 1, 2, 3, 2], atol=0.2)


@pytest.mark.slow
def test_the_surface_overshoots_a_step_by_eight_percent():
    heights = np.zeros((8, 8))
    heights[4:] = 1
    grid = HeightGrid(heights, 1.0)
    points = np.stack([np.linspace(0, 7, 2001), np.full(2001, 3.3)], axis=1)
    z, *_ = surface(grid, jnp.asarray(points))
    np.testing.assert_allclose([jnp.min(z), jnp.max(z)], [-0.0825, 1.0825], atol=1e-4)
    flat = np.abs(points[:, 0] - 3.5) > 1.5
    close(z[flat], np.round(z[flat]), 1e-14, "away from the step the ground is flat")


@pytest.mark.slow
@pytest.mark.gives_nan
def test_outside_of_the_rectangle_the_height_is_that_of_the_border(rough, rng):
    inside = inside_points(rng, 40)
    for reach in (1e-9, 1.0, 1e30):
        for axis in range(2):
            for side in (-1, 1):
                border = inside.copy()
                border[:, axis] = (LOWER if side < 0 else UPPER)[axis]
                beyond = border.copy()
                beyond[:, axis] += side * reach
                z, slopes, second = surface(rough, jnp.asarray(beyond))
                expected, along, _ = surface(rough, jnp.asarray(border))
                close(z, expected, 1e-12)
                other = 1 - axis
                close(slopes[:, axis], np.zeros(40), 0.0)
                close(slopes[:, other], along[:, other], 1e-12)
                assert jnp.all(jnp.isfinite(second))
                at = jnp.asarray(np.concatenate([beyond, np.ones((40, 1))], axis=1))
                assert all(jnp.all(jnp.isfinite(x)) for x in distances(rough, at))
    corner, *_ = surface(rough, jnp.array([[-1e3, -1e3], [1e3, 1e3]]))
    close(corner, rough.heights[[0, -1], [0, -1]], 1e-13)
    unknown, *_ = surface(rough, jnp.array([[np.nan, 0.5]]))
    assert jnp.isnan(unknown[0]), "an unknown position has no height"


@pytest.mark.slow
def test_derivatives_are_the_true_ones(rough, rng):
    """Of the distance and its gradient, in the point, heights, spacing and origin."""
    points = np.concatenate([inside_points(rng, 12), rng.uniform(-1, 1, (12, 1))], axis=1)
    grid = jax.tree.map(jnp.asarray, rough)

    @jax.jit
    def both(x, grid, direction):
        def total(t):
            x_t, grid_t = jax.tree.map(lambda x, dx: x + t * dx, (x, grid), direction)
            distance, gradient = jax.value_and_grad(grid_t.distance)(x_t)
            return distance + jnp.sum(jnp.array([0.3, -0.7, 0.4]) * gradient)

        return jax.grad(total)(0.0), jax.jvp(total, (0.0,), (1.0,))[1], slope(total, 1e-5)

    for x in jnp.asarray(points):
        direction = jax.tree.map(lambda y: jnp.asarray(rng.normal(size=y.shape)), (x, grid))
        reverse, forward, differences = both(x, grid, direction)
        close(reverse, forward, 1e-12)
        close(reverse, differences, 1e-8)


# ------------------------------------------------------------------------------------ contact


@jax.jit
def contacts(model, scene, q, v, tau):
    """Points, both models of contact, and the derivatives along the motion."""

    def distance(t):
        return contact.contact_points(model, scene, rbd.integrate(model, q, t * v), v).distance

    still = jnp.zeros_like(v)
    f_ext = contact.contact_force(model, scene, q, still).f_ext
    pushed = rbd.algorithms.static_torque(model, q, f_ext) - rbd.gravity_force(model, q)
    return (
        contact.contact_points(model, scene, q, v),
        jax.jvp(distance, (0.0,), (1.0,))[1],
        contact.contact_force(model, scene, q, v),
        contact.contact_step(model, scene, q, v, tau, DT),
        rbd.gradient(model, lambda q: contact.contact_energy(model, scene, q))(q),
        pushed,
    )


MATERIAL = Material(3e3, 0.7, 0.6, 0.2)


def scene_on(ground):
    offsets = 0.2 * np.random.default_rng(1).normal(size=(3, 3))
    return Scene(("l2", "l0", "l2"), [0.05, 0.0, 0.02], offsets, ground, MATERIAL)


def touching(model, ground, q):
    """The scene of a ground that is moved along z, so that two of the three spheres are in it."""
    scene = scene_on(ground)
    for _ in range(8):
        distance = contact.contact_points(model, scene, q, jnp.zeros(model.nv)).distance
        ground = raised(ground, jnp.mean(jnp.sort(distance)[1:]))
        scene = scene_on(ground)
    return scene


def raised(ground, by):
    if isinstance(ground, HeightGrid):
        return HeightGrid(ground.heights + by, ground.spacing, ground.origin)
    return Plane(ground.normal, ground.offset + by * ground.normal[2] / np.sqrt(1.25))


@pytest.mark.slow
def test_contact_with_a_plane_on_a_grid_is_contact_with_a_plane():
    model = zoo.small()
    x, y = nodes((9, 8), (0.7, 0.9), (-3.0, -3.0))
    grid = HeightGrid(0.4 * x - 0.3 * y + 0.2, (0.7, 0.9), (-3.0, -3.0))
    plane = Plane((-0.4, 0.3, 1), 0.2 / np.sqrt(1 + 0.4**2 + 0.3**2))
    for seed in range(2):
        q, v, tau, _ = zoo.state(model, seed)
        found = contacts(model, touching(model, grid, q), q, v, tau)
        expected = contacts(model, touching(model, plane, q), q, v, tau)
        assert jnp.any(found[3].impulse != 0)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
            close(a, b, 1e-9)


@pytest.mark.slow
def test_the_laws_of_contact_hold_on_rough_terrain(rng):
    """The rate of the distance, the potential of the spring, and the step."""
    model = zoo.small()
    grid = HeightGrid(0.3 * rng.normal(size=(12, 12)), 0.5, (-3.0, -3.0))
    for seed in range(3):
        q, v, tau, _ = zoo.state(model, seed)
        scene = touching(model, grid, q)
        points, rate, force, step, spring, pushed = contacts(model, scene, q, v, tau)
        assert jnp.any(force.normal_force > 0)
        close(jnp.sum(points.gradient * points.velocity, axis=-1), rate, 1e-12)
        close(spring, pushed, 1e-11, "the spring has a potential")
        assert step.residual < 1e-12
        height = sensors.height_scan(model, q, scene.ground, "l1", np.zeros((1, 2)))
        p = rbd.frame_placement(model, q, "l1").p
        close(height, p[2:] - scene.ground.elevation(p[:2]), 1e-14)


def ball(radius, mass=2.0):
    inertia = rbd.model.link_inertia(mass, (0, 0, 0), 0.4 * mass * radius**2 * np.eye(3))
    spec = rbd.model.JointSpec("joint", rbd.joints.Translation(), None, "ball")
    return rbd.build_model([rbd.model.Link("ball", inertia)], [spec])


@pytest.mark.slow
def test_a_ball_comes_to_rest_in_a_valley_and_on_a_slope(rng):
    """Terrains by vmap: each ball ends where its own terrain holds it."""
    radius, model = 0.1, ball(0.1)
    x, y = nodes((9, 9), (0.5, 0.5), (-2.0, -2.0))
    offset = np.array([[0.2, 0.1], [-0.3, 0.25]])
    valleys = [0.3 * ((x - a) ** 2 + (y - b) ** 2) for a, b in offset]
    terrains = jax.vmap(lambda h: HeightGrid(h, 0.5, (-2.0, -2.0)))(jnp.asarray(np.stack(valleys)))

    @jax.jit
    @jax.vmap
    def settle(terrain):
        scene = Scene(("ball",), radius, None, terrain, Material(friction=0.05))

        def step(state, _):
            q, v = state
            out = contact.contact_step(model, scene, q, v, -8 * v, 1e-2)
            return (out.q, out.v), out.impulse

        start = jnp.array([0.5, -0.4, 0.6]), jnp.zeros(3)
        (q, v), impulse = jax.lax.scan(step, start, length=1500)
        return q, v, impulse[-1, 0]

    q, v, impulse = settle(terrains)
    # Friction holds the ball where the slope is below the friction coefficient.
    assert jnp.all(jnp.linalg.norm(2 * 0.3 * (q[:, :2] - offset), axis=1) < 0.051)
    close(impulse, np.tile([0, 0, 2 * G * 1e-2], (2, 1)), 1e-3, "weight")
    assert jnp.all(jnp.abs(v) < 1e-3)

    # On a slope of 0.4 with friction 0.6, a ball that does not turn sticks.
    plane = HeightGrid(0.4 * x, 0.5, (-2.0, -2.0))
    scene = Scene(("ball",), radius, None, plane, Material(1e4, 0.5, 0.6, 0.05))
    slanted = np.sqrt(1 + 0.4**2)
    start = jnp.array([0.3, 0.2, 0.4 * 0.3 + radius * slanted])

    @jax.jit
    def stay(q):
        def step(state, _):
            out = contact.contact_step(model, scene, *state, jnp.zeros(3), 1e-2)
            return (out.q, out.v), out.impulse[0]

        return jax.lax.scan(step, (q, jnp.zeros(3)), length=100)

    (q, v), impulses = stay(start)
    close(q, start, 2e-3)
    close(impulses[-1], jnp.array([0, 0, 2 * G * 1e-2]), 1e-3, "weight")
    # Compliant ground: the normal force of a ball at the depth that balances its weight.
    depth = np.sqrt(2 * G / slanted / 1e4)
    q = jnp.array([0.3, 0.2, 0.4 * 0.3 + (radius - depth) * slanted])
    force = contact.contact_force(model, scene, q, jnp.zeros(3))
    close(force.normal_force[0], 2 * G / slanted, 1e-11)
    close(force.f_ext[0, :3], 2 * G / slanted * np.array([-0.4, 0, 1]) / slanted, 1e-11)


@pytest.mark.slow
def test_a_grid_follows_the_dtype_of_the_scene(rough):
    model = zoo.small().astype("float32")
    q, v, *_ = zoo.state(model)
    force = contact.contact_force(model, scene_on(rough), q, v)
    assert force.distance.dtype == jnp.float32


# ------------------------------------------------------------------------------------- errors

FLAT = np.zeros((4, 5))


def with_entry(value):
    heights = FLAT.copy()
    heights[2, 3] = value
    return heights


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(5), 1.0), r"heights has shape \(5,\) .* expected \(n, n\)"),
        ((np.zeros((3, 5)), 1.0), r"heights has shape \(3, 5\), expected 4 nodes or more"),
        ((np.zeros((5, 3)), 1.0), "expected 4 nodes or more along each axis"),
        ((jnp.zeros((4, 4), int), 1.0), "heights has .* dtype int"),
        ((with_entry(np.nan), 1.0), r"heights\[2, 3\] is nan, expected finite heights"),
        ((jnp.asarray(with_entry(np.inf)), 1.0), r"heights\[2, 3\] is inf"),
        ((FLAT, 0.0), "spacing is .* expected finite, more than 0"),
        ((FLAT, (1.0, -1.0)), "spacing is"),
        ((FLAT, np.nan), "spacing is"),
        ((FLAT, np.inf), "spacing is"),
        ((FLAT, (1.0, 1.0, 1.0)), r"spacing has shape \(3,\)"),
        ((FLAT, 1.0, (0.0, np.nan)), "origin is .* expected finite"),
        ((FLAT, 1.0, (0.0, 0.0, 0.0)), r"origin has shape \(3,\)"),
    ],
)
def test_wrong_grids(arguments, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        HeightGrid(*arguments)
