"""Contact between shapes on the bodies of a robot and in the world."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact
from jaxrbd.algorithms.common_frame import dof_columns
from jaxrbd.algorithms.kinematics import root_centred
from jaxrbd.collision import Box, Capsule, HalfSpace, PlacedShape, Sphere, capsule_between
from jaxrbd.contact import Material, Plane, Scene, collision_pairs
from jaxrbd.contact.contacts import contact_bodies, find_contacts
from jaxrbd.model.joint_space import independent_joint_force
from support import finite_differences, pages, zoo
from support.turning import in_first_axes
from support.zoo import close
from test_contact import derivative_check, direction_of

DT = 4e-3
IN_BOTH_PRECISIONS = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
FAR = Plane(offset=-100.0)
KEY = jax.random.key(3)


def sphere(frame, radius, centre=(0.0, 0.0, 0.0)):
    return PlacedShape(Sphere(radius), frame, centre)


def two_bodies(*inertias):
    """Bodies that move freely, in frames "body0", "body1" and so on."""
    links, specs = [], []
    for i, (mass, size) in enumerate(inertias):
        inertia = rbd.model.link_inertia(mass, (0, 0, 0), mass * size**2 / 6 * np.eye(3))
        links.append(rbd.model.Link(f"body{i}", inertia))
        specs.append(rbd.model.JointSpec(f"joint{i}", rbd.joints.FreeFlyer(), None, f"body{i}"))
    return rbd.build_model(links, specs)


PAIRS = collision_pairs(
    [
        (
            capsule_between((-0.3, 0, 0.1), (0.4, 0.1, 0), 0.2, "l0"),
            capsule_between((0, 0, 0), (0, 0.5, 0), 0.1, "l2"),
        ),
        (
            sphere(None, 0.4, (0.3, 0.2, -0.1)),
            capsule_between((0, 0, -0.2), (0, 0, 0.3), 0.3, "l2"),
        ),
        (
            sphere("l2", 0.4, (0.1, 0, 0)),
            PlacedShape(Box((0.4, 0.5, 0.6), 0.05), "l0", (0.1, 0.0, 0.2)),
        ),
        (PlacedShape(Box((0.7, 0.6, 0.8))), sphere("l1", 0.3)),
    ]
)


@jax.jit
def close_to_neutral(model, q):
    """A configuration in which the bodies overlap."""
    neutral = rbd.neutral(model)
    return rbd.integrate(model, neutral, 0.3 * rbd.difference(model, neutral, q))


@jax.jit
def evaluate(model, scene, q, v, tau):
    """A step, and the same step by `forward_dynamics` with the impulses as forces on frames.

    Also the compliant forces, and their `f_ext` from the forces on both points of each contact.
    """
    step = contact.contact_step(model, scene, q, v, tau, DT)
    kinematics = rbd.forward_kinematics(model, q)
    found = find_contacts(model, scene.astype(float), kinematics)
    bodies = contact_bodies(model, scene)
    X = kinematics.X_WB
    points = jnp.stack(
        [x if i < 0 else X.R[i] @ x + X.p[i] for i, x in zip(bodies, found.arm, strict=True)]
    )

    def on_bodies(forces):
        f_ext = jnp.zeros((model.nb, 6))
        for body, arm, force in zip(bodies, found.arm, jnp.concatenate([forces, -forces])):
            if body >= 0:
                force = X.R[body].T @ force
                f_ext = f_ext.at[body].add(jnp.concatenate([force, jnp.cross(arm, force)]))
        return f_ext

    joint = independent_joint_force(model, q, step.joint_impulse.total) / DT
    f_ext = on_bodies(step.impulse / DT)
    start, after = in_first_axes(model, v, step.v, DT)
    again = start + DT * rbd.forward_dynamics(model, q, v, tau + joint, f_ext)
    force = contact.contact_force(model, scene, q, v)
    forces = force.normal_force[:, None] * found.gradient + force.friction_force
    return step, found, points, after, again, force, on_bodies(forces)


def coincident(dtype):
    """Two equal bodies at one place, 5 m from the origin, and shapes with equal centres."""
    model = two_bodies((1.0, 0.2), (1.0, 0.2)).astype(dtype)
    rod = [(0, 0, -0.5), (0, 0, 0.5)]
    cubes = [PlacedShape(Box((0.3, 0.3, 0.3)), f"body{i}") for i in (0, 1)]
    pairs = [
        (sphere("body0", 0.1), sphere("body1", 0.1)),
        (capsule_between(*rod, 0.1, "body0"), capsule_between(*rod, 0.1, "body1")),
        (sphere(None, 0.4, (3, 4, 1)), sphere("body1", 0.1)),
        (sphere("body0", 0.1), cubes[1]),
        (sphere("body0", 0.1, (0.3, 0, 0)), cubes[1]),
        tuple(cubes),
    ]
    scene = Scene((), ground=FAR, pairs=collision_pairs(pairs)).astype(dtype)
    place = jnp.array([3.0, 4.0, 0.0], dtype)
    return model, scene, rbd.neutral(model).at[:3].set(place).at[7:10].set(place)


@pytest.mark.slow
def test_shapes_with_equal_centres():
    """Distances and normals by hand, and derivatives that are finite.

    Equal cubes leave each other: all four contacts push the second cube to the same side.
    """
    model, scene, q = coincident(jnp.float32)

    @jax.jit
    def found(q):
        def of(q):
            return find_contacts(model, scene, rbd.forward_kinematics(model, q))

        contacts, transpose = jax.vjp(of, q)
        return contacts, transpose(jax.tree.map(jnp.ones_like, contacts))[0]

    contacts, slopes = found(q)
    assert jnp.all(jnp.isfinite(slopes))
    close(contacts.distance[:5], jnp.array([-0.2, -0.2, 0.5, -0.4, -0.1], "float32"), 1e-6)
    close(contacts.distance[5:], jnp.full(4, -0.6, "float32"), 1e-6)
    close(jnp.linalg.norm(contacts.gradient, axis=1), jnp.ones(9, "float32"), 1e-6)
    normals = contacts.gradient[5:]
    np.testing.assert_array_equal(normals, jnp.broadcast_to(normals[0], (4, 3)))


def test_the_shapes_of_a_pair_push_each_other():
    """The forces on both shapes of a pair are opposite. The ground does not move."""
    pairs = collision_pairs([(sphere("body0", 0.1), sphere("body1", 0.1))] * 2)
    scene = Scene(("body0",), ground=FAR, pairs=pairs)
    f = np.array([[0.0, 0, 7], [1, 2, 3], [4, 5, 6]])
    on_points = contact.contacts.opposed(scene, jnp.asarray(f))
    close(on_points[:3], f, 0.0)
    close(on_points[1:3] + on_points[3:], np.zeros((2, 3)), 0.0)


def test_the_jacobians_of_points_give_their_velocities(rng):
    """On the bodies of a robot and in the world, where a point does not move."""
    model = two_bodies((1.0, 0.2), (1.0, 0.2))
    bodies, arm = np.array([1, -1, 0]), jnp.asarray(rng.normal(size=(3, 3)))
    q, v, *_ = zoo.state(model)

    @jax.jit
    def both(q):
        kinematics = rbd.forward_kinematics(model, q)
        columns = dof_columns(model, root_centred(kinematics))
        J = contact.points.point_jacobians(model, kinematics, columns, bodies, arm)
        X, p = kinematics.X_WB, jnp.zeros((3, 3))
        for i in (0, 2):
            p = p.at[i].set(X.R[bodies[i]] @ arm[i] + X.p[bodies[i]])
        return J[:, :3] @ v, p

    moved = finite_differences.slope(lambda t: both(rbd.integrate(model, q, t * v))[1])
    close(both(q)[0], moved, 1e-9)


@pytest.mark.slow
def test_the_laws_of_pairs():
    """Momentum, opposite impulses, geometry of the contact points, Coulomb's cone."""
    model = zoo.small()
    scene = Scene((), ground=FAR, material=Material(friction=0.6), pairs=PAIRS)
    m = len(PAIRS)
    touching = 0
    for seed in range(5):
        q, v, tau, _ = zoo.state(model, seed)
        q = close_to_neutral(model, q)
        step, found, points, after, again, force, f_ext = evaluate(model, scene, q, v, tau)
        close(again, after, 1e-10, "momentum")
        a, b = points[:m], points[m:]
        # Two moving bodies push each other at one point. The points of a moving and a fixed shape
        # are on one line along the normal, at the distance.
        moving = np.all(np.reshape(contact_bodies(model, scene), (2, m)) >= 0, axis=0)
        apart = jnp.where(moving, 0, found.distance)[:, None] * found.gradient
        close(a - b, apart, 1e-12, "the contact points")
        normal = jnp.sum(step.impulse * found.gradient, axis=-1)
        across = jnp.linalg.norm(step.impulse - normal[:, None] * found.gradient, axis=-1)
        assert jnp.all(across <= 0.6 * normal + 1e-12)
        touching += np.count_nonzero(normal > 0)
        close(force.f_ext, f_ext, 1e-12, "compliant forces")
        assert jnp.all((force.normal_force > 0) == (found.distance < 0))
    assert touching > 5


