"""The bundled robots: sizes, symmetry, and inertias that agree with the shapes."""

import xml.etree.ElementTree as ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from jaxrbd.robots import robot_path
from support import bundled_robots

# degrees of freedom, and the moving mass in kg
ROBOTS = {
    "pendulum": (1, 1.0),
    "double_pendulum": (2, 2.0),
    "cart_pole": (2, 1.2),
    "arm7": (7, 16.0),
    "quadruped": (18, 15.0),
    "humanoid": (35, 66.0),
}


def test_names():
    assert jaxrbd.robot_names() == tuple(ROBOTS)


@pytest.mark.parametrize("load", [jaxrbd.load_robot, robot_path])
def test_an_unknown_name_is_answered_with_the_known_ones(load):
    with pytest.raises(jaxrbd.ArgumentError, match="did you mean 'arm7'"):
        load("arm")
    with pytest.raises(jaxrbd.ArgumentError, match=r"pendulum, .*humanoid; found 'cow'$"):
        load("cow")


@pytest.mark.parametrize("build", bundled_robots.ROBOTS, ids=lambda build: build.__name__)
def test_files_are_what_the_generator_writes(build):
    robot = build()
    assert robot_path(robot.name).read_text(encoding="ascii") == robot.xml()


@pytest.mark.parametrize("name", ROBOTS)
def test_robot_is_sound(name):
    dofs, mass = ROBOTS[name]
    model = jaxrbd.load_robot(name)
    assert model.nv == dofs
    assert float(jaxrbd.total_mass(model)) == pytest.approx(mass)
    assert jaxrbd.io.validate_urdf(robot_path(name)) == []
    keys = jax.random.split(jax.random.key(0), 20)
    q = jax.vmap(jaxrbd.random_configuration, (None, 0))(model, keys)
    M = jax.vmap(jaxrbd.crba, (None, 0))(model, q)
    assert np.max(np.linalg.cond(M)) < 1e6
    assert np.min(np.linalg.eigvalsh(M)) > 0


@pytest.mark.parametrize("name", ROBOTS)
def test_neutral_is_within_the_limits(name):
    model = jaxrbd.load_robot(name)
    q = jaxrbd.neutral(model)
    assert np.all(model.lower_position_limit <= q)
    assert np.all(q <= model.upper_position_limit)
    assert np.all(model.effort_limit >= 0)
    assert np.all(model.velocity_limit > 0)


def second_moments(geometry: ElementTree.Element) -> np.ndarray:
    """The mean of x^2, y^2, z^2 over a uniform solid about its center."""
    (shape,) = geometry
    number = {key: np.array(text.split(), float) for key, text in shape.attrib.items()}
    if shape.tag == "box":
        return number["size"] ** 2 / 12
    radius = number["radius"].item()
    if shape.tag == "sphere":
        return np.full(3, radius**2 / 5)
    assert shape.tag == "cylinder"
    return np.array([radius**2 / 4, radius**2 / 4, number["length"].item() ** 2 / 12])


@pytest.mark.parametrize("name", ROBOTS)
def test_inertias_are_those_of_the_visuals(name):
    for link in ElementTree.parse(robot_path(name)).getroot().iter("link"):
        if link.find("inertial") is None:
            continue
        origins = [
            link.find(f"{part}/origin").attrib for part in ("inertial", "visual", "collision")
        ]
        assert origins[0] == origins[1] == origins[2]
        visual, collision = (link.find(f"{part}/geometry") for part in ("visual", "collision"))
        assert ElementTree.tostring(visual) == ElementTree.tostring(collision)
        mass = float(link.find("inertial/mass").get("value"))
        moments = second_moments(visual)
        stated = {key: float(text) for key, text in link.find("inertial/inertia").items()}
        found = [stated["ixx"], stated["iyy"], stated["izz"]]
        np.testing.assert_allclose(found, mass * (np.sum(moments) - moments), rtol=1e-8)
        assert stated["ixy"] == stated["ixz"] == stated["iyz"] == 0


