"""Contact of convex shapes of all kinds: patches of points, states at rest, and MuJoCo."""

import functools
import warnings

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

import jaxrbd as rbd
from jaxrbd import collision, contact, io
from jaxrbd.collision import (
    Box,
    Capsule,
    ConvexMesh,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    PlacedShape,
    Sphere,
)
from jaxrbd.collision.patches import core_patch, spread
from jaxrbd.collision.shapes import core_of
from jaxrbd.contact.contacts import contact_bodies, find_contacts
from jaxrbd.spatial import Pose
from support.nightly import all_but

DT = 0.004
RNG = np.random.default_rng(1)
HULL = RNG.normal(size=(20, 3)) * [0.1, 0.12, 0.08]
SHAPES = {
    "box": Box([0.1, 0.15, 0.05]),
    "cylinder": Cylinder(0.1, 0.15),
    "hull": ConvexMesh(HULL),
    "ellipsoid": Ellipsoid([0.1, 0.1, 0.08]),
    "capsule": Capsule(0.05, 0.1),
    "sphere": Sphere(0.1),
}
GEOMS = {
    "box": "type='box' size='.1 .15 .05'",
    "cylinder": "type='cylinder' size='.1 .15'",
    "hull": "type='mesh' mesh='hull'",
    "ellipsoid": "type='ellipsoid' size='.1 .1 .08'",
    "capsule": "type='capsule' size='.05 .1'",
    "sphere": "type='sphere' size='.1'",
}


def turned(rotation, p=(0.0, 0.0, 0.0)):
    return Pose(Rotation.from_rotvec(rotation).as_matrix(), np.array(p, float))


@functools.cache
def patch(count):
    def of(a, X_a, b, X_b):
        R, p = X_b.R.T @ X_a.R, X_b.R.T @ (X_a.p - X_b.p)
        return core_patch(core_of(a)[0], core_of(b)[0], R, p, count)

    return jax.jit(of)


def area(points):
    return ConvexHull(points).volume


# ------------------------------------------------------------------------------------- patches


@pytest.mark.parametrize("yaw", [0.0, 0.4, np.pi / 4])
@pytest.mark.parametrize("offset", [(0.0, 0.0), (0.9, 0.0), (0.95, 0.9)])
def test_a_face_on_a_face_has_four_points_of_their_common_area(yaw, offset):
    """They span most of the area, lie in both faces, and have the distance of the faces."""
    below, above = Box([1.0, 1.0, 0.5]), Box([0.3, 0.2, 0.1])
    X = turned((0.0, 0.0, yaw), (*offset, 0.61))
    found = patch(4)(above, X, below, turned((0, 0, 0)))
    np.testing.assert_allclose(found.normal, [0, 0, -1], atol=1e-12)
    np.testing.assert_allclose(found.distance, 0.01, atol=1e-9)
    np.testing.assert_allclose(
        found.point_b - found.point_a, np.array(found.distance)[:, None] * found.normal, atol=1e-12
    )
    np.testing.assert_allclose(found.point_b[:, 2], 0.5, atol=1e-9)
    xy = np.array(found.point_b[:, :2])
    assert np.all(np.abs(xy) < 1 + 1e-6)
    local = (np.array(found.point_a) - X.p) @ X.R
    assert np.all(np.abs(local) < np.array([0.3, 0.2, 0.1]) + 1e-6)
    # The whole common area, from a grid of points of the upper face.
    grid = np.stack(np.meshgrid(np.linspace(-0.3, 0.3, 201), np.linspace(-0.2, 0.2, 201)), -1)
    places = grid.reshape(-1, 2) @ X.R[:2, :2].T + X.p[:2]
    common = area(places[np.all(np.abs(places) <= 1, axis=1)])
    assert area(xy) > 0.7 * common
    if yaw == 0:
        assert area(xy) > 0.99 * common


@pytest.mark.slow
def test_a_face_that_is_seen_almost_from_the_side_has_the_heights_of_its_corners():
    """A box and a hull that are far apart: the face of the hull is almost a line, and steep."""
    text = """<mujoco><asset><mesh name="hull" vertex="0 0 0  .2 0 0  0 .2 0  0 0 .2"/></asset>
      <worldbody><body><freejoint/><geom type="box" size=".05 .1 .2"/></body>
      <body><freejoint/><geom type="mesh" mesh="hull"/></body></worldbody></mujoco>"""
    found = io.load_mjcf(text)
    q = jnp.array(
        [
            *(0.8043973711651806, -0.4169574867133729, 1.1147691217976858),
            *(0.2767308744771412, 0.17787688345712452, 0.39222528788114974, 0.8590338532265457),
            *(1.0, 0.5, 0.9857495999999999),
            *(0.24479231586341083, 0.18214796572990116, 0.36758011983238364, 0.8785122060499201),
        ]
    )
    distance = jax.jit(find_contacts)(
        found.model, found.scene, rbd.forward_kinematics(found.model, q)
    ).distance
    np.testing.assert_allclose(distance, 0.8207, atol=1e-4)