def test_the_distance_changes_with_the_relative_velocity():
    """The Jacobian of the distance is the normal times the relative velocity of the points."""
    model = zoo.small()
    scene = Scene((), ground=FAR, pairs=PAIRS).astype(float)

    @jax.jit
    def both(q, v):
        kinematics = rbd.forward_kinematics(model, q)
        found, bodies = find_contacts(model, scene, kinematics), contact_bodies(model, scene)
        u = contact.points.point_motions(model, kinematics, bodies, found.arm, v)[0]
        u = contact.contacts.relative(scene, u)

        def distance(t):
            X = rbd.forward_kinematics(model, rbd.integrate(model, q, t * v))
            return find_contacts(model, scene, X).distance

        return jnp.sum(found.gradient * u, axis=-1), jax.jvp(distance, (0.0,), (1.0,))[1]

    for seed in range(4):
        q, v, *_ = zoo.state(model, seed)
        speeds, rates = both(q, v)
        close(speeds, rates, 1e-12)


@pytest.mark.slow
def test_a_sphere_in_a_box_leaves_through_the_nearest_face(rng):
    """The distance is from the nearest of the six faces, and its gradient is the normal."""
    model = two_bodies((1.0, 0.2), (1.0, 0.2))
    half, rounding, radius = np.array([0.3, 0.5, 0.4]), 0.05, 0.1
    pair = sphere("body0", radius), PlacedShape(Box(half, rounding), "body1")
    scene = Scene((), ground=FAR, pairs=collision_pairs([pair])).astype(float)

    @jax.jit
    @jax.vmap
    def both(place):
        def contact_at(place):
            kinematics = rbd.forward_kinematics(model, rbd.neutral(model).at[:3].set(place))
            found = find_contacts(model, scene, kinematics)
            return found.distance[0], found.gradient[0]

        return *contact_at(place), jax.grad(lambda x: contact_at(x)[0])(place)

    places = rng.uniform(-1, 1, (40, 3)) * (half - rounding)
    distance, normal, slope = both(jnp.asarray(places))
    faces = np.concatenate([places - half, -places - half], axis=1)
    close(distance, jnp.asarray(faces.max(axis=1) - radius), 1e-14)
    nearest = faces.argmax(axis=1)
    close(normal, np.concatenate([np.eye(3), -np.eye(3)])[nearest], 1e-14)
    close(slope, normal, 1e-14)
    assert set(nearest) == set(range(6))


