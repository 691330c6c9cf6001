"""`find_package_file`: the order of the search, and errors that list all paths that were tried."""

import os
import re
from pathlib import Path

import pytest

from jaxrbd.errors import ArgumentError, GeometryWarning
from jaxrbd.io import find_package_file
from support import real_robots

VARIABLES = ("AMENT_PREFIX_PATH", "COLCON_PREFIX_PATH", "CMAKE_PREFIX_PATH", "ROS_PACKAGE_PATH")
URI = "package://arm/meshes/hand.stl"

# These files name meshes of another computer, or give no package.
BROKEN = {
    "romeo_description/urdf/romeo_laas_small.urdf": "file:///usr/Romeo",
    "talos_data/robots/talos_full_v2.urdf": "package:///",
    "talos_data/robots/talos_full_v2_box.urdf": "package:///",
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def make(*parts):
    """An empty file, with its folders."""
    path = parts[0].joinpath(*parts[1:])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_map_comes_first(tmp_path):
    urdf = make(tmp_path, "arm", "urdf", "arm.urdf")
    near = make(tmp_path, "arm", "meshes", "hand.stl")
    mapped = make(tmp_path, "elsewhere", "meshes", "hand.stl")
    assert find_package_file(URI, urdf_path=urdf) == near
    assert find_package_file(URI, {"arm": tmp_path / "elsewhere"}, urdf) == mapped
    assert find_package_file(URI, {"arm": str(tmp_path / "elsewhere")}) == mapped
    # A folder of the map without the file does not end the search.
    assert find_package_file(URI, {"arm": tmp_path, "leg": tmp_path}, urdf) == near


def test_the_search_goes_from_the_inside_to_the_outside(tmp_path):
    urdf = make(tmp_path, "arm", "robots", "arm.urdf")
    outside = make(tmp_path, "arm", "meshes", "hand.stl")
    assert find_package_file(URI, urdf_path=str(urdf)) == outside
    inside = make(tmp_path, "arm", "robots", "arm", "meshes", "hand.stl")
    assert find_package_file(URI, urdf_path=urdf) == inside


def test_a_package_beside_a_folder_that_contains_the_robot_file(tmp_path):
    urdf = make(tmp_path, "robots", "v1", "arm.urdf")
    beside = make(tmp_path, "arm", "meshes", "hand.stl")
    assert find_package_file(URI, urdf_path=urdf) == beside
    assert find_package_file("package://arm//meshes/./hand.stl", urdf_path=urdf) == beside


def test_a_relative_robot_file_and_links_are_followed(tmp_path, monkeypatch):
    make(tmp_path, "arm", "urdf", "arm.urdf")
    mesh = make(tmp_path, "arm", "meshes", "hand.stl")
    monkeypatch.chdir(tmp_path / "arm" / "urdf")
    assert find_package_file(URI, urdf_path="arm.urdf") == mesh
    link = tmp_path / "other" / "robot.urdf"
    link.parent.mkdir()
    try:
        link.symlink_to(tmp_path / "arm" / "urdf" / "arm.urdf")
    except OSError:
        pytest.skip("this system has no symbolic links")
    other = make(tmp_path, "other", "arm", "meshes", "hand.stl")
    assert find_package_file(URI, urdf_path=link) == other
    other.unlink()
    assert find_package_file(URI, urdf_path=link) == mesh


@pytest.mark.parametrize("variable", VARIABLES)
def test_variables_are_searched_by_choice(tmp_path, monkeypatch, variable):
    share = () if variable == "ROS_PACKAGE_PATH" else ("share",)
    mesh = make(tmp_path / "second", *share, "arm", "meshes", "hand.stl")
    folders = os.pathsep.join([str(tmp_path / "first"), "", str(tmp_path / "second")])
    monkeypatch.setenv(variable, folders)
    assert find_package_file(URI, search_environment=True) == mesh
    with pytest.raises(ArgumentError, match="no such file"):
        find_package_file(URI)
    if variable == "ROS_PACKAGE_PATH":  # it may also name the folder of the package
        monkeypatch.setenv(variable, str(tmp_path / "second" / "arm"))
        assert find_package_file(URI, search_environment=True) == mesh


def test_paths_and_file_uris(tmp_path):
    urdf = make(tmp_path, "urdf", "arm.urdf")
    mesh = make(tmp_path, "meshes", "my hand.stl")
    assert find_package_file("../meshes/my hand.stl", urdf_path=urdf) == mesh
    assert find_package_file(str(mesh)) == mesh
    assert find_package_file(mesh.as_uri()) == mesh
    assert "%20" in mesh.as_uri()
    assert find_package_file(mesh.as_uri().replace("file://", "file://localhost")) == mesh


@pytest.mark.parametrize(
    "uri",
    [
        "package://arm/meshes/my%20hand.stl",
        "package://arm/Meshes/My Hand.STL",
        "package://arm/meshes\\my hand.stl",
        "../meshes/my%20hand.stl",
        "..\\meshes\\MY HAND.stl",
        "{folder}/Meshes/my%20hand.stl",
        "file://{folder}/meshes/My%20hand.stl",
    ],
)
def test_the_only_file_in_another_spelling_is_found_with_a_warning(tmp_path, uri):
    urdf = make(tmp_path, "arm", "urdf", "arm.urdf")
    mesh = make(tmp_path, "arm", "meshes", "my hand.stl")
    uri = uri.format(folder=tmp_path / "arm")
    with pytest.warns(GeometryWarning, match=re.escape(f"{str(mesh)!r} has this name")):
        assert find_package_file(uri, urdf_path=urdf) == mesh
    # The exact name comes first. Two files in other spellings are ambiguous.
    make(tmp_path, "arm", "meshes", "mY hand.stl")
    assert find_package_file("../meshes/my hand.stl", urdf_path=urdf) == mesh
    with pytest.raises(ArgumentError, match="no such file"):
        find_package_file(uri, urdf_path=urdf)


@pytest.mark.parametrize(
    "inside", ["..\\secret.stl", "meshes/..\\..\\secret.stl", "%2e%2e/secret.stl"]
)
def test_another_spelling_does_not_leave_the_package(tmp_path, inside):
    make(tmp_path, "secret.stl")
    mesh = make(tmp_path, "arm", "meshes", "hand.stl")
    with pytest.raises(ArgumentError, match="no such file"):
        find_package_file(f"package://arm/{inside}", {"arm": mesh.parents[1]})


def test_an_error_lists_all_paths(tmp_path, monkeypatch):
    urdf = make(tmp_path, "ws", "arm", "urdf", "arm.urdf")
    (tmp_path / "map").mkdir()
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path / "ament"))
    with pytest.raises(ArgumentError) as error:
        find_package_file(URI, {"arm": tmp_path / "map"}, urdf, search_environment=True)
    message = str(error.value)
    assert error.value.argument is None  # the folder of the package is known
    assert f"no such file in the package 'arm', which is '{tmp_path / 'map'}'; looked" in message
    lines = message.splitlines()[1:]
    places = ("map", "ws/arm/urdf/arm", "ws/arm", "ws/arm/arm")
    assert lines[:4] == [f"  {tmp_path / place / 'meshes' / 'hand.stl'}" for place in places]
    assert lines[-1] == f"  {tmp_path / 'ament' / 'share' / 'arm' / 'meshes' / 'hand.stl'}"
    assert len(lines) == len(set(lines))
    # A folder is no file.
    (tmp_path / "map" / "meshes" / "hand.stl").mkdir(parents=True)
    with pytest.raises(ArgumentError, match="no such file"):
        find_package_file(URI, {"arm": tmp_path / "map"})
    with pytest.raises(ArgumentError, match="nowhere"):
        find_package_file(URI)


