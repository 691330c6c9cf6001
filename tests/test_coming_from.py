"""docs/coming_from.md: both columns of the tables of Pinocchio and MuJoCo have the same values."""

import pathlib
import re

import numpy as np
import pytest

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "coming_from.md"
TEXT = PAGE.read_text()
LIBRARIES = {"pinocchio": "pinocchio", "mujoco": "mujoco"}  # the marks of the page


def section(mark):
    """The blocks of code up to the mark, in their section, and the rows of the table after it."""
    before, after = TEXT.split(f"<!-- {mark} -->")
    blocks = re.findall(r"```python\n(.*?)```", before[before.rindex("\n## ") :], re.DOTALL)
    table = after.strip().partition("\n\n")[0].splitlines()[2:]
    return blocks, [re.fullmatch(r"\| `(.*)` \| `(.*)` \|", row).groups() for row in table]


@pytest.fixture(scope="module")
def values():
    """For each library the names that the page defines."""
    names, found = {}, {}
    for mark, module in LIBRARIES.items():
        pytest.importorskip(module)
        blocks, _ = section(mark)
        assert len(blocks) == 1
        exec(blocks[0], names)
        found[mark] = dict(names)
    return found


# Planted faults need these rows.
BY_DEFAULT = (
    "pin.nonLinearEffects(robot, data, q, v)",
    "pin.getFrameClassicalAcceleration(robot, data, foot, pin.LOCAL_WORLD_ALIGNED).vector",
    "mj_data.qacc_smooth",
)
ROWS = [(mark, *row) for mark in LIBRARIES for row in section(mark)[1]]


def test_the_tables_are_found():
    assert [sum(mark == row[0] for row in ROWS) for mark in LIBRARIES] == [30, 17]


@pytest.mark.parametrize(
    ("mark", "theirs", "ours"),
    [
        pytest.param(*row, id=row[1], marks=() if row[1] in BY_DEFAULT else pytest.mark.documents)
        for row in ROWS
    ],
)
def test_both_columns_have_the_same_values(values, mark, theirs, ours):
    names = values[mark]
    if mark == "pinocchio":  # its functions overwrite the results that other rows read
        pin, robot, data = (names[name] for name in ("pin", "robot", "data"))
        pin.forwardKinematics(robot, data, *(names[name] for name in "qva"))
        pin.updateFramePlacements(robot, data)
    expected, found = eval(theirs, names), eval(ours, names)
    if isinstance(expected, list | int):
        assert found == expected
    else:
        scale = max(1.0, np.max(np.abs(expected)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * scale)
        assert np.shape(found) == np.shape(expected)


@pytest.mark.documents
def test_the_differences_from_pinocchio(values):
    names = values["pinocchio"]
    pin, robot, data, foot = (names[name] for name in ("pin", "robot", "data", "foot"))
    aligned = pin.LOCAL_WORLD_ALIGNED
    pin.forwardKinematics(robot, data, *(names[name] for name in "qva"))
    spatial = pin.getFrameAcceleration(robot, data, foot, aligned).vector
    classical = pin.getFrameClassicalAcceleration(robot, data, foot, aligned).vector
    assert np.max(np.abs(spatial - classical)) > 0.1
    held, before = data.oMi[2], data.oMi[2].translation.copy()
    pin.forwardKinematics(robot, data, names["q1"])
    assert np.max(np.abs(held.translation - before)) > 0.01  # an alias
    assert not np.all(np.isfinite(pin.randomConfiguration(robot)))
    assert robot.names[0] == "universe"


@pytest.mark.documents
def test_the_differences_from_mujoco(values):
    """The statements below the table: M, the bias force, and a step of the free joint."""
    names = values["mujoco"]
    mujoco, jaxrbd = names["mujoco"], names["jaxrbd"]
    mj_model, mj_data, model = names["mj_model"], names["mj_data"], names["model"]
    coordinates, q, v = names["coordinates"], names["q"], names["v"]
    columns = []
    for e in np.eye(mj_model.nv):
        column = np.zeros(mj_model.nv)
        mujoco.mj_mulM(mj_model, mj_data, column, e)
        columns.append(column)
    M = coordinates.mujoco_mass_matrix(model, q, jaxrbd.crba(model, q))
    np.testing.assert_allclose(M, columns, atol=1e-12)
    bias = coordinates.qfrc(model, q, jaxrbd.bias_force(model, q, v))
    assert np.max(np.abs(bias - mj_data.qfrc_bias)) > 0.1

    def gap(dt):
        qpos = mj_data.qpos.copy()
        mujoco.mj_integratePos(mj_model, qpos, mj_data.qvel, dt)
        return np.abs(qpos - coordinates.qpos(model, jaxrbd.integrate(model, q, dt * v)))

    assert np.max(gap(0.1)[3:]) < 1e-12  # the rotation and the hinge
    first, second = np.linalg.norm(gap(0.02)[:3]), np.linalg.norm(gap(0.01)[:3])
    assert first > 1e-6
    np.testing.assert_allclose(first / second, 4, rtol=0.02)