@pytest.mark.slow
@IN_BOTH_PRECISIONS
def test_equal_boxes_that_are_aligned_leave_each_other(dtype):
    """A heavy cube rests on an equal cube; cubes that are 10 mm deep or coincide separate."""
    model = two_bodies((1.0, 0.2), (100.0, 0.2)).astype(dtype)
    cubes = [PlacedShape(Box((0.1, 0.1, 0.1)), f"body{i}") for i in (0, 1)]
    scene = Scene.from_shapes(cubes)
    scene = dataclasses.replace(scene, pairs=collision_pairs([tuple(cubes)]))
    # Aligned, with edges 0.5 mm beyond the edges of the other cube, deep, and coincident.
    places = [[0, 0, 0.3], [5e-4, 5e-4, 0.3], [0, 0, 0.29], [0, 0, 0.1]]
    places = np.array(places, dtype)
    start = jnp.tile(rbd.neutral(model).at[2].set(0.1), (4, 1)).at[:, 7:10].set(places)

    @jax.jit
    @jax.vmap
    def simulated(q):
        def advance(state, _):
            step = contact.contact_step(
                model, scene, *state, jnp.zeros_like(state[1]), jnp.asarray(DT, dtype)
            )
            return (step.q, step.v), None

        return jax.lax.scan(advance, (q, jnp.zeros(12, dtype)), length=500)[0]

    q, v = simulated(start)
    assert jnp.max(jnp.abs(v[:3])) < 1e-4
    places[2, 2] = 0.3
    # The compliance: about 95 um at the ground and 30 um between the cubes.
    assert np.max(np.abs(q[:3, 7:10] - places[:3])) < 2e-4
    assert jnp.max(jnp.abs(q[:3, :2])) < 1e-4
    assert jnp.linalg.norm(q[3, 7:10] - q[3, :3]) > 0.2


