"""Environments: episodes, batches, random parameters, and derivatives through steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jaxrbd as rbd
from jaxrbd import envs
from jaxrbd.errors import ArgumentError
from support import finite_differences, nightly, pages, zoo
from support.point import Point, PointWithDraws, PointWithTwoNumbers, draws

POINT = Point()
PARAMS = POINT.default_params()
PENDULUM = """
<mujoco>
  <worldbody>
    <body name="rod"><joint name="hinge"/><geom size="0.1" pos="0 0 -1"/></body>
  </worldbody>
  <actuator><motor joint="hinge" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


def states(env, actions, key, params=PARAMS):
    """The states after each of n steps."""

    def step(state, action):
        state = env.step(params, state, action)
        return state, state

    return jax.lax.scan(step, env.reset(params, key), actions)[1]


def on_host(tree):
    """The tree with NumPy arrays, except for keys.

    JAX would compile a program for each operation and shape.
    """
    return jax.tree.map(
        lambda x: x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x), tree
    )


@pytest.fixture(scope="module")
def episodes():
    """The states of 20 steps of four environments with an action that never fails, in a batch."""
    env = envs.vectorize(envs.auto_reset(POINT))
    keys = jax.random.split(jax.random.key(3), 4)
    return on_host(jax.jit(lambda: states(env, np.full((20, 4, 1), 0.05), keys))())


# ------------------------------------------------------------------------------------- episodes


def test_a_step_is_a_pure_function(key):
    state = POINT.reset(PARAMS, key)
    first, second = (POINT.step(PARAMS, state, jnp.ones(1)) for _ in range(2))
    assert jax.tree.all(jax.tree.map(lambda x, y: jnp.all(x == y), first, second))
    assert not jnp.all(first.key == state.key)
    assert hash(POINT) == hash(Point())


def test_episodes_start_from_keys_of_both_kinds(key):
    """A key of `jax.random.PRNGKey` gives the episode of the key of `jax.random.key`."""
    old, batch = jax.random.PRNGKey(0), envs.vectorize(POINT)
    keys = jax.random.split(key, 3)
    for reset, typed, raw in (
        (POINT.reset, key, old),
        (envs.auto_reset(POINT).reset, key, old),
        (batch.reset, keys, jax.random.split(old, 3)),
        (jax.jit(batch.reset), keys, np.asarray(jax.random.key_data(keys))),
    ):
        states = reset(PARAMS, typed), reset(PARAMS, raw)
        assert jax.tree.all(jax.tree.map(lambda x, y: jnp.all(x == y), *states))
        assert states[1].key.dtype == key.dtype


@pytest.mark.parametrize("wrong", [jnp.zeros(3, jnp.uint32), jnp.zeros(2), jax.random.key(0)])
def test_other_arrays_are_no_keys(wrong):
    with pytest.raises(ArgumentError, match=r"keys has shape .*, expected keys \(n,\) of jax"):
        envs.vectorize(POINT).reset(PARAMS, wrong)
    two = jnp.stack([wrong] * 2)
    with pytest.raises(ArgumentError, match=r"key has shape \(2,.*, expected one key of jax"):
        POINT.reset(PARAMS, two)


def test_the_reward_is_the_weighted_sum_of_the_terms(key):
    state = POINT.reset(PARAMS, key)
    assert state.reward == 0
    assert set(state.reward_terms) == {"place", "effort"}
    after = POINT.step(PARAMS, state, jnp.full(1, 0.2))
    np.testing.assert_allclose(after.reward_terms["effort"], -0.5 * 0.2**2)
    np.testing.assert_allclose(after.reward_terms["place"], after.observation[0])
    np.testing.assert_allclose(after.reward, sum(after.reward_terms.values()))


def test_an_episode_is_truncated_after_its_steps(key):
    found = states(POINT, jnp.zeros((8, 1)), key)
    assert found.truncated.tolist() == [False] * 5 + [True] * 3
    assert found.steps.tolist() == list(range(1, 9))
    assert not jnp.any(found.terminated)


def test_an_episode_that_fails_is_terminated_and_not_truncated(key):
    found = states(POINT, jnp.zeros((6, 1)).at[5].set(2.0), key)
    assert found.terminated.tolist() == [False] * 5 + [True]
    assert not jnp.any(found.truncated)


def test_a_step_to_a_state_that_is_not_finite_ends_the_episode(key):
    """A friction that is not a number: the other environments keep their bits and derivatives."""
    axes = envs.randomise(PARAMS, {"friction": envs.Uniform(0.0, 1.0)}, key, 2)[1]
    batch = envs.vectorize(envs.auto_reset(POINT), axes)
    start = envs.vectorize(POINT).reset(PARAMS, jax.random.split(key, 3))

    def rewards(action, friction, physics):
        params = PARAMS._replace(friction=friction)
        first = batch.step(params, start._replace(physics=physics), action)
        second = batch.step(params, first, action + first.observation)
        return jnp.sum(first.reward + second.reward), (first, second)

    action = np.full((3, 1), 0.2)
    both = jax.jit(jax.value_and_grad(rewards, (0, 1, 2), has_aux=True))
    (_, right), right_gradient = on_host(both(action, np.array([0.1, 0.2, 0.3]), start.physics))
    broken = jnp.array([0.1, jnp.nan, 0.3])
    (_, found), gradient = on_host(both(action, broken, start.physics))
    observation = np.asarray(start.observation)
    for state in found:
        assert state.diverged.tolist() == state.terminated.tolist() == [False, True, False]
    first = found[0]
    assert first.final_observation[1] == first.reward_terms["place"][1] == observation[1]
    assert first.observation[1] != observation[1]
    others = np.array([0, 2])
    for x, y in zip(jax.tree.leaves((found, gradient)), jax.tree.leaves((right, right_gradient))):
        assert np.all(x[others] == y[others])
    # Of the effort and of the place before the step: no reward depends on the motion of the step.
    np.testing.assert_allclose(gradient[0][1], -(0.2 + 0.2 + first.observation[1]))
    assert gradient[1][1] == 0
    assert gradient[2][1] == 1

    @jax.jit
    def of_action(action):
        return rewards(action, broken, start.physics)[0]

    _, change = jax.jvp(of_action, (action,), (np.ones_like(action),))
    np.testing.assert_allclose(change, np.sum(gradient[0]), rtol=1e-12)


@pytest.mark.parametrize("broken", ["first", "place", "rest"])
def test_every_number_of_the_physical_state_must_be_finite(broken, key):
    env = PointWithTwoNumbers(broken=broken)
    state = env.reset(PARAMS, key)
    assert not env.step(PARAMS, state, jnp.full(1, 0.2)).diverged
    after = env.step(PARAMS, state, jnp.full(1, 0.6))
    assert after.diverged
    assert after.physics[broken] == state.physics[broken]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros(2), r"action has shape \(2,\), expected \(1,\) for Point"),
        (np.zeros((3, 1)), "batch with jaxrbd.envs.vectorize"),
        (np.zeros(1, np.float32), "action has dtype float32, expected float64"),
    ],
)
def test_wrong_actions_are_refused(action, message, key):
    state = POINT.reset(PARAMS, key)
    with pytest.raises(ArgumentError, match=message):
        POINT.step(PARAMS, state, action)