def mirrored_coordinates(model: jaxrbd.Model, q: np.ndarray) -> np.ndarray:
    """The joint coordinates of the robot's mirror image in the x-z plane. The base stays."""
    axes = {}
    for joint, bodies in zip(model.joints, model.joint_bodies):
        if isinstance(joint, jaxrbd.joints.Revolute):
            axes |= dict(zip(bodies, np.asarray(joint.axis)))
    start = dict(zip(model.joint_names, model.topology.q_start))
    mirrored = q.copy()
    for body, axis in axes.items():
        name = model.joint_names[body]
        swap = {"left": "right", "right": "left"}
        twin = "_".join(swap.get(word, word) for word in name.split("_"))
        mirrored[start[twin]] = q[start[name]] * (1 if axis[1] else -1)
    return mirrored


@pytest.mark.parametrize("name", ["quadruped", "humanoid"])
def test_left_and_right_are_mirror_images(name):
    model = jaxrbd.load_robot(name)
    q = jaxrbd.neutral(model).at[7:].set(jax.random.normal(jax.random.key(1), (model.nq - 7,)))
    twin = jnp.asarray(mirrored_coordinates(model, np.array(q)))
    c, c_twin = jaxrbd.center_of_mass(model, q), jaxrbd.center_of_mass(model, twin)
    np.testing.assert_allclose(c_twin, c * np.array([1.0, -1.0, 1.0]), atol=1e-12)
    moments, twins = (np.linalg.eigvalsh(jaxrbd.crba(model, x)) for x in (q, twin))
    np.testing.assert_allclose(moments, twins, rtol=1e-9)
    lower, upper = np.array(model.lower_position_limit), np.array(model.upper_position_limit)
    flipped = mirrored_coordinates(model, lower), mirrored_coordinates(model, upper)
    np.testing.assert_allclose(np.minimum(*flipped)[7:], lower[7:])
    np.testing.assert_allclose(np.maximum(*flipped)[7:], upper[7:])


@pytest.mark.parametrize("name", ["arm7", "quadruped", "humanoid"])
def test_sizes_are_as_the_files_say(name):
    model = jaxrbd.load_robot(name)
    q = jaxrbd.neutral(model)

    def position(frame):
        return np.asarray(jaxrbd.frame_placement(model, q, frame).p)

    if name == "arm7":
        assert np.linalg.norm(position("tool") - position("shoulder_2")) == pytest.approx(0.85)
    elif name == "quadruped":
        np.testing.assert_allclose(position("front_left_foot"), [0.18, 0.13, -0.4], atol=1e-12)
    else:
        crown = 0.11 + 0.1  # center of the head above its joint, and its radius
        assert (position("head") - position("left_sole"))[2] + crown == pytest.approx(1.75)


@pytest.mark.parametrize("name", jaxrbd.robot_names())
def test_home_posture(name):
    """Within the limits; who walks stands with all soles on the ground, none below it."""
    model, q = jaxrbd.load_robot(name), jaxrbd.robots.home_posture(name)
    assert np.all((q >= model.lower_position_limit) & (q <= model.upper_position_limit))
    standing = {"quadruped": ("_foot", 4, 0.02), "humanoid": ("_sole", 2, 0.0)}
    if name not in standing:
        return
    end, count, clearance = standing[name]
    X = jaxrbd.frame_placements(model, q)
    soles = [i for i, frame in enumerate(model.frame_names) if frame.endswith(end)]
    assert len(soles) == count
    np.testing.assert_allclose(X.p[np.array(soles), 2], clearance, atol=1e-12)
    assert np.min(X.p[:, 2]) > clearance - 1e-12
    if name == "humanoid":  # its soles are flat
        np.testing.assert_allclose(X.R[np.array(soles), 2], [[0, 0, 1]] * count, atol=1e-12)
    com = jaxrbd.center_of_mass(model, q)
    assert np.min(X.p[np.array(soles), 0]) - 0.1 < com[0] < np.max(X.p[np.array(soles), 0]) + 0.1


@pytest.mark.slow
def test_neutral_pendulums_are_where_the_documentation_says():
    hanging = {"pendulum": "rod", "double_pendulum": "lower_rod"}
    for name in (*hanging, "cart_pole"):
        model = jaxrbd.load_robot(name)
        q = jaxrbd.robots.home_posture(name)
        stiffness = jaxrbd.jacobian(model, lambda q, model=model: jaxrbd.gravity_force(model, q))(q)
        assert np.all(np.diag(stiffness)[-1:] > 0) == (name in hanging)
