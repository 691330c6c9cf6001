"""Contact steps at the edges: at bounds of impulses, in singular configurations, with no dofs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import actuators, collision, contact, tendons
from jaxrbd.contact import Material, Plane, Scene
from jaxrbd.joints import Custom, FreeFlyer, Prismatic, Revolute
from jaxrbd.model import Fixed, JointSpec, Link, Mimic, link_inertia, placement_matrix
from support import finite_differences, nightly
from support.zoo import close

ZERO = jnp.zeros(1)
DT = 0.01
TENDON = tendons.FixedTendon("cable", {"slide": 1.0})


def link(name, mass=1.0, com=(0.0, 0, 0)):
    return Link(name, link_inertia(mass, com, 0.01 * np.eye(3)))


def slider(**limits):
    """A mass of 1 kg on a horizontal rail."""
    joint = JointSpec("slide", Prismatic((1, 0, 0)), None, "mass", **limits)
    return rbd.build_model([link("mass")], [joint])


def step(model, q, v=ZERO, tau=ZERO, **options):
    return contact.contact_step(model, Scene(()), q, v, tau, DT, **options)


def test_a_range_without_zero_limits_the_force_of_an_actuator_once():
    """A cable that always pulls, as a motor (constant force) and with a position servo."""
    model, control = slider(), jnp.array([7.0])
    for bias, expected in (([0.0, 0, 0], 7.0), ([6.5, -10.0, 0], 10.0), ([0, -1.0, -0.5], None)):
        drive = actuators.AffineActuators([TENDON], bias=[bias], force_range=[[5.0, 10.0]])
        servo, tau = contact.servo_of_actuators(drive, model, ZERO, control)
        found = step(model, ZERO, tau=tau, servo=servo).v / DT
        if expected is None:  # 7 - x - u / 2 after the step
            expected = 7 / (1 + DT * (0.5 + DT))
        close(found, [expected], 1e-9)


def spring_step(q):
    """A linear spring at its rest length, from a row for each side."""
    return step(slider(), q, tendons=tendons.Tendons([TENDON], stiffness=[1000.0])).v


def effortless_step(q):
    return step(slider(), q, servo=contact.Servo(actuators.PD([100.0], [10.0], [0.0]), ZERO)).v


@pytest.mark.parametrize(("function", "slope"), [(spring_step, -10 / 1.1), (effortless_step, 0.0)])
@pytest.mark.parametrize("mode", nightly.all_but([jax.jacfwd], [jax.jacfwd, jax.jacrev]))
def test_smooth_steps_have_their_derivatives_at_the_bounds_of_impulses(function, slope, mode):
    close(finite_differences.central(lambda h: function(ZERO + h), 1e-6), [slope], 1e-6)
    close(mode(function)(ZERO), [[slope]], 1e-9)


@pytest.mark.parametrize("recovery", nightly.all_but([0.01], [0.0, 0.01]))
def test_the_derivative_at_a_limit_is_that_of_one_side(recovery):
    """Both functions, at the lower and at the upper limit, at rest."""
    model, h = slider(lower=0.0, upper=1.0), 1e-6

    def end(q):
        return step(model, q, recovery=recovery).q

    for q in (ZERO, ZERO + 1):
        sides = [(end(q + h) - end(q)) / h, (end(q) - end(q - h)) / h]
        matrices = contact.contact_step_derivatives(
            model, Scene(()), q, ZERO, ZERO, DT, recovery=recovery
        )
        for found in (jax.jacfwd(end)(q)[0], matrices.A[0, :1]):
            assert min(np.abs(found - side)[0] for side in sides) < 1e-5


@pytest.mark.parametrize("limits", [[-np.inf, 0.0], [0.0, np.inf]])
def test_the_derivative_at_a_limit_of_a_tendon_is_that_of_one_side(limits):
    h = 1e-6

    def end(q):
        limited = tendons.Tendons([TENDON], limits=[limits])
        return step(slider(), q, tendons=limited, recovery=0.01).q

    sides = [(end(ZERO + h) - end(ZERO)) / h, (end(ZERO) - end(ZERO - h)) / h]
    assert min(np.abs(jax.jacfwd(end)(ZERO)[0] - side)[0] for side in sides) < 1e-5


def test_contacts_of_a_leg_that_is_singular_in_the_neutral_configuration():
    """A leg whose knee follows the hip: its foot does not move at the neutral configuration."""
    down = placement_matrix((0, 0, -0.5))
    joints = [
        JointSpec("hip", Revolute((0, 1, 0)), None, "thigh"),
        JointSpec("knee", Revolute((0, 1, 0)), "thigh", "shank", down, mimic=Mimic("hip", -2.0)),
        JointSpec("ankle", Fixed(), "shank", "foot", down),
    ]
    links = [link("thigh", com=(0, 0, -0.25)), link("shank", com=(0, 0, -0.25)), link("foot", 0.1)]
    model = rbd.build_model(links, joints)
    scene = Scene(["foot"], ground=Plane(offset=-0.95))

    @jax.jit
    def end(q):
        def body(state, _):
            found = contact.contact_step(model, scene, *state, jnp.array([-5.0]), 0.005)
            return (found.q, found.v), None

        return jax.lax.scan(body, (q, ZERO), None, length=200)[0][0]

    close(end(jnp.array([0.4])), [np.arccos(0.95)], 1e-4)
    assert contact.inverse_inertias(model, scene).contacts[0] > 0.01


def test_a_point_on_the_axis_of_the_only_joint_has_no_inverse_inertia():
    model = rbd.build_model([link("arm")], [JointSpec("axis", Revolute((0, 0, 1)), None, "arm")])
    found = contact.inverse_inertias(model, Scene(["arm"]))
    close(found.contacts, [0.0], 1e-15)


@pytest.mark.parametrize("margin", nightly.all_but([0.05], [0.0, 0.05]))
def test_a_force_between_two_bodies_and_its_reaction_act_at_one_point(margin):
    """Two spheres that are 0.04 m apart, with a margin, or overlap by 0.02 m."""
    bodies = [JointSpec(f"free {name}", FreeFlyer(), None, name) for name in "ab"]
    model = rbd.build_model([link("a"), link("b")], bodies)
    model = dataclasses.replace(model, gravity=jnp.zeros(3))
    pair = [collision.PlacedShape(collision.Sphere(0.1), name) for name in "ab"]
    material = Material(1e4, 1.0, friction=0.5, margin=margin)
    scene = Scene.from_shapes((), [tuple(pair)], material=material)
    z = 0.24 if margin else 0.18
    q = rbd.neutral(model).at[9].set(z)
    v = jnp.array([1.0, 0, 1, 0, 0, 0, -1, 0, -1, 0, 0, 0])

    def momentum(v):  # about y
        return 0.01 * (v[4] + v[10]) + z * v[6]

    tau = jnp.zeros(model.nv)
    found = contact.contact_step(model, scene, q, v, tau, 1e-7)
    assert np.abs(found.v[0] - 1) > 0.1  # friction acts
    close(momentum(found.v), momentum(v), 1e-6)
    force = contact.contact_force(model, scene, q, v)
    torque = force.f_ext[0, 4] + force.f_ext[1, 4] + z * force.f_ext[1, 0]
    close(torque, 0, 1e-9)
    assert np.abs(force.f_ext[0, 0]) > 0.1


@pytest.mark.slow
def test_derivatives_of_steps_of_a_joint_of_ones_own():
    """Its velocities are not those of its tree, so the columns of q are not those of the tree."""

    def motion(q):
        return rbd.Pose(jnp.eye(3), jnp.stack([q[0], q[1], 0.1 * jnp.sin(q[0])]))

    joints = [
        JointSpec("own", Custom(2, motion), None, "a"),
        JointSpec("turn", Revolute((0, 1, 0)), "a", "b"),
    ]
    model = rbd.build_model([link("a"), link("b", com=(0.1, 0, 0))], joints)
    scene = Scene(["b"], 0.1, ground=Plane(offset=-0.09))
    q, v, tau = jnp.array([0.3, 0.1, 0.2]), jnp.array([0.2, 0.1, -0.3]), jnp.array([0.1, 0, 0.2])
    found = contact.contact_step_derivatives(model, scene, q, v, tau, DT)

    def end(q, v):
        end = contact.contact_step(model, scene, q, v, tau, DT)
        return jnp.concatenate([end.q, end.v])

    expected = np.concatenate(jax.jit(jax.jacfwd(end, (0, 1)))(q, v), axis=1)
    close(found.A, expected, 1e-9)


def test_a_robot_without_dofs_and_an_empty_batch():
    model = rbd.build_model([link("a")], [JointSpec("fixed", Fixed(), None, "a")])
    empty = jnp.zeros(0)
    assert step(model, empty, empty, empty).v.shape == (0,)
    batch = jax.vmap(lambda q: step(slider(), q).v)(jnp.zeros((0, 1)))
    assert batch.shape == (0, 1)


def test_the_limit_of_a_joint_does_not_depend_on_other_transmissions():
    """Each joint limits the force of its own actuators, before the joints that follow it add."""
    joints = [
        JointSpec("a", Prismatic((1, 0, 0)), None, "a"),
        JointSpec("b", Prismatic((1, 0, 0)), None, "b", mimic=Mimic("a", 2.0)),
        JointSpec("c", Prismatic((1, 0, 0)), None, "c"),
    ]
    model = rbd.build_model([link(name) for name in "abc"], joints)
    limits = {"joint_force_range": [[-5.0, 5.0], [-1.0, 1.0]], "limited_joints": ["a", "b"]}
    q = jnp.zeros(2)
    for on_a, on_b, expected in ((3, 0.5, 4.0), (7, 0.5, 6.0), (7, 4, 7.0)):
        control = jnp.array([on_a, on_b, 0.0])
        alone = actuators.AffineActuators(["a", "b"], **limits)(model, q, q, control[:2])
        cable = tendons.FixedTendon("cable", {"c": 1.0})
        both = actuators.AffineActuators(["a", "b", cable], **limits)(model, q, q, control)
        for found in (alone, both):
            close(found, [expected, 0.0], 1e-14)
    # The force of a tendon on a joint counts for the limit of this joint.
    cable = tendons.FixedTendon("cable", {"a": 1.0})
    pulled = actuators.AffineActuators(["a", cable], **limits | {"limited_joints": ["a", "b"]})
    close(pulled(model, q, q, jnp.array([3.0, 4.0])), [5.0, 0.0], 1e-14)


def test_the_eccentric_peak_of_a_muscle_has_a_derivative_at_its_lower_end():
    def gain(peak):
        muscle = actuators.Muscles(
            jnp.array([100.0]), jnp.array([[0.2, 0.5]]), eccentric_peak=peak[None]
        )
        return muscle.forces(jnp.array([0.48]), jnp.array([0.3])).gain[0]

    one, h = jnp.array(1.0), 1e-6
    close(jax.grad(gain)(one), (gain(one + h) - gain(one)) / h, 1e-4)


NOT_FINITE = {
    "friction is inf": lambda: Material(friction=np.inf),
    "margin is inf": lambda: Material(margin=np.inf),
    "torsional is inf": lambda: Material(torsional=np.inf),
    "stiffness is inf": lambda: Material(stiffness=np.inf),
    "slip_speed is inf": lambda: Material(slip_speed=np.inf),
    "radii is [inf]": lambda: Scene(["a"], np.inf),
    "offsets": lambda: Scene(["a"], 0.1, [[0, np.nan, 0]]),
    "normal": lambda: Plane((0, np.inf, 1)),
    "offset is inf": lambda: Plane(offset=np.inf),
}


@pytest.mark.parametrize("message", NOT_FINITE)
def test_numbers_that_are_not_finite_are_refused(message):
    with pytest.raises(rbd.ArgumentError) as error:
        NOT_FINITE[message]()
    assert message in str(error.value)
    assert "finite" in str(error.value)


def test_a_servo_without_a_rotation_is_refused():
    model = rbd.build_model([link("a")], [JointSpec("free", FreeFlyer(), None, "a")])
    servo = contact.Servo(actuators.PD(np.ones(6), np.ones(6)), np.zeros(7))
    q, v = rbd.neutral(model), jnp.zeros(6)
    with pytest.raises(rbd.ArgumentError, match=r"servo.position has the zero quaternion"):
        contact.contact_step(model, Scene(()), q, v, v, DT, servo=servo)