def test_an_action_out_of_its_range_is_not_clipped(key):
    env = envs.CartPoleSwingUp()
    params = env.default_params()
    start, step = env.reset(params, key), jax.jit(env.step)
    speeds = [float(step(params, start, jnp.array([x])).physics.v[0]) for x in (0.0, 1.0, 3.0)]
    assert speeds[2] - speeds[0] > 2.5 * (speeds[1] - speeds[0]) > 0


@pytest.mark.parametrize("smoothing", [float("nan"), 0.0, -1e-3, "soft"])
def test_a_smoothing_that_is_no_length_is_refused(smoothing, key):
    env = envs.Hopper(smoothing=smoothing)
    with pytest.raises(ArgumentError, match=f"smoothing is {smoothing!r}, expected"):
        env.reset(env.default_params(), key)


def test_wrong_states_and_parameters_are_refused(key):
    state = POINT.reset(PARAMS, key)
    with pytest.raises(ArgumentError, match="params is None, expected parameters with the"):
        POINT.reset(None, key)
    with pytest.raises(ArgumentError, match="params is 'str', expected parameters with the field"):
        POINT.step("params", state, jnp.zeros(1))
    with pytest.raises(ArgumentError, match="state is None, expected a State"):
        POINT.step(PARAMS, None, jnp.zeros(1))
    batch = envs.vectorize(POINT)
    for wrong, found in ((state, "one state"), (3.0, "'float'")):
        with pytest.raises(ArgumentError, match=f"state is {found}, expected a batch of states"):
            batch.step(PARAMS, wrong, jnp.zeros((1, 1)))


def test_weights_that_do_not_fit_the_terms_are_refused(key):
    params = PARAMS._replace(weights={"place": jnp.ones(())})
    with pytest.raises(ArgumentError, match=r"weights has \['place'\], expected one weight per"):
        POINT.reset(params, key)


class PointWithVectors(Point):
    """A point whose reward for the place may be a vector."""

    def terms(self, params, before, action, after):
        terms = super().terms(params, before, action, after)
        return terms | {"place": terms["place"] * params.friction}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"friction": np.ones(3)}, "the reward term 'place'"),
        ({"weights": {"place": np.ones(3), "effort": 1.0}}, r"params.weights\['place'\]"),
    ],
)
def test_rewards_that_are_no_numbers_are_refused(changes, name, key):
    with pytest.raises(ArgumentError, match=rf"{name} has shape \(3,\), expected a number"):
        PointWithVectors().reset(PARAMS._replace(**changes), key)


def test_a_failure_that_is_no_truth_value_is_refused(key):
    class PointWithFailures(Point):
        def failed(self, params, physics):
            return physics > 1

    state = POINT.reset(PARAMS, key)
    with pytest.raises(ArgumentError, match=r"the failure has shape \(1,\), expected a number"):
        PointWithFailures().step(PARAMS, state, jnp.zeros(1))


OF_ALL_KINDS = {
    "cart-pole": envs.CartPoleSwingUp,
    "double pendulum": envs.DoublePendulumSwingUp,
    "hopper": envs.Hopper,
    "arm": envs.ArmReach,
    "quadruped": envs.QuadrupedTrot,
    "file": lambda: envs.MjcfTask(PENDULUM, rewards={"alive": 1.0}, observations=("q",)),
    "history": lambda: envs.History(envs.CartPoleSwingUp(), 2),
    "asymmetric": lambda: envs.Asymmetric(envs.QuadrupedTrot(), "linear_velocity"),
}


@pytest.mark.parametrize("kind", [*OF_ALL_KINDS])
def test_parameters_of_another_shape_are_refused(kind, key):
    """A velocity command of one entry, for example, would be broadcast."""
    env = OF_ALL_KINDS[kind]()
    params = env.default_params()
    if isinstance(params, envs.LeggedParams):
        params = params._replace(pushes=np.array([0.5, 2.0]))
    arrays = {name: x for name, x in params._asdict().items() if hasattr(x, "shape")}
    assert arrays.keys() == env.shapes(params).keys()
    state = jax.eval_shape(env.reset, params, key)
    for name, x in arrays.items():
        wrong = params._replace(**{name: jnp.ones((7, *x.shape))})
        with pytest.raises(ArgumentError, match=rf"params.{name} has shape \(7,.*, expected \("):
            env.reset(wrong, key)
        with pytest.raises(ArgumentError, match=rf"params.{name} has shape"):
            env.step(wrong, state, jnp.zeros(env.action_size))


# ----------------------------------------------------------------------------------- auto-reset


def test_every_episode_starts_from_another_state(episodes):
    """A first state that is stored and used again would repeat."""
    starts = episodes.observation[5::6]
    assert episodes.truncated.sum() == 3 * 4
    assert len(np.unique(starts)) == starts.size == 12
    assert np.all(np.abs(starts) <= 0.1)
    assert np.all(episodes.steps[5::6] == 0)
    assert len({tuple(k) for k in np.asarray(jax.random.key_data(episodes.key[5])).tolist()}) == 4


@pytest.mark.parametrize("wrapped", [lambda env: env, envs.auto_reset])
def test_every_random_number_has_its_own_key(wrapped, key):
    """The numbers of starts, motions and sensors, also over the ends of episodes."""
    env = PointWithDraws(episode_steps=3)
    start = env.reset(PARAMS, key)
    found = on_host(states(wrapped(env), jnp.zeros((7, 1)), key))
    ends = found.steps == 0
    assert ends.sum() == (0 if wrapped(env) is env else 2)
    terms = found.reward_terms["place"], 2 * found.reward_terms["effort"]
    keys = jnp.concatenate([jnp.stack([key, start.key]), found.key])
    drawn = [start.physics, start.observation, *terms, found.final_observation]
    drawn += [found.physics[ends], found.observation[ends], jax.vmap(draws)(keys)[:, 0]]
    drawn = np.concatenate([np.ravel(x) for x in drawn])
    assert len(np.unique(drawn)) == drawn.size


def test_an_observation_may_have_a_number(key):
    class WithNumber(Point):
        def observe(self, params, physics, key):
            return {"one": 1.0, "place": super().observe(params, physics, key)}

    env, action = WithNumber(), jnp.zeros(POINT.action_size)
    state = env.reset(PARAMS, key)
    assert state.observation["one"].shape == ()
    found = jax.grad(lambda u: env.step(PARAMS, state, u).observation["one"])(action)
    np.testing.assert_array_equal(found, 0)


def test_the_last_observation_of_an_episode_is_kept(episodes):
    """The observation that the last step led to, which the new episode must not replace."""
    before = episodes.observation[4::6]
    after = 0.9 * before[:3] + 0.05
    np.testing.assert_allclose(episodes.final_observation[5::6], after, rtol=1e-12)
    assert np.all(episodes.final_observation[5::6] != episodes.observation[5::6])
    inside = ~(episodes.terminated | episodes.truncated)
    np.testing.assert_allclose(  # XLA may compute both, with other roundings
        episodes.final_observation[inside], episodes.observation[inside], rtol=1e-12
    )


def test_the_reward_of_the_last_step_is_of_the_old_episode(episodes):
    np.testing.assert_allclose(
        episodes.reward[5::6], episodes.final_observation[5::6, :, 0] - 0.5 * 0.05**2, rtol=1e-12
    )


