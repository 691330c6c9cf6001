"""Pages in a headless Chromium: they play without a network, and live sliders move the robot."""

import time

import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, view
from jaxrbd.collision import PlacedShape, Sphere
from support import browser

viser = pytest.importorskip("viser")
pytestmark = browser.needs_browser

STILL = 3.0  # standard deviation of a picture without content, at most


@pytest.fixture(scope="module")
def chromium():
    with browser.opened() as page:
        yield page


def shown(page, url: str) -> np.ndarray:
    """The picture of a page after its scene is there: the middle, where the robot is."""
    page.open(url)
    page.wait_for(lambda: page.evaluate("document.querySelector('canvas') !== null"))
    page.wait_for(lambda: middle(page).std() > STILL)
    return middle(page)


def middle(page) -> np.ndarray:
    """The part of the picture without the controls and messages of viser."""
    picture = page.screenshot().astype(int)
    height, width, _ = picture.shape
    return picture[height // 8 : -height // 4, int(0.36 * width) : int(0.62 * width)]


def outside(page) -> list[str]:
    """The requests that leave the page."""
    return [url for url in page.requests if not url.startswith(("data:", "blob:", "file:"))]


def test_a_page_plays_from_disk_with_the_network_off(chromium, tmp_path):
    model = rbd.load_robot("quadruped")
    wave = 0.5 * np.sin(np.linspace(0, 4 * np.pi, 60))
    q = np.tile(np.array(rbd.neutral(model)), (2, 60, 1))
    q[0, :, 7:] += wave[:, None]
    q[1, :, 7:] -= wave[:, None]
    path = tmp_path / "page.html"
    feet = [PlacedShape(Sphere(0.1), name) for name in model.frame_names if "foot" in name]
    scene = contact.Scene.from_shapes(feet, [], contact.Plane(offset=-0.55))
    view.save_html(path, model, q, dt=0.05, layers=("visuals", "com"), contact=scene)
    chromium.offline(True)
    try:
        first = shown(chromium, path.as_uri())
        assert first.std() > STILL
        chromium.wait_for(lambda: np.abs(middle(chromium) - first).max() > 50)
        assert chromium.errors == []
        assert outside(chromium) == []
        assert chromium.requests[0] == path.as_uri()  # requests are noted
    finally:
        chromium.offline(False)


def test_a_page_of_one_configuration_stands_still(chromium, tmp_path):
    path = tmp_path / "page.html"
    view.show(rbd.load_robot("arm7")).save(path)
    shown(chromium, path.as_uri())
    time.sleep(2)  # viser fades the scene in
    first = middle(chromium)
    time.sleep(0.5)
    assert first.std() > STILL
    np.testing.assert_array_equal(middle(chromium), first)
    assert (chromium.errors, outside(chromium)) == ([], [])


SET_NUMBER = """
(() => {
  const input = document.querySelectorAll('input.mantine-NumberInput-input')[%d];
  input.focus(); input.select();
  return input.value;
})()
"""


def test_the_live_page_answers_a_slider(chromium):
    model = rbd.load_robot("arm7")
    with view.serve(model, port=0) as viewer:
        shown(chromium, viewer.url)
        numbers = "document.querySelectorAll('input.mantine-NumberInput-input').length"
        chromium.wait_for(lambda: chromium.evaluate(numbers) == model.nv)
        time.sleep(2)
        before = middle(chromium)
        assert chromium.evaluate(SET_NUMBER % 1) == "0"
        chromium.call("Input.insertText", text="1.0")
        chromium.press("Enter")
        chromium.wait_for(lambda: abs(viewer.q[1] - 1.0) < 2e-3)
        np.testing.assert_allclose(np.delete(viewer.q, 1), 0, atol=1e-12)
        chromium.wait_for(lambda: np.abs(middle(chromium) - before).max() > 50)
        # Python moves the robot, and the page shows the new coordinates.
        viewer.set_configuration(np.full(model.nv, 0.5))
        value = "document.querySelectorAll('input.mantine-NumberInput-input')[3].value"
        chromium.wait_for(lambda: abs(float(chromium.evaluate(value)) - 0.5) < 2e-3)
        # A box shows the collisions.
        after = middle(chromium)
        chromium.evaluate("document.querySelectorAll('input.mantine-Checkbox-input')[2].click()")
        chromium.wait_for(lambda: np.abs(middle(chromium) - after).max() > 20)
        assert chromium.errors == []


def test_a_bad_page_is_noticed(chromium, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(
        "<script>console.error('wrong'); fetch('http://127.0.0.1:9/x').catch(() => 0);"
        "setTimeout(() => { throw new Error('later'); }, 1)</script>"
    )
    chromium.open(path.as_uri())
    chromium.wait_for(lambda: chromium.evaluate("document.readyState") == "complete")
    chromium.wait_for(lambda: len(chromium.errors) >= 2)
    for word in ("wrong", "later"):
        assert any(word in error for error in chromium.errors)
    assert outside(chromium) == ["http://127.0.0.1:9/x"]
