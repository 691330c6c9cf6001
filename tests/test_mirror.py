"""The mirror image of a robot: its motion is a motion of the robot; symmetric policies."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import envs, learning
from jaxrbd.actuators import PD
from jaxrbd.contact import Scene
from jaxrbd.envs import legged
from jaxrbd.errors import ArgumentError
from jaxrbd.model import JointSpec, Link, link_inertia, placement_matrix
from support.point import Point

WEIGHTS = "alive upright posture joint_velocity action_rate velocity turning bounce gait"


@dataclasses.dataclass(frozen=True)
class Biped(legged.LeggedEnv):
    """A trunk with two legs of two hinges, and a head on a neck."""

    phases: tuple[float, ...] | None = (0.0, 0.5)
    turn: float = 0.0
    sides: tuple[float, float] = (0.1, -0.1)
    toes: tuple[float, float] = (0.05, 0.05)
    episode_steps: int = 500
    smoothing: float | None = 0.01
    action_size = 5
    base = "trunk"

    def default_params(self):
        def link(name, y):
            return Link(name, link_inertia(0.4, (0.02, y, -0.1), 0.01 * np.eye(3)))

        kind = rbd.joints.Revolute
        links = [Link("trunk", link_inertia(4.0, (0.03, 0, 0.1), np.diag([0.1, 0.2, 0.15])))]
        joints = [JointSpec("base", rbd.joints.FreeFlyer(), None, "trunk")]
        # The axes of the hips point forward on the left side, and backward on the right side.
        for name, y, sign in zip(("left", "right"), self.sides, (1.0, -1.0)):
            hip = placement_matrix((0.0, y, 0))
            links += [link(f"{name}_hip", 0.01 * sign), link(f"{name}_thigh", 0.02 * sign)]
            joints += [
                JointSpec(f"{name}_roll", kind((sign, 0, self.turn)), "trunk", links[-2].name, hip),
                JointSpec(f"{name}_pitch", kind((0, 1, 0)), links[-2].name, links[-1].name),
            ]
        links.append(link("head", 0.0))
        joints.append(JointSpec("neck", kind((0, 0, 1)), "trunk", "head"))
        model = rbd.build_model(links, joints).with_dissipation()
        offsets = [(toe, 0, -0.4) for toe in self.toes]
        scene = Scene(("left_thigh", "right_thigh"), 0.05, offsets)
        control = PD.for_joints(model, model.joint_names[1:], 40.0, 1.0, 20.0)
        home = rbd.neutral(model).at[2].set(0.45)
        weights = dict.fromkeys(WEIGHTS.split(), 1.0)
        if self.phases is None:
            del weights["gait"]
        return legged.default_params(model, scene, control, home, 0.2, weights, (0.5, 0.2, 0.1))


ENV = Biped()


@functools.cache
def the_robot():
    """The parameters and the mirror of the robot."""
    params = ENV.default_params()
    return params, envs.mirror_image(ENV, params)


def image(params, joints, physics):
    """The image of a physical state, half a period later."""
    change = np.array([1.0, -1, 1, -1, 1, -1, 1])  # quaternions are xyzw
    moves = np.array([1.0, -1, 1, -1, 1, -1])
    q = jnp.concatenate([physics.q[:7] * change, joints(physics.q[7:])])
    v = jnp.concatenate([physics.v[:6] * moves, joints(physics.v[6:])])
    return physics._replace(
        q=q,
        v=v,
        past=joints(physics.past),
        action=joints(physics.action),
        last_action=joints(physics.last_action),
        command=physics.command * np.array([1.0, -1, -1]),
        time=physics.time + params.gait[0] / 2,
        distance=physics.distance[::-1],
    )


@pytest.mark.slow
def test_the_image_of_a_step_is_a_step_of_the_image(key):
    """With rewards and observations; the ground pushes one foot."""
    params, mirror = the_robot()
    params = params._replace(start=jnp.array([0.5, 1.0]))
    start = ENV.initial(params, key)
    q = start.q.at[3].set(0.08)  # rolls the right foot into the ground
    q = q.at[3:7].divide(jnp.linalg.norm(q[3:7]))
    start = start._replace(q=q, v=start.v.at[2].set(-3.0))
    action = jnp.linspace(-1, 0.7, 5)

    @jax.jit
    def step(physics, action):
        after = ENV.advance(params, physics, action, key)
        observed = ENV.observe(params, after, key)
        return after, observed, ENV.terms(params, physics, action, after)

    after, observed, terms = step(start, action)
    assert jnp.abs(after.v[1]) > 0.01
    assert after.v[2] > -2.5  # the ground pushes it up
    found, image_observed, image_terms = step(
        image(params, mirror.action, start), mirror.action(action)
    )
    expected = image(params, mirror.action, after)
    for name, x, y in zip(after._fields, found, expected):
        np.testing.assert_allclose(x, y, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(image_observed, mirror.observation(observed), atol=1e-9)
    for name, term in terms.items():
        np.testing.assert_allclose(image_terms[name], term, atol=1e-9, err_msg=name)


def test_an_image_of_an_image_is_the_original(rng):
    _, mirror = the_robot()
    for one, size in zip(mirror, (9 + 15 + 3 + 2, 5)):
        x = rng.normal(size=(3, size))
        np.testing.assert_array_equal(one(one(x)), x)
        assert not np.any(np.all(one(x) == x, axis=1))
    # Both hips open for the same values, because their axes are opposite; the neck turns back.
    assert mirror.action == ((2, 3, 0, 1, 4), (1, 1, 1, 1, -1))


def test_joints_on_one_axis_are_told_apart_by_their_places():
    env = envs.QuadrupedStand()
    params = env.default_params()
    names, found = params.model.joint_names[1:], envs.mirror_image(env, params).action
    for name, place, sign in zip(names, *found):
        other = "right" if "left" in name else "left"
        assert names[place] == name.replace("left", other).replace("right", other)
        assert sign == (-1 if "_hip_" in name else 1)


def test_the_clock_changes_its_sign_if_the_feet_take_turns():
    _, mirror = the_robot()
    assert mirror.observation.signs[-2:] == (-1, -1)
    both = envs.mirror_image(Biped(phases=(0.3, 0.3)))
    assert both.observation.signs[-2:] == (1, 1)
    none = envs.mirror_image(Biped(phases=None))
    assert len(none.observation.signs) == len(mirror.observation.signs) - 2


def test_hidden_and_past_parts_have_images():
    params, mirror = the_robot()
    blind = envs.Asymmetric(ENV, "linear_velocity")
    shown = envs.mirror_image(blind, params, "state").observation
    whole = envs.mirror_image(blind, params, "privileged_state").observation
    assert whole == mirror.observation
    assert shown.signs == whole.signs[:3] + whole.signs[6:]
    past = envs.mirror_image(envs.History(ENV, 2), params).observation
    assert past.signs == 2 * whole.signs
    n = len(whole.places)
    assert past.places == (*whole.places, *(n + place for place in whole.places))


def test_a_symmetric_network_acts_alike_on_both_sides(key, rng):
    _, mirror = the_robot()
    sizes = len(mirror.observation.signs), 8, 6, 5
    network = learning.Symmetric(mirror)(key, sizes, jnp.float64)
    layers = learning.networks.network(key, sizes, jnp.float64)
    layers = jax.tree.map(lambda x: x + 0.1, layers)  # with biases
    network = eqx.tree_at(lambda found: found.network, network, layers)
    x = rng.normal(size=(7, sizes[0]))
    other = mirror.action(learning.networks.apply(layers, mirror.observation(x)))
    expected = (learning.networks.apply(layers, x) + other) / 2
    np.testing.assert_allclose(network(x), expected, rtol=1e-12)
    np.testing.assert_allclose(
        network(mirror.observation(x)), mirror.action(network(x)), rtol=1e-12
    )
    exported = learning.networks.policy_layers(learning.networks.Policy(network, jnp.zeros(5)))
    np.testing.assert_allclose(learning.networks.apply(exported, x), network(x), atol=1e-12)
    with pytest.raises(ArgumentError, match="mirror is for 29 observations and 5 actions"):
        learning.Symmetric(mirror)(key, (31, 5), jnp.float64)


class OtherParts(Biped):
    def interface(self, params):
        return super().interface(params)._replace(observation=(("heat", 1),))


def test_a_symmetric_network_of_one_layer(key, rng):
    _, mirror = the_robot()
    sizes = len(mirror.observation.signs), 5
    network = learning.Symmetric(mirror)(key, sizes, jnp.float64)
    network = jax.tree.map(lambda x: x + 0.1, network)  # with biases
    (layer,) = network.as_layers()
    x = rng.normal(size=(7, sizes[0]))
    np.testing.assert_allclose(x @ layer.weight + layer.bias, network(x), atol=1e-12)


def changed(**changes):
    """The mirror image of the robot with other parameters, such as another home posture."""
    params = the_robot()[0]
    return envs.mirror_image(ENV, params._replace(**changes))


def heavier(body):
    model = the_robot()[0].model
    return dataclasses.replace(model, inertia=model.inertia.at[body].multiply(1.1))


def stiffer(joint):
    control = the_robot()[0].control
    return dataclasses.replace(control, stiffness=np.asarray(control.stiffness) + np.eye(11)[joint])


def test_sides_that_differ_are_named():
    """The last joint of a leg turns its body about its axis, which moves no other joint."""
    home = np.array(the_robot()[0].home)
    bent, twice = home.copy(), home.copy()
    bent[8] += 0.3
    twice[[8, 10]] += 0.3
    for message, make in {
        "bodies of joint 'left_pitch' .* 'right_pitch' have centres": lambda: changed(home=bent),
        "mass of the body is 0.44 for joint 'left_roll'": lambda: changed(model=heavier(1)),
        "stroke is 0.5 for joint 'left_pitch' and 0.6 for": lambda: changed(
            stroke=jnp.array([0.5, 0.5, 0.5, 0.6, 0.7])
        ),
        "stiffness is 41 for joint 'left_roll' and 40 for": lambda: changed(control=stiffer(6)),
        r"q has shape \(3,\)": lambda: changed(home=home[:3]),
    }.items():
        with pytest.raises(ArgumentError, match=message):
            make()
    assert changed(home=twice) == changed(control=stiffer(10)) == the_robot()[1]


def test_what_has_no_mirror_image_is_named():
    blind = envs.Asymmetric(ENV, "command")
    for message, make in {
        "env is 'Point', expected": lambda: envs.mirror_image(Point()),
        "entry is 'state', expected None": lambda: envs.mirror_image(ENV, entry="state"),
        "entry is None, expected priv": lambda: envs.mirror_image(blind),
        "entry is 'x', expected priv": lambda: envs.mirror_image(blind, entry="x"),
        "the part 'heat' of": lambda: envs.mirror_image(OtherParts()),
        "joint 'left_roll' has no": lambda: envs.mirror_image(Biped(turn=0.1)),
        "the foot 'left_thigh' has no": lambda: envs.mirror_image(Biped(toes=(0.05, 0.06))),
        "joint 'left_roll' has": lambda: envs.mirror_image(Biped(sides=(0.1, -0.11))),
        r"image.* differ by \[0.2, 0.8\]": lambda: envs.mirror_image(Biped((0.0, 0.2))),
    }.items():
        with pytest.raises(ArgumentError, match=message):
            make()
