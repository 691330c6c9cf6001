"""Soft contacts and limits: the laws of MuJoCo, the parameters of files, and derivatives."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from jaxrbd import contact, io
from jaxrbd.errors import ArgumentError

mujoco = pytest.importorskip("mujoco")

DT = 0.004
BALL = """<mujoco><option timestep="0.004" cone="{cone}" impratio="{impratio}"/><worldbody>
<geom type="plane" size="5 5 1" friction="0.3" condim="1"/>
<body pos="0 0 0.1"><freejoint/>
<geom type="sphere" size="0.1" mass="2" friction="{mu}" condim="{condim}" margin="0.001"
 solref="{solref}" solimp="{solimp}" priority="1"/></body></worldbody></mujoco>"""
DEFAULT = {"cone": "elliptic", "impratio": 1, "mu": 0.5, "condim": 3}


def ball(solref=(0.02, 1), solimp=(0.9, 0.95, 0.001, 0.5, 2), **changes):
    """A ball on a plane: MuJoCo's model, and the robot with soft contacts."""
    texts = {"solref": solref, "solimp": solimp}
    texts = {name: " ".join(map(str, x)) for name, x in texts.items()}
    m = mujoco.MjModel.from_xml_string(BALL.format(**{**DEFAULT, **changes}, **texts))
    m.opt.tolerance, m.opt.iterations = 1e-14, 200
    return m, io.from_mujoco(m, soft=True)


@jax.jit
def mujoco_step(robot_parts, qpos, qvel):
    """qvel after a step of `contact_step`."""
    model, scene, coordinates = robot_parts
    q = coordinates.q(model, qpos)
    v = coordinates.v(model, q, qvel)
    after = contact.contact_step(model, scene, q, v, jnp.zeros_like(v), DT)
    return coordinates.qvel(model, after.q, after.v)


def compare(m, robot, qpos, qvel, tolerance=1e-8):
    """Compare a step of MuJoCo with one of `contact_step`; the result is MuJoCo's data."""
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = qpos, qvel
    parts = robot.model, robot.scene, robot.coordinates
    found = mujoco_step(parts, jnp.array(d.qpos), jnp.array(d.qvel))
    mujoco.mj_step(m, d)
    np.testing.assert_allclose(found, d.qvel, atol=tolerance)
    return d


@pytest.mark.parametrize(
    ("solref", "solimp"),
    [
        ((0.02, 1), (0.9, 0.95, 0.001, 0.5, 2)),
        ((0.05, 0.3), (0.2, 0.9, 0.02, 0.2, 3)),
        ((0.004, 1.5), (0.95, 0.6, 0.01, 0.7, 1)),  # a time constant below two steps
        ((-400, -30), (0.5, 0.9, 0, 0.5, 2)),  # stiffness and damping, and no width
    ],
)
def test_a_soft_contact_is_that_of_mujoco(solref, solimp):
    m, robot = ball(solref, solimp)
    for height in (0.0985, 0.093, 0.07, 0.1005, 0.102):  # in the ground, in the margin, apart
        qpos = [0.0, 0, height, 1, 0, 0, 0]
        for qvel in ([0, 0, -0.5, 0, 0, 0], [0.3, 0.1, 0.2, 0, 0, 0], [2.0, 0, -1, 0, 0, 0]):
            d = compare(m, robot, qpos, qvel)
            assert d.ncon == (height < 0.101)


@pytest.mark.parametrize("condim", [4, 6])
def test_a_soft_contact_that_spins_and_rolls_is_that_of_mujoco(condim):
    m, robot = ball(condim=condim, mu="0.5 0.1 0.05")
    spin, roll, both = [0, 0, 0, 0, 0, 5], [0.3, 0, -0.1, 0, 3, 0], [0.1, 0.1, 0, 0.2, 0.1, 20]
    for qvel in (spin, roll, both, [1e-3, 0, 0, 0.01, 0.02, 0.05]):  # it slides, and it sticks
        compare(m, robot, [0, 0, 0.0985, 1, 0, 0, 0], qvel)


SOFT_BOX = """<mujoco><option timestep="0.004" cone="elliptic"/><worldbody>
<geom type="plane" size="5 5 1" condim="1"/><body pos="0 0 0.1"><freejoint/>
<geom type="box" size="0.1 0.2 0.05" mass="2" friction="0.5 0.1 0.05" condim="6" priority="1"/>
</body></worldbody></mujoco>"""