def test_the_distances_of_a_level_face_change_with_its_tilt():
    """The four points of a box that rests flat are 0.2 m apart in y, and 0.1 m apart in x."""
    below, above = Box([1.0, 1.0, 0.1]), Box([0.05, 0.1, 0.1])

    @jax.jit
    @jax.jacfwd
    def by_tilt(tilt):
        X = Pose(rbd.so3.exp(jnp.append(tilt, 0.0)), jnp.array([0.01, 0.02, 0.201]))
        return patch(4)(above, X, below, turned((0, 0, 0))).distance

    level, tilted = by_tilt(jnp.zeros(2)), by_tilt(jnp.array([1e-5, 2e-5]))
    np.testing.assert_allclose(np.ptp(level, axis=0), [0.2, 0.1], rtol=1e-6)
    np.testing.assert_allclose(np.ptp(tilted, axis=0), [0.2, 0.1], rtol=1e-3)


def test_a_cylinder_has_a_line_on_its_side_and_a_disc_on_its_end():
    table, cylinder = Box([1.0, 1.0, 0.1]), Cylinder(0.1, 0.2)
    side = patch(4)(cylinder, turned((np.pi / 2, 0, 0), (0, 0, 0.2)), table, turned((0, 0, 0)))
    np.testing.assert_allclose(side.distance, 0, atol=1e-9)
    np.testing.assert_allclose(side.point_a[:, 0], 0, atol=1e-9)  # no width, so that it rolls
    np.testing.assert_allclose(np.sort(side.point_a[:, 1]), [-0.2, -0.2, 0.2, 0.2], atol=1e-6)
    end = patch(4)(cylinder, turned((0, 0, 0.2), (0, 0, 0.3)), table, turned((0, 0, 0)))
    np.testing.assert_allclose(end.distance, 0, atol=1e-9)
    np.testing.assert_allclose(np.hypot(*end.point_a[:, :2].T), 0.1, atol=1e-9)
    assert area(end.point_a[:, :2]) > 1.5 * 0.1**2  # of 2 r^2, a square


PATCHES = [("box", "box"), ("cylinder", "box"), ("box", "hull"), ("hull", "cylinder")]


@pytest.mark.parametrize("kinds", all_but(PATCHES[1:2], PATCHES))
def test_the_least_distance_of_a_patch_is_the_distance(kinds, rng):
    """And the distances of its points are those along the normal, near the surfaces."""
    a, b = (SHAPES[kind] for kind in kinds)
    compute = jax.jit(jax.vmap(lambda Xa, Xb: patch(4)(a, Xa, b, Xb)))
    apart = jax.jit(jax.vmap(lambda Xa, Xb: collision.distance(a, Xa, b, Xb)))
    n = 200
    R = Rotation.from_rotvec(rng.normal(size=(2 * n, 3)) * 2).as_matrix()
    p = rng.normal(size=(2 * n, 3)) * 0.15
    X_a, X_b = Pose(R[:n], p[:n]), Pose(R[n:], p[n:])
    found, exact = compute(X_a, X_b), apart(X_a, X_b)
    assert 20 < np.sum(exact.distance > 0) < n - 20
    np.testing.assert_allclose(np.min(found.distance, axis=1), exact.distance, atol=1e-12)
    normal = np.einsum("nij,nj->ni", X_b.R, found.normal)
    np.testing.assert_allclose(normal, exact.normal, atol=1e-12)
    gap = np.einsum("nki,ni->nk", found.point_b - found.point_a, found.normal)
    np.testing.assert_allclose(gap, found.distance, atol=1e-12)


def test_points_on_a_line_or_in_one_place_count_twice():
    indices = jax.jit(spread, static_argnums=3)
    some, equal = np.ones(5, bool), np.zeros(5)
    line = np.array([[0.0, 0], [1, 1], [2, 2], [3, 3], [1.5, 1.5]])
    chosen = line[indices(line, equal, some, 4)]
    np.testing.assert_array_equal(np.sort(chosen[:, 0]), [0, 0, 3, 3])
    same = np.ones((5, 2))
    np.testing.assert_array_equal(same[indices(same, equal, some, 4)], same[:4])
    low = np.array([1.0, 1, 1, 0, 1])
    assert np.asarray(indices(line, low, some, 2))[0] == 3
    assert np.asarray(indices(line, low, np.array([True, True, False, False, True]), 2))[0] != 3


# ------------------------------------------------------------------------------------ at rest


@functools.cache
def free_body():
    """A body of 2 kg without shapes."""
    inertia = rbd.model.link_inertia(2.0, (0, 0, 0), np.diag([0.02, 0.015, 0.01]))
    joint = rbd.model.JointSpec("joint", rbd.joints.FreeFlyer(), None, "body")
    return rbd.build_model([rbd.model.Link("body", inertia)], [joint])


@functools.cache
def simulation(supported):
    """The compiled function (scene, q, v) to the last state, all energies, forces and residuals.

    The forces are the means of the second half of the time, less the rate of the momentum (3,).
    """
    model = free_body()

    def simulate(scene, q, v):
        def advance(state, _):
            step = contact.contact_step(model, scene, *state, jnp.zeros(6), DT)
            energy = rbd.kinetic_energy(model, step.q, step.v) + rbd.potential_energy(model, step.q)
            momentum = 2.0 * rbd.forward_kinematics(model, step.q).X_WB.R[0] @ step.v[:3]
            force = jnp.sum(step.impulse, axis=0) / DT
            return (step.q, step.v), (energy, force, momentum, step.residual)

        found = jax.lax.scan(advance, (q, v), length=supported)
        state, (energy, forces, momenta, residual) = found
        half = supported // 2
        rate = (momenta[-1] - momenta[half - 1]) / ((supported - half) * DT)
        return *state, energy, jnp.mean(forces[half:], axis=0) - rate, residual

    return jax.jit(simulate)