def test_the_inverse_inertia_of_a_pair():
    """The mean over all directions of the inverse inertia of two points on opposite sides."""
    model = zoo.small()
    a = capsule_between((-0.3, 0, 0.1), (0.4, 0.1, 0), 0.2, "l0")
    b = PlacedShape(Box((0.4, 0.5, 0.6), 0.05), "l2", (0.1, 0.0, 0.2))
    c = capsule_between((0, 0, 0), (0, 0.5, 0), 0.1, "l2")
    scene = Scene((), pairs=collision_pairs([(a, c), (sphere("l0", 0.3, (0.1, 0, 0)), b)]))
    found = contact.inverse_inertias(model, scene).contacts
    q = rbd.neutral(model)
    inverse = jnp.linalg.inv(rbd.crba(model, q))
    length = np.linalg.norm([0.7, 0.1, -0.1])
    shapes = [
        (("l0", (0.05, 0.05, 0.05), 0.2 + length / 2), ("l2", (0, 0.25, 0), 0.1 + 0.25)),
        (("l0", (0.1, 0, 0), 0.3), ("l2", (0.1, 0.0, 0.2), 0.45 + 0.05)),
    ]

    def jacobian(frame, centre, lever):
        J = rbd.frame_jacobian(model, q, frame)
        pose = rbd.frame_placement(model, q, frame)
        return J[:3] + jnp.cross(J[3:].T, pose.R @ jnp.asarray(centre) + lever).T

    for value, ((f_a, x_a, r_a), (f_b, x_b, r_b)) in zip(found, shapes):
        means = []
        for n in np.concatenate([np.eye(3), -np.eye(3)]):
            J = jacobian(f_a, x_a, r_a * n) - jacobian(f_b, x_b, -r_b * n)
            means.append(jnp.trace(J @ inverse @ J.T) / 3)
        close(value, sum(means) / 6, 1e-12)


run = jax.jit(
    lambda model, scene, q, v, steps, tau: jax.lax.scan(
        lambda state, _: (
            (step := contact.contact_step(model, scene, *state, tau, DT))[:2],
            (step.q, step.v, step.impulse, step.distance),
        ),
        (q, v),
        length=steps,
    )[1],
    static_argnums=4,
)


@pytest.mark.slow
def test_two_spheres_collide_without_restitution():
    """Momentum is kept, and the spheres move on with one velocity."""
    model = two_bodies((1.0, 0.2), (3.0, 0.2))
    model = dataclasses.replace(model, gravity=jnp.zeros(3))
    pairs = collision_pairs([(sphere("body0", 0.1), sphere("body1", 0.2))])
    scene = Scene((), ground=FAR, pairs=pairs)
    q = rbd.neutral(model).at[7].set(1.0)
    v = jnp.zeros(12).at[0].set(2.0)
    q, v, impulse, distance = run(model, scene, q, v, 300, jnp.zeros(12))
    close(v[-1, 0] + 3 * v[-1, 6], jnp.asarray(2.0), 1e-10)
    close(v[-1, [0, 6]], jnp.array([0.5, 0.5]), 1e-3)
    assert jnp.min(distance) > -1e-3
    close(jnp.sum(impulse, axis=0), jnp.array([[-1.5, 0, 0]]), 2e-3)