@pytest.mark.slow
def test_a_tilted_soft_box_is_that_of_mujoco():
    m = mujoco.MjModel.from_xml_string(SOFT_BOX)
    m.opt.tolerance, m.opt.iterations = 1e-14, 200
    robot = io.from_mujoco(m, soft=True)
    for height, angle, corners in ((0.0495, 0.0, 4), (0.0545, 0.04, 2)):
        qpos = [0, 0, height, np.cos(angle / 2), np.sin(angle / 2), 0, 0]
        for qvel in ([0.2, 0.1, -0.1, 0, 0, 1], [1e-3, 0, 0, 0, 0, 0.01]):
            assert compare(m, robot, qpos, qvel).ncon == corners


@pytest.mark.parametrize(
    "changes",
    [
        {"condim": 1},
        {"condim": 6, "mu": "0.5 0.02 0.001"},
        {"condim": 3, "mu": 2.0, "impratio": 4},
    ],
    ids=str,
)
def test_pyramidal_contacts_have_the_normal_force_of_mujoco(changes):
    soft = (0.02, 1), (0.5, 0.6, 0.01, 0.5, 2)
    m, robot = ball(*soft, cone="pyramidal", **changes)
    for height, speed in ((0.099, 0.0), (0.095, -0.3)):
        d = compare(m, robot, [0, 0, height, 1, 0, 0, 0], [0, 0, speed, 0, 0, 0])
        assert d.ncon == 1


PENDULUM = """<mujoco><option timestep="0.004"><flag gravity="disable"/></option><worldbody>
<body><joint name="free" axis="0 1 0"/><geom type="sphere" size="0.1" pos="0 0 -0.5" mass="1"/>
<body pos="0 0 -0.5"><joint name="limited" axis="0 1 0" range="-30 20" limited="true"
 solreflimit="0.05 0.7" solimplimit="0.3 0.8 0.05 0.4 2.5"/>
<geom type="sphere" size="0.1" pos="0 0 -0.5" mass="1" contype="0" conaffinity="0"/>
</body></body></worldbody></mujoco>"""


@pytest.mark.parametrize("margin", [0, 0.05])
def test_a_soft_position_limit_is_that_of_mujoco(margin):
    text = PENDULUM.replace('limited="true"', f'limited="true" margin="{margin}"')
    m = mujoco.MjModel.from_xml_string(text)
    m.opt.tolerance, m.opt.iterations = 1e-14, 200
    robot = io.from_mujoco(m, soft=True)
    for angle in np.deg2rad([-31.0, -40, -27.5, 0, 18, 19.99, 20.5, 25]):
        for rates in ([0.0, 0.0], [0.5, -2.0], [-1.0, 3.0]):
            compare(m, robot, [0.3, angle], rates)


SEVERAL = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1" solref="0.1 0.5"
 solimp="0.5 0.7 0.01 0.4 3" solmix="3"/>
<body pos="0 0 0.099"><freejoint/><geom name="a" type="sphere" size="0.1" mass="1"/></body>
<body pos="1 0 0.099"><freejoint/>
<geom name="b" type="sphere" size="0.1" mass="2" solref="-500 -20" solmix="0"/></body>
<body pos="2 0 0.099"><freejoint/>
<geom name="c" type="sphere" size="0.1" mass="3" priority="2" solref="0.3 2" solmix="0"/></body>
<body pos="3 0 0.199"><freejoint/><geom name="d" type="capsule" size="0.1 0.1" mass="3"
 priority="1" solref="0.3 -2" solimp="0.3 1.2 -1 0.5 0.2"/></body>