def start(rotation, height=0.4):
    """A configuration of the body: turned by a rotation vector, at a height."""
    q = rbd.neutral(free_body()).at[2].set(height)
    angle = np.linalg.norm(rotation)
    axis = np.array(rotation) / angle if angle else np.zeros(3)
    return q.at[3:7].set(jnp.array([*np.sin(angle / 2) * axis, np.cos(angle / 2)]))


TABLE = PlacedShape(Box([1.0, 1.0, 0.1]), None, turned((0, 0, 0), (0, 0, -0.1)), "table")
FLAT = PlacedShape(HalfSpace(), None, turned((0, 0, 0)), "floor")


def scene_of(kind, support):
    shape = PlacedShape(SHAPES[kind], "body")
    if support == "ground":
        return contact.Scene.from_shapes([shape])
    return contact.Scene.from_shapes([], [(shape, TABLE if support == "table" else FLAT)])


def lowest(kind, q):
    """The height of the lowest point of a shape at a configuration, above z = 0."""
    R = np.asarray(rbd.forward_kinematics(free_body(), q).X_WB.R[0])
    X = Pose(jnp.asarray(R), jnp.asarray(q[:3]))
    plane = Pose(jnp.eye(3), jnp.zeros(3))
    return float(collision.distance(HalfSpace(), plane, SHAPES[kind], X).distance)


EVERY = [(kind, support) for kind in SHAPES for support in ("ground", "table", "floor")]
SOME = [("box", "floor")]  # a file has a cylinder that rests on the ground


@pytest.mark.parametrize("case", all_but(SOME, EVERY), ids=" on the ".join)
def test_a_shape_comes_to_rest(case):
    """It lies on the ground or the table, and the forces carry its weight.

    No energy comes in, but for that of the recovery from a penetration of less than 1 mm.
    """
    kind, support = case
    scene = scene_of(kind, support)
    q, v, energy, force, residual = simulation(700)(scene, start((0.3, 0.2, 0.1)), jnp.zeros(6))
    assert np.max(residual) < 1e-6
    assert np.max(energy - np.minimum.accumulate(energy)) < 3e-3 * energy[0]
    if kind in ("box", "cylinder", "hull"):
        assert np.max(np.abs(v)) < 1e-6
    weight = 2.0 * 9.81
    np.testing.assert_allclose(force[2], weight, rtol=1e-3)
    assert abs(lowest(kind, q)) < 1e-4


@pytest.mark.slow
def test_a_cylinder_rolls():
    """It slides at 1 m/s first, and then rolls at 1 m/s m r^2 / (m r^2 + I)."""
    for support in ("ground", "table"):
        q = start((np.pi / 2, 0, 0), 0.1)
        _, v, *_ = simulation(100)(scene_of("cylinder", support), q, jnp.zeros(6).at[0].set(1.0))
        m, r, inertia = 2.0, 0.1, 0.01
        speed = m * r * r / (m * r * r + inertia)
        np.testing.assert_allclose(np.linalg.norm(v[:3]), speed, rtol=1e-3)
        np.testing.assert_allclose(abs(v[5]), speed / r, rtol=1e-3)


@pytest.mark.slow
def test_edges_that_cross_hold():
    """A beam with an edge below falls on the edge of another beam, across it."""
    inertia = rbd.model.link_inertia(2.0, (0, 0, 0), 0.01 * np.eye(3))
    joint = rbd.model.JointSpec("joint", rbd.joints.Prismatic((0, 0, 1)), None, "beam")
    model = rbd.build_model([rbd.model.Link("beam", inertia)], [joint])
    half = 0.1 * np.sqrt(2)  # from the axis of a beam to its edge
    along_x = PlacedShape(Box([1.0, 0.1, 0.1]), None, turned((np.pi / 4, 0, 0)), "ridge")
    along_y = PlacedShape(Box([0.1, 1.0, 0.1]), "beam", turned((0, np.pi / 4, 0)), "keel")
    scene = contact.Scene.from_shapes([], [(along_y, along_x)])

    @jax.jit
    def simulate(q, v):
        def advance(state, _):
            step = contact.contact_step(model, scene, *state, jnp.zeros(1), DT)
            return (step.q, step.v), jnp.sum(step.impulse[:, 2]) / DT

        return jax.lax.scan(advance, (q, v), length=300)

    (q, v), force = simulate(jnp.array([2 * half + 0.2]), jnp.zeros(1))
    np.testing.assert_allclose(q, 2 * half, atol=1e-4)
    np.testing.assert_allclose(force[-1], 2.0 * 9.81, rtol=1e-6)
    assert np.abs(v) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("boxes", [3, 10])