def test_an_error_says_whether_the_package_is_missing_or_the_file(tmp_path):
    urdf = make(tmp_path, "ws", "arm", "urdf", "arm.urdf")
    with pytest.raises(ArgumentError, match="package 'arm' by the argument `packages`;") as e:
        find_package_file(URI, urdf_path=urdf)
    assert e.value.argument == "packages"
    package = make(tmp_path, "ws", "arm", "package.xml").parent
    words = re.escape(f"no such file in the package 'arm', which is '{package}';")
    with pytest.raises(ArgumentError, match=words) as e:
        find_package_file(URI, urdf_path=urdf)
    assert e.value.argument is None
    with pytest.raises(ArgumentError, match="no such file"):  # no system accepts this name
        find_package_file(f"package://{300 * 'x'}/hand.stl", urdf_path=urdf)


def test_a_folder_that_may_not_be_read_has_no_other_spellings(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(path)

    urdf = make(tmp_path, "arm", "arm.urdf")
    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ArgumentError, match="no such file"):
        find_package_file("hand.stl", urdf_path=urdf)


def test_a_folder_of_a_package_that_does_not_exist_is_an_error(tmp_path):
    mesh = make(tmp_path, "arm", "meshes", "hand.stl")
    urdf = make(tmp_path, "arm", "arm.urdf")
    assert find_package_file(URI, {"other": tmp_path / "gone"}, urdf) == mesh
    with pytest.raises(ArgumentError, match=r"packages: the folder of 'arm' is '.*gone', which is"):
        find_package_file(URI, {"arm": tmp_path / "gone"}, urdf)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("http://example.org/hand.stl", "scheme package or file"),
        ("model://arm/hand.stl", "scheme package or file"),
        ("package://arm", "expected package://PACKAGE/PATH"),
        ("package://arm/", "expected package://PACKAGE/PATH"),
        ("package:///hand.stl", "expected package://PACKAGE/PATH"),
        ("package://arm/../../secret", "without '..'"),
        ("package://../secret", "without '..'"),
        ("file://server/hand.stl", "host 'server'"),
        ("file://[x/hand.stl", "host '[x'"),
        ("/" + 300 * "x" + ".stl", "no such file"),
        ("file:///" + 300 * "x" + "/hand.stl", "no such file"),
        (None, "uri is None, expected a text"),
        ("hand.stl", "urdf_path"),
        ("", "uri is empty"),
        ("file:///no/such/file.stl", "no such file"),
    ],
)
def test_uris_that_are_refused(uri, words):
    with pytest.raises(ArgumentError, match=re.escape(words)):
        find_package_file(uri)


