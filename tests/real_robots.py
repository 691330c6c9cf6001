"""The real robots that the oracles are asked about: every URDF file of example-robot-data.

What is special about a file is named here, with the reason; whatever is not named is ordinary, and
the tests fail where a file is not what this module says it is.
"""

import functools
import importlib.metadata
import pathlib
import warnings

import jaxrbd

# Files that neither Pinocchio nor jaxrbd reads.
UNREADABLE = {
    "ur_description/urdf/ur3.urdf": "a xacro file that was never expanded: it states no robot",
}

# Robots whose mass matrix is singular at every configuration: forward dynamics is not defined.
SINGULAR = {
    "romeo_description/urdf/romeo.urdf": "the last link of every finger has no mass",
    "romeo_description/urdf/romeo_laas_small.urdf": "the eyes have no mass",
}

# Files whose joints mimic others: what Pinocchio makes of that, or None where it agrees.
_BEFORE_LEADER = "Pinocchio wants a mimic joint numbered after the one it follows"
MIMIC = {
    "baxter_description/urdf/baxter.urdf": None,
    "panda_description/urdf/panda.urdf": None,
    "panda_description/urdf/panda_collision.urdf": None,
    "pr2_description/urdf/pr2.urdf": None,
    "romeo_description/urdf/romeo.urdf": _BEFORE_LEADER,
    "talos_data/robots/talos_full_v2.urdf": _BEFORE_LEADER,
    "talos_data/robots/talos_full_v2_box.urdf": _BEFORE_LEADER,
    "tiago_pro_description/robots/tiago_pro.urdf": None,
}

# Files that neither reads with their mimic joints, only without.
UNREADABLE_MIMIC = {
    "alex_description/urdf/alex_psyonic_hands.urdf": "its mimic joints follow joints of other names",
}

# Files for which `load_urdf` warns: at least one link's inertia is none that a rigid body can have.
UNPHYSICAL = frozenset()


def _root() -> pathlib.Path | None:
    try:
        files = importlib.metadata.files("example-robot-data") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    marker = "example-robot-data/robots/"
    for file in files:
        if marker in file.as_posix():
            inside = file.as_posix().split(marker)[1]
            path = pathlib.Path(file.locate()).resolve()
            return path.parents[inside.count("/")]
    return None


ROOT = _root()
# The names of all files, relative to the folder of robots.
FILES = sorted(file.relative_to(ROOT).as_posix() for file in ROOT.rglob("*.urdf")) if ROOT else []
ROBOTS = [name for name in FILES if name not in UNREADABLE]


def path_of(name: str) -> pathlib.Path:
    return ROOT / name


@functools.cache
def load(name: str, root_joint: str | None, mimic: bool = False) -> jaxrbd.Model:
    """The model of a file, once it has warned about its inertias exactly if UNPHYSICAL says so."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = jaxrbd.load_urdf(path_of(name), root_joint=root_joint, mimic=mimic)
    expected = [jaxrbd.InertiaWarning] if name in UNPHYSICAL else []
    assert [w.category for w in caught] == expected, f"{name}: warnings {[*map(str, caught)]}"
    return model