def test_a_stack_of_boxes_stands(boxes):
    """For one second per box."""
    names = [f"b{i}" for i in range(boxes)]
    inertia = rbd.model.link_inertia(1.0, (0, 0, 0), np.eye(3) / 600)
    links = [rbd.model.Link(name, inertia) for name in names]
    joints = [rbd.model.JointSpec(f"j{x}", rbd.joints.FreeFlyer(), None, x) for x in names]
    model = rbd.build_model(links, joints)
    shapes = [PlacedShape(Box([0.05, 0.05, 0.05]), name) for name in names]
    scene = contact.Scene.from_shapes(shapes[:1], list(zip(shapes[1:], shapes)))
    q = rbd.neutral(model).reshape(boxes, 7).at[:, 2].set(0.05 + 0.1 * np.arange(boxes))
    yaw = np.linspace(-0.2, 0.2, boxes)  # the corners do not lie over each other
    q = q.at[:, 5].set(np.sin(yaw / 2)).at[:, 6].set(np.cos(yaw / 2))

    @jax.jit
    def simulate(q, v):
        def advance(state, _):
            step = contact.contact_step(model, scene, *state, jnp.zeros(model.nv), DT)
            return (step.q, step.v), jnp.sum(step.impulse[:8, 2]) / DT

        return jax.lax.scan(advance, (q, v), length=int(boxes / DT))

    (end, v), force = simulate(q.ravel(), jnp.zeros(model.nv))
    np.testing.assert_allclose(end.reshape(boxes, 7)[:, :3], q[:, :3], atol=1e-3)
    np.testing.assert_allclose(force[-1], boxes * 9.81, rtol=1e-4)
    assert np.max(np.abs(v)) < 1e-4


@pytest.mark.slow
def test_the_derivative_of_a_step_on_a_face():
    """With respect to the state, the sizes of the shapes and the place of the table."""
    model = free_body()
    q, v = start((0.003, 0.002, 0.1), 0.1495), jnp.array([0.3, 0.1, -0.2, 0.1, 0.2, 0.3])

    @jax.jit
    @jax.vmap
    def after(x, dx):
        """The velocity after a step, and its derivative in the direction dx."""
        return jax.jvp(step, (x,), (dx,))

    def step(x):
        half_sizes = jnp.array([1.0, 1.0, 0.1]).at[2].add(x[0])
        table = PlacedShape(Box(half_sizes), None, turned((0, 0, 0), (0, 0, -0.1)))
        sizes = jnp.array([0.1, 0.12, 0.15]).at[:2].add(x[1]).at[2].add(x[2])
        shape = PlacedShape(Box(sizes), "body")
        scene = contact.Scene.from_shapes([], [(shape, table)])
        moved = rbd.integrate(model, q, x[3:9])
        return contact.contact_step(model, scene, moved, v + x[9:], jnp.zeros(6), DT).v

    directions = np.eye(15)
    steps = np.concatenate([1e-6 * directions, -1e-6 * directions, 0 * directions])
    value, derivative = after(jnp.asarray(steps), jnp.asarray(np.tile(directions, (3, 1))))
    expected = (value[:15] - value[15:30]) / 2e-6
    assert np.max(np.abs(expected[:3])) > 1  # the sizes matter
    np.testing.assert_allclose(derivative[30:], expected, atol=2e-4 * np.max(np.abs(expected)))


# ------------------------------------------------------------------------------------- robots


@jax.jit
def contacts(model, scene, q):
    return find_contacts(model, scene.astype(float), rbd.forward_kinematics(model, q))


ROBOT = """<robot name="r">{0}<link name="base"><collision><geometry><box size="0.4 0.3 0.1"/>
  </geometry></collision>{1}</link>
  <link name="tip">{2}<collision><origin xyz="0 0 -0.3"/><geometry>
    <cylinder radius="0.05" length="0.2"/></geometry></collision></link>
  <joint name="hinge" type="revolute"><parent link="base"/><child link="tip"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"""
INERTIAL = """<inertial><mass value="1"/>
  <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>"""


def robot(mesh=""):
    return rbd.load_urdf(ROBOT.format("", INERTIAL + mesh, INERTIAL), root_joint="free_flyer")


def test_the_scene_of_a_model_has_its_collision_shapes():
    model = robot()
    scene = contact.Scene.from_model(model)
    assert scene.frames == ("base",) * 8
    assert len(scene.pairs) == 4
    assert contact_bodies(model, scene).tolist() == [0] * 8 + [1] * 4 + [-1] * 4
    np.testing.assert_array_equal(scene.ground.offset, 0)
    wall = PlacedShape(Box([0.1, 1.0, 1.0]), None, turned((0, 0, 0), (0.5, 0, 0)), "wall")
    pairs = collision.pairs_of(model, [wall])
    scene = contact.Scene.from_model(model, contact.Plane(offset=-1.0), pairs)
    assert len(scene.pairs) == 4 + 4 * len(pairs)  # two pairs with the wall
    found = contacts(model, scene, rbd.neutral(model).at[2].set(0.5))
    np.testing.assert_allclose(np.sort(found.distance[:8]), [1.45] * 4 + [1.55] * 4, atol=1e-12)
    np.testing.assert_allclose(found.distance[-4:], 1.1, atol=1e-12)  # of the cylinder
    np.testing.assert_allclose(found.distance[8:12], 0.2, atol=1e-9)  # of the base
    np.testing.assert_allclose(found.gradient[8:12], [[-1, 0, 0]] * 4, atol=1e-9)
    fixed = rbd.load_urdf(ROBOT.format("", INERTIAL, INERTIAL))
    assert contact.Scene.from_model(fixed).frames == ()


