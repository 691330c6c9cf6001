"""The pages of docs/ whose blocks of code are one program: the programs run, their asserts hold."""

import importlib.util
import pathlib
import re

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import jaxrbd
from support import pages

DOCS = pathlib.Path(__file__).parents[1] / "docs"

# the number of blocks of each page
PROGRAMS = {
    "quickstart.md": 9,
    "conventions.md": 4,
    "choose.md": 2,
    "sharp_bits.md": 10,
    "load.md": 4,
    "batch.md": 6,
    "padded.md": 8,
    "identify.md": 6,
    "control.md": 4,
    "gpus.md": 3,
    "long_chains.md": 1,
    "add_a_joint.md": 3,
    "contact_motions.md": 2,
    "free_time.md": 2,
    "distances.md": 5,
    "exchange.md": 4,
    "integrators.md": 1,
    "legged_environment.md": 5,
    "mjcf.md": 3,
    "tendons.md": 2,
    "muscles.md": 3,
}
LOOPS = {
    "distances.md": 1,
    "legged_environment.md": 2,
    "mjcf.md": 1,
    "muscles.md": 1,
}  # the number of loops that must compile in their first iteration only
# pages whose blocks another test runs
ELSEWHERE = {
    "README.md": "test_public_names.py",
    "actuators_and_sensors.md": "test_actuators.py",
    "coming_from.md": "test_coming_from.py",
    "compilation.md": "test_retracing.py",
    "contact.md": "test_collision_pairs.py",
    "devices.md": "test_sharding.py",
    "environments.md": "test_envs.py",
    "inverse_kinematics.md": "test_inverse_kinematics.py",
    "learning.md": "test_learning.py",
    "model_files.md": "test_saving.py",
    "optimal_control.md": "test_optimal_control.py",
    "saving.md": "test_export.py",
    "speed.md": "test_program_size.py",
    "viewing.md": "test_view.py",
}
# the files that a page reads
FILES = {
    "exchange.md": {
        "arm.srdf": """<robot name="arm7"><group_state name="raised" group="arm">
            <joint name="joint_2" value="0.5"/></group_state></robot>""",
        "arm/meshes/hand.stl": "",
    },
    "mjcf.md": {
        "robot.xml": """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
            <body name="leg" pos="0 0 1"><joint name="slide" type="slide" axis="0 0 1"/>
            <geom type="sphere" size="0.1" mass="2"/><site name="torso"/></body></worldbody>
            <actuator><position joint="slide" kp="5000" kv="20"/></actuator>
            <sensor><gyro name="torso_gyro" site="torso"/>
            <accelerometer name="torso_accel" site="torso"/></sensor></mujoco>""",
    },
}
PACKAGES = {"exchange.md": "pinocchio", "mjcf.md": "mujoco"}  # that a page needs
SLOW = ("batch.md", "identify.md", "control.md", "add_a_joint.md", "legged_environment.md")


def marks(page):
    return [pytest.mark.documents] + [pytest.mark.slow] * (page in SLOW)


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks(page)) for page in PROGRAMS])
def test_the_blocks_of(page, tmp_path, monkeypatch):
    assert len(pages.blocks(page)) == PROGRAMS[page]
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.get(page, {}).items():
        pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(name).write_text(text)
    names = {"__name__": page}
    if page in PACKAGES:
        package = pytest.importorskip(PACKAGES[page])
        if page == "exchange.md":
            names["pin_model"] = package.buildSampleModelManipulator()
    assert pages.run(page, names) == LOOPS.get(page, 0)


