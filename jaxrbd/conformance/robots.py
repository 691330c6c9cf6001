"""The robots of the suite: one tree per joint kind and per place of the joint in the tree.

A tree is a chain of three joints. The tested joint is at the root, in the middle or at the leaf;
the two other joints are hinges. A robot can have many trees, because the trees do not interact. For
a library that supports only one tree, each tree is a robot. The parameters of a tree are random,
and depend only on the name of the tree.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from .. import joints
from ..errors import ArgumentError
from ..joints import Joint
from ..model import Model
from ..model.arguments import require_type, sequence
from ..model.builder import build_model
from ..model.description import (
    Compound,
    JointSpec,
    Link,
    Mimic,
    euler,
    link_inertia,
    placement_matrix,
    universal,
)

PLACES = ("root", "middle", "leaf")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A joint kind: a function that makes a random joint, and the types of its coordinates.

    `coordinates`: one letter per `Coordinate`. "a" is an angle, and "l" is a length. "Q" is a unit
    quaternion, with four entries in q and three entries in v.
    """

    make: Callable[[np.random.Generator], Joint | Compound]
    coordinates: str


def _hinge(rng: np.random.Generator) -> Joint:
    return joints.Revolute(rng.normal(size=3))


KINDS = {
    "revolute": Kind(_hinge, "a"),
    "prismatic": Kind(lambda rng: joints.Prismatic(rng.normal(size=3)), "l"),
    "helical": Kind(lambda rng: joints.Helical(rng.normal(size=3), rng.uniform(0.1, 0.5)), "a"),
    "screw": Kind(
        lambda rng: joints.Screw(rng.normal(size=3), rng.uniform(0.5, 1.5), rng.uniform(0.1, 0.5)),
        "a",
    ),
    "spherical": Kind(lambda rng: joints.Spherical(), "Q"),
    "planar": Kind(lambda rng: joints.Planar(), "lla"),
    "translation": Kind(lambda rng: joints.Translation(), "lll"),
    "free_flyer": Kind(lambda rng: joints.FreeFlyer(), "lllQ"),
    "universal": Kind(lambda rng: universal((1, 0, 0), rng.normal(size=3)), "aa"),
    "euler": Kind(lambda rng: euler("zyx"), "aaa"),
    "mimic": Kind(_hinge, ""),  # a hinge that mimics another hinge
    "massless": Kind(_hinge, "a"),  # a hinge that carries a massless link
}

# The multiplier of the mimic joints.
_RATIO = -0.7
# The armature in kg m^2 of the joint of a massless last link. With 0, M would be singular.
_ARMATURE = 0.2


@dataclasses.dataclass(frozen=True)
class Tree:
    """A chain of three joints with the tested `kind` at `place`."""

    kind: str
    place: str

    def __post_init__(self):
        if self.kind not in KINDS or self.place not in PLACES:
            raise ArgumentError(f"no tree {self}; kinds: {list(KINDS)}, places: {list(PLACES)}")

    @property
    def name(self) -> str:
        """Name of the tree, and the start of the names of its links and joints."""
        return f"{self.kind}_{self.place}"

    @property
    def tip(self) -> str:
        """Name of the last link."""
        return f"{self.name}_link3"

    def rng(self, purpose: str) -> np.random.Generator:
        """A random generator whose seed depends only on the name of the tree and the purpose."""
        return np.random.default_rng(zlib.crc32(f"{self.name} {purpose}".encode()))


ALL_TREES = tuple(Tree(kind, place) for kind in KINDS for place in PLACES)


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """One coordinate of a robot: one entry of q, or the four entries of a quaternion.

    - `letter`: the type, as in `Kind`;
    - `tree`, `joint`: the index of the tree, and the index of the joint in the tree;
    - `tested`: whether this coordinate determines the position of the tested joint;
    - `ratio`: the multiplier of the tested joint if it mimics the joint of this coordinate; else 1.
    """

    letter: str
    tree: int
    joint: int
    tested: bool
    ratio: float = 1.0


@dataclasses.dataclass(frozen=True)
class Robot:
    """A robot of trees: links, joints and gravity for `build_model`, and its coordinates.

    `coordinates` are in the order of q in jaxrbd, which is the order of `joints`.
    """

    trees: tuple[Tree, ...]
    links: tuple[Link, ...]
    joints: tuple[JointSpec, ...]
    coordinates: tuple[Coordinate, ...]
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81)

    @property
    def tips(self) -> tuple[str, ...]:
        """The last link of each tree."""
        return tuple(tree.tip for tree in self.trees)

    def model(self) -> Model:
        """The robot as a jaxrbd model, in JAX's default float dtype."""
        return build_model(self.links, self.joints, gravity=self.gravity, name="conformance")


def make_robot(trees: Sequence[Tree]) -> Robot:
    """The robot that consists of the given trees."""
    links: list[Link] = []
    specs: list[JointSpec] = []
    coordinates: list[Coordinate] = []
    for number, tree in enumerate(sequence(trees, "trees", "Tree")):
        require_type(tree, f"trees[{number}]", Tree)
        rng = tree.rng("robot")
        tested = PLACES.index(tree.place)
        for i in range(3):
            kind = tree.kind if i == tested else "revolute"
            massless = kind == "massless"
            link = Link(f"{tree.name}_link{i + 1}", _inertia(rng) * (not massless))
            # A mimic joint has no coordinate: the coordinate of the joint that it follows counts as
            # the tested coordinate.
            leads = tree.kind == "mimic" and i == (1 if tested == 0 else 0)
            specs.append(
                JointSpec(
                    f"{tree.name}_joint{i + 1}",
                    KINDS[kind].make(rng),
                    None if i == 0 else links[-1].name,
                    link.name,
                    placement_matrix(0.3 * rng.normal(size=3), rng.uniform(-3, 3, size=3)),
                    armature=_ARMATURE if massless and tree.place == "leaf" else 0.0,
                    mimic=_mimic(tree) if kind == "mimic" else None,
                )
            )
            links.append(link)
            coordinates += [
                Coordinate(letter, number, i, leads or i == tested, _RATIO if leads else 1.0)
                for letter in KINDS[kind].coordinates
            ]
    return Robot(tuple(trees), tuple(links), tuple(specs), tuple(coordinates))


def _mimic(tree: Tree) -> Mimic:
    return Mimic(f"{tree.name}_joint{2 if tree.place == 'root' else 1}", _RATIO)


def _inertia(rng: np.random.Generator) -> np.ndarray:
    """The inertia of a random cloud of point masses."""
    masses, points = rng.uniform(0.1, 0.5, 8), 0.4 * rng.normal(size=(8, 3))
    return np.sum([link_inertia(m, p) for m, p in zip(masses, points)], axis=0)
