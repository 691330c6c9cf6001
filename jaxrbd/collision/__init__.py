"""Signed distances of convex shapes and grounds, and of the shapes of a robot and its world.

>>> from jaxrbd.collision import Box, PlacedShape, pairs_of, robot_distances
>>> table = PlacedShape(Box([0.5, 0.5, 0.02]), X_FS=pose, name="table")
>>> pairs = pairs_of(model, [table], disabled=srdf.disabled_collisions)
>>> robot_distances(model, q, pairs)        # (m,), differentiable in q and in the sizes
"""

from .distances import distance
from .height_grid import HeightGrid
from .robot_shapes import (
    DistancePairs,
    PlacedShape,
    capsule_between,
    pairs_of,
    robot_distances,
    robot_separations,
)
from .separation import Separation
from .shapes import (
    Box,
    Capsule,
    ConvexMesh,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    Sphere,
    convex_hull,
)

__all__ = [
    # shapes
    "Box",
    "Capsule",
    "ConvexMesh",
    "Cylinder",
    "Ellipsoid",
    "HalfSpace",
    "HeightGrid",
    "PlacedShape",
    "Sphere",
    "capsule_between",
    "convex_hull",
    # distances
    "DistancePairs",
    "Separation",
    "distance",
    "pairs_of",
    "robot_distances",
    "robot_separations",
]