</worldbody><contact><pair geom1="a" geom2="floor" solref="0.7 0.9" solimp="0.6 0.8 0.1 0.5 2"/>
</contact></mujoco>"""


def test_the_softness_of_each_contact_is_that_of_mujoco():
    m = mujoco.MjModel.from_xml_string(SEVERAL)
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    expected = {}
    for touching in d.contact:
        names = frozenset(m.geom(int(geom)).name for geom in touching.geom)
        expected[names] = touching.solref, touching.solimp
    softness = io.from_mujoco(m, soft=True).scene.material.softness
    # The spheres of the scene: a, b, c, and the two ends of the capsule d.
    for row, name in enumerate("abcdd"):
        solref, solimp = expected[frozenset([name, "floor"])]
        if name == "d":  # MuJoCo corrects its parameters when it uses them
            solref, solimp = (0.02, 1), (0.3, 0.9999, 0, 0.5, 1)
        np.testing.assert_allclose(softness.solref[row], solref)
        np.testing.assert_allclose(softness.solimp[row], solimp)


LEG = """<mujoco><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 0.5"><joint name="slide" type="slide" axis="0 0 1"/>
<geom type="sphere" size="0.1" mass="1" contype="0" conaffinity="0"/>
<body><joint name="hip" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0.2 0 -0.2" size="0.02" mass="1" contype="0" conaffinity="0"/>
<body pos="0.2 0 -0.2"><joint name="knee" axis="0 1 0" limited="true" range="0 60"/>
<geom type="sphere" size="0.05" pos="-0.2 0 -0.2" mass="1"/></body></body></body>
</worldbody></mujoco>"""


def test_derivatives_of_a_soft_step_are_those_of_differences():
    robot = jaxrbd.load_mjcf(LEG, soft=True)
    model, scene = robot.model, robot.scene
    # The foot is in the ground and slides, and the knee is beyond its limit.
    q = jnp.array([-0.02, 0.0, -0.2])
    v, tau = jnp.array([-0.2, 0.5, -0.5]), jnp.array([0.0, 1.0, -20.0])

    @jax.jit
    def step(q, v, tau, solref, solimp):
        softness = dataclasses.replace(scene.material.softness, solref=solref, solimp=solimp)
        material = dataclasses.replace(scene.material, softness=softness)
        found = contact.contact_step(
            model, dataclasses.replace(scene, material=material), q, v, tau, DT
        )
        return jnp.concatenate([found.q, found.v]), found

    softness = scene.material.softness
    given = q, v, tau, jnp.array(softness.solref), jnp.array(softness.solimp)
    _, found = step(*given)
    assert found.distance[0] < -0.001
    assert found.impulse[0, 2] > 0
    assert found.joint_impulse.limit[2] > 0
    jacobian = jax.jit(jax.jacrev(lambda *x: step(*x)[0], tuple(range(5))))(*given)
    # In forward mode, along one direction of all arguments.
    directions = tuple(jnp.cos(jnp.arange(x.size, dtype=float)).reshape(x.shape) for x in given)
    forward = jax.jit(lambda: jax.jvp(lambda *x: step(*x)[0], given, directions)[1])()
    along = sum(J.reshape(len(J), -1) @ x.ravel() for J, x in zip(jacobian, directions))
    np.testing.assert_allclose(forward, along, rtol=1e-9, atol=1e-9)
    for i, x in enumerate(given):
        for entry in np.ndindex(x.shape):
            eps = 1e-6 * max(1e-2, abs(x[entry]))
            ends = [step(*given[:i], x.at[entry].add(d), *given[i + 1 :])[0] for d in (eps, -eps)]
            difference = (ends[0] - ends[1]) / (2 * eps)
            np.testing.assert_allclose(jacobian[i][:, *entry], difference, rtol=1e-5, atol=2e-6)
    by_step = jax.jit(contact.contact_step_derivatives)(model, scene, q, v, tau, DT)
    np.testing.assert_allclose(by_step.A, jnp.concatenate(jacobian[:2], axis=1), atol=1e-9)
    np.testing.assert_allclose(by_step.B, jacobian[2], atol=1e-9)


def test_soft_contacts_do_not_act_before_they_touch():
    robot = ball()[1]
    found = mujoco_step(
        (robot.model, robot.scene, robot.coordinates),
        jnp.array([0, 0, 0.1011, 1.0, 0, 0, 0]),
        jnp.array([0, 0, -3.0, 0, 0, 0]),
    )
    np.testing.assert_allclose(found[2], -3 - 9.81 * DT)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: contact.Softness(solref=(0.02, -1)), "solref is .*expected two numbers above 0"),
        (lambda: contact.Softness(solref=(0.02, np.nan)), "solref is .*expected two numbers"),
        (lambda: contact.Softness(solref=0.02), r"solref has shape \(\)"),
        (lambda: contact.Softness(solimp=(0, 0.9, 0.1, 0.5, 2)), "solimp is .*two impedances"),
        (lambda: contact.Softness(solimp=(0.9, 1, 0.1, 0.5, 2)), "solimp is .*two impedances"),
        (lambda: contact.Softness(solimp=(0.9, 0.9, -1, 0.5, 2)), "solimp is .*a width of 0"),
        (lambda: contact.Softness(solimp=(0.9, 0.9, 1, 1, 2)), "solimp is .*a midpoint between"),
        (lambda: contact.Softness(solimp=(0.9, 0.9, 1, 0.5, 0.5)), "solimp is .*a power of 1"),
        (lambda: contact.Material(softness=0.1), "softness is 'float', expected a Softness"),
        (lambda: contact.Scene((), limit_softness=1), "limit_softness is 1, expected a Softness"),
        (lambda: jaxrbd.load_mjcf(LEG, soft=1), "soft is 1, expected True or False"),
    ],
)
def test_wrong_softness_is_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_steps_refuse_a_softness_that_does_not_fit():
    robot = jaxrbd.load_mjcf(LEG, soft=True)
    model, scene, zero = robot.model, robot.scene, jnp.zeros(3)
    with pytest.raises(ArgumentError, match="smoothing is given, expected None for contacts with"):
        contact.contact_step(model, scene, zero, zero, zero, DT, smoothing=0.01)
    three = contact.Softness(solref=np.tile([0.02, 1], (3, 1)))
    material = dataclasses.replace(scene.material, softness=three)
    wrong = dataclasses.replace(scene, material=material)
    with pytest.raises(ArgumentError, match=r"softness.solref has shape \(3, 2\), expected .*1, 2"):
        contact.contact_step(model, wrong, zero, zero, zero, DT)
    wrong = dataclasses.replace(scene, limit_softness=contact.Softness(solref=np.ones((2, 2))))
    with pytest.raises(ArgumentError, match=r"limit_softness.solref has shape \(2, 2\), expected"):
        contact.contact_step(model, wrong, zero, zero, zero, DT)
    traced = jax.jit(
        lambda x: (
            contact.contact_step(
                model,
                dataclasses.replace(scene, limit_softness=contact.Softness(solref=(x, 1.0))),
                zero,
                zero,
                zero,
                DT,
            ).v
        )
    )
    assert np.all(np.isfinite(traced(0.02)))
    assert np.all(np.isnan(traced(-0.02)))


PILE = """<mujoco><worldbody>
<geom name="floor" type="plane" size="5 5 1" friction="0.3"/>
<geom name="wall" type="plane" size="5 5 1" pos="-1 0 0" euler="0 90 0" contype="{wall}"
 conaffinity="{wall}"/>