def test_auto_reset_follows_failures_too(key):
    found = states(envs.auto_reset(POINT), jnp.zeros((3, 1)).at[1].set(2.0), key)
    assert found.terminated.tolist() == [False, True, False]
    assert found.steps.tolist() == [1, 0, 1]
    assert jnp.abs(found.observation[1, 0]) <= 0.1
    assert found.final_observation[1, 0] > 1


def test_no_derivative_passes_from_one_episode_to_the_next(key):
    env = envs.auto_reset(POINT)

    def last(action, n):
        actions = jnp.zeros((n, 1)).at[0].set(action)
        return states(env, actions, key).observation[-1, 0]

    slope = jax.jit(jax.grad(last), static_argnums=1)
    np.testing.assert_allclose(slope(0.1, 5), 0.9**4, rtol=1e-12)
    assert slope(0.1, 7) == 0


def test_batches_check_their_arguments(key):
    env = envs.vectorize(POINT)
    with pytest.raises(ArgumentError, match="expected an Env without auto_reset"):
        envs.auto_reset(envs.auto_reset(POINT))
    with pytest.raises(ArgumentError, match=r"keys has shape \(\)"):
        env.reset(PARAMS, key)
    state = env.reset(PARAMS, jax.random.split(key, 3))
    with pytest.raises(ArgumentError, match=r"expected \(3, 1\): one action per environment"):
        env.step(PARAMS, state, jnp.zeros((2, 1)))


# ---------------------------------------------------------------------------- random parameters


def test_randomised_leaves_have_rows_and_other_leaves_none(key):
    names = {"friction": envs.Uniform(0.1, 0.3), "model.inertia": envs.Scale(0.5, 2.0, True)}
    params, axes = envs.randomise(PARAMS, names, key, 5)
    assert params.friction.shape == (5,)
    assert len(np.unique(params.friction)) == 5
    assert jnp.all((params.friction >= 0.1) & (params.friction <= 0.3))
    assert params.model.inertia.shape == (5, *PARAMS.model.inertia.shape)
    assert params.weights["place"].shape == ()
    assert [axes.friction, axes.model.inertia, axes.model.gravity] == [0, 0, None]
    alone, _ = envs.randomise(PARAMS, {"friction": envs.Uniform(0.1, 0.3)}, key, 5)
    np.testing.assert_array_equal(alone.friction, params.friction)
    both = {"friction": envs.Uniform(0.1, 0.3), "weights.place": envs.Uniform(0.1, 0.3)}
    both, _ = envs.randomise(PARAMS, both, key, 5)
    assert jnp.all(both.friction != both.weights["place"])


@pytest.mark.gives_nan
def test_scaled_inertias_keep_the_centres_of_mass(key):
    """A row of an inertia has one factor, so a body has another mass and the same shape."""
    model = rbd.load_robot("arm7")
    params = PARAMS._replace(model=model)
    names = {"model.inertia": envs.Scale(0.5, 2.0, per_row=True)}
    inertia = envs.randomise(params, names, key, 3).params.model.inertia
    factor = inertia[..., 0] / model.inertia[None, :, 0]
    assert len(np.unique(factor)) == 3 * model.nb
    np.testing.assert_allclose(inertia, factor[..., None] * model.inertia[None], rtol=1e-12)
    assert jnp.all((factor >= 0.5) & (factor <= 2.0))
    same = envs.Scale(0.5, 2.0)(key, model.inertia) / model.inertia
    assert np.nanmax(same) - np.nanmin(same) < 1e-12


def test_shifts_and_distributions_of_the_user(key):
    shifted = envs.Shift(-1.0, 1.0, per_row=True)(key, jnp.full((4, 2), 5.0))
    assert len(np.unique(shifted[:, 0])) == 4
    assert jnp.all(jnp.abs(shifted - 5) <= 1)
    np.testing.assert_array_equal(shifted[:, 0], shifted[:, 1])
    names = {"weights.place": lambda key, x: x + jax.random.normal(key, x.shape, x.dtype)}
    params, axes = envs.randomise(PARAMS, names, key, 3)
    assert len(np.unique(params.weights["place"])) == 3
    assert axes.weights == {"place": 0, "effort": None}
    one = envs.randomise(PARAMS, {"model.joints[0].axis": envs.Shift(0.0, 0.0)}, key, 2)
    assert one.params.model.joints[0].axis.shape == (2, 1, 3)


def test_each_entry_of_a_uniform_distribution_has_its_own_number(key):
    found = envs.Uniform(-1.0, jnp.array([[1.0], [3.0]]))(key, jnp.zeros((2, 40)))
    assert len(np.unique(found)) == found.size
    assert jnp.all(found >= -1)
    np.testing.assert_allclose(jnp.max(found, axis=1), [1, 3], atol=0.2)


def test_random_parameters_are_the_same_in_each_process(key):
    """They depend on the letters of a name, and not on its `hash`, which differs."""

    class Name(str):
        __slots__ = ()

        def __hash__(self):
            return 1

    found = [
        envs.randomise(PARAMS, {name: envs.Uniform(0.0, 1.0)}, key, 3).params.friction
        for name in ("friction", Name("friction"))
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"mass": envs.Uniform(0, 1)}, "'mass', expected one of model, friction, weights"),
        ({"model.masses": envs.Uniform(0, 1)}, "Model has no 'masses', expected one of placement"),
        ({"weights.x": envs.Uniform(0, 1)}, "expected one of place, effort"),
        ({"weights": envs.Uniform(0, 1)}, "'weights' is 'dict', expected an array of floats"),
        ({"model inertia": envs.Uniform(0, 1)}, "'model inertia' is no name of a parameter"),
        ({".friction": envs.Uniform(0, 1)}, "'.friction' is no name of a parameter"),
        ({"model..inertia": envs.Uniform(0, 1)}, "'model..inertia' is no name"),
        ({"model.joints[0]axis": envs.Uniform(0, 1)}, r"'model.joints\[0\]axis' is no name"),
        ({"model.joints[00].axis": envs.Uniform(0, 1)}, r"\[00\].axis' is no name"),
        ({"friction": 0.5}, "the distribution of 'friction' is 0.5, expected a Uniform, Scale"),
        ({"friction": envs.Scale(0.5, 1.5, per_row=True)}, "per_row is True, expected False for a"),
        ({"friction": lambda key, x: jnp.ones(2)}, r"'friction' gives shape \(2,\)"),
        ({"friction": lambda key, x: x.astype("float32")}, "gives shape .* and dtype float32"),
    ],
)
def test_wrong_names_and_distributions_are_refused(names, message, key):
    with pytest.raises(ArgumentError, match=message):
        envs.randomise(PARAMS, names, key, 2)


def test_wrong_bounds_and_sizes_are_refused(key):
    for kind in (envs.Uniform, envs.Scale, envs.Shift):
        with pytest.raises(ArgumentError, match="expected low <= high"):
            kind(1.0, 0.5)
        with pytest.raises(ArgumentError, match="expected low <= high"):
            kind(np.zeros(2), np.array([1.0, -1.0]))
        with pytest.raises(ArgumentError, match="high is 'b', expected an array of floats"):
            kind(0.0, "b")
    with pytest.raises(ArgumentError, match="size is 0, expected an integer of 1 or more"):
        envs.randomise(PARAMS, {}, key, 0)
    with pytest.raises(ArgumentError, match=r"key .* expected one key"):
        envs.randomise(PARAMS, {}, 3, 2)