def test_the_blocks_of_every_page_are_run():
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]
    with_blocks = {page.name for page in pages if "```python" in page.read_text()}
    assert with_blocks == {*PROGRAMS, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        text = (DOCS.parent / "tests" / test).read_text()
        assert page in text
        used = any(f'pages.{name}("{page}"' in text for name in ("run", "blocks"))
        assert used or "```python" in text


def load(name):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_pictures_of_the_conventions(tmp_path):
    """The script draws the committed pictures, up to the fonts of another matplotlib."""
    script = load("conventions_pictures")
    page = (DOCS / "conventions.md").read_text()
    for drawn in script.write(tmp_path):
        committed = DOCS / drawn.name
        assert f"]({drawn.name})" in page
        assert committed.stat().st_size < 60_000
        first, second = plt.imread(drawn), plt.imread(committed)
        assert first.shape == second.shape
        assert np.mean(np.abs(first - second)) < 0.02


def test_the_picture_of_the_references_has_the_motion_of_the_page():
    script = load("conventions_pictures")
    page = (DOCS / "conventions.md").read_text()
    x, y = script.P
    at_origin = script.V + script.W * np.array([y, -x])
    for linear in (script.R.T @ script.V, script.V, at_origin):
        assert f"({linear[0]:.2f}, {linear[1]:.2f}, 0.0)" in page
    assert f"[0.0, 0.0, {script.W}]" in page


def test_the_gallery_has_a_picture_of_each_motion():
    page, script = (DOCS / "gallery.md").read_text(), load("gallery")
    found = re.findall(r"\]\(gallery_(\w+)\.png\)", page)
    assert found == list(script.MOTIONS)
    assert set(script.FRAMES) == set(script.CAMERAS) == set(found)
    assert all((DOCS / f"gallery_{name}.png").stat().st_size < 60_000 for name in found)


@pytest.mark.slow
def test_the_motions_of_the_gallery(tmp_path):
    """The statements of the page; the pages of the motions are small."""
    script = load("gallery")
    paths = script.write_pages(tmp_path)
    assert [path.stem for path in paths] == list(script.MOTIONS)
    assert all(100_000 < path.stat().st_size < 1_500_000 for path in paths)

    model, q, _ = script.landing()
    assert np.ptp(q[-100:, 2]) < 0.01  # it stands, and sways a little
    assert 0.2 < q[-1, 2] < 0.35
    up = jaxrbd.frame_placement(model, q[-1], "trunk").R[2, 2]
    assert up > 0.98

    model, q, _ = script.circle()
    tools = jax.vmap(jaxrbd.frame_placement, (None, 0, None))(model, q, "tool")
    turned = jax.vmap(lambda R: jaxrbd.so3.log(tools.R[0].T @ R))(tools.R)
    assert np.max(np.linalg.norm(turned, axis=1)) < 1e-3
    radius = np.linalg.norm(tools.p - np.mean(tools.p, axis=0), axis=1)
    np.testing.assert_allclose(radius, 0.15, atol=0.02)

    model, q, dt = script.MOTIONS["walk"]()
    velocity = np.gradient(q[:, 0], dt)
    assert np.max(velocity) > 0.75
    assert np.min(velocity[100:180]) < 0.25
    assert np.min(q[:, 2]) > 0.8

    _, q, dt = script.g1()
    places = q.reshape(len(q), -1, 7)[..., :3]
    speed = np.linalg.norm(places[-1].mean(0) - places[0].mean(0)) / (dt * (len(q) - 1))
    assert 0.4 < speed < 1
    assert np.all((places[..., 2] > 0) & (places[..., 2] < 1.3))

    _, q, _ = script.MOTIONS["push"]()
    assert q[-1, 2] - q[0, 2] > 0.2
    np.testing.assert_allclose(q[-1, 3:], [0.1, 0], atol=1e-3)  # the box stands on the ground

    _, q, _ = script.MOTIONS["step"]()
    np.testing.assert_allclose(q[-1], [0.7, 0.65, 0, 0.4], atol=2e-3)

    _, q, _ = script.pendulums()
    assert np.ptp(q[:, 0], axis=0).max() < 0.1
    assert np.ptp(q[:, -1], axis=0).max() > 1

    forward, left = np.array([0.4, 0.0]), np.array([0, 0, np.sin(np.pi / 8), np.cos(np.pi / 8)])
    for name, place, quaternion in (
        ("stand_up", 0 * forward, [0, 0, 0, 1]),
        ("turn", 0 * forward, left),
        ("trot", forward, [0, 0, 0, 1]),
    ):
        model, q, _ = script.MOTIONS[name]()
        np.testing.assert_allclose(q[-1, :2], place, atol=0.02)
        np.testing.assert_allclose(q[-1, 3:7], quaternion, atol=0.02)
        assert 0.3 < q[-1, 2] < 0.35
        assert (q[0, 2] < 0.1) == (name == "stand_up")

    model, q, _ = script.MOTIONS["catch"]()
    com = jax.vmap(jaxrbd.center_of_mass, (None, 0))(model, jnp.asarray(q, model.dtype))
    soles = [name for name in model.frame_names if name.endswith("_sole")]
    feet = [jaxrbd.frame_placement(model, jnp.asarray(q[-1], model.dtype), x).p for x in soles]
    np.testing.assert_allclose(com[-1, :2], np.mean(feet, axis=0)[:2], atol=0.02)
    assert np.linalg.norm(com[-1, :2] - com[0, :2]) > 0.1  # it had to step