<body name="a" pos="0 0 0.5"><freejoint/>
<geom name="box" type="box" size="0.1 0.2 0.1" condim="6" friction="0.7 0.02 0.01"/></body>
<body name="b" pos="1 0 0.5"><freejoint/>
<geom name="can" type="cylinder" size="0.1 0.2" friction="0.9" margin="0.01" solref="0.03 1"/>
</body></worldbody><contact>{exclude}</contact></mujoco>"""


@pytest.mark.parametrize("soft", [False, True])
def test_contacts_with_the_ground_only_are_those_of_a_file_without_other_contacts(soft):
    robot = jaxrbd.load_mjcf(PILE.format(wall=1, exclude=""), soft=soft)
    exclude = '<exclude body1="a" body2="b"/>'
    expected = jaxrbd.load_mjcf(PILE.format(wall=0, exclude=exclude), soft=soft).scene
    found = robot.scene.only_ground()
    assert (robot.scene.size, found.size) == (8 + 4 * 3 + 4, 8 + 4)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    wrong = dataclasses.replace(robot.scene, material=contact.Material(margin=np.zeros(3)))
    with pytest.raises(ArgumentError, match=r"margin has shape \(3,\), expected \(\) or \(24,\)"):
        wrong.only_ground()
    one = dataclasses.replace(robot.scene, material=contact.Material(softness=contact.Softness()))
    assert one.only_ground().material.softness.solref.shape == (2,)