def test_each_environment_has_its_own_parameters(key):
    names = {"friction": envs.Uniform(0.0, 1.0)}
    params, axes = envs.randomise(PARAMS, names, key, 4)
    env = envs.vectorize(POINT, axes)
    before = env.reset(params, jax.random.split(key, 4))
    after = env.step(params, before, jnp.zeros((4, 1)))
    expected = (1 - params.friction)[:, None] * before.observation
    np.testing.assert_allclose(after.observation, expected, rtol=1e-12)


def test_rows_of_parameters_can_be_another_axis(key):
    """As in `jax.vmap`, also if the environments are split over devices."""
    friction = jnp.array([[0.0, 0.5, 1.0]], PARAMS.friction.dtype)
    params = PARAMS._replace(friction=friction)
    axes = jax.tree.map(lambda _: None, PARAMS)._replace(friction=1)
    for mesh in (None, jax.make_mesh((1,), ("batch",))):
        env = envs.vectorize(POINT, axes, mesh)
        before = env.reset(params, jax.random.split(key, 3))
        after = env.step(params, before, jnp.zeros((3, 1)))
        expected = (1 - friction.T) * before.observation
        np.testing.assert_allclose(after.observation, expected, rtol=1e-12)


# ------------------------------------------------------------------------------- stacked models


def test_stacked_robots_are_a_batch():
    models = [rbd.load_robot("arm7").with_mass("elbow", mass) for mass in (1.0, 2.0, 3.0)]
    models[1] = dataclasses.replace(models[1], name="another name")
    stacked = envs.stack_models(models)
    q = rbd.neutral(models[0]) + 0.3
    found = jax.vmap(rbd.gravity_force, (0, None))(stacked, q)
    for i, model in enumerate(models):
        zoo.close(found[i], rbd.gravity_force(model, q))


def test_robots_of_different_structures_are_refused():
    base = zoo.build(["revolute", "prismatic"], [-1, 0], seed=1)
    other_kind = zoo.build(["revolute", "revolute"], [-1, 0], seed=1)
    other_tree = zoo.build(["revolute", "prismatic"], [-1, -1], seed=1)
    longer = zoo.build(["revolute", "prismatic", "revolute"], [-1, 0, 1], seed=1)
    renamed = dataclasses.replace(base, joint_names=("j0", "elbow"))
    cases = {
        r"models\[1\] has 3 joint_names, expected 2": longer,
        r"joint 'j1' of models\[1\] is Revolute, expected Prismatic": other_kind,
        r"topology.parents\[1\] of models\[1\] is -1, expected 0": other_tree,
        r"joint_names\[1\] of models\[1\] is 'elbow', expected 'j1'": renamed,
        r"dissipative of models\[1\] is True, expected False": base.with_dissipation(),
        r"placement.R of models\[1\] has shape .* dtype float32": base.astype("float32"),
    }
    for message, model in cases.items():
        with pytest.raises(ArgumentError, match=message):
            envs.stack_models([base, model])
    with pytest.raises(ArgumentError, match=r"models is \[\], expected a sequence of one robot"):
        envs.stack_models([])
    with pytest.raises(ArgumentError, match="models is 3, expected a sequence of one robot"):
        envs.stack_models(3)


# --------------------------------------------------------------------------- all environments

ENVIRONMENTS = {
    "CartPoleSwingUp": envs.CartPoleSwingUp(episode_steps=20),
    "DoublePendulumSwingUp": envs.DoublePendulumSwingUp(episode_steps=20),
    "ArmReach": envs.ArmReach(episode_steps=20),
    "Hopper": envs.Hopper(episode_steps=20),
    "QuadrupedStand": envs.QuadrupedStand(episode_steps=20),
    "QuadrupedJoystick": envs.QuadrupedJoystick(episode_steps=20, rough=True),
    "QuadrupedTrot": envs.QuadrupedTrot(episode_steps=20),
    "HumanoidStand": envs.HumanoidStand(episode_steps=20),
}
SIZES = dict(zip(ENVIRONMENTS, (5, 6, 20, 4, 45, 48, 50, 96)))
SLOW = {"QuadrupedStand", "QuadrupedJoystick", "QuadrupedTrot", "HumanoidStand"}
NAMES = nightly.all_but(set(ENVIRONMENTS) - SLOW, ENVIRONMENTS)
RANDOM = {"model.inertia": envs.Scale(0.9, 1.1, per_row=True)}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_random_actions_give_finite_states_in_single_precision(name):
    """With other masses in each environment, over the ends of episodes; compiled once."""
    env = ENVIRONMENTS[name]
    params = jax.tree.map(lambda x: x.astype(jnp.float32), env.default_params())
    key, n = jax.random.key(5), 8
    params, axes = envs.randomise(params, RANDOM, key, n)
    batch = envs.vectorize(envs.auto_reset(env), axes)

    @jax.jit
    def run(params, key):
        keys = jax.random.split(key, n)
        actions = jax.random.uniform(key, (50, n, env.action_size), jnp.float32, -1, 1)
        return states(batch, actions, keys, params)

    found = run(params, key)
    for x in jax.tree.leaves(found):
        assert jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) or jnp.all(jnp.isfinite(x))
    assert {x.dtype for x in jax.tree.leaves((found.physics, found.observation, found.reward))} == {
        jnp.float32.dtype
    }
    assert found.observation.shape == (50, n, SIZES[name])
    assert found.truncated.sum() + found.terminated.sum() >= 2 * n
    run(
        envs.randomise(env.default_params(), RANDOM, jax.random.key(6), n)[0].__class__(*params),
        key,
    )
    assert run._cache_size() == 1


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_sizes_of_observations_and_default_parameters(name):
    env = ENVIRONMENTS[name]
    params = env.default_params()
    assert jax.eval_shape(env.reset, params, jax.random.key(0)).observation.shape == (SIZES[name],)
    assert params.model.dissipative == (name in SLOW)
    assert all(weight > 0 for weight in params.weights.values())  # the terms have the signs


# Parameters other than the usual ones, so that each parameter acts in a short episode.
OTHER = {
    "CartPoleSwingUp": {"force": 15.0},
    "DoublePendulumSwingUp": {"torque": [10.0, 9.0]},
    "ArmReach": {"precision": 0.6},
    "Hopper": {"start": [0.05, 0.05, 0.1, 0.1], "stroke": 0.5},
}