@pytest.mark.slow
def test_a_stack_of_two_boxes():
    """The ground carries both weights, the lower box the weight of the upper box."""
    model = two_bodies((4.0, 0.4), (1.0, 0.2))
    lower, upper = (
        PlacedShape(Box((0.2, 0.2, 0.2), 0.02), "body0"),
        PlacedShape(Box((0.1, 0.1, 0.1), 0.02), "body1"),
    )
    scene = Scene.from_shapes([lower], [(lower, upper)])
    q = rbd.neutral(model).at[2].set(0.2).at[9].set(0.51).at[7].set(0.03)
    q, v, impulse, _ = run(model, scene, q, jnp.zeros(12), 500, jnp.zeros(12))
    assert jnp.max(jnp.abs(v[-1])) < 1e-8
    total = jnp.sum(impulse[-1, :8], axis=0) / DT
    between = jnp.sum(impulse[-1, 8:], axis=0) / DT
    close(total, jnp.array([0, 0, 5 * 9.81]), 1e-7)
    close(jnp.abs(between), jnp.array([0, 0, 9.81]), 1e-7)
    close(q[-1, [2, 9]], jnp.array([0.2, 0.5]), 1e-3)
    close(q[-1, [0, 1, 7, 8]], jnp.array([0, 0, 0.03, 0]), 1e-4)
    # On a slope below the friction angle, the stack stays; gravity is tilted instead.
    tilt = 0.4
    slope = dataclasses.replace(model, gravity=9.81 * jnp.array([np.sin(tilt), 0, -np.cos(tilt)]))
    _, v2, *_ = run(slope, scene, q[-1], v[-1], 250, jnp.zeros(12))
    assert jnp.max(jnp.abs(v2[-1])) < 1e-2
    assert np.tan(tilt) < 0.8


@pytest.mark.slow
def test_a_capsule_lies_across_a_capsule():
    """A capsule at rest on two capsules that are fixed in the world."""
    model = two_bodies((2.0, 0.3))
    rails = [capsule_between((x, -1, 0), (x, 1, 0), 0.05) for x in (-0.3, 0.2)]
    rod = capsule_between((-0.5, 0, 0), (0.5, 0, 0), 0.1, "body0")
    scene = Scene((), ground=FAR, pairs=collision_pairs([(rod, rail) for rail in rails]))
    q = rbd.neutral(model).at[2].set(0.16)
    q, v, impulse, _ = run(model, scene, q, jnp.zeros(6), 500, jnp.zeros(6))
    assert jnp.max(jnp.abs(v[-1])) < 1e-6
    close(q[-1, 2], jnp.asarray(0.15), 1e-3)
    # The lever rule.
    close(impulse[-1, :, 2] / DT, 2 * 9.81 * jnp.array([0.4, 0.6]), 1e-4)


@pytest.mark.slow
def test_derivatives_are_the_true_ones():
    """In the state and in all parameters of the model and of the shapes."""
    model = zoo.small()

    def number(model, scene, q, v, tau):
        step = contact.contact_step(model, scene, q, v, tau, DT, regularisation=0.1)
        force = contact.contact_force(model, scene, q, v)
        parts = jnp.concatenate(
            [step.q, step.v, step.impulse.ravel(), 1e-3 * force.friction_force.ravel()]
        )
        weights = jnp.cos(jnp.arange(len(parts)).astype(parts.dtype))
        return jnp.sum(weights * parts), step.impulse

    check = derivative_check(number)
    touching = 0
    for seed in range(3):
        q, v, tau, _ = zoo.state(model, seed)
        q = close_to_neutral(model, q)
        scene = Scene((), ground=FAR, pairs=PAIRS, material=Material(1e3, 0.5, 0.6, 0.3))
        operands = jax.tree.map(jnp.asarray, (model, scene, q, v, tau))
        direction = direction_of(operands, seed, 1e-3)
        # Rotations stay rotations.
        shapes = [shape.X_FS.R for shape in operands[1].pairs.shapes]
        direction = eqx.tree_at(
            lambda d: [shape.X_FS.R for shape in d[1].pairs.shapes],
            direction,
            [R @ (x.X_FS.R - x.X_FS.R.T) for R, x in zip(shapes, direction[1].pairs.shapes)],
        )
        impulse = check(operands, direction, 1e-3)
        touching += np.count_nonzero(impulse[:, 0])
    assert touching > 3


