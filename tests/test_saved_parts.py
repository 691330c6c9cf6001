"""Model files with tendons, muscles, sensors and other parts of a robot."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import actuators, io, passive, sensors, tendons
from jaxrbd.errors import ArgumentError, SavedFileError
from jaxrbd.io._part_records import KINDS, part_of
from jaxrbd.io._sealed import read_sealed, write_sealed
from jaxrbd.io.model_file import VERSION
from jaxrbd.model.shapes import Cylinder, Sphere
from support import zoo
from support.muscle_arm import ARM


@pytest.fixture(scope="module")
def model():
    return zoo.small()


CORD = tendons.SpatialTendon(
    "cord",
    [
        tendons.PathPoint("a", [0.1, 0, 0]),
        tendons.Wrap(Sphere(0.1), None, [0.1, 0.2, 0.3], side="b"),
        tendons.PathPoint("b"),
        tendons.Wrap(Cylinder(0.1, 0.2), "b", rbd.Pose(np.eye(3), np.ones(3))),
        tendons.PathPoint(None),
        tendons.Pulley(2.0),
        tendons.PathPoint(None),
        tendons.PathPoint("a"),
    ],
)
SUM = tendons.FixedTendon("sum", [0.5, -1.0], ["l1", "l2"])
PARTS = {
    "tendons": tendons.Tendons(
        [CORD, SUM, tendons.RotationAngle("ball", "ball")],
        stiffness=[[1, 2], [3, 4], [5, 6]],
        rest=[[-np.inf, 1], [0, 1], [0, 0]],
        limits=np.tile([-1, 1], (3, 1)),
    ),
    "actuators": actuators.AffineActuators(
        [
            "l1",
            CORD,
            SUM,
            actuators.FrameForce("a", [1, 2, 3], force_axes="world"),
            actuators.FrameDisplacement("a", "b", [1, 0, 0]),
            CORD,
            actuators.SliderCrank("a", "b", 0.3),
            actuators.BallTorque("ball", [0, 0, 1], in_parent=True),
        ],
        gear=np.arange(1, 9),
        tendon_force_range=[[-1, 1], [-np.inf, 2]],
        muscles=actuators.Muscles([1, 0, 0, 0, 0, 2, 0, 0], np.tile([0.1, 0.2], (8, 1))),
        names=[f"motor {i}" for i in range(8)],
    ),
    "filter": actuators.Filter([0.1, 0.2], kinds=["exact", "muscle"], early=[True, False]),
    "control": (
        actuators.PD(np.ones(2), np.ones(2), np.full(2, np.inf)),
        actuators.DCMotor(np.ones(2), np.ones(2), np.ones(2)),
        actuators.Delay(0.5, 3),
    ),
    "passive": passive.PassiveForces(
        springs=passive.JointSprings(["l1"], [2.0], [0.1], balls=["ball"], ball_stiffness=[3.0]),
        gravity_compensation=passive.GravityCompensation(["a"], [1.0], [2.0], np.ones((1, 3))),
        damping=passive.PolynomialDamping(["l1"], [[0, 1.0]]),
        armature=passive.FixedAxesArmature(["base"]),
        fluid=passive.FluidForces(
            1.2,
            0.1,
            boxes=passive.FluidBoxes(["a"], [[1, 2, 3]]),
            ellipsoids=passive.FluidEllipsoids(["b"], [[1, 2, 3]], coefficients=np.ones((1, 5))),
        ),
    ),
    "sensors": sensors.RobotSensors(
        [
            sensors.FrameSensor("place", "position", "a", [1, 2, 3], reference="b", cutoff=2.0),
            sensors.FrameSensor("field", "magnetometer", None, magnetic_field=[1, 0, 0]),
            sensors.JointSensor("joint", "position", "l1", noise=0.1),
            sensors.TendonSensor("cord", "rate", "cord"),
            sensors.ActuatorSensor("motor", "force", "motor 0"),
            sensors.SubtreeSensor("foot", "force", "a", inertia=np.arange(10), carried=["b"]),
            sensors.StateSensor("time", "time"),
        ],
        left_out=[("eye", "it is a camera")],
    ),
    "noise": sensors.Noise(0.1, resolution=0.2),
    "numbers": (1, 2.5, True, None, "text", np.arange(3), jnp.float32(2), np.zeros((0, 2))),
}


def kinds_in(x):
    """The classes of the objects in a part."""
    found = {type(x)}
    children = vars(x).values() if dataclasses.is_dataclass(x) else ()
    for child in x if isinstance(x, tuple | list) else children:
        found |= kinds_in(child)
    return found


def assert_same(loaded, saved):
    assert jax.tree.structure(loaded) == jax.tree.structure(saved)
    for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(saved)):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


def test_all_parts_are_kept(model, tmp_path):
    path = tmp_path / "robot.jaxrbd"
    assert {*KINDS.values()} <= set().union(*map(kinds_in, PARTS.values()))
    io.save_model(model, path, PARTS)
    loaded = io.load_parts(path)
    assert [*loaded] == [*PARTS]
    for name, part in PARTS.items():
        assert_same(loaded[name], part)
    assert_same(io.load_model(path), model)
    driven = loaded["actuators"]
    assert driven.tendons[0] is driven.tendons[driven.outputs[5] - 1]
    io.save_model(model, path)
    assert io.load_parts(path) == {}


@pytest.mark.slow
def test_an_arm_with_muscles_is_the_same_robot(tmp_path):
    pytest.importorskip("mujoco")
    robot, path = io.load_mjcf(ARM), tmp_path / "arm.jaxrbd"
    names = ("actuators", "filter", "tendons", "passive", "sensors")
    io.save_model(robot.model, path, {name: getattr(robot, name) for name in names})
    model, parts = io.load_model(path), io.load_parts(path)
    q, v, activation = jnp.array([0.3, 0.5]), jnp.array([0.1, -0.2]), jnp.full(6, 0.5)
    np.testing.assert_array_equal(
        parts["actuators"](model, q, v, activation), robot.actuators(robot.model, q, v, activation)
    )
    np.testing.assert_array_equal(parts["sensors"](model, q, v), robot.sensors(robot.model, q, v))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (lambda x: x, r"parts\['it'\] is <function .*, which no file can hold"),
        ((1, {"a": 2}), r"parts\['it'\]\[1\] is \{'a': 2\}, which no file can hold"),
        (np.array(["a"]), r"parts\['it'\] is an array of <U1, which no file can hold"),
        (
            (1.0, np.ones(2, np.float16)),
            r"parts\['it'\]\[1\] is an array of float16, .*: expected float32, .*, int64 or bool",
        ),
        (
            tendons.Tendons([SUM], stiffness=jnp.ones(1, jnp.bfloat16)),
            r"parts\['it'\].stiffness is an array of bfloat16, which no file can hold",
        ),
        ((1, 10**5000), r"parts\['it'\]\[1\] is an integer of more than 64 bits"),
        (jax.random.key(0), r"parts\['it'\] is an array of key<fry>, which no file can hold"),
        (
            tendons.Tendons([CORD], stiffness=[1.0]).__class__,
            "which no file can hold",
        ),
    ],
)
def test_other_parts_are_refused(model, tmp_path, part, message):
    path = tmp_path / "robot.jaxrbd"
    with pytest.raises(ArgumentError, match=message):
        io.save_model(model, path, {"it": part})
    assert not path.exists()


def test_traced_and_batched_parts_are_refused(model, tmp_path):
    path = tmp_path / "robot.jaxrbd"

    def save(stiffness):
        io.save_model(model, path, {"it": tendons.Tendons([SUM], stiffness=stiffness)})
        return 0.0

    with pytest.raises(ArgumentError, match=r"parts\['it'\].stiffness is traced"):
        jax.grad(save)(jnp.ones(1))
    batch = jax.vmap(lambda k: tendons.Tendons([SUM], stiffness=k))(jnp.ones((2, 1)))
    with pytest.raises(ArgumentError, match=r"parts\['it'\].*cannot hold a batch"):
        io.save_model(model, path, {"it": batch})
    for parts in ({1: 2.0}, ["it"]):
        with pytest.raises(ArgumentError, match=r"parts is .*, expected a mapping from names"):
            io.save_model(model, path, parts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["parts"]["it"].update(kind="Rope"), "object of the unknown kind 'Rope'"),
        (lambda h: h["parts"]["it"].update(kind=["Rope"]), "unknown kind"),
        (lambda h: h["parts"]["it"]["arguments"].update(a=1), "FixedTendon has no argument 'a'"),
        (lambda h: h["parts"]["it"]["arguments"].pop("name"), r"parts\['it'\]: .*'name'"),
        (
            lambda h: h["parts"]["it"]["arguments"].update(joints={"list": ["l1"]}),
            r"parts\['it'\]: coefficients has",
        ),
        (
            lambda h: h["parts"]["it"]["arguments"].update(coefficients={"array": 7}),
            "has no array 7",
        ),
        (lambda h: h["parts"].update(it={"tuple": []}), r"an entry with \['tuple'\]"),
        (lambda h: h["parts"].update(it=[1]), r"parts\['it'\] has the entry \[1\]"),
        (
            lambda h: h["part_arrays"][0].update(dtype="float16"),
            r"array of parts\['it'\] is 'float16', expected float32, float64, int32, int64 or bool",
        ),
        (
            lambda h: h["part_arrays"].append({"dtype": "object", "shape": []}),
            "an array of a part is 'object', expected float32",
        ),
        (lambda h: h["part_arrays"][0].update(shape=[3]), "their shapes need another size"),
        (
            lambda h: h["part_arrays"][0].update(shape=[2**31 - 1, 2**31 - 1, 0]),
            "'an array of a part' has shape",
        ),
        (
            lambda h: h["parts"]["it"]["arguments"].update(coefficients=10**400),
            r"parts\['it'\]: ",
        ),
        (lambda h: h["part_arrays"][0].update(shape=[-2]), r"'an array of a part' has shape \[-2"),
        (lambda h: h.update(parts=[]), "its header has not the form"),
    ],
)
def test_wrong_records_are_refused(model, tmp_path, change, message):
    """A file with a right checksum, whose header contradicts itself."""
    path = tmp_path / "robot.jaxrbd"
    io.save_model(model, path, {"it": SUM})
    header, body = read_sealed(path, "model", VERSION)
    change(header)
    write_sealed(path, "model", VERSION, json.loads(json.dumps(header)), body)
    with pytest.raises(SavedFileError, match=message):
        io.load_parts(path)


def test_parts_within_each_other_without_end():
    record = {"list": []}
    for _ in range(5000):
        record = {"list": [record]}
    with pytest.raises(rbd.ModelError, match="it has too many parts within each other"):
        part_of(record, [], "it")


def test_a_part_that_its_constructor_does_not_make(model, tmp_path):
    """Its fields were changed without the constructor."""
    strange = dataclasses.replace(CORD)
    object.__setattr__(strange, "path", [*CORD.path])  # a list, not a tuple
    with pytest.raises(ArgumentError, match="differs from what its constructor"):
        io.save_model(model, tmp_path / "robot.jaxrbd", {"it": strange})
    with pytest.raises(ArgumentError, match=r"parts\['it'\] is a list, expected a tuple"):
        io.save_model(model, tmp_path / "robot.jaxrbd", {"it": [CORD]})
