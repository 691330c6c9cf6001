"""Videos of trajectories, read back picture by picture."""

import importlib.util
import warnings

import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import view
from jaxrbd.collision import Box
from jaxrbd.errors import ArgumentError
from jaxrbd.model import Geometry, JointSpec, Link, link_inertia
from jaxrbd.view import motion, video

SIZE = {"width": 48, "height": 32, "smooth": 1}
SEEN = {"camera": (0, -1, 0), "ground": False, **SIZE}


INERTIA = link_inertia(1.0, (0.0, 0.0, 0.0), np.eye(3))


def cart() -> rbd.Model:
    """A red box that slides along x and y, 0.3 m wide."""
    red = [Geometry(Box((0.15, 0.15, 0.15)), color=(1.0, 0.0, 0.0, 1.0))]
    joints = [
        JointSpec("x", rbd.joints.Prismatic((1.0, 0.0, 0.0)), None, "sledge"),
        JointSpec("y", rbd.joints.Prismatic((0.0, 1.0, 0.0)), "sledge", "box"),
    ]
    return rbd.build_model([Link("sledge"), Link("box", INERTIA, red)], joints)


def along_x(*x):
    return np.stack([np.array(x), np.zeros(len(x))], axis=1)


def read_gif(path):
    """The pictures (n, height, width, 3), and the times in ms that each is shown."""
    image = pytest.importorskip("PIL.Image")
    pictures, times = [], []
    with image.open(path) as file:
        for i in range(file.n_frames):
            file.seek(i)
            pictures.append(np.asarray(file.convert("RGB"), int))
            times.append(file.info["duration"])
        assert file.info["loop"] == 0
    return np.stack(pictures), times


def red(pictures):
    """Which pixels are red (n, height, width)."""
    return (pictures[..., 0] > 60) & (pictures[..., 1] < 60) & (pictures[..., 2] < 60)


def columns(pictures):
    """The first and the last red column of each picture."""
    found = [np.flatnonzero(x.any(axis=0)) for x in red(pictures)]
    return [(x.min(), x.max()) for x in found]


def test_a_video_plays_in_real_time(tmp_path):
    """Each picture shows the nearest configuration; equal pictures of a GIF are one, for longer."""
    given = {**SEEN, "target": (0.2, 0.0, 0.0), "distance": 3.0}
    q = along_x(0.0, 0.1, 0.2, 0.3, 0.4)
    view.save_video(tmp_path / "a.gif", cart(), q, dt=0.03, **given)
    pictures, times = read_gif(tmp_path / "a.gif")
    assert times == [40, 40, 40, 40]  # at 0, 0.04, 0.08 and 0.12 s
    for picture, x in zip(pictures, (0.0, 0.1, 0.3, 0.4)):
        expected = view.render(cart(), along_x(x)[0], **given)
        np.testing.assert_allclose(picture, expected, atol=8)  # a GIF has few colours
    view.save_video(tmp_path / "a.gif", cart(), q[:2], dt=0.1, rate=40, **given)
    pictures, times = read_gif(tmp_path / "a.gif")
    assert times == [60, 60]  # the pictures at 0, 0.02 and 0.04 s, and those at 0.06 to 0.1 s


def test_the_steps_nearest_to_the_pictures():
    assert motion.nearest_steps(5, 0.03, 0.04) == [0, 1, 3, 4]
    assert motion.nearest_steps(3, 0.1, 0.05) == [0, 0, 1, 2, 2]
    assert motion.nearest_steps(1, 0.1, 0.04) == [0]
    assert motion.nearest_steps(4, 0.1, 0.3) == [0, 3]  # 0.3 / 0.1 is below 3 in doubles


def test_the_pictures_contain_the_whole_motion(tmp_path):
    """The camera stands still and sees the box at both ends of its way."""
    view.save_video(tmp_path / "a.gif", cart(), along_x(-3.0, 0.0, 3.0), dt=0.04, **SEEN)
    pictures, _ = read_gif(tmp_path / "a.gif")
    (first, _), middle, (_, last) = columns(pictures)
    assert 1 <= first <= 5
    assert 42 <= last <= 46
    assert middle[0] + middle[1] == 47


def test_the_camera_follows_a_frame(tmp_path):
    """Horizontally, at the distance of a robot that does not move; the ground passes by."""
    q = along_x(-3.0, 0.0, 3.0) + np.array([0.0, 1.0])
    view.save_video(tmp_path / "a.gif", cart(), q, dt=0.04, follow="box", **SEEN)
    pictures, _ = read_gif(tmp_path / "a.gif")
    assert len(pictures) == 1  # all are equal
    still = view.render(cart(), q[0], **SEEN)
    np.testing.assert_allclose(pictures[0], still, atol=8)
    given = {**SEEN, "ground": True, "camera": (0, -1, 0.5), "follow": "box"}
    view.save_video(tmp_path / "a.gif", cart(), along_x(-3.0, 0.1, 3.0), dt=0.04, **given)
    pictures, _ = read_gif(tmp_path / "a.gif")
    assert len(pictures) == 3
    assert len(set(columns(pictures))) == 1
    # The camera moves by 1.5 m, the mean of two robots. They end 1.5 m beside its target.
    both = np.stack([along_x(0.0, 3.0), along_x(0.0, 0.0)])
    view.save_video(tmp_path / "a.gif", cart(), both, dt=0.04, follow="box", **SEEN)
    pictures, _ = read_gif(tmp_path / "a.gif")
    first, second = columns(pictures)
    assert first[0] + first[1] == 47
    assert abs(second[0] + second[1] - 47) <= 3  # one robot is nearer to the camera
    assert second[1] - second[0] > 3 * (first[1] - first[0])