def other_params(name):
    params = ENVIRONMENTS[name].default_params()
    return params._replace(**{field: jnp.array(x) for field, x in OTHER[name].items()})


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER)
def test_each_parameter_changes_an_episode(name, key):
    """In row i, the i-th parameter differs by 0.01 %."""
    env, params = ENVIRONMENTS[name], other_params(name)
    paths, tree = jax.tree_util.tree_flatten_with_path(params)
    names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in paths]
    acting = ["model.inertia", "model.armature", "model.gravity"]
    if name == "Hopper":  # its foot touches the ground
        acting += ["scene.radii", "scene.offsets", "scene.ground.offset"]
    # Of the model and of the scene, only some leaves act.
    others = [x for x in names if not x.startswith(("model.", "scene."))]
    changed = [i for i, x in enumerate(names) if x in acting or x in others]
    steps = 12 if name == "Hopper" else 2
    actions = jnp.full((steps, env.action_size), 0.3)

    @jax.jit
    @jax.vmap
    def run(changes):
        leaves = [x for _, x in paths]
        for i, change in zip(changed, changes):
            leaves[i] = leaves[i] * (1 + change) + change
        found = states(env, actions, key, jax.tree.unflatten(tree, leaves))
        values = found.physics, found.observation, found.reward
        return jnp.concatenate([x.ravel() for x in jax.tree.leaves(values)])

    rows = run(jnp.concatenate([jnp.zeros((1, len(changed))), 1e-4 * jnp.eye(len(changed))]))
    change = jnp.max(jnp.abs(rows[1:] - rows[:1]), axis=1)
    still = [names[i] for i, x in zip(changed, change) if not 1e-9 < x < 0.1]
    compensated = ["model.gravity"] if name == "ArmReach" else []
    assert still == compensated


# The leaves in which a return is differentiated, by environment.
LEAVES = {
    "CartPoleSwingUp": ("model.inertia", "model.placement.p", "model.gravity", "force"),
    "ArmReach": ("model.inertia", "control.stiffness", "control.damping", "weights.distance"),
    "Hopper": ("model.inertia", "control.stiffness", "control.damping", "scene.radii", "stroke"),
    "QuadrupedTrot": (
        "model.inertia",
        "scene.material.friction",
        "control.stiffness",
        "control.damping",
        "delay.lag",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAVES)
def test_derivatives_of_a_return_are_central_differences(name, key):
    """With respect to parameters, along a random direction in all of them."""
    env = ENVIRONMENTS[name]
    params = env.default_params()
    shape = (3, env.action_size)
    if name == "Hopper":  # it lands
        shape = (12, env.action_size)
        params = params._replace(start=jnp.array([0.1, 0.05, 0.2, 0.2]))
    actions = jax.random.uniform(key, shape, minval=-0.3, maxval=0.3)
    width = {
        leaf: jnp.full_like(envs.randomisation._leaf(params, leaf), 0.1) for leaf in LEAVES[name]
    }
    base = {leaf: envs.randomisation._leaf(params, leaf) for leaf in width}
    direction = {leaf: x * envs.environment.uniform(key, width[leaf]) for leaf, x in base.items()}

    @jax.jit
    def total(step):
        changed = params
        for leaf, x in base.items():
            changed = envs.randomisation._replaced(changed, leaf, x + step * direction[leaf])
        return jnp.sum(states(env, actions, key, changed).reward)

    expected = finite_differences.central(total, 1e-5)
    assert jnp.abs(expected) > 1e-4
    np.testing.assert_allclose(jax.jit(jax.grad(total))(0.0), expected, rtol=1e-7)
    if name == "Hopper":  # some compiler flags make this program wrong: support/xla_flags.py
        np.testing.assert_allclose(jax.jit(jax.jacfwd(total))(0.0), expected, rtol=1e-7)


# The middle of the start (q, v), by environment; the half width is `params.start`.
MIDDLES = {
    "CartPoleSwingUp": [0, np.pi, 0, 0],
    "DoublePendulumSwingUp": [0, 0, 0, 0],
    "ArmReach": np.concatenate([envs.ArmReach().default_params().home, np.zeros(7)]),
}


def motion_of(physics):
    """The `Motion` in the physical state of an environment without contact."""
    return physics.motion if hasattr(physics, "motion") else physics


@pytest.mark.parametrize("name", MIDDLES)
def test_starts_are_uniform_about_a_posture(name, key):
    env = ENVIRONMENTS[name]
    params = env.default_params()
    params = params._replace(start=0.9 * params.start)
    physics = jax.jit(jax.vmap(env.initial, (None, 0)))(params, jax.random.split(key, 60))
    shift = np.concatenate(motion_of(physics), axis=1) - MIDDLES[name]
    width = np.asarray(params.start)
    if name == "ArmReach":
        width = np.resize(width, 14) * (np.arange(14) < 7)
    assert np.all(np.abs(shift) <= width + 1e-12)
    assert np.all(np.max(shift, axis=0) >= 0.8 * width)
    assert np.all(np.min(shift, axis=0) <= -0.8 * width)


def test_the_foot_of_the_hopper_starts_above_the_ground(key):
    env = ENVIRONMENTS["Hopper"]
    params = env.default_params()
    motion = jax.jit(jax.vmap(env.initial, (None, 0)))(params, jax.random.split(key, 60))
    foot = motion.q[:, 0] - motion.q[:, 1] - 0.5 - 0.03
    assert 0 <= jnp.min(foot) < 0.05
    assert 0.55 < jnp.max(foot) <= 0.6
    for x, width in ((motion.q[:, 1], 0.05), (motion.v[:, 0], 1.0), (motion.v[:, 1], 0.5)):
        assert 0.8 * width < jnp.max(jnp.abs(x)) <= width


def test_observations_have_the_stated_entries(key):
    q, v = jnp.array([0.3, 0.7]), jnp.array([-0.2, 1.1])
    sines = [np.sin(0.3), np.sin(1.0), np.cos(0.3), np.cos(1.0)]
    for name, expected in {
        "CartPoleSwingUp": [0.3, -0.2, np.sin(0.7), np.cos(0.7), 1.1],
        "DoublePendulumSwingUp": [*sines, -0.2, 1.1],
        "Hopper": [0.3 - 0.53, 0.7, -0.2, 1.1],
    }.items():
        found = ENVIRONMENTS[name].observe(None, envs.Motion(q, v), key)
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=name)
    env = ENVIRONMENTS["ArmReach"]
    params = env.default_params()
    target, v = jnp.array([0.1, 0.2, 0.3]), jnp.arange(7.0)
    physics = env.initial(params, key)._replace(target=target)
    physics = physics._replace(motion=physics.motion._replace(v=v))
    q = physics.motion.q
    tool = rbd.frame_placement(params.model, q, "tool").p
    expected = jnp.concatenate([q - params.home, v, tool - target, target])
    np.testing.assert_array_equal(env.observe(params, physics, key), expected)


def arm_torque(params, action, q, v):
    """PD control with compensation of gravity. No limit of effort acts."""
    control, aim = params.control, params.home + params.range * action
    pull = control.stiffness * (aim - q) - control.damping * v
    assert jnp.all(jnp.abs(pull) < control.effort)
    return pull + rbd.gravity_force(params.model, q)


TORQUES = {
    "CartPoleSwingUp": lambda params, action, q, v: jnp.array([15 * action[0], 0]),
    "DoublePendulumSwingUp": lambda params, action, q, v: jnp.array([10.0, 9.0]) * action,
    "ArmReach": arm_torque,
}


