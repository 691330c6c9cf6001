"""Newton's method of `contact_step` by branches of dofs, and in batches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from benchmarks.studies import contact as study
from jaxrbd import contact
from jaxrbd.actuators import PD
from jaxrbd.collision import Capsule, PlacedShape
from jaxrbd.contact import Scene, contact_step, convex, newton
from jaxrbd.contact.branches import Partition, partition, whole
from jaxrbd.contact.coulomb import ContactLaw
from jaxrbd.contact.joint_terms import ClippedLaw
from jaxrbd.contact.working_set import Partitions, partitions_of
from support import zoo
from support.zoo import close

DT = 2e-3


def dofs_of(model, body):
    """The dofs that move a body."""
    topology = model.topology
    return set(np.flatnonzero(topology.supports[topology.dof_body, body]).tolist())


def check(found: Partition, model, bodies):
    """Each dof and each contact is in one place, and no contact acts on two branches."""
    nv = model.nv
    branches = [set(column[column < nv].tolist()) for column in found.branches.T]
    places = [*map(sorted, branches), found.trunk.tolist()]
    assert sorted(i for place in places for i in place) == list(range(nv))
    contacts = found.contacts[found.contacts < len(bodies)]
    assert sorted(contacts.tolist()) == list(range(len(bodies)))
    for branch, column in zip(branches, found.contacts.T):
        for i in column[column < len(bodies)]:
            moved = set().union(*(dofs_of(model, b) for b in bodies[i] if b >= 0))
            assert moved <= branch | set(found.trunk.tolist())
    M = np.abs(rbd.crba(model, rbd.neutral(model)))
    for a in range(len(branches)):
        for b in range(a):
            assert not M[np.ix_(sorted(branches[a]), sorted(branches[b]))].any()


def body(model, frame):
    return int(model.frame_bodies[model.frame_names.index(frame)])


def test_the_legs_of_a_quadruped_are_branches():
    model = rbd.load_robot("quadruped")
    feet = [[body(model, f)] for f in model.frame_names if f.endswith("_foot")]
    found = partition(model.topology, feet)
    assert (found.branches.shape, found.contacts.shape) == ((3, 4), (1, 4))
    assert found.trunk.tolist() == list(range(6))
    check(found, model, feet)
    # A contact of two feet joins two legs, and a contact of the trunk joins none.
    both = [*feet, [feet[0][0], feet[1][0]], [0], [0], [-1]]
    found = partition(model.topology, both)
    check(found, model, both)
    check(whole(model.nv, len(feet)), model, feet)


@pytest.mark.parametrize("robot", ["humanoid", "arm7"])
def test_partitions_of_other_robots(robot):
    model = rbd.load_robot(robot)
    bodies = [[i] for i in range(model.nb)]
    found = partition(model.topology, bodies)
    check(found, model, bodies)
    check(partition(model.topology, []), model, [])
    if robot == "humanoid":
        assert found.branches.shape[1] > 1  # more than one branch


def fallen():
    """A humanoid that lies in the ground, with contacts of the trunk, of limbs, and of two legs."""
    frames = ("torso", "left_shank", "right_shank", "left_hand", "right_hand", "left_foot")
    shapes = {f: PlacedShape(Capsule(0.2, 0.1), f) for f in frames}
    pair = shapes["left_shank"], shapes["right_shank"]
    return rbd.load_robot("humanoid"), Scene.from_shapes([*shapes.values()], pairs=[pair])


def hand():
    """A base that slides, and two fingers with two hinges each; a contact on each finger tip."""
    parents = [-1, 0, 1, 0, 3]
    found = zoo.build(["prismatic", *["revolute"] * 4], parents)
    return found, [[2], [4]]


def problem_of(model, bodies, rng, rows=3):
    """A convex function with the zeros of the tree in M and in the Jacobian of the contacts.

    `rows`: the number of velocities of a contact.
    """
    nv, n = model.nv, len(bodies)
    moved = np.array([[i in dofs_of(model, b) for i in range(nv)] for (b,) in bodies])
    together = np.array([[i in dofs_of(model, j) for i in range(nv)] for j in range(model.nb)])
    roots = rng.normal(size=(model.nb, 3, nv)) * together[:, None]
    M = np.einsum("bki,bkj->ij", roots, roots) + np.eye(nv)
    normal = np.tile([0.0, 0.0, 1.0], (n, 1))
    target = np.pad(0.5 * normal, ((0, 0), (0, rows - 3)))
    law = ContactLaw(normal, np.full(n, 50.0), target, np.full(n, 0.8), np.zeros((n, rows - 3, 3)))
    none = ClippedLaw(*[np.zeros((1, nv))] * 4), ClippedLaw(*[np.zeros((1, 0))] * 4)
    push, v = rng.normal(size=(2, nv))
    J = rng.normal(size=(n, rows, nv)) * moved[:, None]
    found = newton.Problem(M, push, v, law, J, *none, np.zeros((0, nv)))
    return jax.tree.map(jnp.asarray, found)


@pytest.mark.parametrize("rows", [3, 6])
def test_the_minimum_by_branches(rows, rng, monkeypatch):
    """There, the change of the momentum is the impulse of all forces and contacts.

    Newton's method finds it in few iterations, because it solves with the whole matrix.
    """
    monkeypatch.setattr(newton, "MAX_STEPS", 10)
    model, bodies = hand()
    branches = partition(model.topology, bodies)
    assert branches.branches.shape == (2, 2)
    assert branches.trunk.tolist() == [0]
    problem = problem_of(model, bodies, rng, rows)
    x, residual = jax.jit(lambda problem: newton.minimise(branches, problem))(problem)
    assert residual < 1e-12
    impulses = problem.contacts.impulses(problem.J @ (problem.v + x))
    assert jnp.any(impulses != 0)
    on_dofs = jnp.einsum("ck,ckn->n", impulses, problem.J)
    close(problem.M @ x, problem.free_impulse + on_dofs, 1e-12)


@pytest.mark.slow
def test_a_step_by_branches_is_the_step_of_the_whole_matrix(monkeypatch):
    model, scene = fallen()
    rng = np.random.default_rng(0)
    q = rbd.integrate(model, rbd.neutral(model), jnp.asarray(0.3 * rng.normal(size=model.nv)))
    v, tau = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(2))
    used = []

    def step(choice):
        def chosen(*operands):
            used.append(choice(*operands))
            return used[-1]

        monkeypatch.setattr(convex, "partitions_of", lambda *x: Partitions(chosen(*x), None))
        return jax.jit(lambda q, v: contact_step.__wrapped__(model, scene, q, v, tau, DT))(q, v)

    by_branches = step(lambda *operands: partitions_of(*operands).all)
    at_once = step(lambda model, scene, _: whole(model.nv, scene.size))
    assert [partition.branches.size > 0 for partition in used] == [True, False]
    assert jnp.count_nonzero(jnp.any(by_branches.impulse != 0, axis=1)) > 1
    close(by_branches.v, at_once.v, 1e-10)
    close(by_branches.impulse, at_once.impulse, 1e-9)


@pytest.mark.slow
def test_a_state_does_not_depend_on_its_batch():
    """In batches of more states than one block of the solver, and with slow and fast states."""
    link = rbd.model.Link("ball", rbd.model.link_inertia(2.0, (0, 0, 0), 0.01 * np.eye(3)))
    joint = rbd.model.JointSpec("joint", rbd.joints.Translation(), None, "ball")
    model, scene, count = rbd.build_model([link], [joint]), Scene(("ball",), 0.1), 70
    rng = np.random.default_rng(0)
    q = jnp.asarray(rng.uniform([-1, -1, 0.05], [1, 1, 0.15], size=(count, 3)))
    v = rng.normal(size=(2, count, 3))
    v[1, ::2] = v[0, ::2]
    v[1, 1::2] *= 0  # states that need few steps
    v = jnp.asarray(v)

    def step(q, v):
        found = contact_step(model, scene, q, v, jnp.zeros(3), DT)
        return found.v, found.residual

    batched = jax.jit(jax.vmap(step))
    (first, residual), (second, _) = batched(q, v[0]), batched(q, v[1])
    assert jnp.all(residual <= 1000 * jnp.finfo(q.dtype).eps)
    assert np.unique(np.array(residual)).size > 3
    np.testing.assert_array_equal(first[::2], second[::2])
    one = jax.jit(step)
    for i in (0, 36, 69):
        close(first[i], one(q[i], v[0, i])[0], 1e-12)


@pytest.mark.slow
def test_every_step_to_rest_converges_in_single_precision():
    """Robots are dropped and come to rest, where the change in a step is below rounding errors."""
    model = rbd.load_robot("quadruped").astype(jnp.float32)
    feet = [name for name in model.frame_names if name.endswith("_foot")]
    scene = contact.Scene(feet, study.RADIUS, material=contact.Material(friction=study.FRICTION))
    scene = dataclasses.replace(scene, inverse_inertia=contact.inverse_inertias(model, scene))
    scene = scene.astype(jnp.float32)
    gains = study.STIFFNESS, study.DAMPING, study.EFFORT
    held = rbd.neutral(model).at[7:].set(jnp.asarray(study.posture(model), jnp.float32))
    servo = contact.Servo(PD.for_joints(model, model.joint_names[1:], *gains), held)

    @jax.jit
    def residuals(q, v):
        def advance(state, _):
            found = contact.contact_step(
                model, scene, *state, jnp.zeros(18, jnp.float32), study.DT, servo=servo
            )
            return (found.q, found.v), found.residual

        return jax.lax.scan(advance, (q, v), length=1000)[1]

    found = jax.vmap(residuals)(*study.starts(model, 64))
    assert jnp.all(found <= 1000 * np.finfo(np.float32).eps)
