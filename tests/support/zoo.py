"""Robots for tests: every joint kind at every place of a tree, with random parameters."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd import joints
from jaxrbd.model.joint_space import independent_index
from jaxrbd.model.model import joint_groups

KINDS = {
    "revolute": lambda rng: joints.Revolute(rng.normal(size=3)),
    "prismatic": lambda rng: joints.Prismatic(rng.normal(size=3)),
    "helical": lambda rng: joints.Helical(rng.normal(size=3), rng.uniform(0.1, 0.5)),
    "spherical": lambda rng: joints.Spherical(),
    "planar": lambda rng: joints.Planar(),
    "translation": lambda rng: joints.Translation(),
    "free_flyer": lambda rng: joints.FreeFlyer(),
    "universal": lambda rng: rbd.model.universal((1, 0, 0), rng.normal(size=3)),
    "euler": lambda rng: rbd.model.euler("zyx"),
    "screw": lambda rng: joints.Screw(
        rng.normal(size=3), rng.uniform(0.5, 1.5), rng.uniform(0.1, 0.5)
    ),
}


def random_inertia(rng) -> np.ndarray:
    """The inertia of a random cloud of point masses, which is physically consistent."""
    masses, points = rng.uniform(0.1, 0.5, 8), 0.2 * rng.normal(size=(8, 3))
    return sum(rbd.model.link_inertia(m, p) for m, p in zip(masses, points))


def random_placement(rng) -> np.ndarray:
    return rbd.model.placement_matrix(0.3 * rng.normal(size=3), rng.uniform(-3, 3, size=3))


def widths(kind) -> tuple[int, int]:
    """The numbers of configuration coordinates and of dofs of a joint kind or compound."""
    stages = rbd.model.description.stages(kind)
    return sum(stage.nq for stage in stages), sum(stage.nv for stage in stages)


def of_every_dof(kind, rng, armature=0.0) -> dict[str, np.ndarray]:
    """The parameters of a joint except its geometry, different for every coordinate and dof.

    The armature is drawn about `armature`; limits are finite.
    """
    nq, nv = widths(kind)
    return {
        "armature": armature * rng.uniform(0.5, 1.5, nv),
        "damping": rng.uniform(0.1, 0.5, nv),
        "friction": rng.uniform(0.05, 0.2, nv),
        "lower": -rng.uniform(0.5, 2.0, nq),
        "upper": rng.uniform(0.6, 2.2, nq),
        "velocity_limit": rng.uniform(1.0, 5.0, nv),
        "effort_limit": rng.uniform(10.0, 50.0, nv),
    }


def build(kinds, parents, seed=0, armature=0.0, mimics=None, **options) -> rbd.Model:
    """A robot of links l0, l1, ... on joints j0, j1, ...; parent -1 is the world."""
    rng, others = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    mimics = mimics or {}
    links, specs = [], []
    for i, (kind, parent) in enumerate(zip(kinds, parents)):
        links.append(rbd.model.Link(f"l{i}", random_inertia(rng)))
        joint = KINDS[kind](rng)
        specs.append(
            rbd.model.JointSpec(
                f"j{i}",
                joint,
                None if parent < 0 else f"l{parent}",
                f"l{i}",
                random_placement(rng),
                mimic=mimics.get(i),
                **of_every_dof(joint, others, armature),
            )
        )
    return rbd.build_model(links, specs, **options)


@functools.cache
def everywhere() -> rbd.Model:
    """A forest with each kind at the root of a tree, in the middle of a tree and at a leaf.

    Tree t has the kinds t, t + 1 and t + 3: the first carries the second and a revolute joint, the
    second carries the third.
    """
    names, kinds, parents = list(KINDS), [], []
    for t in range(len(names)):
        root = len(kinds)
        kinds += [names[t], names[(t + 1) % len(names)], names[(t + 3) % len(names)], "revolute"]
        parents += [-1, root, root + 1, root]
    return build(kinds, parents, seed=1, gravity=(1.0, -2.0, -9.0))


@functools.cache
def connected() -> rbd.Model:
    """One tree of all kinds on a free-flyer, with armature."""
    kinds = ["free_flyer", *KINDS, "revolute", "free_flyer"]
    parents = [-1, 0, 1, 1, 2, 2, 4, 5, 5, 0, 0, 9, 3]
    return build(kinds, parents, seed=2, armature=0.05)


@functools.cache
def coupled() -> rbd.Model:
    """A tree with joints that mimic a sibling, a descendant, and another mimic joint."""
    kinds = ["free_flyer", "revolute", "revolute", "prismatic", "helical", "spherical", "revolute"]
    mimics = {
        2: rbd.model.Mimic("j1", -0.7, 0.2),
        3: rbd.model.Mimic("j6", 0.4, -0.1),
        4: rbd.model.Mimic("j2", 1.5, 0.3),
    }
    return build(kinds, [-1, 0, 0, 1, 2, 3, 3], seed=3, armature=0.1, mimics=mimics)


def turn(angle, first, second) -> jax.Array:
    """The rotation that turns the first coordinate axis towards the second."""
    e = np.eye(3)
    in_plane = np.outer(e[first], e[first]) + np.outer(e[second], e[second])
    turned = np.outer(e[second], e[first]) - np.outer(e[first], e[second])
    return e + (jnp.cos(angle) - 1) * in_plane + jnp.sin(angle) * turned


def crank(q) -> rbd.Pose:
    """The pose of a joint of two coordinates whose subspace depends on both."""
    R = jnp.matmul(turn(q[0] + q[1], 0, 1), turn(q[0] * q[1], 1, 2), precision="highest")
    return rbd.Pose(R, jnp.stack([q[0] ** 2, jnp.sin(q[1]), q[0] * q[1]]))


class Polynomial(eqx.Module):
    """A coupling with parameters: `c0 sin(x0) x1 + c1 x0^2`."""

    c: jax.Array | np.ndarray = eqx.field(default_factory=lambda: np.array([0.7, 0.3]))

    def __call__(self, x):
        return self.c[0] * jnp.sin(x[0]) * x[1] + self.c[1] * x[0] ** 2


def serial(kinds, rng, follow, options) -> rbd.Model:
    """A chain of links l0, l1, ... on joints j0, j1, ... of the given kinds; l0 is on the world.

    `follow` has the rules of the joints that follow others, by name. `options(kind)` are other
    arguments of `JointSpec`.
    """
    links = [rbd.model.Link(f"l{i}", random_inertia(rng)) for i in range(len(kinds))]
    specs = [
        rbd.model.JointSpec(
            f"j{i}",
            kind,
            f"l{i - 1}" if i else None,
            f"l{i}",
            random_placement(rng),
            mimic=follow.get(f"j{i}"),
            **options(kind),
        )
        for i, kind in enumerate(kinds)
    ]
    return rbd.build_model(links, specs)


@functools.cache
def following() -> rbd.Model:
    """A tree with joints that are nonlinear functions of others, and a user-defined joint."""
    rng, others = np.random.default_rng(8), np.random.default_rng([8, 1])
    follow = {
        "j3": rbd.model.Follow(("j2", "j4"), Polynomial()),
        "j5": rbd.model.Mimic("j4", -0.5, 0.1),
    }
    kinds = [joints.Revolute(rng.normal(size=3)) for _ in range(7)]
    kinds[1] = joints.Custom(2, crank)
    return serial(kinds, rng, follow, lambda kind: of_every_dof(kind, others, 0.1))


@functools.cache
def small() -> rbd.Model:
    """A free-flyer, a ball joint and a hinge: a small robot with both kinds of quaternion."""
    return build(["free_flyer", "spherical", "revolute"], [-1, 0, 1], seed=4)


@functools.cache
def ball_and_hinge() -> rbd.Model:
    """A small robot whose displacements do not commute, with armature."""
    return build(["spherical", "revolute"], [-1, 0], seed=4, armature=0.1)


def chain(n: int, kind: str = "revolute", seed: int = 5) -> rbd.Model:
    return build([kind] * n, range(-1, n - 1), seed=seed)


def state(model: rbd.Model, seed: int = 0):
    """A random configuration, velocity, acceleration and external forces.

    Joints may be outside of their limits, which no algorithm enforces.
    """
    # NumPy: JAX would compile several programs for each robot.
    rng = np.random.default_rng(seed)
    values = configuration(model, rng), *(rng.normal(size=n) for n in (model.nv, model.nv))
    values = *values, rng.normal(size=(model.nb, 6))
    return tuple(jnp.asarray(x, model.dtype) for x in values)


def configuration(model: rbd.Model, rng) -> np.ndarray:
    """A random configuration as `random_configuration` draws it for a robot without limits."""
    groups = joint_groups(model)
    q = np.zeros(1 + max((group.index["q"].max(initial=-1) for group in groups), default=-1))
    for group in groups:
        joint, index = group.joint, group.index["q"]
        reach = [1.0, 1.0, np.pi] if isinstance(joint, joints.Planar) else 1.0
        x = getattr(joint, "reach", reach) * rng.uniform(-1, 1, index.shape)
        if joint.quaternion is not None:
            quaternion = rng.normal(size=(len(x), 4))
            quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
            x[:, joint.quaternion : joint.quaternion + 4] = quaternion
        q[index] = x
    return q[independent_index(model, "q")]


def close(actual, expected, tolerance=1e-12, what=""):
    """Equal to within `tolerance`, relative to the largest expected entry or to 1."""
    # NumPy: JAX would compile a program for each operation and shape.
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"{what}: shapes {actual.shape}, {expected.shape}"
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    error = float(np.max(np.abs(actual - expected), initial=0.0)) / scale
    assert error <= tolerance, f"{what}: error {error:.3g} above {tolerance:g}"


def assert_identical(actual, expected):
    """The trees have one structure, and their arrays one dtype, one shape and the same bits."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected)):
        assert (x.dtype, x.shape, x.weak_type) == (y.dtype, y.shape, y.weak_type)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