@pytest.mark.parametrize("name", TORQUES)
def test_a_step_of_robots_without_contact(name, key):
    """Steps of the semi-implicit Euler method with the torques that the documentation states."""
    env, params = ENVIRONMENTS[name], other_params(name)
    physics = env.initial(params, key)
    count = 5 if name == "ArmReach" else 4
    action = jnp.linspace(0.01, 0.02, env.action_size)
    q, v = motion_of(physics)
    model, dt = params.model, env.time_step / count
    for _ in range(count):
        torque = TORQUES[name](params, action, q, v)
        v = v + dt * rbd.forward_dynamics(model, q, v, torque)
        q = q + dt * v
    found = motion_of(env.advance(params, physics, action, key))
    np.testing.assert_allclose(found.q, q, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.v, v, rtol=1e-9, atol=1e-10)


def test_a_cart_pole_steps_on_a_mesh_with_explicit_axes(key):
    """JAX refuses operations of arrays with different shardings while it traces."""
    env, mesh = ENVIRONMENTS["CartPoleSwingUp"], jax.make_mesh((1,), ("batch",))
    params = env.default_params()
    state = jax.vmap(env.reset, (None, 0))(params, jax.random.split(key, 2))
    split = rbd.sharding.shard_batch((state, jnp.zeros((2, 1))), mesh)
    everywhere = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
    with jax.set_mesh(mesh):
        traced = jax.jit(jax.vmap(env.step, (None, 0, 0))).trace(everywhere, *split)
    assert [x.shape for x in traced.out_info.physics] == [(2, 2), (2, 2)]


def test_an_upright_cart_pole_has_the_reward_zero():
    env = ENVIRONMENTS["CartPoleSwingUp"]
    params = env.default_params()
    for angle in (0.0, 2 * np.pi, -4 * np.pi):
        motion = envs.Motion(jnp.array([0.0, angle]), jnp.zeros(2))
        terms = env.terms(params, motion, jnp.zeros(1), motion)
        assert jnp.abs(sum(terms.values())) < 1e-25
    hanging = envs.Motion(jnp.array([2.0, 3.0]), jnp.array([0.5, 4.0]))
    terms = env.terms(params, hanging, jnp.zeros(1), hanging)
    assert {k: float(x) for k, x in terms.items()} == {
        "angle": -9.0,
        "angular_velocity": -16.0,
        "position": -4.0,
        "velocity": -0.25,
    }


@pytest.mark.parametrize("angle", [3.3, 6.0, -3.0, -4.0, 10.0])
def test_the_reward_of_the_cart_pole_is_that_of_the_nearest_turn(angle):
    env = ENVIRONMENTS["CartPoleSwingUp"]
    motion = envs.Motion(jnp.array([0.0, angle]), jnp.zeros(2))
    found = env.terms(None, motion, jnp.zeros(1), motion)["angle"]
    np.testing.assert_allclose(found, -(np.arccos(np.cos(angle)) ** 2), rtol=1e-9)


@pytest.mark.gives_nan
def test_the_rewards_of_robots_without_legs(key):
    """Each term by its definition; it is that of the state after the step."""
    q, v, action = jnp.array([0.3, 0.7]), jnp.array([-0.2, 1.1]), jnp.array([0.4, -0.5])
    after, before = envs.Motion(q, v), envs.Motion(q * jnp.nan, v * jnp.nan)
    arm = ENVIRONMENTS["ArmReach"]
    arm_params = other_params("ArmReach")
    physics = arm.initial(arm_params, key)
    tool = rbd.frame_placement(arm_params.model, physics.motion.q, "tool").p
    aside = envs.ArmPhysics(
        envs.Motion(physics.motion.q, jnp.arange(7.0)), tool + jnp.array([0.3, 0.0, 0.4])
    )
    hopper = ENVIRONMENTS["Hopper"].default_params()._replace(target=jnp.array(0.8))
    for name, params, motion, actions, expected in (
        ("CartPoleSwingUp", None, (before, after), action[:1], {"position": -(0.3**2)}),
        (
            "DoublePendulumSwingUp",
            None,
            (before, after),
            action,
            {"angular_velocity": -(0.2**2 + 1.1**2), "action": -(0.4**2 + 0.5**2)},
        ),
        (
            "ArmReach",
            arm_params,
            (jax.tree.map(lambda x: x * jnp.nan, aside), aside),
            jnp.full(7, 0.5),
            {"distance": -0.5, "precision": np.exp(-((0.5 / 0.6) ** 2)), "velocity": -91}
            | {"action": -7 / 4},
        ),
        (
            "Hopper",
            hopper,
            (before, after),
            action[:1],
            {"height": -(0.5**2), "action": -(0.4**2)},
        ),
    ):
        terms = ENVIRONMENTS[name].terms(params, motion[0], actions, motion[1])
        assert all(jnp.isfinite(x) for x in terms.values())
        for term, value in expected.items():
            np.testing.assert_allclose(terms[term], value, rtol=1e-9, err_msg=f"{name} {term}")


def test_an_upright_double_pendulum_has_the_reward_zero():
    env = ENVIRONMENTS["DoublePendulumSwingUp"]
    params = env.default_params()
    model = params.model

    def height(q):
        motion = envs.Motion(q, jnp.zeros(2))
        return env.terms(params, motion, jnp.zeros(2), motion)["height"]

    assert jnp.abs(height(jnp.array([np.pi, 0.0]))) < 1e-15
    q = jnp.array([0.4, 0.7])
    below = [
        rbd.frame_placement(model, x, "lower_rod").p[2]
        + (rbd.frame_placement(model, x, "lower_rod").R @ jnp.array([0, 0, -1.0]))[2]
        for x in (jnp.array([np.pi, 0.0]), q)
    ]
    elbow = [rbd.frame_placement(model, x, "lower_rod").p[2] for x in (jnp.array([np.pi, 0.0]), q)]
    expected = (below[1] - below[0]) + (elbow[1] - elbow[0])
    np.testing.assert_allclose(height(q), expected, rtol=1e-12)


def test_the_arm_can_reach_its_target(key):
    env = ENVIRONMENTS["ArmReach"]
    params = env.default_params()
    state = env.reset(params, key)
    reach = rbd.frame_placement(params.model, rbd.neutral(params.model), "joint_2").p
    assert jnp.linalg.norm(state.physics.target - reach) < 0.86
    tool = rbd.frame_placement(params.model, state.physics.motion.q, "tool").p
    at_target = state.physics._replace(target=tool)
    terms = env.terms(params, at_target, jnp.zeros(7), at_target)
    assert (terms["distance"], terms["precision"]) == (0, 1)
    away = state.physics._replace(target=tool + jnp.array([0.3, 0.0, 0.4]))
    np.testing.assert_allclose(
        env.terms(params, away, jnp.zeros(7), away)["distance"], -0.5, rtol=1e-12
    )


# --------------------------------------------------------------------------------------- contact


@pytest.fixture(scope="module")
def hop():
    """A compiled episode of 40 steps of the hopper: the motion after each step."""
    env = envs.Hopper()
    return jax.jit(lambda params, actions, key: states(env, actions, key, params).physics)


@pytest.mark.slow
def test_a_hopper_can_jump_above_its_target(hop):
    """It bends its leg and stretches it. Without the ground it would fall."""
    params = envs.Hopper().default_params()
    actions = jnp.where(jnp.arange(40) < 15, -1.0, 1.0)[:, None]
    height, leg = hop(params, actions, jax.random.key(1)).q.T
    assert jnp.min(height - leg - 0.5) > 0.03 - 1e-3
    assert jnp.max(height) > params.target


