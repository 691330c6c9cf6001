"""The links of a robot whose collision shapes overlap in named configurations."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..collision import DistancePairs, pairs_of, robot_distances
from ..configuration import neutral
from ..errors import ArgumentError, RobotFileError, listed
from ..io import load_srdf, read_meshes
from ..io.mujoco import Imported
from ..model import Model

SMALLEST = 1e-6  # m, the smallest depth of an overlap: faces that touch have rounding errors


class _Robot(NamedTuple):
    """A robot and its configurations by name.

    - `disabled`: the pairs of links that are not checked;
    - `unknown`: texts about links of the SRDF file that the robot does not have.
    """

    model: Model
    configurations: dict[str, Array]
    disabled: Sequence[tuple[str, str]]
    unknown: Sequence[str] = ()


def overlaps(
    path: str,
    loaded: Model | Imported,
    srdf: str | None,
    packages: Mapping[str, str | os.PathLike[str]],
) -> list[RobotFileError]:
    """Warnings about pairs of links that overlap, and about shapes that are not checked.

    For a URDF file or a model file, the configurations are the neutral one and the group states of
    the SRDF file. For an MJCF file, they are the configuration that the file states, and the
    keyframes. These pairs of links are not checked: links of one body or of a body and its parent,
    the disabled pairs of the SRDF file, and the pairs without contact in an MJCF file. If the robot
    does not have a link of a disabled pair, this is a warning, too.

    `loaded`: the robot of the file `path`; `srdf`: the path of an SRDF file, or None; `packages`:
    the folders of ROS packages by their names. Raises RobotFileError for a faulty SRDF file, and
    ArgumentError for an SRDF file with an MJCF file.
    """
    robot = _robot(loaded, srdf)
    texts, model = list(robot.unknown), robot.model
    try:
        model = read_meshes(model, packages, search_environment=True)
    except ArgumentError as error:
        texts.append(str(error))
    pairs = pairs_of(model, disabled=robot.disabled)
    if pairs.left_out:
        texts.append(f"no distances of {listed(list(pairs.left_out))}")
    if len(pairs):
        texts += _texts(model, pairs, robot.configurations)
    return [RobotFileError(f"warning: {text}", file=path) for text in texts]


def _robot(model: Model | Imported, srdf: str | None) -> _Robot:
    if isinstance(model, Imported):
        if srdf is not None:
            raise ArgumentError("--srdf is for URDF files; an MJCF file states its pairs")
        return _robot_of_mjcf(model)
    configurations = {"the neutral configuration": neutral(model)}
    if srdf is None:
        return _Robot(model, configurations, [])
    found = load_srdf(srdf, model, skip_unknown_joints=True)
    configurations |= {f"the state {name!r}": q for name, q in found.configurations.items()}
    disabled = [(pair.link1, pair.link2) for pair in found.disabled_collisions]
    links = dict.fromkeys(link for pair in disabled for link in pair)
    names = [repr(link) for link in links if link not in model.frame_names]
    unknown = [f"{srdf} disables pairs of unknown links: {listed(names)}"] if names else []
    return _Robot(model, configurations, disabled, unknown)


def _robot_of_mjcf(found: Imported) -> _Robot:
    shapes = found.model.geometry.collisions
    link_of = {geom.name: link for link, geoms in shapes.items() for geom in geoms}
    with_contact = {frozenset(map(link_of.get, pair)) for pair in found.pairs}
    links = itertools.combinations(shapes, 2)
    disabled = [pair for pair in links if frozenset(pair) not in with_contact]
    keys = {f"the keyframe {name!r}": key.q for name, key in found.keyframes.items()}
    return _Robot(found.model, {"the configuration of the file": found.q0, **keys}, disabled)


def _texts(model: Model, pairs: DistancePairs, configurations: Mapping[str, Array]) -> list[str]:
    """A text for each pair of links that overlaps in a configuration, with the largest depth."""
    q = jnp.stack([*configurations.values()])
    depths = -np.asarray(jax.vmap(lambda q: robot_distances(model, q, pairs))(q))
    texts = []
    for name, depth in zip(configurations, depths):
        deepest: dict[tuple[str | int | None, ...], float] = {}
        for (i, j), x in zip(pairs.members, depth.tolist()):
            links = pairs.shapes[i].frame, pairs.shapes[j].frame
            deepest[links] = max(x, deepest.get(links, 0.0))
        texts += [
            f"the links {a!r} and {b!r} overlap by {x:.2g} m in {name}"
            for (a, b), x in deepest.items()
            if x > SMALLEST
        ]
    return texts