def test_a_body_that_rises_is_followed_only_horizontally(tmp_path):
    links = [Link("box", INERTIA, [Geometry(Box((0.1, 0.1, 0.1)), color=(1.0, 0.0, 0.0, 1.0))])]
    lift = JointSpec("z", rbd.joints.Prismatic((0.0, 0.0, 1.0)), None, "box")
    model, q = rbd.build_model(links, [lift]), np.array([[0.0], [1.0]])
    view.save_video(tmp_path / "a.gif", model, q, dt=0.04, follow="box", **SEEN)
    below, above = (np.flatnonzero(x.any(axis=1)) for x in red(read_gif(tmp_path / "a.gif")[0]))
    assert above.max() < below.min()


def test_an_mp4_has_the_pictures_and_their_rate(tmp_path, recwarn):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    given = {**SEEN, "target": (0.2, 0.0, 0.0), "distance": 3.0}
    path = str(tmp_path / "a.MP4")
    view.save_video(path, cart(), along_x(0.0, 0.2, 0.4), dt=0.1, rate=20, **given)
    assert not recwarn.list
    reader = ffmpeg.read_frames(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        meta = next(reader)
    assert (meta["fps"], meta["size"], meta["codec"]) == (20.0, (48, 32), "h264")
    pictures = np.stack([np.frombuffer(x, np.uint8).reshape(32, 48, 3) for x in reader])
    for picture, x in zip(pictures.astype(int), (0.0, 0.0, 0.2, 0.4, 0.4), strict=True):
        expected = view.render(cart(), along_x(x)[0], **given).astype(int)
        assert np.mean(np.abs(picture - expected)) < 8


def test_a_video_that_fails_leaves_the_file(tmp_path, monkeypatch):
    pytest.importorskip("PIL")
    path = tmp_path / "a.gif"
    path.write_text("before")

    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr(video, "replace_file", fail)
    with pytest.raises(OSError, match="full"):
        view.save_video(path, cart(), along_x(0.0, 1.0), **SIZE)
    assert path.read_text() == "before"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.avi", {}, r"path is '.*a\.avi', expected a name that ends in \.gif or \.mp4"),
        ("none/a.gif", {}, r"path is '.*a\.gif', and its folder does not exist"),
        ("a.gif", {"dt": 0.0}, "dt is 0.0, expected a positive time"),
        ("a.gif", {"dt": 1e300}, "dt is 1e\\+300: the video has more than 1000000 pictures"),
        ("a.gif", {"rate": 51}, "rate is 51.0, expected from 0.01 to 50 pictures"),
        ("a.gif", {"rate": 1e-310}, "rate is 1e-310, expected from 0.01 to 50 pictures"),
        ("a.mp4", {"rate": 241}, "rate is 241.0, expected from 0.01 to 240 pictures"),
        ("a.mp4", {"width": 47}, "width is 47, expected an even number for an MP4"),
        ("a.mp4", {"height": 31}, "height is 31, expected an even number for an MP4"),
        ("a.gif", {"follow": "wheel"}, "no frame 'wheel'"),
        ("a.gif", {"trajectory": np.zeros(2)}, r"trajectory has shape \(2,\)"),
        ("a.gif", {"camera": (0, 0, 0)}, "camera is zero"),
    ],
)
def test_bad_arguments_of_a_video(name, options, message, tmp_path):
    given = {"trajectory": along_x(0.0, 1.0), **SIZE, **options}
    with pytest.raises(ArgumentError, match=message):
        view.save_video(tmp_path / name, cart(), **given)
    assert not [*tmp_path.iterdir()]


def test_a_long_rest_in_a_gif_is_refused(tmp_path):
    """A GIF has 16 bits for the time of a picture, and Pillow joins equal pictures."""
    pytest.importorskip("PIL")
    path = tmp_path / "a.gif"
    view.save_video(path, cart(), np.zeros((6, 2)), dt=100, rate=0.01, **SIZE)
    assert read_gif(path)[1] == [600_000]
    before = path.read_bytes()
    with pytest.raises(ArgumentError, match=r"do not change for more than 655\.35 s"):
        view.save_video(path, cart(), np.zeros((7, 2)), dt=100, rate=0.01, **SIZE)
    assert path.read_bytes() == before


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda x: None if "ffmpeg" in x else find(x))
    with pytest.raises(ArgumentError, match=r"\.mp4 video needs imageio_ffmpeg: pip install pill"):
        view.save_video(tmp_path / "a.mp4", cart(), along_x(0.0, 1.0))