@pytest.mark.slow
def test_a_hopper_in_flight(hop):
    """The centre of mass falls freely, and the leg reaches its target."""
    params = envs.Hopper().default_params()
    params = params._replace(start=jnp.array([4.0, 0.05, 0.1, 0.1]), stroke=jnp.array(0.1))
    motion = hop(params, jnp.full((40, 1), 0.5), jax.random.key(2))
    assert jnp.all(motion.q[:, 0] - motion.q[:, 1] > 0.6)
    fall = jnp.diff(motion.v @ jnp.array([1.0, -0.3 / 3.3]))
    np.testing.assert_allclose(fall, 0.02 * params.model.gravity[2], rtol=1e-6)
    np.testing.assert_allclose(motion.q[20:, 1], 0.1 * 0.5, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [envs.Hopper, envs.QuadrupedStand])
def test_the_smoothing_of_contact_is_in_the_program(kind):
    env = kind(smoothing=0.0123)
    params, key = env.default_params(), jax.random.key(0)
    physics = jax.eval_shape(env.initial, params, key)
    program = jax.make_jaxpr(env.advance)(params, physics, jnp.zeros(env.action_size), key)
    assert "0.0123" in str(program)


FOUR = {
    "model.inertia": envs.Scale(0.9, 1.1, per_row=True),
    "scene.material.friction": envs.Uniform(0.6, 1.0),
    "control.stiffness": envs.Scale(0.9, 1.1),
    "delay.lag": envs.Uniform(0.0, 3.0),
}
N = 4


@pytest.fixture(scope="module")
def trot():
    """The trot on hills: the environment, its parameters, and a compiled rollout of 25 steps.

    The parameters are not the usual ones.
    """
    env = envs.QuadrupedTrot(episode_steps=20, rough=True)
    other = {
        "stroke": 0.4,
        "start": [0.08, 0.12],
        "tilt": 0.8,
        "low": 0.17,
        "command": [0.5, 0.3, 0.4],
        "gait": [0.4, 0.05],
    }
    params = env.default_params()
    params = params._replace(**{name: jnp.array(x) for name, x in other.items()})
    axes = envs.randomise(params, FOUR, jax.random.key(0), N).axes
    batch = envs.vectorize(envs.auto_reset(env), axes)

    @jax.jit
    def run(params, key, scale):
        shape = (25, N, env.action_size)
        actions = scale * jax.random.uniform(key, shape, minval=-1, maxval=1)
        start = batch.reset(params, jax.random.split(key, N))
        return start, states(batch, actions, jax.random.split(key, N), params)

    return env, params, run


@pytest.mark.slow
def test_masses_friction_gains_and_delays_vary_in_one_program(trot, key):
    """Environment i differs in the i-th of these parameters, and only its motion changes."""
    _, params, run = trot
    usual = envs.randomise(params, dict.fromkeys(FOUR, lambda key, x: x), key, N).params
    drawn = envs.randomise(params, FOUR, key, N).params
    before = run(usual, key, 1.0)[1].physics.q[:15]
    for i, name in enumerate(FOUR):
        x = envs.randomisation._leaf(usual, name)
        x = x.at[i].set(envs.randomisation._leaf(drawn, name)[i])
        usual = envs.randomisation._replaced(usual, name, x)
        change = jnp.max(jnp.abs(run(usual, key, 1.0)[1].physics.q[:15] - before), axis=(0, 2))
        assert (change > 1e-6).tolist() == [k <= i for k in range(N)]
    assert run._cache_size() == 1


@pytest.mark.slow
def test_episodes_of_a_trot_with_other_parameters(trot, key):
    _, params, run = trot
    found = [
        run(envs.randomise(params, FOUR, k, N).params, key, 1.0)[1]
        for k in jax.random.split(key, 2)
    ]
    for x in jax.tree.leaves(found):
        assert jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) or jnp.all(jnp.isfinite(x))
    assert found[0].truncated.sum() + found[0].terminated.sum() >= N
    q = found[0].physics.q[10], found[1].physics.q[10]
    assert jnp.min(jnp.max(jnp.abs(q[0] - q[1]), axis=1)) > 1e-4
    assert len(np.unique(found[0].physics.command[:, :, 0])) >= 2 * N  # one command per episode


@pytest.fixture(scope="module")
def starts(trot):
    """The physics at the start of 16 episodes of the trot."""
    env, params, _ = trot
    keys = jax.random.split(jax.random.key(0), 16)
    return on_host(jax.jit(jax.vmap(env.initial, (None, 0)))(params, keys))


@pytest.mark.slow
def test_a_quadruped_starts_near_its_home(trot, starts):
    """All random numbers differ, and each is within its range."""
    params = on_host(trot[1])
    for x, width in (
        (starts.q[:, 7:] - params.home[None, 7:], 0.08),
        (starts.v, 0.12),
        (starts.command, np.array([[0.5, 0.3, 0.4]])),
    ):
        assert np.all(np.abs(x) <= width + 1e-12)
        assert np.max(np.abs(x / width)) > 0.9
    drawn = (
        (starts.q[:, 7:] - params.home[None, 7:]) / 0.08,
        starts.v / 0.12,
        starts.command / width,
    )
    drawn = np.round(np.concatenate([x.ravel() for x in drawn]), 9)
    assert len(np.unique(drawn)) == drawn.size
    for part in (slice(0, 2), slice(3, 7)):  # the base is upright above the origin
        np.testing.assert_array_equal(starts.q[:, part], np.tile(params.home[part], (16, 1)))


def test_the_soles_of_the_humanoid_are_the_lower_faces_of_its_feet():
    params = ENVIRONMENTS["HumanoidStand"].default_params()
    model, scene = params.model, params.scene
    found = set()
    for frame, offset in zip(scene.frames, scene.offsets):
        sole = rbd.frame_placement(model, params.home, frame)
        found.add((frame, *np.round(sole.p + sole.R @ offset, 6).tolist()))
    expected = set()
    for side in ("left", "right"):
        foot = rbd.frame_placement(model, params.home, f"{side}_foot")
        (geometry,) = model.geometry.collisions[f"{side}_foot"]
        R, p = geometry.placement[:3, :3], geometry.placement[:3, 3]
        for corner in ((1, 1, -1), (1, -1, -1), (-1, 1, -1), (-1, -1, -1)):
            corner = foot.p + foot.R @ (p + R @ (np.array(corner) * geometry.shape.half_sizes))
            expected.add((f"{side}_sole", *np.round(corner, 6).tolist()))
    assert found == expected


@pytest.fixture(scope="module")
def first(starts):
    return jax.tree.map(lambda x: x[0], starts)


def test_a_quadruped_starts_on_the_ground(trot, starts):
    """The lowest foot touches the hills: within 0.1 mm after the corrections of the height."""
    assert np.ptp(trot[1].scene.ground.heights) > 0.01
    assert np.max(np.abs(np.min(starts.distance, axis=1))) < 1e-4


@pytest.mark.slow
def test_the_quadruped_stands_with_the_action_zero(trot, key):
    _, params, run = trot
    start, found = run(envs.randomise(params, FOUR, key, N).params, key, 0.0)
    assert not jnp.any(found.terminated)
    assert jnp.max(jnp.abs(jnp.min(start.physics.distance, axis=1))) < 1e-4
    assert jnp.max(jnp.abs(found.physics.distance[18])) < 0.01  # all feet are on the ground


