"""Values of MJCF files that act in another way than their names say, and values that are NaN."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.io.mujoco import from_mujoco, load_mjcf
from support.zoo import close

ARM = """
<mujoco><worldbody><body>
  <joint name="j" {joint} damping=".5"/><geom size=".05" pos=".3 0 0"/><site name="s" pos=".3 0 0"/>
</body><site name="o" pos=".3 0 .3"/></worldbody>{more}</mujoco>
"""
HINGE = 'axis="0 1 0" range="-30 30" limited="{limited}"'


def at_rest(text, steps=1500):
    """The state of MuJoCo after some steps."""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, steps)
    mujoco.mj_forward(model, data)
    return data


def test_a_hinge_stops_at_its_range_without_the_margin():
    text = ARM.format(joint=HINGE.format(limited="true") + ' margin=".1"', more="")
    model = load_mjcf(text).model
    close(model.upper_position_limit, np.deg2rad([30]) - 0.1, 1e-15)
    close(model.lower_position_limit, 0.1 - np.deg2rad([30]), 1e-15)
    assert model.upper_position_limit[0] == pytest.approx(at_rest(text).qpos[0], abs=2e-3)


def test_a_ball_stops_at_its_range_without_the_margin():
    text = ARM.format(joint='type="ball" range="0 30" margin=".1"', more="")
    limit = load_mjcf(text).tendons.limits
    np.testing.assert_allclose(limit, [[-np.inf, np.deg2rad(30) - 0.1]], atol=1e-15)
    assert limit[0, 1] == pytest.approx(2 * np.arccos(at_rest(text).qpos[0]), abs=2e-2)


def test_a_tendon_stops_at_its_range_without_the_margin():
    tendon = """<tendon><spatial name="t" range="0 .35" margin=".02">
        <site site="o"/><site site="s"/></spatial></tendon>"""
    text = ARM.format(joint=HINGE.format(limited="false"), more=tendon)
    limits = load_mjcf(text).tendons.limits
    np.testing.assert_allclose(limits, [[0.02, 0.33]], atol=1e-15)
    assert limits[0, 1] == pytest.approx(at_rest(text).ten_length[0], abs=2e-3)


def test_a_margin_of_the_whole_range_is_named():
    text = ARM.format(joint=HINGE.format(limited="true") + ' margin="1"', more="")
    with pytest.raises(rbd.RobotFileError, match="joint 'j': a margin that leaves nothing"):
        load_mjcf(text)
    limit = load_mjcf(text, strict=False).model.upper_position_limit
    close(limit, np.deg2rad([30]), 1e-15)


@pytest.mark.parametrize("on_sites", [False, True])
def test_a_weld_without_moments_is_a_connect(on_sites):
    ends = 'site1="a" site2="o"' if on_sites else 'body1="b" anchor="-.1 0 0"'
    text = f"""<mujoco><worldbody><site name="o" pos="-.1 0 0"/>
        <body name="b"><freejoint/><geom type="box" size=".1 .02 .02"/>
        <site name="a" pos="-.1 0 0"/></body></worldbody>
        <equality><weld {ends} torquescale="0"/></equality></mujoco>"""
    found = load_mjcf(text)
    for steps in (0, 200):  # the body swings
        data = at_rest(text, steps)
        q = found.coordinates.q(found.model, jnp.asarray(data.qpos))
        rows = rbd.constraints.constraint_rows(found.model, q, jnp.zeros(6), found.constraints)
        assert len(rows.position) == 3
        close(rows.position, np.zeros(3), 2e-3)
    assert abs(data.qpos[5]) > 0.5


def test_a_pair_of_bodies_that_are_welded_together_is_left_out():
    text = """<mujoco><worldbody><geom name="g" type="plane" size="1 1 1"/><body name="b">
        <freejoint/><geom name="x" size=".1"/><body><geom name="y" size=".1" pos=".1 0 0"/></body>
        </body></worldbody><contact><pair geom1="x" geom2="y"/></contact></mujoco>"""
    scene = load_mjcf(text).scene
    assert not len(scene.pairs)
    assert scene.size == 2  # both on the ground


def test_a_negative_margin_is_named():
    text = """<mujoco><worldbody><geom name="g" type="plane" size="1 1 1"/><body name="b">
        <freejoint/><geom name="x" size=".1" margin="-.01"/></body></worldbody></mujoco>"""
    with pytest.raises(rbd.RobotFileError, match="geoms 'g' and 'x': a negative margin"):
        load_mjcf(text)
    assert not np.any(load_mjcf(text, strict=False).scene.material.margin)


def test_an_empty_text_is_refused():
    with pytest.raises(rbd.ArgumentError, match="path_or_text is '', expected a path or a text"):
        load_mjcf("")


NOT_NUMBERS = {
    "joint 'j': jnt_stiffness": "",
    "actuator 'm': actuator_gear": "<actuator><motor name='m' joint='j' gear='nan'/></actuator>",
    "equality 'e': eq_data": "<equality><joint name='e' joint1='j' polycoef='nan'/></equality>",
    "key 'k': key_qpos": "<keyframe><key name='k' qpos='nan'/></keyframe>",
    "gravity": "<option gravity='0 0 nan'/>",
    "option density nan": "<option density='nan'/>",
    "joint 'j': dof_armature": "",
    "joint 'j': jnt_stiffness is inf": "",
    "joint 'j': springref is inf": "",
    "key 'k': key_qvel": "<keyframe><key name='k' qvel='inf'/></keyframe>",
    "actuator 'm': actuator_gainprm": "<actuator><general name='m' joint='j' gainprm='inf'/>"
    "</actuator>",
    **{
        f"tendon 't': tendon_{field}": f"<tendon><fixed name='t' {given}='inf'>"
        "<joint joint='j' coef='1'/></fixed></tendon>"
        for field, given in {
            "armature": "armature",
            "damping": "damping",
            "frictionloss": "frictionloss",
            "stiffness": "stiffness",
            "lengthspring": "stiffness='1' springlength",
        }.items()
    },
    "actuator 'm': actuator_gear is .inf": "<actuator><motor name='m' joint='j' gear='inf'/>"
    "</actuator>",
}


@pytest.mark.parametrize("message", NOT_NUMBERS)
def test_values_that_are_no_numbers_are_named(message, tmp_path):
    path = tmp_path / "robot.xml"
    value = "inf" if message.endswith("inf") else "nan"
    joint = f'stiffness="{value}"' if "jnt_stiffness" in message else ""
    joint = f'springref="{value}"' if "springref" in message else joint
    joint = f'armature="{value}"' if "dof_armature" in message else joint
    path.write_text(ARM.format(joint=joint, more=NOT_NUMBERS[message]))
    expected = "" if message.startswith("option") else ".* expected"
    with pytest.raises(rbd.RobotFileError, match=f"robot.xml: .*{message}{expected}"):
        load_mjcf(path)


def test_a_pair_with_a_number_that_is_nan_is_named():
    pair = """<worldbody><geom name="a" size=".1"/>
        <body><freejoint/><geom name="b" size=".1"/></body></worldbody>
        <contact><pair name="p" geom1="a" geom2="b"/></contact>"""
    compiled = mujoco.MjModel.from_xml_string(ARM.format(joint="", more=pair))
    compiled.pair_solref[0] = np.nan, 1
    with pytest.raises(rbd.ModelError, match=r"pair 'p': pair_solref is \[nan .*expected numbers"):
        from_mujoco(compiled, soft=True)


def test_a_tendon_without_a_largest_length_of_its_spring():
    tendon = (
        "<fixed name='t' stiffness='1' springlength='0 inf'><joint joint='j' coef='1'/></fixed>"
    )
    found = load_mjcf(ARM.format(joint="", more=f"<tendon>{tendon}</tendon>"))
    np.testing.assert_array_equal(found.tendons.rest, [[0, np.inf]])
