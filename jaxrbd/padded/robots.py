"""Robots of different structure as one `Model` whose arrays have a leading axis of robots.

The structure of the model is the common tree of the robots, see `common_tree.py`. A robot without a
body at a node has a *padding* body there: without mass, on a joint with armature 1, or on a mimic
joint, which has no dof, without armature. All bodies that a padding body carries are padding bodies
too. So the rows of padding dofs in the mass matrix are rows of the identity, and their bias forces
are zero. Padding bodies stay at rest, and the other rows of the mass matrix are the rows of the
robot's mass matrix.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._math.cast import as_array
from ..configuration import neutral_coordinates
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.coupling import Coupling, independent_coordinates
from ..model.joint_space import independent_index
from ..spatial import Pose
from ..topology import Topology
from .common_tree import WORLD, Node, checked_models, common_tree, nodes_of, place


@dataclasses.dataclass(frozen=True)
class PaddedRobots:
    """n robots in one program. `pad` returns it.

    - `model`: a `Model` whose arrays have a leading axis (n, ...). `jax.vmap` over it is a batch of
      the robots. Inside `vmap`, every function accepts it as the model of one robot, with `nq`
      coordinates, `nv` dofs and `nb` bodies;
    - `names` (n): the names of the robots;
    - `q_index`, `v_index`, `body_index`: for each robot, the indices in `model` of its coordinates,
      dofs and bodies, in the order of the robot. So `tau[i, robots.v_index[i]]` is the part of
      `tau` (n, nv) that belongs to robot i;
    - `frame_indices`: for each robot, the index in `model.frame_names` of each of its frames;
    - `tree`: the nodes of the common tree;
    - `frame_places`: the index in `model.frame_names` of each frame, by the name of the frame and
      the index of its body.
    """

    model: Model
    names: tuple[str, ...]
    q_index: tuple[np.ndarray, ...]
    v_index: tuple[np.ndarray, ...]
    body_index: tuple[np.ndarray, ...]
    frame_indices: tuple[dict[str, int], ...]
    tree: tuple[Node, ...]
    frame_places: dict[tuple[str, int], int]

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        m = self.model
        return f"PaddedRobots(n={len(self)}, nb={m.nb}, nq={m.nq}, nv={m.nv}, dtype={m.dtype.name})"

    @property
    def has_body(self) -> np.ndarray:
        """Which bodies of the common tree each robot has, (n, nb) of bool."""
        return marked(self.body_index, self.model.nb)

    @property
    def has_dof(self) -> np.ndarray:
        """Which dofs of the common tree each robot has, (n, nv) of bool."""
        return marked(self.v_index, self.model.nv)

    def configurations(self, q: Sequence[ArrayLike]) -> Array:
        """The configurations of the robots as one array, (n, ..., nq).

        `q`: for each robot its configuration (..., nq of the robot), with the same leading axes.
        Padding joints get the neutral configuration. Raises ArgumentError, which names the robot,
        for a wrong number of entries, and for an entry that is no array or has another shape or
        dtype.
        """
        return self._packed(q, "q", self.q_index, neutral_coordinates(self.model))

    def velocities(self, v: Sequence[ArrayLike]) -> Array:
        """Velocities, accelerations or joint forces of the robots as one array, (n, ..., nv).

        `v`: for each robot (..., nv of the robot), with the same leading axes. The entries of
        padding joints are 0. Errors as in `configurations`.
        """
        return self._packed(v, "v", self.v_index, np.zeros(self.model.nv))

    def _packed(
        self, parts: Sequence[ArrayLike], name: str, index: Sequence[np.ndarray], fill: np.ndarray
    ) -> Array:
        """The parts of all robots at their indices, and `fill` at the entries of padding."""
        parts = arguments.sequence(parts, name, "arrays")
        if len(parts) != len(self):
            raise ArgumentError(
                f"{name} has {len(parts)} entries, expected {len(self)}, one per robot"
            )
        rows: list[Array] = []
        for i, (part, places) in enumerate(zip(parts, index)):
            x = arguments.as_array(part, f"{name}[{i}] of robot {self.names[i]!r}")
            if x.dtype != self.model.dtype:
                raise ArgumentError(
                    f"{name}[{i}] of robot {self.names[i]!r} has dtype {x.dtype}, expected "
                    f"{self.model.dtype}, the dtype of the model"
                )
            if x.shape[-1:] != places.shape or (rows and x.shape[:-1] != rows[0].shape[:-1]):
                leading = rows[0].shape[:-1] if rows else x.shape[:-1]
                raise ArgumentError(
                    f"{name}[{i}] of robot {self.names[i]!r} has shape {x.shape}, expected "
                    f"{(*leading, len(places))}"
                )
            row = jnp.broadcast_to(jnp.asarray(fill, x.dtype), (*x.shape[:-1], len(fill)))
            rows.append(row.at[..., places].set(x, unique_indices=True))
        return jnp.stack(rows)

    def frame_index(self, names: str | Sequence[str]) -> np.ndarray:
        """The index of a frame of each robot in `model.frame_names`, (n,).

        `names`: the name of a link, for all robots or one per robot. The index differs between
        robots that have the frame at different places of the tree, so it is an array to map over:
        `vmap(lambda model, q, i: frame_placements(model, q).p[i])`. Raises ArgumentError for a
        robot without this frame, another number of names, and an object that is no name.
        """
        one = isinstance(names, str)
        given = (names,) * len(self) if one else arguments.names(names, "names")
        if len(given) != len(self):
            raise ArgumentError(f"names has {len(given)} entries, expected {len(self)}")
        for robot_name, name, found in zip(self.names, given, self.frame_indices):
            if name not in found:
                raise ArgumentError(
                    f"robot {robot_name!r} has no frame {name!r}; it has {', '.join(found)}"
                )
        return np.array([found[name] for name, found in zip(given, self.frame_indices)])


def pad(models: Sequence[Model], onto: PaddedRobots | None = None) -> PaddedRobots:
    """Robots of different structure as one batch, for one compiled program.

    - `models`: n robots of one dtype, all with or all without dissipation. With `onto`, the dtype
      and the dissipation of `onto`;
    - `onto`: padded robots whose tree is used as it is (default: the robots get a new common tree).
      So a robot that is made later can run in a program that is already compiled.

    The common tree has a place for every body of every robot. Robots can share a place if the
    joints on the path to this place are of the same kinds; one-axis joints of different kinds count
    as one kind, `joints.Screw`. A mimic joint shares its place with mimic joints only. Results of a
    robot, and their derivatives, equal up to rounding the results of a program for this robot
    alone. The model has no shapes of links, because they are static: draw the given models.

    The result has more frames than a robot: one for each name and place of a link. For a robot
    without this link, the frame coincides with the frame of its body.

    Raises ArgumentError for an empty sequence, for models with leading axes or traced arrays, for
    different dtypes or dissipation, for a `Follow` joint, and, with `onto`, for a robot with a
    joint or a frame that has no place.
    """
    if onto is not None and not isinstance(onto, PaddedRobots):
        raise ArgumentError(f"onto is {onto!r}, expected PaddedRobots")
    models = checked_models(models, None if onto is None else onto.model)
    robots = [nodes_of(model) for model in models]
    if onto is None:
        nodes, places = common_tree(robots)
        tree, frame_places = tuple(nodes), _numbered_frames(models, places)
    else:
        tree, frame_places = onto.tree, onto.frame_places
        places = [place(tree, nodes) for nodes in robots]
        _require_places(models, tree, frame_places, places)
    structure = _Structure(tree, frame_places)
    dtype, (dissipative, *_) = models[0].dtype, (model.dissipative for model in models)
    padded = [
        structure.model(model, nodes, index) for model, nodes, index in zip(models, robots, places)
    ]
    stacked = jax.tree.map(lambda *leaves: as_array(np.stack(leaves), dtype), *padded)
    return PaddedRobots(
        model=stacked.with_dissipation(dissipative),
        names=tuple(model.name for model in models),
        q_index=tuple(structure.index(model, index, "q") for model, index in zip(models, places)),
        v_index=tuple(structure.index(model, index, "v") for model, index in zip(models, places)),
        body_index=tuple(places),
        frame_indices=tuple(
            {name: frame_places[frame] for name, frame in _frames(model, index).items()}
            for model, index in zip(models, places)
        ),
        tree=tree,
        frame_places=frame_places,
    )


def _frames(model: Model, places: np.ndarray) -> dict[str, tuple[str, int]]:
    """For each frame of a robot, its name and its body in the common tree."""
    bodies = np.append(places, WORLD)  # the last entry is for body -1
    return {
        name: (name, int(bodies[body])) for name, body in zip(model.frame_names, model.frame_bodies)
    }


def _numbered_frames(
    models: Sequence[Model], places: Sequence[np.ndarray]
) -> dict[tuple[str, int], int]:
    """An index for each name and body of the frames of all robots."""
    found: dict[tuple[str, int], int] = {}
    for model, index in zip(models, places):
        for frame in _frames(model, index).values():
            found.setdefault(frame, len(found))
    return found


def _require_places(models, tree, frame_places, places) -> None:
    """Raise ArgumentError for the first joint or frame of a robot that has no place."""
    for model, index in zip(models, places):
        for body in np.flatnonzero(index >= len(tree))[:1]:
            raise ArgumentError(
                f"joint {model.joint_names[body]!r} of {model.name!r} has no place in the tree of "
                "onto; pad all robots together"
            )
        for name, frame in _frames(model, index).items():
            if frame not in frame_places:
                raise ArgumentError(
                    f"frame {name!r} of {model.name!r} has no place in onto; pad all robots "
                    "together"
                )


class _Structure:
    """The structure that the robots of a batch share: the static fields of their models."""

    def __init__(self, tree: Sequence[Node], frame_places: dict[tuple[str, int], int]):
        self.tree, self.frame_places = tree, frame_places
        joints = [node.joint for node in tree]
        self.widths = {
            "q": np.array([joint.nq for joint in joints], int),
            "v": np.array([joint.nv for joint in joints], int),
        }
        self.starts = {space: np.cumsum(n) - n for space, n in self.widths.items()}
        forms = [jax.tree.structure(joint) for joint in joints]
        self.groups = [
            [node for node, form in enumerate(forms) if form == kind]
            for kind in dict.fromkeys(forms)
        ]
        leaders = [i if node.leader is None else node.leader for i, node in enumerate(tree)]
        self.follows = np.array(leaders, int) != np.arange(len(tree))
        nqs, nvs = (self.widths[space].tolist() for space in "qv")
        self.coupling = independent_coordinates(leaders, nqs, nvs)
        names = [name for name, _ in frame_places]
        self.static = {
            "topology": Topology(
                parents=tuple(node.parent for node in tree),
                nqs=tuple(nqs),
                nvs=tuple(joint.tree_nv for joint in joints),
            ),
            "joint_bodies": tuple(map(tuple, self.groups)),
            "joint_names": _distinct([node.name for node in tree]),
            "body_names": _distinct([node.link for node in tree]),
            "frame_names": _distinct(names),
            "frame_bodies": tuple(body for _, body in frame_places),
            "name": "padded robots",
        }

    def entries(self, places: np.ndarray, space: str) -> np.ndarray:
        """The indices of all coordinates of a robot's joints in the common tree.

        `space`: "q", or "v" for the velocities. Coordinates of mimic joints are included.
        """
        starts, widths = self.starts[space][places], self.widths[space][places]
        runs = [start + np.arange(width) for start, width in zip(starts, widths)]
        return np.concatenate([np.zeros(0, int), *runs])

    def index(self, model: Model, places: np.ndarray, space: str) -> np.ndarray:
        """The indices in the padded model of a robot's coordinates ("q") or dofs ("v")."""
        entries = self.entries(places, space)[independent_index(model, space)]
        return np.searchsorted(self.coupling[f"{space}_independent"], entries)

    def model(self, model: Model, nodes: Sequence[Node], places: np.ndarray) -> Model:
        """The robot as a model with the common tree, with NumPy arrays.

        `nodes`: the tree of the robot; `places`: the node of the common tree for each body.
        """
        nb, nf = len(self.tree), len(self.frame_places)
        given = jax.tree.map(np.asarray, model)

        def placed(index: np.ndarray, values: Any, fill: Any) -> Any:
            """The values of the robot at the indices, and `fill` elsewhere."""
            out = np.array(fill, float)
            out[index] = values
            return out

        def poses(n: int, index: np.ndarray, X: Pose) -> Pose:
            R = np.broadcast_to(np.eye(3), (n, 3, 3))
            return Pose(placed(index, X.R, R), placed(index, X.p, np.zeros((n, 3))))

        rates = self.entries(places, "v")
        robot_joints = {int(node): nodes[body].joint for body, node in enumerate(places)}
        joints = [robot_joints.get(i, node.joint) for i, node in enumerate(self.tree)]
        padding_armature = np.repeat(np.where(self.follows, 0.0, 1.0), self.widths["v"])
        frames = [self.frame_places[frame] for frame in _frames(model, places).values()]
        in_world = [k for (_, body), k in self.frame_places.items() if body == WORLD]
        fixed = [k for k, body in zip(frames, model.frame_bodies) if body < 0]
        q, v = (self.index(model, places, space) for space in "qv")
        nq, nv = (len(self.coupling[f"{space}_independent"]) for space in "qv")
        zeros, infinite = np.zeros(len(padding_armature)), np.full(max(nq, nv), np.inf)
        return Model(
            placement=poses(nb, places, given.placement),
            inertia=placed(places, given.inertia, np.zeros((nb, 10))),
            joints=tuple(
                jax.tree.map(lambda *x: np.stack(x), *(joints[i] for i in group))
                for group in self.groups
            ),
            frame_pose=poses(nf, np.array(frames, int), given.frame_pose),
            fixed_inertia=placed(
                np.searchsorted(in_world, fixed), given.fixed_inertia, np.zeros((len(in_world), 10))
            ),
            gravity=given.gravity,
            armature=placed(rates, given.armature, padding_armature),
            damping=placed(rates, given.damping, zeros),
            friction=placed(rates, given.friction, zeros),
            lower_position_limit=placed(q, given.lower_position_limit, -infinite[:nq]),
            upper_position_limit=placed(q, given.upper_position_limit, infinite[:nq]),
            velocity_limit=placed(v, given.velocity_limit, infinite[:nv]),
            effort_limit=placed(v, given.effort_limit, np.zeros(nv)),
            coupling=self._coupling(given.coupling, places, placed) if any(self.follows) else None,
            **self.static,
        )

    def _coupling(self, given: Coupling | None, places: np.ndarray, placed) -> Coupling:
        """The map of mimic joints; a padding joint that mimics another joint stays at 0."""
        multipliers = np.where(self.follows, 0.0, 1.0)
        q, v = (self.entries(places, space) for space in "qv")
        fill_q, fill_v = (np.repeat(multipliers, self.widths[space]) for space in "qv")
        return Coupling(
            q_multiplier=placed(q, 1.0 if given is None else given.q_multiplier, fill_q),
            q_offset=placed(q, 0.0 if given is None else given.q_offset, np.zeros(len(fill_q))),
            v_multiplier=placed(v, 1.0 if given is None else given.v_multiplier, fill_v),
            followers=(),
            **self.coupling,
        )


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, with a number after each name that has occurred before."""
    found: dict[str, None] = {}
    for name in names:
        candidates = (name, *(f"{name} ({k})" for k in range(2, len(names) + 2)))
        found[next(c for c in candidates if c not in found)] = None
    return tuple(found)


def marked(index: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Whether each of n rows of indices contains each index below `size`, (n, size) of bool."""
    marks = np.zeros((len(index), size), bool)
    for row, places in zip(marks, index):
        row[places] = True
    return marks