@pytest.mark.slow
def test_a_delay_of_one_and_two_steps_of_control(trot, key):
    """With a delay of n steps, the motion depends on the actions from step n + 1 on."""
    _, params, run = trot
    delayed = envs.randomise(params, FOUR, key, N).params
    lags = jnp.array([0.0, 5.0, 10.0, 9.0])
    delayed = envs.randomisation._replaced(delayed, "delay.lag", lags)
    first, second = (np.asarray(run(delayed, key, scale)[1].physics.q)[:3] for scale in (0.0, 1.0))
    depends = np.any(first != second, axis=-1)
    assert depends[:, 0].tolist() == [True, True, True]
    assert depends[:, 1].tolist() == [False, True, True]
    assert depends[:, 2].tolist() == [False, False, True]
    assert depends[:, 3].tolist() == [False, True, True]


def test_a_quadruped_that_fell_has_failed(trot, first):
    (env, params, _), physics = trot, first
    compiled = jax.jit(lambda physics: env.failed(params, physics))
    elevation = jax.jit(lambda point: params.scene.ground.elevation(point))

    def failed(entries, values):
        q = np.array(physics.q)
        q[entries] = values
        return compiled(physics._replace(q=q))

    ground = np.asarray(elevation(physics.q[:2]))
    assert not failed(2, physics.q[2])
    for height in (0.16, 0.18):
        assert failed(2, ground + height) == (height < 0.17)
    quaternion = slice(3, 7)
    for tilt in (0.75, 0.85):
        turn = [0.0, np.sin(tilt / 2), 0.0, np.cos(tilt / 2)]
        assert failed(quaternion, turn) == (tilt > 0.8)
    assert failed(quaternion, [1.0, 0.0, 0.0, 0.0])
    assert failed(quaternion, [0.0, 0.6, 0.0, 0.8])


def test_the_reward_of_a_perfect_trot(trot, first):
    """The velocity is the command, and two diagonal feet are at the top of their step."""
    (env, params, _), physics = trot, first
    period, height = params.gait
    perfect = physics._replace(
        q=params.home,
        v=jnp.zeros(18).at[:2].set(physics.command[:2]).at[5].set(physics.command[2]),
        time=period / 4,
        distance=height * jnp.array([1.0, 0.0, 0.0, 1.0]),
    )
    compiled = jax.jit(env.terms)
    terms = compiled(params, perfect, physics.action, perfect)
    best = {"alive": 1, "velocity": 1, "turning": 1}
    assert {name: float(x) for name, x in terms.items()} == {
        name: best.get(name, 0) for name in terms
    }
    late = perfect._replace(time=3 * period / 4)
    np.testing.assert_allclose(compiled(params, late, physics.action, late)["gait"], -1)


def test_the_reward_of_a_trot_with_errors(trot, first):
    """Each term by its definition, in a tilted posture with wrong velocities."""
    (env, params, _), physics = trot, first
    command = physics.command
    wrong = jnp.array([0.3, -0.4, 0.2, 0.1, -0.3, 0.5])  # of the base
    half = 0.05  # half the angle of the tilt
    q = params.home.at[3].set(np.sin(half)).at[6].set(np.cos(half)).at[7:9].add(0.2)
    v = jnp.full(18, 2.0).at[:6].set(wrong).at[:2].add(command[:2]).at[5].add(command[2])
    after = physics._replace(
        q=q,
        v=v,
        time=params.gait[0] / 4,
        distance=params.gait[1] * jnp.array([0.5, 0.0, 0.2, 1.0]),
        last_action=jnp.full(12, 0.25),
    )
    terms = jax.jit(env.terms)(params, physics, np.full(12, 0.75), after)
    expected = {
        "alive": 1,
        "upright": -(np.sin(2 * half) ** 2),
        "posture": -2 * 0.2**2,
        "joint_velocity": -12 * 2.0**2,
        "action_rate": -12 * 0.5**2,
        "gait": -(0.5**2 + 0.2**2) / 4,
        "velocity": np.exp(-1),
        "turning": np.exp(-1),
        "bounce": -(0.2**2 + 0.1**2 + 0.3**2),
    }
    assert set(terms) == set(expected)
    for name, x in terms.items():
        np.testing.assert_allclose(x, expected[name], rtol=1e-9, err_msg=name)


def test_what_the_quadruped_observes(trot, key):
    env, params, _ = trot
    start = env.initial(params, jax.random.key(2))
    angle = 0.3
    q = start.q.at[3:7].set(jnp.array([np.sin(angle / 2), 0, 0, np.cos(angle / 2)]))
    physics = start._replace(
        q=q, v=jnp.arange(18.0), action=jnp.arange(12.0) / 12, time=0.1 * params.gait[0]
    )
    expected = [
        [0, -np.sin(angle), -np.cos(angle)],  # the direction of gravity after a roll
        np.arange(6.0),
        q[7:] - params.home[7:],
        np.arange(6.0, 18.0),
        np.arange(12.0) / 12,
        start.command,
        [np.sin(0.2 * np.pi), np.cos(0.2 * np.pi)],
    ]
    found = env.observe(params, physics, key)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-9, atol=1e-15)
    loud = params._replace(noise=dataclasses.replace(params.noise, std=jnp.ones(())))
    change = env.observe(loud, physics, key) - found
    assert jnp.all(change[:45] != 0)
    assert not jnp.any(change[45:])  # the command and the clock have no noise


@pytest.mark.slow
def test_the_targets_of_the_quadruped_are_strokes_about_its_home(trot, key):
    _, params, run = trot
    fixed = FOUR | {"delay.lag": envs.Uniform(0.0, 0.0)}
    fixed = envs.randomise(params, fixed, key, N).params
    _, found = run(fixed, key, 1.0)
    # Before the ends of episodes.
    physics = jax.tree.map(lambda x: x[:10], on_host(found.physics))
    params = on_host(params)
    targets = params.home[None, None, 7:] + params.stroke * physics.action
    np.testing.assert_allclose(physics.past[:, :, 0], targets, rtol=1e-12)
    np.testing.assert_array_equal(physics.last_action[1:], physics.action[:-1])
    np.testing.assert_allclose(physics.time[:, 0], 0.02 * np.arange(1, 11), rtol=1e-9)
    # The joints move by their mean velocity times the time step.
    v = (physics.v[1:, :, 6:] + physics.v[:-1, :, 6:]) / 2
    change = np.diff(physics.q[:, :, 7:], axis=0)
    np.testing.assert_allclose(np.sum(change * v) / np.sum(v * v), 0.02, rtol=0.3)


@pytest.mark.documents
def test_the_examples_of_the_guide_run():
    examples = pages.blocks("environments.md")
    assert len(examples) == 13
    exec("\n".join(examples), {})


def test_the_axes_of_parameters_have_a_text():
    """Models whose leaves are None."""
    distributions = {"model.gravity": envs.Uniform(np.zeros(3), np.ones(3))}
    params = ENVIRONMENTS["CartPoleSwingUp"].default_params()
    found = envs.randomise(params, distributions, jax.random.key(0), 2)
    assert "dtype=None" in repr(found.axes.model)
    assert "frames=" in repr(found)
