"""The robots that derivatives are tested on: a tree for each joint kind at each place of a tree.

A tree is a chain of three joints. One, at the root, in the middle or at the leaf, is the tested
one; the others are hinges. Trees do not interact, so that one robot can hold many of them and
a library that takes only one tree can have a robot for each. A tree's numbers depend on its name
alone.
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
    """A joint kind: how to make one, and what its coordinates are.

    `coordinates` is a letter for each: "a" an angle, "l" a length; "Q" is a unit quaternion, four
    coordinates and three velocities.
    """

    make: Callable[[np.random.Generator], Joint | Compound]
    coordinates: str


def _hinge(rng: np.random.Generator) -> Joint:
    return joints.Revolute(rng.normal(size=3))


KINDS = {
    "revolute": Kind(_hinge, "a"),
    "prismatic": Kind(lambda rng: joints.Prismatic(rng.normal(size=3)), "l"),
    "helical": Kind(lambda rng: joints.Helical(rng.normal(size=3), rng.uniform(0.1, 0.5)), "a"),
    "spherical": Kind(lambda rng: joints.Spherical(), "Q"),
    "planar": Kind(lambda rng: joints.Planar(), "lla"),
    "translation": Kind(lambda rng: joints.Translation(), "lll"),
    "free_flyer": Kind(lambda rng: joints.FreeFlyer(), "lllQ"),
    "universal": Kind(lambda rng: universal((1, 0, 0), rng.normal(size=3)), "aa"),
    "euler": Kind(lambda rng: euler("zyx"), "aaa"),
    "mimic": Kind(_hinge, ""),  # a hinge that follows another
    "massless": Kind(_hinge, "a"),  # a hinge that carries a massless link
}

# A mimic joint turns by so much of the angle of the hinge that it follows.
_RATIO = -0.7
# What a massless last link needs, lest the mass matrix be singular.
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
        """The tree's own random numbers, a stream for each purpose."""
        return np.random.default_rng(zlib.crc32(f"{self.name} {purpose}".encode()))


ALL_TREES = tuple(Tree(kind, place) for kind in KINDS for place in PLACES)


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """An entry of q but for "Q", which is four of them, in the order of q.

    `letter` as in `Kind`; `tested`: of the tested joint, whose coordinate is `ratio` times it.
    """

    letter: str
    tree: int
    joint: int
    tested: bool
    ratio: float = 1.0


@dataclasses.dataclass(frozen=True)
class Robot:
    """A robot of trees: links and joints as `build_model` takes them, gravity, and its layout.

    `coordinates` are in jaxrbd's order, which is that of the joints as stated.
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
    """The robot of these trees."""
    links: list[Link] = []
    specs: list[JointSpec] = []
    coordinates: list[Coordinate] = []
    for number, tree in enumerate(trees):
        rng = tree.rng("robot")
        tested = PLACES.index(tree.place)
        for i in range(3):
            kind = tree.kind if i == tested else "revolute"
            massless = kind == "massless"
            link = Link(f"{tree.name}_link{i + 1}", _inertia(rng) * (not massless))
            # The hinge that a mimic joint follows stands in for it: its coordinate is the tested.
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