def test_meshes_of_real_robots_are_found():
    if real_robots.ROOT is None:
        pytest.skip("example-robot-data is not installed")
    found = 0
    for name in real_robots.ROBOTS:
        path = real_robots.path_of(name)
        text = re.sub("<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for uri in set(re.findall(r'<mesh[^>]*filename="([^"]*)"', text)):
            if name in BROKEN and uri.startswith(BROKEN[name]):
                with pytest.raises(ArgumentError):
                    find_package_file(uri, urdf_path=path)
                continue
            assert find_package_file(uri, urdf_path=path).is_file()
            found += 1
    assert found > 1000


def test_the_order_of_the_variables(tmp_path, monkeypatch):
    meshes = []
    for variable in VARIABLES:
        share = () if variable == "ROS_PACKAGE_PATH" else ("share",)
        meshes.append(make(tmp_path / variable, *share, "arm", "meshes", "hand.stl"))
        monkeypatch.setenv(variable, str(tmp_path / variable))
    urdf = make(tmp_path, "robots", "arm", "arm.urdf")
    meshes.insert(0, make(tmp_path, "robots", "arm", "meshes", "hand.stl"))
    for mesh in meshes:
        assert find_package_file(URI, urdf_path=urdf, search_environment=True) == mesh
        mesh.unlink()
