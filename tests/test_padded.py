"""Different robots in one program: the results are those of each robot's own program."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, padded
from jaxrbd.model import Follow, Mimic
from support import real_robots, zoo
from support.algorithms import ALGORITHMS
from support.jax_events import work
from support.zoo import close


def robots(mimics=None):
    """Robots with the links l0 to l2 in common; the others branch off at different places."""
    return (
        zoo.build(["free_flyer", "spherical", "revolute"], [-1, 0, 1], seed=4, armature=0.1),
        zoo.build(
            ["free_flyer", "spherical", "prismatic", "revolute", "helical", "planar", "revolute"],
            [-1, 0, 1, 0, 3, 2, 3],
            seed=5,
            armature=0.1,
            mimics=mimics,
            gravity=(1.0, -2.0, -9.0),
        ),
        zoo.build(
            ["free_flyer", "spherical", "screw", "translation", *4 * ["revolute"]],
            [-1, 0, 1, 2, 1, 4, 4, 0],
            seed=6,
            armature=0.1,
        ),
    )


class Batch:
    """Padded robots with a random state each; `of(i, x)` is the part of x that is of robot i."""

    def __init__(self, models):
        self.models, self.robots = models, padded.pad(models)
        self.states = [zoo.state(model, seed) for seed, model in enumerate(models)]
        q, v, u, f = zip(*self.states)
        wrenches = np.zeros((len(models), self.robots.model.nb, 6))
        for i, given in enumerate(f):
            wrenches[i, self.robots.body_index[i]] = given
        packed = self.robots.configurations(q), *map(self.robots.velocities, (v, u))
        self.state = *packed, jnp.asarray(wrenches)

    def of(self, i, x):
        """x without its padding: the size of an axis tells what the axis lists."""
        robots, model, x = self.robots, self.robots.model, np.asarray(x[i])
        body, q, v = robots.body_index[i], robots.q_index[i], robots.v_index[i]
        parameters = (10 * body[:, None] + np.arange(10)).ravel()
        index = {
            model.nb: body,
            model.nq: q,
            model.nv: v,
            10 * model.nb: parameters,
            2 * model.nv: np.append(v, model.nv + v),
            model.nv + 3: np.append(v, model.nv + np.arange(3)),  # a system with one constraint
            len(model.frame_names): np.array(list(robots.frame_indices[i].values())),
        }
        for axis, size in enumerate(x.shape):
            x = np.take(x, index[size], axis) if size in index else x
        return x


@functools.cache
def batch():
    return Batch(robots({6: Mimic("j4", -0.7, 0.2)}))


@functools.cache
def independent():
    """Without joints that mimic others, which some algorithms refuse."""
    first, *others = robots()
    return Batch((rbd.model.add_frame(first, "tool", "l2"), *others))


def compare(batch, function, tolerance=1e-12):
    """The function of (model, q, v, u, f) has one value in one program and in many."""
    together = jax.jit(jax.vmap(function))(batch.robots.model, *batch.state)
    for x in jax.tree.leaves(together):
        assert not np.any(np.isnan(x))
    own_program = jax.jit(function)
    for i, (model, state) in enumerate(zip(batch.models, batch.states)):
        own = own_program(model, *state)
        jax.tree.map(lambda x, y: close(batch.of(i, x), y, tolerance), together, own)


def dynamics(model, q, v, u, f):
    """Inverse and forward dynamics, a step on the manifold, and gradients in reverse mode."""

    def value(q, v, u, placement):
        X = rbd.Pose(model.placement.R, placement)
        moved = dataclasses.replace(model, placement=X)
        return jnp.sum(jnp.sin(rbd.forward_dynamics(moved, q, v, u, f)))

    gradient = jax.grad(value, range(4))(q, v, u, model.placement.p)
    return rbd.rnea(model, q, v, u, f), rbd.integrate(model, q, v), gradient


def test_results_and_gradients_are_those_of_the_own_programs():
    compare(Batch(robots({6: Mimic("j4", -0.7, 0.2)})[:2]), dynamics)


# A random configuration draws one key per joint kind, also for the starts of a search, and the
# maximal formulation has multipliers of every joint.
EXCEPTIONS = {
    "random_configuration",
    "search_inverse_kinematics",
    "maximal_dynamics",
    "maximal_system",
}
TABLE = [name for name in ALGORITHMS if name not in EXCEPTIONS]


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_each_algorithm_takes_padded_robots(name):
    compare(independent(), ALGORITHMS[name], 1e-10)


@pytest.mark.slow
def test_contacts_of_a_fixed_and_a_floating_robot():
    """The first robot floats and has two spheres on one link; the second stands on a joint.

    The ground is above all spheres, also above those that are padding.
    """
    fixed = zoo.build(["revolute", "prismatic"], [-1, 0], seed=6, armature=0.1)
    turned = rbd.model.placement_matrix((0.2, 0.1, -0.3), (0.5, 1.0, -0.7))
    models = robots()[0], rbd.model.add_frame(fixed, "foot", "l1", turned)
    ground, slippery = contact.Plane(offset=3.0), contact.Material(friction=0.5)
    rod, ball = rbd.collision.Capsule(0.2, 0.3), rbd.collision.Sphere(0.4)

    def pairs(shift, *frames):
        """A rod on a frame, and balls in the world and on another frame, which overlap."""
        placed = [rbd.collision.PlacedShape(rod, frames[0], [0.1, 0.2, 0.0])]
        placed += [
            rbd.collision.PlacedShape(ball, frame, [0.1 * i, shift, 0.2])
            for i, frame in enumerate(frames[1:])
        ]
        return contact.collision_pairs([(placed[0], other) for other in placed[1:]])

    scenes = (
        contact.Scene(
            ("l2", "l0", "l2"),
            [0.1, 0.2, 0.3],
            None,
            ground,
            slippery,
            pairs=pairs(0.0, "l1", None),
        ),
        contact.Scene(
            (0, "foot"),
            0.4,
            [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]],
            ground,
            pairs=pairs(0.2, "foot", None, "l0"),
        ),
    )
    pair = Batch(models)
    both = pair.robots
    together = padded.pad_scenes(both, scenes)
    assert together.has_contact.sum(axis=1).tolist() == [scene.size for scene in scenes] == [4, 4]

    def step(model, scene, q, v, u):
        done = contact.contact_step(model, scene, q, v, u, 0.01)
        compliant = contact.contact_force(model, scene, q, v)
        return done.v, done.impulse, compliant.f_ext

    found = jax.jit(jax.vmap(step))(both.model, together.scene, *pair.state[:3])
    for i, (model, scene) in enumerate(zip(models, scenes)):
        own = jax.jit(step)(model, scene, *pair.states[i][:3])
        places = [x[i] for x in (both.v_index, together.contact_index, both.body_index)]
        for x, y, index in zip(found, own, places):
            close(np.asarray(x[i])[index], y, 1e-10)
            assert np.any(np.asarray(y) != 0)
    padding = ~together.has_contact
    assert padding.sum() == 8
    np.testing.assert_array_equal(np.asarray(found[1])[padding], 0)


# -------------------------------------------------------------------------------- the common tree


def chain(*kinds, parents=None, **options):
    return zoo.build(kinds, range(-1, len(kinds) - 1) if parents is None else parents, **options)


def size(*models):
    return padded.pad(models).model.nb


def test_robots_without_bodies():
    nothing = rbd.build_model(
        [rbd.model.Link("base")], [rbd.model.JointSpec("fixed", rbd.model.Fixed(), None, "base")]
    )
    pair = padded.pad([nothing, nothing])
    assert jax.vmap(rbd.rnea)(pair.model, *3 * [jnp.zeros((2, 0))]).shape == (2, 0)
    assert size(nothing, chain("revolute")) == 1


def test_robots_of_one_structure_need_no_padding():
    legs = ["free_flyer", "revolute", "revolute", "revolute", "prismatic"]
    one, mirrored = chain(*legs, parents=[-1, 0, 1, 0, 3]), chain(*legs, parents=[-1, 0, 0, 2, 1])
    assert size(one, mirrored, one) == 5


def test_the_subtrees_with_most_bodies_in_common_share_places():
    arm_and_stub = chain(*4 * ["revolute"], parents=[-1, 0, 1, 0])
    stub_and_arm = chain(*5 * ["revolute"], parents=[-1, 0, 0, 2, 3])
    assert size(arm_and_stub, stub_and_arm) == 5


def test_joints_with_one_axis_share_places_and_others_do_not():
    assert size(chain("revolute", "helical"), chain("prismatic", "screw")) == 2
    assert size(chain("revolute"), chain("spherical")) == 2
    assert size(chain("free_flyer", "revolute"), chain("revolute", "revolute")) == 4


@pytest.mark.parametrize(("leader", "bodies"), [("j0", 3), ("j1", 4)])
def test_mimic_joints_share_places_if_their_leaders_do(leader, bodies):
    first = chain(*3 * ["revolute"], mimics={2: Mimic("j0", 2.0, 0.1)})
    second = chain(*3 * ["revolute"], mimics={2: Mimic(leader, -1.0, 0.3)})
    assert size(first, second) == bodies


def test_a_joint_that_mimics_another_and_an_independent_joint_have_two_places():
    assert (
        size(chain("revolute", "revolute", mimics={1: Mimic("j0")}), chain("revolute", "revolute"))
        == 3
    )


def test_padding_is_at_rest_and_has_the_row_of_the_identity():
    both = batch()
    model, (q, v, u, f) = both.robots.model, both.state
    together = padded.pad([both.models[0], zoo.build(["revolute"], [-1])])
    at_zero = together.configurations([both.states[0][0], np.zeros(1)])
    close(at_zero[1], rbd.neutral(together.model))
    M, a = jax.vmap(rbd.crba)(model, q), jax.vmap(rbd.aba)(model, q, v, u, f)
    for i, has in enumerate(both.robots.has_dof):
        assert 0 < has.sum() == both.models[i].nv
        np.testing.assert_array_equal(M[i][~has], np.eye(model.nv)[~has])
        np.testing.assert_array_equal(a[i][~has], 0)
    assert [*both.robots.has_body.sum(axis=1)] == [m.nb for m in both.models]


def test_limits_actuation_and_friction_belong_to_the_robots():
    both = batch()
    for i, model in enumerate(both.models):
        row = jax.tree.map(lambda x: x[i], both.robots.model)
        q, v = both.robots.q_index[i], both.robots.v_index[i]
        for name, index in {
            "lower_position_limit": q,
            "upper_position_limit": q,
            "velocity_limit": v,
            "effort_limit": v,
        }.items():
            close(getattr(row, name)[index], getattr(model, name), 0)
        np.testing.assert_array_equal(np.flatnonzero(row.actuated), np.sort(v[model.actuated]))
        dissipation = [
            rbd.passive_force(m.with_dissipation(), x, y)
            for m, x, y in ((row, both.state[0][i], both.state[1][i]), (model, *both.states[i][:2]))
        ]
        close(dissipation[0][v], dissipation[1])


def test_frames_of_a_name_are_found_in_each_robot():
    both = batch()
    names = ["l2", "l6", "l6"]
    index = jnp.asarray(both.robots.frame_index(names))
    found = jax.vmap(lambda m, q, i: rbd.frame_placements(m, q).p[i])(
        both.robots.model, both.state[0], index
    )
    for i, (model, name) in enumerate(zip(both.models, names)):
        close(found[i], rbd.frame_placements(model, both.states[i][0]).p[model.frame_index(name)])
    with pytest.raises(rbd.ArgumentError, match="no frame 'l7'"):
        both.robots.frame_index("l7")
    with pytest.raises(rbd.ArgumentError, match="names has 2 entries, expected 3"):
        both.robots.frame_index(["l0", "l1"])


def test_a_later_robot_runs_in_the_program_of_the_first():
    long, short = chain(*3 * ["revolute"]), chain(*2 * ["revolute"], seed=3)
    program = jax.jit(jax.vmap(rbd.forward_dynamics))

    def run(models, onto=None):
        pair = padded.pad(models, onto)
        zeros = jnp.zeros((len(models), pair.model.nv))
        with work() as done:
            return pair, program(pair.model, zeros, zeros, zeros), done

    pair, _, _ = run([long, long])
    other, a, done = run([short, long], pair)
    assert not done
    close(a[0][other.v_index[0]], rbd.forward_dynamics(short, *np.zeros((3, 2))))


def test_alike_robots_join_a_batch_until_the_padding_is_too_much():
    models = [chain(*n * ["revolute"]) for n in (4, 1, 3, 6)] + [chain("spherical")]
    assert padded.alike(models, 0.0) == [[3], [0], [2], [1], [4]]
    assert padded.alike(models, 0.5) == [[0, 2, 3], [1], [4]]
    everything = padded.alike(models, 10)
    assert everything == [[0, 1, 2, 3, 4]]


@pytest.mark.slow
def test_all_real_robots_in_few_programs():
    models = [real_robots.load(name, None) for name in real_robots.ROBOTS]
    batches = padded.alike(models, 0.5)
    assert sorted(i for batch in batches for i in batch) == [*range(len(models))]
    assert len(batches) < len(models) / 4
    for members in batches:
        several = Batch([models[i] for i in members])
        bodies = sum(model.nb for model in several.models)
        assert len(members) * several.robots.model.nb <= 1.5 * bodies
        model, (q, v, u, f) = several.robots.model, several.state
        tau = jax.vmap(rbd.rnea)(model, q, v, u, f)
        for i, own in enumerate(several.models):
            expected = rbd.rnea(own, *several.states[i])
            close(np.asarray(tau[i])[several.robots.v_index[i]], expected, 1e-11, own.name)


# -------------------------------------------------------------------------------------- bad input


def follower():
    return zoo.build(
        ["revolute", "revolute"], [-1, 0], mimics={1: Follow(("j0",), lambda x: x[0] ** 2)}
    )


def one():
    return chain("revolute")


FAULTS = {
    "no robots": (lambda: padded.pad([]), "models is empty"),
    "no model": (lambda: padded.pad([one(), 3]), r"models\[1\]"),
    "another dtype": (lambda: padded.pad([one(), one().astype("float32")]), "dtype float32"),
    "dissipation": (lambda: padded.pad([one(), one().with_dissipation()]), "dissipative True"),
    "a follower": (lambda: padded.pad([follower()]), "joint 'j1' of 'robot' follows others by"),
    "a batch": (
        lambda: padded.pad([jax.tree.map(lambda x: jnp.stack([x, x]), one())]),
        "batch of models",
    ),
    "traced": (lambda: jax.jit(lambda m: padded.pad([m]).model)(one()), "outside of jit"),
    "no place": (
        lambda: padded.pad([chain("revolute", "revolute")], padded.pad([one()])),
        "joint 'j1' of 'robot' has no place",
    ),
    "no place for a frame": (
        lambda: padded.pad([rbd.model.add_frame(one(), "tool", "l0")], padded.pad([one()])),
        "frame 'tool' of 'robot' has no place",
    ),
    "onto": (lambda: padded.pad([one()], one()), "onto is .* expected PaddedRobots"),
    "onto another dtype": (
        lambda: padded.pad([one().astype("float32")], padded.pad([one()])),
        "dtype float32, expected float64 as onto",
    ),
    "onto another dissipation": (
        lambda: padded.pad([one().with_dissipation()], padded.pad([one()])),
        "dissipative True, expected False as onto",
    ),
    "padding": (lambda: padded.alike([one()], -1), "padding is -1"),
    "a padding of two numbers": (lambda: padded.alike([one()], [0.5, 0.5]), "padding"),
    "padding by a text": (lambda: padded.alike([one()], "a"), "padding is 'a'"),
    "padding by a truth value": (lambda: padded.alike([one()], True), "padding is True"),
    "batches of other dtypes": (
        lambda: padded.alike([one(), one().astype("float32")]),
        "dtype float32, expected float64 as models",
    ),
    "batches of no robots": (lambda: padded.alike([]), "models is empty"),
    "no configurations": (
        lambda: padded.pad([one()]).configurations(1.0),
        "q is 1.0, expected a sequence of arrays",
    ),
    "a text as velocity": (
        lambda: padded.pad([one()]).velocities(["a"]),
        r"v\[0\] of robot 'robot' is 'a', expected an array",
    ),
    "no names": (lambda: padded.pad([one()]).frame_index(3), "names is 3, expected a sequence"),
    "one configuration": (
        lambda: padded.pad([one(), one()]).configurations([np.zeros(1)]),
        "q has 1 entries, expected 2",
    ),
    "a wrong velocity": (
        lambda: padded.pad([one(), one()]).velocities([np.zeros(1), np.zeros(2)]),
        r"v\[1\] of robot 'robot' has shape \(2,\), expected \(1,\)",
    ),
    "another precision": (
        lambda: padded.pad([one(), one()]).velocities([np.zeros(1), np.zeros(1, np.float32)]),
        r"v\[1\] of robot 'robot' has dtype float32, expected float64, the dtype of the model",
    ),
    "another batch axis": (
        lambda: padded.pad([one(), one()]).velocities([np.zeros((5, 1)), np.zeros((4, 1))]),
        r"v\[1\] of robot 'robot' has shape \(4, 1\), expected \(5, 1\)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault):
    call, message = FAULTS[fault]
    with pytest.raises(rbd.ArgumentError, match=message):
        call()


SCENE = contact.Scene(("l0",))
BALL = rbd.collision.PlacedShape(rbd.collision.Sphere(0.1), "l8")
WALL = rbd.collision.PlacedShape(rbd.collision.Sphere(0.1), None)
SCENE_FAULTS = {
    "a scene less": ([SCENE], "scenes has 1 entries, expected 2"),
    "no scene": ([SCENE, 3], "the scene of 'robot' is 3"),
    "unknown frame": ([SCENE, contact.Scene(("l9",))], "no frame 'l9'"),
    "unknown index": ([SCENE, contact.Scene((7,))], "no frame 7"),
    "unknown negative index": ([SCENE, contact.Scene((-7,))], "no frame -7"),
    "unknown frame of a pair": (
        [SCENE, contact.Scene(("l0",), pairs=contact.collision_pairs([(BALL, WALL)]))],
        "no frame 'l8'",
    ),
    "inverse inertias": (
        [contact.Scene(("l0",), inverse_inertia=contact.InverseInertias([1.0], [1.0])), SCENE],
        "inverse_inertia, expected None",
    ),
    "softness of contacts": (
        [SCENE, contact.Scene(("l0",), material=contact.Material(softness=contact.Softness()))],
        "has a softness, expected rigid contacts",
    ),
    "softness of limits": (
        [SCENE, contact.Scene(("l0",), limit_softness=contact.Softness())],
        "has a softness, expected rigid contacts",
    ),
    "another ground": (
        [SCENE, contact.Scene(("l0",), ground=lambda xy: 0.1 * xy[0])],
        "the ground of the scene of 'robot'",
    ),
    "another material": (
        [SCENE, contact.Scene(("l0",), material=contact.Material(torsional=0.1))],
        "the material of the scene of 'robot'",
    ),
}


@pytest.mark.parametrize("fault", SCENE_FAULTS)
def test_faults_of_scenes_are_named(fault):
    scenes, message = SCENE_FAULTS[fault]
    with pytest.raises(rbd.ArgumentError, match=message):
        padded.pad_scenes(padded.pad([one(), one()]), scenes)


def test_it_is_known_which_contacts_act():
    """A padding contact has a finite margin, so results and derivatives are finite."""
    robots = padded.pad([zoo.build(["free_flyer"], [-1]), zoo.build(["prismatic"], [-1])])
    scenes = padded.pad_scenes(
        robots,
        [
            contact.Scene(["l0"], 0.1, material=contact.Material(margin=0.02)),
            contact.Scene(["l0"], 0.1),
        ],
    )
    margin = jax.vmap(lambda scene: scene.margin)(scenes.scene)
    acting = jax.vmap(padded.scenes.acting_contacts)(scenes.scene)
    assert not np.all(scenes.has_contact)
    np.testing.assert_array_equal(acting, scenes.has_contact)
    np.testing.assert_array_equal(np.sort(np.ravel(margin)), [-1e6, -1e6, 0.0, 0.02])
