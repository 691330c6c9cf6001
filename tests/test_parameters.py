"""Wrong parameters and names of actuators, sensors and passive forces are named in an error."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import ArgumentError, actuators, contact, inverse_kinematics, passive, sensors
from jaxrbd.model import arguments
from support import zoo

# With annotations that are checked, other errors come first.
pytestmark = pytest.mark.skipif("JAXRBD_TEST_ANNOTATIONS" in os.environ, reason="wrong types")

RAGGED, TWO = [[1, 2], [3]], [1.0, 2.0]

# For each constructor the arguments that it accepts, and the parameters and the names among them.
PARTS = {
    actuators.Delay: ({"lag": 1.0, "length": 3}, "lag", ""),
    actuators.PD: ({"stiffness": TWO, "damping": TWO}, "stiffness damping effort", ""),
    actuators.DCMotor: (
        {"stall_torque": TWO, "no_load_speed": TWO},
        "stall_torque no_load_speed effort gear_ratio",
        "",
    ),
    actuators.Filter: (
        {"time_constant": TWO, "kinds": ["muscle", "exact"]},
        "time_constant command_range activation_range release_time smoothing",
        "kinds",
    ),
    actuators.Muscles: (
        {"peak_force": TWO, "length_range": [[0, 1], [0, 1]]},
        "peak_force length_range scaled_range active_range largest_speed passive_peak "
        "eccentric_peak",
        "",
    ),
    actuators.AffineActuators: (
        {"joints": ["a", "b"]},
        "gain bias gear control_range force_range joint_force_range tendon_force_range",
        "joints names limited_joints",
    ),
    actuators.FrameForce: ({"frame": "a", "force": [1, 0, 0]}, "force moment", ""),
    actuators.FrameDisplacement: (
        {"frame": "a", "reference": "b", "direction": [1, 0, 0]},
        "direction axis",
        "",
    ),
    actuators.SliderCrank: ({"crank": "a", "slider": "b", "rod": 1.0}, "rod", ""),
    actuators.BallTorque: ({"joint": "a", "axis": [1, 0, 0]}, "axis", ""),
    sensors.Noise: ({}, "std bias resolution", ""),
    sensors.FrameSensor: (
        {"name": "s", "quantity": "magnetometer", "frame": "a", "magnetic_field": [1, 0, 0]},
        "magnetic_field X_FP",
        "",
    ),
    sensors.SubtreeSensor: (
        {"name": "s", "quantity": "force", "frame": "a", "inertia": np.ones(10), "carried": ["b"]},
        "inertia X_FP",
        "carried",
    ),
    passive.JointSprings: (
        {"joints": ["a", "b"], "stiffness": TWO},
        "stiffness rest ball_stiffness ball_rest position_stiffness position_rest",
        "joints balls positions",
    ),
    passive.GravityCompensation: (
        {"frames": ["a", "b"], "factors": TWO, "masses": TWO, "centers": np.ones((2, 3))},
        "factors masses centers",
        "frames",
    ),
    passive.PolynomialDamping: ({"joints": ["a"], "coefficients": [1.0]}, "coefficients", "joints"),
    passive.FixedAxesArmature: ({"joints": ["a"]}, "", "joints"),
    passive.FluidBoxes: ({"frames": ["a"], "sizes": np.ones((1, 3))}, "sizes", "frames"),
    passive.FluidEllipsoids: (
        {"frames": ["a"], "semi_axes": np.ones((1, 3))},
        "semi_axes coefficients added_volume added_moment",
        "frames",
    ),
    contact.Material: (
        {},
        "stiffness dissipation friction slip_speed margin torsional rolling",
        "",
    ),
    passive.FluidForces: ({"density": 1.0, "viscosity": 1.0}, "density viscosity wind", ""),
}
WRONG = {
    "ragged": RAGGED,
    "texts": ["1", "2"],
    "text": "1",
    "NaN": np.nan,
    "complex": np.array([1j, 2]),
    "complex of JAX": jnp.array([1j, 2]),
    "objects": np.array([object(), 2], object),
    "beyond float": [10**400],
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
@pytest.mark.filterwarnings("error")
def test_wrong_parameters_are_named(part, wrong):
    good, parameters, _ = PARTS[part]
    part(**good)
    for name in parameters.split():
        with pytest.raises(ArgumentError, match=f"^{name}"):
            part(**{**good, name: WRONG[wrong]})


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_floats_of_half_precision_are_accepted(part):
    good, parameters, _ = PARTS[part]
    for name in parameters.split():
        if name in good:
            part(**{**good, name: np.asarray(good[name], np.float16)})


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
@pytest.mark.filterwarnings("error")
def test_wrong_names_are_named(part):
    good, _, names = PARTS[part]
    for name in names.split():
        for wrong in ("a", 3, [3], [["a"]], np.array(1.0), RAGGED):
            with pytest.raises(ArgumentError, match=f"{name} .*expected"):
                part(**{**good, name: wrong})
    if "frames" in names or "joints" in names:
        first = names.split()[0]
        n = len(good[first])
        part(**{**good, first: np.array(["a", "b"][:n])})  # texts of NumPy


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: passive.FluidForces(None, 1.0), "density is None, expected"),
        (lambda: passive.FluidBoxes(["a"], None), "sizes is None, expected"),
        (lambda: passive.FluidBoxes(["a"], np.ones((1, 3)), 3), "X_FB is 3, expected a Pose"),
        (lambda: passive.GravityCompensation(["a"], None, [1], [[0, 0, 0]]), "factors is None"),
        (lambda: passive.JointSprings(["a"], None), "stiffness is None, expected"),
        (lambda: passive.PolynomialDamping(["a"], None), "coefficients is None, expected"),
        (lambda: passive.PolynomialDamping(["a"], 1.0), r"expected \(n,\) or \(n, p\) of floats"),
        (lambda: actuators.BallTorque("a", None), "axis is None, expected"),
        (lambda: actuators.FrameForce("a", [1, 0, 0], force_axes=np.ones(2)), "force_axes is"),
        (lambda: actuators.Filter(TWO, early=3), "early is 3, expected 2 values"),
        (lambda: actuators.Filter(TWO, early=RAGGED), "early is .*, expected 2 values"),
        (lambda: sensors.RobotSensors(3), "sensors is 3, expected a sequence of sensors"),
        (lambda: sensors.RobotSensors((), 3), "left_out is 3, expected a sequence of pairs"),
        (lambda: sensors.RobotSensors((), ["ab"]), "left_out has the entry 'ab', expected a name"),
        (
            lambda: sensors.FrameSensor("s", "position", "a", reference=3),
            "reference of sensor 's' is 3, expected a name",
        ),
    ],
)
def test_other_objects_are_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize("make", [actuators.PD.for_joints, actuators.DCMotor.for_joints])
def test_values_per_joint_of_different_lengths(make):
    with pytest.raises(ArgumentError, match=r"^st.* is \[\[1, 2\], \[3\]\], expected an array of"):
        make(zoo.coupled(), ("j1",), RAGGED, 1.0)


def test_shapes_in_the_message():
    values = np.ones((2, 2))
    with pytest.raises(ArgumentError, match=r"expected \(\) or \(n,\) of floats"):
        arguments.parameter(values, "x", (), (None,))
    assert arguments.parameter(values, "x") is values
    with pytest.raises(ArgumentError, match="dtype int32, expected floats"):
        arguments.parameter(jnp.ones((2, 2), jnp.int32), "x")


def test_a_list_with_traced_numbers_is_an_array():
    """A target that depends on an argument of `jit`, and its derivative."""

    def change(x):
        task = inverse_kinematics.FrameTask.position("upper_rod", [x, 2.0, x])
        return jnp.sum(task.target.p * jnp.array([3.0, 4.0, 5.0]))

    np.testing.assert_allclose(jax.jit(jax.grad(change))(5.0), 8.0)
    with pytest.raises(ArgumentError, match="p of the FrameTask of 'upper_rod' is"):
        jax.jit(lambda x: inverse_kinematics.FrameTask.position("upper_rod", [x, [2.0], 3.0]))(5.0)
