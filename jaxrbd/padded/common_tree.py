"""A tree that contains the trees of several robots.

Each body of a robot gets a node of the common tree. The parent of the node is the node of the
parent body, so the nodes of a robot are a tree whose root is the world. Two robots share a node
where their joints have the same form (see `nodes_of`). This module uses NumPy and compiles nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence

import jax
import numpy as np
from jax.core import Tracer

from ..errors import ArgumentError
from ..joints import Joint, as_screw, has_one_axis
from ..model import Model
from ..model.arguments import known, parameter, robot, sequence
from ..model.model import joint_groups

WORLD = -1


@dataclasses.dataclass
class Node:
    """A place for a joint and the body that it moves.

    - `parent`: the node of the parent body, or `WORLD`;
    - `form`: what all joints at a node have in common, see `nodes_of`;
    - `leader`: the node of the joint that this joint mimics, or None;
    - `joint`: the joint of the robot that this node was made for; a joint with one axis is a
      `Screw`;
    - `name`, `link`: the names of this joint and of its child link.
    """

    parent: int
    form: Hashable
    leader: int | None
    joint: Joint
    name: str
    link: str


def nodes_of(model: Model) -> list[Node]:
    """The tree of one robot, whose nodes are its bodies.

    The form of a node is the structure of its joint, and whether the joint mimics another joint.
    Joints with one axis become `Screw` joints, so they have one structure. Raises ArgumentError for
    a joint that follows others by a function.
    """
    leaders = _leaders(model)
    nodes: dict[int, Node] = {}
    for group in joint_groups(model):
        joints = as_screw(group.joint) if has_one_axis(group.joint) else group.joint
        for k, body in enumerate(group.bodies.tolist()):
            joint = jax.tree.map(lambda x: np.asarray(x)[k], joints)
            nodes[body] = Node(
                parent=model.topology.parents[body],
                form=(jax.tree.structure(joint), body in leaders),
                leader=leaders.get(body),
                joint=joint,
                name=model.joint_names[body],
                link=model.body_names[body],
            )
    return [nodes[body] for body in range(model.nb)]


def _leaders(model: Model) -> dict[int, int]:
    """For each mimic joint, by its index, the index of the joint that it follows."""
    if model.coupling is None:
        return {}
    joint_of_rate = np.repeat(np.arange(model.nb), model.joint_nvs)
    for group in model.coupling.followers:
        name = model.joint_names[joint_of_rate[group.v[0]]]
        raise ArgumentError(
            f"joint {name!r} of {model.name!r} follows others by a function, which can't be "
            "padded; expected no Follow joints"
        )
    leader_of_rate = joint_of_rate[list(model.coupling.v_independent)][
        list(model.coupling.v_source)
    ]
    return {int(i): int(j) for i, j in zip(joint_of_rate, leader_of_rate) if i != j}


def place(tree: Sequence[Node], robot_nodes: Sequence[Node]) -> np.ndarray:
    """The node of each body of a robot, (nb,); nodes from `len(tree)` on are new.

    A mimic joint shares a node only if the joint that it follows shares the `leader` of this node.
    """
    separate: set[int] = set()
    while True:
        nodes = _match(tree, robot_nodes, separate)
        mismatched = {
            body
            for body, node in enumerate(robot_nodes)
            if node.leader is not None
            and nodes[body] < len(tree)
            and tree[nodes[body]].leader != nodes[node.leader]
        }
        if not mismatched:
            return nodes
        separate |= mismatched


def _match(tree: Sequence[Node], bodies: Sequence[Node], separate: set[int]) -> np.ndarray:
    """As `place`, without the condition on mimic joints; bodies in `separate` get new nodes.

    A body can share a node only if its parent shares the parent of the node. `shared` has, for each
    pair of a node and a body that could share, the number of bodies in the subtree of the body that
    would share a node. It is computed from the leaves to the root.
    """
    tree_children, body_children = _children(tree), _children(bodies)
    levels = list(zip(_levels(tree_children), _levels(body_children)))
    shared: dict[tuple[int, int], int] = {}
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for tree_level, body_level in reversed(levels):
        for node in tree_level:
            for body in body_level:
                same = node == body == WORLD or (
                    body not in separate and tree[node].form == bodies[body].form
                )
                if not same:
                    continue
                pairs[node, body] = _best_pairs(tree_children[node], body_children[body], shared)
                shared[node, body] = 1 + sum(shared[pair] for pair in pairs[node, body])
    found = np.full(len(bodies), -1)
    pending = [(WORLD, WORLD)]
    while pending:
        for node, body in pairs[pending.pop()]:
            found[body] = node
            pending.append((node, body))
    missing = np.flatnonzero(found < 0)
    found[missing] = len(tree) + np.arange(len(missing))
    return found


def _best_pairs(
    nodes: Sequence[int], bodies: Sequence[int], shared: Mapping[tuple[int, int], int]
) -> list[tuple[int, int]]:
    """Pairs of a node and a body, one by one, in the order of falling numbers of shared bodies."""
    candidates = [(node, body) for node in nodes for body in bodies if (node, body) in shared]
    chosen: list[tuple[int, int]] = []
    used_nodes, used_bodies = set(), set()
    for node, body in sorted(candidates, key=lambda pair: -shared[pair]):
        if node not in used_nodes and body not in used_bodies:
            chosen.append((node, body))
            used_nodes.add(node)
            used_bodies.add(body)
    return chosen


def _children(nodes: Sequence[Node]) -> dict[int, list[int]]:
    """The children of each node and of the world."""
    children: dict[int, list[int]] = {WORLD: [], **{i: [] for i in range(len(nodes))}}
    for i, node in enumerate(nodes):
        children[node.parent].append(i)
    return children


def _levels(children: Mapping[int, list[int]]) -> list[list[int]]:
    """The nodes at each depth; the world has depth 0."""
    levels = [[WORLD]]
    while below := [child for node in levels[-1] for child in children[node]]:
        levels.append(below)
    return levels


def extend(tree: list[Node], robot_nodes: Sequence[Node], places: np.ndarray) -> None:
    """Add the new nodes of a robot to the tree."""
    for body in np.flatnonzero(places >= len(tree)).tolist():
        node = robot_nodes[body]
        parent = WORLD if node.parent == WORLD else int(places[node.parent])
        leader = None if node.leader is None else int(places[node.leader])
        tree.append(dataclasses.replace(node, parent=parent, leader=leader))


def depth_first(tree: Sequence[Node]) -> tuple[list[Node], np.ndarray]:
    """The tree with its nodes in depth-first order, and the new index of each node."""
    children = _children(tree)
    order: list[int] = []
    pending = children[WORLD][::-1]
    while pending:
        order.append(node := pending.pop())
        pending.extend(children[node][::-1])
    rank = np.empty(len(tree), int)
    rank[order] = np.arange(len(tree))
    moved = [
        dataclasses.replace(
            tree[node],
            parent=WORLD if tree[node].parent == WORLD else int(rank[tree[node].parent]),
            leader=None if (leader := tree[node].leader) is None else int(rank[leader]),
        )
        for node in order
    ]
    return moved, rank


def common_tree(robots: Sequence[Sequence[Node]]) -> tuple[list[Node], list[np.ndarray]]:
    """The common tree of several trees, and the node of each body of each robot.

    The robot with the most bodies comes first, because it gives the other robots the most places.
    """
    tree: list[Node] = []
    places: dict[int, np.ndarray] = {}
    for i in sorted(range(len(robots)), key=lambda i: -len(robots[i])):
        places[i] = place(tree, robots[i])
        extend(tree, robots[i], places[i])
    tree, rank = depth_first(tree)
    return tree, [rank[places[i]] for i in range(len(robots))]


def checked_models(models: Sequence[Model], like: Model | None = None) -> list[Model]:
    """The robots of a batch as a list.

    Raises ArgumentError for an empty sequence, for models with leading axes or traced arrays, and
    for models whose dtype or dissipation differs from the first model, or from `like`.
    """
    models = list(sequence(models, "models", "Model"))
    if not models:
        raise ArgumentError("models is empty, expected at least one Model")
    for i, model in enumerate(models):
        if any(isinstance(x, Tracer) for x in jax.tree.leaves(robot(model, f"models[{i}]"))):
            raise ArgumentError(f"models[{i}] has traced arrays; call this outside of jit and vmap")
        if np.ndim(model.gravity) != 1:
            raise ArgumentError(f"models[{i}] is a batch of models, expected one robot")
    first, owner = (models[0], "models[0]") if like is None else (like, "onto")
    for field in ("dtype", "dissipative"):
        expected = getattr(first, field)
        for i, value in enumerate(getattr(model, field) for model in models):
            if value != expected:
                raise ArgumentError(
                    f"models[{i}] has {field} {value}, expected {expected} as {owner}"
                )
    return models


def alike(models: Sequence[Model], padding: float = 0.5) -> list[list[int]]:
    """Sort robots into batches for `pad`, so that the padding of each batch is small.

    - `models`: the robots;
    - `padding`: the largest ratio, 0 or more, of padding bodies to bodies of robots in a batch. For
      0.5, the bodies of the common tree times the number of robots are at most 1.5 times the bodies
      of all robots of the batch.

    Returns the indices of the robots of each batch. The largest robots come first, and each robot
    joins the batch whose tree it extends by the fewest nodes. So there are few batches, but not
    always the fewest possible. Raises ArgumentError as `pad` without `onto`, and for a `padding`
    other than a number of 0 or more.
    """
    share = known(parameter(padding, "padding", ()))
    if share is None or isinstance(padding, bool) or not share >= 0:
        raise ArgumentError(f"padding is {padding!r}, expected a number of 0 or more")
    robots = [nodes_of(model) for model in checked_models(models)]
    batches: list[tuple[list[int], list[Node]]] = []
    for i in sorted(range(len(robots)), key=lambda i: -len(robots[i])):
        joined = None
        for members, tree in batches:
            places = place(tree, robots[i])
            size = max(len(tree), int(np.max(places, initial=-1)) + 1)
            bodies = len(robots[i]) + sum(len(robots[k]) for k in members)
            fits = (len(members) + 1) * size <= (1 + share) * bodies
            if fits and (joined is None or size - len(tree) < joined[0]):
                joined = size - len(tree), members, tree, places
        if joined is None:
            batches.append(([], tree := []))
            joined = 0, batches[-1][0], tree, place(tree, robots[i])
        _, members, tree, places = joined
        members.append(i)
        extend(tree, robots[i], places)
    return [sorted(members) for members, _ in batches]