def test_the_scene_of_a_model_names_what_it_leaves_out():
    mesh = "<collision><geometry><mesh filename='x.stl'/></geometry></collision>"
    model = robot(mesh)
    with pytest.warns(rbd.ContactWarning, match=r"no contacts of base 1: MeshFile x\.stl.*read_me"):
        scene = contact.Scene.from_model(model)
    assert len(scene.pairs) == 4
    with pytest.raises(rbd.ArgumentError, match="no collision shapes on moving links"):
        contact.Scene.from_model(free_body())


WRONG = {
    "both shapes of the pair": lambda: contact.collision_pairs([(TABLE, FLAT)]),
    "shapes has a shape in the world": lambda: contact.Scene.from_shapes([TABLE]),
    "on the ground, expected a shape on the robot": lambda: contact.Scene.from_shapes(
        [PlacedShape(HalfSpace(), "body")]
    ),
    "margin is -1.0, expected finite, 0 or more": lambda: contact.Material(margin=-1.0),
    "margin has shape (2,), expected () or (4,)": lambda: contact.contact_step(
        free_body(),
        contact.Scene.from_shapes(
            [PlacedShape(SHAPES["cylinder"], "body")], material=contact.Material(margin=[0.1, 0.2])
        ),
        rbd.neutral(free_body()),
        jnp.zeros(6),
        jnp.zeros(6),
        DT,
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message):
    with pytest.raises(rbd.ArgumentError) as error:
        WRONG[message]()
    assert message in str(error.value)


# ------------------------------------------------------------------------------------- MuJoCo


MJCF = """<mujoco><option timestep="0.002"/>
  <asset><mesh name="hull" vertex="{vertices}"/></asset>
  <worldbody>{support}
    <body name="body" pos="0 0 {height}" {turn}><freejoint/><geom name="shape" {geom} mass="2"
      margin="{margin}" friction="0.6"/></body></worldbody></mujoco>"""
PLANE = "<geom name='floor' type='plane' size='1 1 1' friction='0.5'/>"
BLOCK = "<geom name='floor' type='box' size='1 1 .1' pos='0 0 -.1' friction='0.5'/>"
BUMPS = "".join(
    f"<geom name='bump{i}' type='{kind}' size='.2 .2 .2' pos='{0.5 * i} 0 0'/>"
    for i, kind in enumerate(("cylinder", "ellipsoid"))
)


def file(kind, support=PLANE, **changes):
    places = {"margin": 0.0, "height": 0.4, "turn": ""} | changes
    vertices = " ".join(f"{x:.6f}" for x in HULL.ravel())
    return MJCF.format(vertices=vertices, support=support, geom=GEOMS[kind], **places)


SUPPORTS = {"plane": PLANE, "block": BLOCK}
FILES = [(kind, support) for kind in GEOMS for support in SUPPORTS]


@pytest.mark.parametrize("case", all_but([("cylinder", "plane")], FILES), ids=" on a ".join)
def test_a_file_rests_where_mujoco_rests(case):
    """After three seconds: the height of the lowest point, and the friction of the contacts."""
    kind, support = case
    text = file(kind, SUPPORTS[support], turn="euler='20 10 0'")
    found = io.load_mjcf(text)
    assert found.omitted == ()
    assert set(np.unique(np.asarray(found.scene.friction))) == {0.6}

    @jax.jit
    def simulate(q, v):
        def advance(state, _):
            step = contact.contact_step(found.model, found.scene, *state, jnp.zeros(6), DT)
            return (step.q, step.v), None

        return jax.lax.scan(advance, (q, v), length=750)[0]

    q, v = simulate(found.q0, jnp.zeros(6))
    compiled = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(compiled)
    for _ in range(1500):
        mujoco.mj_step(compiled, data)
    if kind in ("box", "cylinder", "hull"):
        assert np.max(np.abs(v)) < 1e-3
        assert np.max(np.abs(data.qvel)) < 1e-2
        # MuJoCo sinks in by some 0.1 mm.
        assert abs(q[2] - data.qpos[2]) < 2e-3


def free(name, geom, place, more=""):
    """A body on a free joint, with one geom of the same name."""
    return f"""<body name="{name}" pos="{place}"><freejoint/>
      <geom name="{name}" {geom} friction="0.8"/>{more}</body>"""


def limb(name, place, size, more=""):
    """A link on a hinge about y, a capsule along x."""
    return f"""<body name="{name}" pos="{place}"><joint axis="0 1 0" damping="0.05" range="-60 60"/>
      <geom name="{name}" type="capsule" size="{size}" fromto="0 0 0 .1 0 0"/>{more}</body>"""


FINGERS = "".join(limb(f"f{i}", f".05 {y} 0", 0.01) for i, y in enumerate((-0.03, 0, 0.03)))
LEGS = "".join(
    limb(f"thigh{i}", f".1 {y} 0", 0.03, limb(f"shin{i}", ".1 0 0", 0.025))
    for i, y in enumerate((-0.06, 0.06))
)
TILTED_BLOCK = BLOCK.replace("/>", " euler='0 15 0'/>")
# The bodies, the support, and the initial velocity of the first body along x.
SCENES = {
    "a stack of five boxes": (
        "".join(
            free(
                f"box{i}",
                "type='box' size='.1 .1 .05'",
                f"{0.02 * (-1) ** i} 0 {0.055 + 0.105 * i}",
            )
            for i in range(5)
        ),
        BLOCK,
        0.0,
    ),
    "a rolling cylinder": (
        free("drum", "type='cylinder' size='.1 .15' euler='90 0 0'", "-.5 0 .101"),
        BLOCK,
        0.3,
    ),
    "a plank on two cylinders": (
        free("left", "type='cylinder' size='.05 .1'", "-.2 0 .101")
        + free("right", "type='cylinder' size='.05 .1'", ".2 0 .101")
        + free("plank", "type='box' size='.4 .1 .02'", ".05 0 .225"),
        BLOCK,
        0.0,
    ),
    "a box on a slope": (
        free("box", "type='box' size='.1 .1 .05' euler='0 15 0'", "0 0 .06"),
        TILTED_BLOCK,
        0.0,
    ),
    "a hand on a table": (
        free("palm", "type='box' size='.05 .05 .015'", "0 0 .03", FINGERS),
        BLOCK,
        0.0,
    ),
    "a lying walker": (
        free("trunk", "type='box' size='.1 .1 .05'", "0 0 .08", LEGS),
        BLOCK,
        0.0,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_a_scene_settles_as_in_mujoco(name):
    """After three seconds: the heights of all bodies, and the vertical force of each pair."""
    bodies, support, speed = SCENES[name]
    text = f"""<mujoco><option timestep="0.002"/><default><geom density="500"/></default>
      <worldbody>{support}{bodies}</worldbody></mujoco>"""
    found = io.load_mjcf(text)
    model, scene, compiled = found.model, found.scene, mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(compiled)
    data.qvel[0] = speed

    @jax.jit
    def simulate(q, v):
        def advance(state, _):
            step = contact.contact_step(model, scene, *state, jnp.zeros(model.nv), DT)
            return (step.q, step.v), step.impulse[:, 2] / DT

        (q, v), force = jax.lax.scan(advance, (q, v), length=750)
        return rbd.forward_kinematics(model, q), v, jnp.mean(force[-50:], axis=0)

    kinematics, v, force = simulate(
        found.q0, found.coordinates.v(model, qpos=data.qpos, qvel=data.qvel)
    )
    parts = np.split(np.asarray(force), np.cumsum(scene.pairs.counts)[:-1])
    ours = {pair: np.sum(part) for pair, part in zip(found.pairs, parts, strict=True)}
    theirs = dict.fromkeys(ours, 0.0)
    for _ in range(1500):
        mujoco.mj_step(compiled, data)
    mujoco.mj_forward(compiled, data)
    wrench = np.zeros(6)
    for i, touching in enumerate(data.contact):
        mujoco.mj_contactForce(compiled, data, i, wrench)
        # The force on the second geom, in the axes of the contact.
        up = touching.frame.reshape(3, 3).T[2] @ wrench[:3]
        a, b = (compiled.geom(int(geom)).name for geom in touching.geom)
        pair = (a, b) if (a, b) in theirs else (b, a)
        theirs[pair] += -up if pair == (a, b) else up
    weight = 9.81 * float(np.sum(compiled.body_mass))
    for pair, expected in theirs.items():
        assert abs(ours[pair] - expected) < 0.01 * weight, pair
    assert theirs["floor", compiled.body(1).name] < -0.1
    # MuJoCo sinks in by some 0.1 mm per contact.
    np.testing.assert_allclose(kinematics.X_WB.p[:, 2], data.xpos[1:, 2], atol=2e-3)
    # On a slope, a box creeps in MuJoCo.
    assert abs(np.linalg.norm(v[:3]) - np.linalg.norm(data.qvel[:3])) < 2e-3
    assert abs(np.linalg.norm(v[:3]) - 2 / 3 * speed) < 2e-3  # of a cylinder that rolls


@pytest.mark.parametrize("kind", all_but(["box"], ["hull", "box", "cylinder", "ellipsoid"]))
def test_the_contacts_of_a_file_have_the_distances_of_mujoco(kind, rng):
    """The least distance of each pair with a cylinder and with an ellipsoid."""
    text = file(kind, BUMPS, height=0.25)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rbd.ContactWarning)
        found = io.load_mjcf(text)
    compiled = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(compiled)
    model, scene = found.model, found.scene.astype(float)
    counts = scene.pairs.counts

    def distances(qpos):
        return contacts(model, scene, found.coordinates.q(model, qpos)).distance

    seen = 0
    for _ in range(20):
        data.qpos[:3] = rng.uniform([-0.2, -0.2, 0.0], [0.7, 0.2, 0.5])
        data.qpos[3:] = rng.normal(size=4)
        data.qpos[3:] /= np.linalg.norm(data.qpos[3:])
        mujoco.mj_forward(compiled, data)
        parts = np.split(np.asarray(distances(np.array(data.qpos))), np.cumsum(counts)[:-1])
        for (first, second), part in zip(found.pairs, parts, strict=True):
            ids = (compiled.geom(name).id for name in (first, second))
            theirs = mujoco.mj_geomDistance(compiled, data, *ids, 10.0, None)
            if theirs > 1e-3:  # MuJoCo's depth of curved shapes is approximate
                assert abs(np.min(part) - theirs) < 1e-4
                seen += 1
    assert seen > 10


def test_a_margin_lifts_a_shape_as_in_mujoco():
    text = file("box", margin=0.02, height=0.1)
    found = io.load_mjcf(text)
    distance = contacts(found.model, found.scene, found.q0).distance
    compiled = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(compiled)
    for _ in range(1000):
        mujoco.mj_step(compiled, data)
    np.testing.assert_allclose(np.min(distance), 0.1 - 0.05 - 0.02, atol=1e-9)
    assert abs(data.qpos[2] - 0.07) < 1e-3  # where our distance is 0


def test_each_contact_of_a_file_has_its_friction():
    """Shapes on the ground and in pairs, with the ground and a post on a body of the world."""
    text = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1" friction="0.1"/>
      <body pos="0 0 1"><geom name="post" type="cylinder" size=".1 .2" friction="0.2"/></body>
      <body name="a" pos="1 0 1"><freejoint/>
        <geom name="can" type="cylinder" size=".1 .2" friction="0.3"/></body>
      <body name="b" pos="2 0 1"><freejoint/>
        <geom name="rod" type="capsule" size=".1 .1" friction="0.4"/>
        <geom name="egg" type="ellipsoid" size=".1 .1 .2" friction="0.5"/></body>
      </worldbody></mujoco>"""
    found = io.load_mjcf(text)
    scene, pairs = found.scene, found.scene.pairs
    assert scene.frames == ("b", "b")
    names = [*(shape.name for shape in pairs.shapes), "floor"]  # the index of the ground is -1
    members = " ".join(f"{names[i]}-{names[j]}" for i, j in pairs.members)
    assert members == "post-can post-rod post-egg can-rod can-egg can-floor egg-floor"
    counts = [4, 2, 1, 2, 1, 4, 1]
    assert pairs.counts.tolist() == counts
    expected = np.repeat([0.3, 0.4, 0.5, 0.4, 0.5, 0.3, 0.5], counts)
    np.testing.assert_allclose(scene.friction, [0.4, 0.4, *expected])


def test_a_mesh_of_many_vertices_in_a_file_is_simplified(rng):
    ball = rng.normal(size=(300, 3))
    ball *= 0.2 / np.linalg.norm(ball, axis=1, keepdims=True)
    vertices = " ".join(f"{x:.6f}" for x in ball.ravel())
    text = file("hull").replace(" ".join(f"{x:.6f}" for x in HULL.ravel()), vertices)
    with pytest.warns(
        rbd.ContactWarning, match=r"fewer .* for 1 mesh: .*'shape' of body .* within 0"
    ):
        found = io.load_mjcf(text)
    assert len(found.scene.pairs.shapes[0].shape.vertices) == 64


# ---------------------------------------------------------------------------- pairs and grounds


def test_a_tilted_face_has_the_distances_of_its_corners():
    """A box that is tilted by 0.01 rad about an edge of its lower face."""
    below, above, angle = Box([1.0, 1.0, 0.5]), Box([0.3, 0.2, 0.1]), 0.01
    X = turned((0.0, angle, 0.0))
    corners = np.array([[x, y, -0.1] for x in (-0.3, 0.3) for y in (-0.2, 0.2)]) @ X.R.T
    up = 0.5 - np.min(corners[:, 2])
    found = patch(4)(above, Pose(X.R, np.array([0, 0, up])), below, turned((0, 0, 0)))
    expected = np.sort(corners[:, 2] + up - 0.5)
    np.testing.assert_allclose(np.sort(found.distance), expected, atol=1e-7)
    assert expected[-1] > 0.005


def test_the_ground_knows_roundings_and_slopes():
    """A cylinder with round edges on an inclined plane and on a smooth slope of the same angle."""
    model, angle = free_body(), 0.3
    shape = PlacedShape(Cylinder(0.1, 0.15, 0.02), "body")
    normal = np.array([-np.sin(angle), 0.0, np.cos(angle)])
    slope = np.tan(angle)
    for ground in (contact.Plane(normal), lambda xy: slope * xy[0]):
        scene = contact.Scene.from_shapes([shape], ground=ground)
        q = start((0.0, -angle, 0.0)).at[:3].set(0.16 * normal)
        found = contacts(model, scene, q)
        np.testing.assert_allclose(found.distance, 0.01, atol=1e-9)
        # The lowest points of the round edge are the ends of the flat part of the face.
        np.testing.assert_allclose(found.arm[:4, 2], -0.15, atol=1e-9)
        np.testing.assert_allclose(np.hypot(*found.arm[:4, :2].T), 0.08, atol=1e-9)
        assert area(found.arm[:4, :2]) > 1.5 * 0.08**2  # the whole face


def test_round_shapes_touch_the_ground_with_spheres():
    """A sphere itself, the ends of a capsule, and the corners of a box, in a turned frame."""
    X = turned((0.3, -0.2, 0.5), (0.1, 0.2, 0.3))
    shapes = (Sphere(0.1), Capsule(0.2, 0.2), Box([0.1, 0.2, 0.3], 0.05))
    scene = contact.Scene.from_shapes([PlacedShape(shape, "body", X) for shape in shapes])
    along = 0.2 * X.R[:, 2]
    corners = [[0.05 * i, 0.15 * j, 0.25 * k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)]
    centres = [X.p, X.p - along, X.p + along, *(X.p + np.array(corners) @ X.R.T)]
    np.testing.assert_allclose(scene.offsets, np.array(centres), atol=1e-15)
    np.testing.assert_array_equal(scene.radii, [0.1, 0.2, 0.2, *[0.05] * 8])
    assert len(scene.pairs) == 0


def test_the_inverse_inertia_of_placed_pairs():
    """A sphere, and an ellipsoid of the same size: the mean over all points of the sphere."""
    model = free_body()
    ball, table = PlacedShape(Sphere(0.1), "body"), TABLE
    ellipsoid = PlacedShape(Ellipsoid([0.1, 0.1, 0.1]), "body")
    scenes = [contact.Scene.from_shapes([], [(x, table)]) for x in (ball, ellipsoid)]
    values = [contact.inverse_inertias(model, scene).contacts for scene in scenes]
    # The square of the lever arm about an axis is (2/3) 0.1^2 on average.
    turning = 2 / 3 * 0.1**2 * np.sum(1 / np.array([0.02, 0.015, 0.01])) / 3
    np.testing.assert_allclose(values, np.full_like(values, 1 / 2 + turning), rtol=1e-12)


def test_the_inverse_inertia_of_a_hull_does_not_depend_on_its_origin():
    """A box, and the hull of its corners with an origin outside of it, in a turned frame."""
    model, X = free_body(), turned((0.3, -0.2, 0.5), (0.1, 0.2, 0.3))
    half_sizes, shift = np.array([0.1, 0.2, 0.3]), np.array([0.4, -0.5, 0.6])
    corners = half_sizes * (2 * np.indices((2, 2, 2)).reshape(3, 8).T - 1)
    shapes = [
        PlacedShape(Box(half_sizes), "body", X),
        PlacedShape(ConvexMesh(corners + shift), "body", X._replace(p=X.p - X.R @ shift)),
    ]
    scenes = [contact.Scene.from_shapes([], [(x, TABLE)]) for x in shapes]
    box, hull = (contact.inverse_inertias(model, scene).contacts for scene in scenes)
    np.testing.assert_allclose(hull, box, rtol=1e-12)


def test_a_margin_acts_on_all_contacts():
    model = free_body()
    cylinder, ball = PlacedShape(SHAPES["cylinder"], "body"), PlacedShape(Sphere(0.1), "body")
    box = PlacedShape(SHAPES["box"], "body")

    def scene(margin):
        pairs, material = [(box, TABLE), (ball, TABLE)], contact.Material(margin=margin)
        return contact.Scene.from_shapes([cylinder, ball], pairs, material=material)

    def distances(margin):
        return contacts(model, scene(margin), start((0.1, 0.2, 0.3))).distance

    # Arrays of one shape share a program. The next test has one margin for all contacts.
    each = np.linspace(0, 0.1, scene(0.0).size)
    plain = distances(np.zeros(len(each)))
    np.testing.assert_allclose(distances(each), plain - each, atol=1e-15)


def test_the_distances_of_a_step_and_of_a_force_have_no_margin():
    model, material = free_body(), contact.Material(margin=0.02)
    ball = PlacedShape(Sphere(0.1), "body")
    scene = contact.Scene.from_shapes([ball], [(ball, FLAT)], material=material)
    q, v = start((0.1, 0.2, 0.8)), jnp.zeros(6)
    expected = jnp.full(2, q[2] - 0.1)
    step = contact.contact_step(model, scene, q, v, jnp.zeros(6), 0.001)
    np.testing.assert_allclose(step.distance, expected, atol=1e-15)
    force = contact.contact_force(model, scene, q, v)
    np.testing.assert_allclose(force.distance, expected, atol=1e-15)


@pytest.mark.slow
def test_a_pair_in_the_other_order_has_the_opposite_contacts():
    """For two kinds of shapes, a box, and a shape and a half-space, apart."""
    model = free_body()
    q = start((0.1, 0.2, 0.3))
    X = rbd.forward_kinematics(model, q).X_WB
    kinds = (("cylinder", TABLE), ("box", TABLE), ("box", FLAT))
    pairs = [(PlacedShape(SHAPES[kind], "body"), other) for kind, other in kinds]
    scene = contact.Scene.from_shapes([], [*pairs, *(pair[::-1] for pair in pairs)])
    found = contacts(model, scene, q)
    n = len(found.distance) // 2
    distance, gradient = found.distance[:n], found.gradient[:n]
    np.testing.assert_allclose(found.distance[n:], distance, atol=1e-12)
    np.testing.assert_allclose(found.gradient[n:], -gradient, atol=1e-12)
    of_shape, other_again, of_other, shape_again = found.arm.reshape(4, n, 3)
    np.testing.assert_allclose(shape_again, of_shape, atol=1e-9)
    np.testing.assert_allclose(other_again, of_other, atol=1e-9)
    assert np.min(distance) > 0.1
    points = of_shape @ X.R[0].T + X.p[0]  # in the world
    np.testing.assert_allclose(np.sum((points - of_other) * gradient, axis=1), distance, atol=1e-9)