@pytest.mark.slow
@IN_BOTH_PRECISIONS
def test_degenerate_pairs_are_finite(dtype):
    """Equal centres, parallel capsules, a sphere in the centre of a box, equal boxes."""
    model, scene, q = coincident(dtype)

    def number(model, scene, q, v):
        step = contact.contact_step(model, scene, q, v, jnp.zeros_like(v), DT)
        return jnp.sum(step.q) + jnp.sum(step.v) + jnp.sum(step.impulse)

    operands = jax.tree.map(lambda x: jnp.asarray(x, dtype), (model, scene, q, jnp.zeros(12)))
    value, gradient = jax.jit(jax.value_and_grad(number, (0, 1, 2, 3)))(*operands)
    assert all(jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((value, gradient)))


@pytest.mark.slow
def test_the_program_does_not_grow_with_the_number_of_pairs():
    """For other numbers, arrays of equal shapes share functions that the text states once."""
    model = two_bodies((1.0, 0.2), (1.0, 0.2))

    def size(n):
        pairs = [(capsule_between((0, 0, 0), (0, 0, 1), 0.1, "body0"), sphere("body1", 0.2))] * n
        pairs += [(sphere("body0", 0.1), PlacedShape(Box((1, 1, 1)), "body1"))] * n
        scene = Scene((), pairs=collision_pairs(pairs))
        zero = jnp.zeros(12)
        step = jax.make_jaxpr(lambda q: contact.contact_step(model, scene, q, zero, zero, DT))
        return str(step(rbd.neutral(model))).count(" = ")

    assert size(4) == size(9) > 1


WRONG = {
    "radius is -0.1, expected finite": lambda: capsule_between((0, 0, 0), (0, 0, 1), -0.1),
    "start has shape (2,)": lambda: capsule_between((0, 0), (0, 0, 1), 0.1),
    "X_FS has shape (2,) and dtype float64, expected (3,)": lambda: PlacedShape(
        Sphere(0.1), "body0", (0, 0)
    ),
    "members has the pair (0, -2), expected two different": lambda: contact.CollisionPairs(
        (sphere("body0", 0.1),), ((0, -2),)
    ),
    "both shapes of the pair": lambda: collision_pairs([(sphere(None, 0.1), sphere(None, 0.1))]),
    "expected at most one HalfSpace or HeightGrid": lambda: collision_pairs(
        [(PlacedShape(HalfSpace(), "body0"), PlacedShape(HalfSpace()))]
    ),
    "expected objects of type PlacedShape": lambda: collision_pairs(
        iter([(Sphere(0.1), sphere("body0", 0.1))])
    ),
    "shapes has Capsule(": lambda: Scene.from_shapes(iter([Capsule(0.1, 0.2)])),
    "expected shapes on the robot": lambda: Scene.from_shapes([sphere(None, 0.1)]),
    "no frame 'leg'": lambda: use([(sphere("leg", 0.1), sphere("body0", 0.1))]),
    "do not move relative to each other": lambda: use(
        [(sphere("body0", 0.1), sphere("body0", 0.2))]
    ),
}


def use(pairs):
    model = two_bodies((1.0, 0.2))
    zero = jnp.zeros(6)
    scene = Scene((), pairs=collision_pairs(pairs))
    return contact.contact_step(model, scene, rbd.neutral(model), zero, zero, DT)


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_named(message):
    with pytest.raises(rbd.ArgumentError) as error:
        WRONG[message]()
    assert message in str(error.value)


@pytest.mark.documents
def test_the_examples_of_the_guide_run():
    names = {}
    examples = pages.blocks("contact.md")
    assert len(examples) == 5
    for example in examples:
        exec(example, names)
    assert names["step"].residual < 1e-9
