"""The joint positions of a gait, and the environments that follow them."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from jaxrbd import envs
from jaxrbd.envs import legged
from jaxrbd.errors import ArgumentError
from jaxrbd.joints import FreeFlyer, Revolute
from jaxrbd.model import JointSpec, Link, link_inertia, placement_matrix
from support import finite_differences

PERIOD, HEIGHT = 0.7, 0.08
GAIT = jnp.array([PERIOD, HEIGHT])
# Two feet, 0.1 m to both sides and 0.8 m below the base. The first one swings first.
PLACES = np.array([[0.05, 0.1, -0.8], [0.05, -0.1, -0.8]])
TURNING = np.array([1.0, 0, 0, -2, 3])
LOW, HIGH = np.array([-0.4, -0.2, -0.1]), np.array([0.4, 0.2, 0.3])


def affine_postures(weight) -> envs.GaitPostures:
    """Postures of two legs of two joints, which are affine functions of the displacement."""
    axes = [np.linspace(a, b, n) for a, b, n in zip(LOW, HIGH, (5, 3, 4))]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    legs = np.array([[1.0, 1, 0, 0, 0], [0, 0, 1, 1, 0]])
    phases = np.array([0.0, 0.5])
    return envs.GaitPostures(grid @ weight, LOW, HIGH, legs, PLACES, phases, TURNING, 9.81)


WEIGHT = np.random.default_rng(0).normal(size=(3, 5))
POSTURES = affine_postures(WEIGHT)
displacements = jax.jit(POSTURES.displacements)
joint_positions = jax.jit(POSTURES.joint_positions)


base_path = jax.jit(POSTURES.base_path)
RATE = np.sqrt(9.81 / 0.8)
COMMANDS = [(0.6, 0.0, 0.0), (-0.3, 0.2, 0.5)]


def paths(times, command):
    """The paths of the base and of both feet on the ground, (steps, 2) and (steps, 2, 3)."""
    command = jnp.array(command)
    base = np.array([base_path(GAIT, t, command) for t in times])
    feet = np.array([displacements(GAIT, t, command) for t in times]) + PLACES
    feet[..., :2] += base[:, None]
    return base, feet


@pytest.mark.parametrize("command", [(0.6, 0.0, 0.0), (-0.3, 0.2, 0.0)])
def test_standing_feet_do_not_move_on_the_ground(command):
    """The first foot stands in the second half of the period."""
    _, feet = paths(np.linspace(0.355, 0.695, 12), command)
    np.testing.assert_allclose(feet[:, 0], feet[:1, 0].repeat(12, axis=0), atol=1e-7)
    np.testing.assert_allclose(feet[:, 0], PLACES[:1].repeat(12, axis=0), atol=1e-7)


def test_turning_moves_each_foot_with_the_velocity_of_its_place():
    """From the start to the end of the time on the ground, minus this velocity times T / 2."""
    x, y, _ = PLACES[0]
    h, command = 1e-6, jnp.array([-0.3, 0.2, 0.5])
    start, end = (displacements(GAIT, t, command)[0] for t in (PERIOD / 2 + h, PERIOD - h))
    velocity = np.array([-0.3 - 0.5 * y, 0.2 + 0.5 * x, 0])
    np.testing.assert_allclose(end - start, -velocity * PERIOD / 2, atol=1e-5)


def test_standing_feet_do_not_turn_on_the_ground():
    """With the base that turns evenly, and one step of turning ahead after the swing."""
    command, rate = jnp.array([0.3, 0.1, 0.5]), 0.5
    stand, swing = np.linspace(0.351, 0.699, 7), np.linspace(0.001, 0.349, 7)

    def heading(t):
        return POSTURES.turns(GAIT, t, command)[0] + rate * t

    standing = np.array([heading(t) for t in stand])
    np.testing.assert_allclose(standing, standing[0], atol=1e-12)
    swinging = np.array([heading(t) for t in swing])
    assert np.all(np.diff(swinging) > 0)
    np.testing.assert_allclose(swinging[-1], standing[0], atol=1e-3)
    # Between two stands, the foot turns with the base: by the rate times the period.
    np.testing.assert_allclose(swinging[-1] - swinging[0], rate * PERIOD, atol=2e-3)
    # In the middle of the stand, the foot has the direction of the base.
    assert POSTURES.turns(GAIT, 0.75 * PERIOD, command)[0] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_base_is_a_pendulum_over_the_standing_foot(command):
    """Its acceleration, by differences; its mean velocity is that of the command."""
    h = 1e-3
    for foot, times in ((1, np.linspace(0.05, 0.3, 6)), (0, np.linspace(0.4, 0.65, 6))):
        before, at, after = (paths(times + d, command)[0] for d in (-h, 0, h))
        # A foot of the phase 1/2 stands in the first half, where the base leans towards it.
        standing = np.array([0, PLACES[foot, 1]])
        np.testing.assert_allclose(
            (before - 2 * at + after) / h**2, RATE**2 * (at - standing), atol=1e-4
        )
    start, end = (base_path(GAIT, t, jnp.array(command)) for t in (1e-9, PERIOD / 2 - 1e-9))
    np.testing.assert_allclose(end - start, np.array(command[:2]) * PERIOD / 2, atol=1e-6)
    # Over half a period, the sideways velocity is reversed; at the middle, the base is nearest.
    middle = base_path(GAIT, PERIOD / 4, jnp.zeros(3))
    lean = 0.1 * (1 - 1 / np.cosh(RATE * PERIOD / 4))
    np.testing.assert_allclose(middle, [0, -lean], atol=1e-9)
    assert 0.01 < lean < 0.03


def test_one_foot_and_two_feet_take_turns_in_another_gravity():
    places = np.array([[0.2, 0.1, -0.8], [0.0, -0.2, -0.8], [-0.1, 0.0, -0.8]])
    phases = np.array([0.0, 0.5, 0.5])
    postures = POSTURES._replace(places=places, phases=phases, gravity=1.62)
    standing = (np.mean(places[1:], axis=0) - places[0])[:2] / 2  # in the first half
    lean = standing * (1 - 1 / np.cosh(np.sqrt(1.62 / 0.8) * PERIOD / 4))
    for time, sign in ((PERIOD / 4, 1), (3 * PERIOD / 4, -1)):
        found = postures.base_path(GAIT, time, jnp.zeros(3))
        np.testing.assert_allclose(found, sign * lean, atol=1e-12)


def test_swinging_feet_move_two_steps_and_rise_to_the_height_of_a_step():
    times = np.linspace(0, PERIOD / 2, 41)
    _, feet = paths(np.append(times[:-1], times[-1] - 1e-9), (0.6, 0.0, 0.0))
    first, second = np.moveaxis(feet - PLACES, 1, 0)
    step = 0.6 * PERIOD / 2
    np.testing.assert_allclose(first[[0, 20, 40], 0], [-step, 0, step], atol=1e-7)
    np.testing.assert_allclose(first[20], [0, 0, HEIGHT], atol=1e-7)
    assert np.all(np.diff(first[:21, 2]) > 0)
    assert np.all(np.diff(first[20:, 2]) < 0)
    # Both at lift-off and at touch-down, the foot has no velocity on the ground.
    for end in (first[1] - first[0], first[-1] - first[-2]):
        np.testing.assert_allclose(end / times[1], 0, atol=0.12)
    np.testing.assert_allclose(second, 0, atol=1e-7)


def test_positions_between_the_grid_are_linear_and_belong_to_the_leg():
    home, command = jnp.arange(5.0), jnp.array([0.5, 0.1, 0.2])
    for time in (0.05, 0.2, 0.5):
        feet, turns = displacements(GAIT, time, command), POSTURES.turns(GAIT, time, command)
        first = feet[0] @ WEIGHT[:, :2] + turns[0] * TURNING[:2]
        second = feet[1] @ WEIGHT[:, 2:4] + turns[1] * TURNING[2:4]
        expected = np.concatenate([first, second, home[4:]])
        found = joint_positions(GAIT, time, command, home)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        again = joint_positions(GAIT, time + 3 * PERIOD, command, home)
        np.testing.assert_allclose(again, found, atol=1e-6)


def test_beyond_the_grid_the_nearest_posture_is_taken():
    fast = joint_positions(GAIT, 0.0, jnp.array([9.0, 0, 0]), jnp.zeros(5))
    expected = np.append(LOW[:1], [0, 0]) @ WEIGHT[:, :2], np.append(HIGH[:1], [0, 0]) @ WEIGHT
    np.testing.assert_allclose(fast[:2], expected[0], atol=1e-9)
    np.testing.assert_allclose(fast[2:4], expected[1][2:4], atol=1e-9)


@pytest.mark.slow
def test_the_gait_has_derivatives(rng):
    home = jnp.zeros(5)

    def total(time, command):
        return jnp.sum(joint_positions(GAIT, time, command, home) ** 2)

    time, command = 0.23, jnp.array([0.3, 0.1, 0.2])
    of_time, of_command = jax.grad(total, (0, 1))(time, command)
    slope = finite_differences.central(lambda h: total(time + h, command), 1e-6)
    np.testing.assert_allclose(of_time, slope, rtol=1e-5)
    for i, e in enumerate(np.eye(3)):
        slope = finite_differences.central(lambda h, e=e: total(time, command + h * e), 1e-6)
        np.testing.assert_allclose(of_command[i], slope, rtol=1e-5, atol=1e-8)


# ---------------------------------------------------------------------- robots

LEG = """
<body name="{side}_thigh" pos="0 {y} 0">
  <joint name="{side}_roll" axis="1 0 0" range="-1 1"/>
  <joint name="{side}_hip" axis="0 1 0" range="-2 2"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.2" mass="0.4"/>
  <body name="{side}_shank" pos="0 0 -0.2">
    <joint name="{side}_knee" axis="0 1 0" range="0 2"/>
    <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.2" mass="0.2"/>
    <body name="{side}_toe" pos="0 0 -0.2">
      <geom type="sphere" size="0.02" mass="0.1" contype="2"/>
    </body>
  </body>
</body>
"""
BIPED = (
    """
<mujoco model="biped">
  <compiler angle="radian"/>
  <option timestep="0.004" integrator="implicitfast"/>
  <default><joint armature="0.02" damping="0.3"/><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" conaffinity="2"/>
    <body name="trunk" pos="0 0 1"><freejoint/>
      <geom type="box" size="0.1 0.1 0.1" mass="4"/>
      <body name="head" pos="0 0 0.1">
        <joint name="neck" axis="0 0 1"/><geom type="sphere" size="0.05" mass="0.2"/>
      </body>"""
    + LEG.format(side="left", y=0.1)
    + LEG.format(side="right", y=-0.1)
    + "</body></worldbody><actuator>"
    + "".join(
        f'<position joint="{joint}" kp="60" kv="2"/>'
        for joint in (
            "neck",
            *(f"{side}_{x}" for side in ("left", "right") for x in ("roll", "hip", "knee")),
        )
    )
    + """</actuator>
  <keyframe><key name="bent" qpos="0 0 0.4 1 0 0 0 0 0 -0.5 1 0 -0.5 1"/></keyframe>
</mujoco>
"""
)
SETTINGS = {"keyframe": "bent", "stroke": 0.1, "phases": (0.0, 0.5), "follows_gait": True}


@pytest.fixture(scope="module")
def walk():
    pytest.importorskip("mujoco")
    return envs.MjcfWalk(BIPED, **SETTINGS)


@pytest.fixture(scope="module")
def params(walk):
    return walk.default_params()


def test_the_joints_put_the_feet_at_their_displacements(walk, params):
    """The feet by forward kinematics; the error is that of the interpolation."""
    model, command = params.model, jnp.array([0.4, 0.1, 0.2])
    postures, home = params.postures, params.home
    feet = [f"{side}_toe" for side in ("left", "right")]
    np.testing.assert_allclose(
        postures.places, [jaxrbd.frame_placement(model, home, f).p - home[:3] for f in feet]
    )
    center = jax.jit(walk.center)
    for time in np.linspace(0, 0.65, 6):
        q = home.at[7:].set(center(params, time, command))
        found = np.array([jaxrbd.frame_placement(model, q, foot).p for foot in feet])
        wanted = postures.displacements(params.gait, time, command) + postures.places + home[:3]
        np.testing.assert_allclose(found, wanted, atol=6e-3)
        assert q[7] == home[7]  # the neck is in no leg


def test_the_place_of_the_base_does_not_enter(params):
    """A posture that is turned by 1 rad and stands elsewhere has the same joint positions."""
    turned = params.home.at[:7].set([3.0, 2, 1, 0, 0, np.sin(0.5), np.cos(0.5)])
    found = envs.gait_postures(params.model, turned, ["left_toe", "right_toe"], [0.0, 0.5])
    np.testing.assert_allclose(found.positions, params.postures.positions, atol=1e-9)
    np.testing.assert_allclose(found.places, params.postures.places, atol=1e-12)


def test_the_targets_of_the_servos_are_those_of_the_gait_and_the_action(
    walk, params, key, monkeypatch
):
    seen = []

    def motionless(model, scene, q, v, tau, dt, *, servo, **options):
        seen.append(servo.error)
        return types.SimpleNamespace(q=q, v=v, distance=jnp.zeros(2))

    monkeypatch.setattr(legged, "contact_step", motionless)
    monkeypatch.setattr(legged, "repeat", lambda step, state, count: step(state))
    start = walk.initial(params, key)
    action = jnp.linspace(-1, 1, 7)
    after = walk.advance(params, start, action, key)
    assert after.time == start.time + 0.02
    center = walk.center(params, after.time, after.command)
    assert jnp.max(jnp.abs(center - params.home[7:])) > 0.01
    np.testing.assert_allclose(seen[0][6:], center + 0.1 * action - start.q[7:], atol=1e-12)
    terms = walk.terms(params, start, action, after)
    np.testing.assert_allclose(terms["posture"], -jnp.sum((after.q[7:] - center) ** 2))
    # The observation is from the posture at rest, which does not change with time.
    observed = walk.observe(params, after, key)
    np.testing.assert_allclose(observed[9:16], after.q[7:] - params.home[7:])


def test_an_episode_starts_at_any_moment_of_the_gait(walk, params, key):
    """With its joint positions, its velocities and the velocity of the command.

    The home posture may be an array of NumPy.
    """
    calm = params._replace(start=jnp.zeros(2), command=jnp.array([0.5, 0.2, 0.3]))
    calm = calm._replace(home=np.asarray(params.home))
    initial = jax.jit(jax.vmap(lambda key: walk.initial(calm, key)))
    found = initial(jax.random.split(key, 64))
    times, period = np.asarray(found.time), float(params.gait[0])
    assert 0 <= times.min() < 0.1 * period
    assert 0.9 * period < times.max() < period
    center, walk_path = jax.jit(walk.center), jax.jit(params.postures.base_path)
    for i in range(4):
        time, command, h = found.time[i], found.command[i], 1e-6
        np.testing.assert_allclose(found.q[i, 7:], center(params, time, command))
        np.testing.assert_array_equal(found.past[i][0], found.q[i, 7:])
        change = center(params, time + h, command) - center(params, time - h, command)
        np.testing.assert_allclose(found.v[i, 6:], change / (2 * h), atol=1e-5)
        path = walk_path(params.gait, time + h, command) - walk_path(params.gait, time - h, command)
        np.testing.assert_allclose(found.v[i, :2], path / (2 * h), atol=1e-5)
        np.testing.assert_array_equal(found.v[i, 2:6], [0, 0, 0, command[2]])
    np.testing.assert_allclose(found.distance.min(axis=1), 0, atol=1e-9)


def test_an_episode_fails_at_a_small_tilt_or_below_most_of_the_height(walk, params):
    def fails(height, tilt):
        q = params.home.at[2].set(height).at[3].set(np.sin(tilt / 2)).at[6].set(np.cos(tilt / 2))
        physics = walk.initial(params, jax.random.key(0))._replace(q=q)
        return bool(walk.failed(params, physics))

    height = float(params.low) / 0.7  # of the base, above the ground
    assert abs(height - (0.4 * np.cos(0.5) + 0.02)) < 1e-3
    assert [fails(height, 0.4), fails(height, 0.6)] == [False, True]
    assert [fails(0.75 * height, 0.0), fails(0.65 * height, 0.0)] == [False, True]


def test_the_gait_is_a_setting_and_no_constant_center_is_stated(walk, params):
    assert walk.settings()["follows_gait"] is True
    still = envs.MjcfWalk(BIPED, **SETTINGS | {"follows_gait": False})
    found = still.default_params()
    assert found.postures is None
    assert walk.interface(params).center is None
    assert still.interface(found).gait is None
    np.testing.assert_array_equal(still.interface(found).center, found.home[7:])
    at = still.center(found, jnp.zeros(()), jnp.ones(3))
    np.testing.assert_array_equal(at, found.home[7:])
    assert still.initial(found, jax.random.key(0)).time == 0


def test_wrong_gaits_are_refused(params):
    model, home = params.model, params.home
    with pytest.raises(ArgumentError, match=r"phases has 0.0 and 0.5 for 'left_toe', expected one"):
        envs.gait_postures(model, home, ["left_toe", "right_toe", "left_toe"], [0.0, 0.5, 0.5])
    with pytest.raises(ArgumentError, match="phases has 1 values, expected 2, one per frame"):
        envs.gait_postures(model, home, ["left_toe", "right_toe"], [0.0])
    with pytest.raises(ArgumentError, match="joint 'left_roll' moves two feet, expected a leg"):
        envs.gait_postures(model, home, ["left_toe", "left_shank"], [0.0, 0.5])
    with pytest.raises(ArgumentError, match="the foot 'left_thigh' is not below the base"):
        envs.gait_postures(model, home, ["left_thigh", "right_toe"], [0.0, 0.5])
    with pytest.raises(ArgumentError, match=r"phases has 0.25 for 'right_toe', expected 0"):
        envs.gait_postures(model, home, ["left_toe", "right_toe"], [0.0, 0.25])
    with pytest.raises(ArgumentError, match=r"the feet have the phases \[0.5\], expected 0"):
        envs.gait_postures(model, home, ["left_toe", "right_toe"], [0.5, 1.5])
    weightless = dataclasses.replace(model, gravity=jnp.zeros(3))
    with pytest.raises(ArgumentError, match="the gravity of the model is 0, expected"):
        envs.gait_postures(weightless, home, ["left_toe", "right_toe"], [0.0, 0.5])
    arm = jaxrbd.load_robot("arm7")
    with pytest.raises(ArgumentError, match="expected a free-flying base and then joints of one"):
        envs.gait_postures(arm, jaxrbd.neutral(arm), ["tool"], [0.0])
    with pytest.raises(ArgumentError, match=r"q has shape \(3,\)"):
        envs.gait_postures(model, home[:3], ["left_toe"], [0.0])
    with pytest.raises(ArgumentError, match=r"the command \(nan, 0, 0\) .* feet along x up to nan"):
        params.postures.check_command(params.gait, jnp.array([np.nan, 0, 0], params.model.dtype))
    message = r"the command \(3, 0, 0\) .* feet along x up to .* m, expected at most"
    with pytest.raises(ArgumentError, match=message):
        envs.MjcfWalk(BIPED, **SETTINGS | {"command": (3.0, 0.0, 0.0)})
    with pytest.raises(ArgumentError, match=r"the leg of 'left_shank' cannot lift the foot by 0.0"):
        envs.gait_postures(model, home, ["left_shank", "right_shank"], [0.0, 0.5])
    with pytest.raises(ArgumentError, match="phases is None, expected the phase of each contact"):
        envs.MjcfWalk(BIPED, **SETTINGS | {"phases": None})
    narrow = BIPED.replace(
        '<position joint="left_knee"', '<position ctrlrange="0.8 1.2" joint="left_knee"'
    )
    message = r"stroke is 0.1 for the joint 'left_knee': actuator .*, expected from 0.8 to 1.2"
    with pytest.raises(ArgumentError, match=message):
        envs.MjcfWalk(narrow, **SETTINGS)
    envs.MjcfWalk(narrow, **SETTINGS | {"follows_gait": False})


def test_padded_robots_follow_no_gait(walk):
    with pytest.raises(ArgumentError, match="'biped' has postures, which can't be padded"):
        envs.PaddedWalk((walk,))


def test_a_leg_of_six_joints_holds_and_turns_its_foot():
    inertia = link_inertia(1.0, (0, 0, 0), np.eye(3))
    links, joints = [Link("trunk", inertia)], [JointSpec("base", FreeFlyer(), None, "trunk")]
    kinds, heights = np.eye(3)[[2, 0, 1, 1, 1, 0]], [0, 0, 0, -0.3, -0.3, 0]
    for side, y in (("left", 0.1), ("right", -0.1)):
        above = "trunk"
        for i, (axis, height) in enumerate(zip(kinds, heights)):
            placement = placement_matrix((0, y if i == 0 else 0, height))
            links.append(Link(f"{side}{i}", inertia))
            joints.append(JointSpec(f"{side}{i}", Revolute(axis), above, f"{side}{i}", placement))
            above = f"{side}{i}"
    model = jaxrbd.build_model(links, joints)
    bent = jnp.array([0, 0, -0.5, 1.0, -0.5, 0])
    home = jaxrbd.neutral(model).at[7:].set(jnp.tile(bent, 2))
    found = envs.gait_postures(model, home, ["left5", "right5"], [1.0, -0.5])
    np.testing.assert_array_equal(found.phases, [0, 0.5])

    def foot(positions):
        return jaxrbd.frame_placement(model, home.at[7:].set(positions), "left5")

    rest = foot(home[7:])
    turned = foot(home[7:] + 0.1 * found.turning)
    np.testing.assert_allclose(turned.p, rest.p, atol=1e-4)
    np.testing.assert_allclose(turned.R, jaxrbd.so3.exp(jnp.array([0, 0, 0.1])) @ rest.R, atol=1e-4)
    moved = foot(found.positions[5, 3, 2])
    shares = np.array([5 / 8, 3 / 4, 2 / 5])  # of the grid, whose size is 9 x 5 x 6
    step = found.low + (found.high - found.low) * shares
    np.testing.assert_allclose(moved.p - rest.p, step, atol=1e-5)
    np.testing.assert_allclose(moved.R, rest.R, atol=1e-5)


def test_legs_of_three_joints_do_not_turn_their_feet(params):
    np.testing.assert_array_equal(params.postures.turning, 0)


@pytest.mark.slow
@pytest.mark.parametrize("command", [(0.6, 0.0, 0.0), (0.0, 0.0, 0.5)])
def test_the_humanoid_walks_on_the_spot_of_its_command(key, command):
    """The soles turn with the command, and the robot has the gait of the environment."""
    env = envs.HumanoidWalk()
    params = env.default_params()
    model, home, command = params.model, params.home, jnp.array(command)
    soles = [name for name in model.frame_names if name.endswith("_sole")]
    for time in np.linspace(0, 0.65, 6):
        q = home.at[7:].set(env.center(params, time, command))
        wanted = params.postures.displacements(params.gait, time, command)
        turns = params.postures.turns(params.gait, time, command)
        for sole, displacement, turn in zip(soles, wanted, turns):
            at, rest = (jaxrbd.frame_placement(model, x, sole) for x in (q, home))
            np.testing.assert_allclose(at.p - rest.p, displacement, atol=0.012)
            turned = jaxrbd.so3.exp(jnp.array([0, 0, turn]))
            np.testing.assert_allclose(at.R, turned @ rest.R, atol=0.05)
    state = env.reset(params, key)
    assert state.observation.shape == (101,)
    after = env.step(params, state, jnp.zeros(29))
    assert not after.terminated
    assert set(after.reward_terms) == set(params.weights)


def test_the_biped_of_this_file_is_bilaterally_symmetric(params):
    """Half a period later, the left leg moves as the right leg did: so no phase is exchanged."""
    home, postures, command = params.home[7:], params.postures, jnp.array([0.4, 0.0, 0.0])
    first = postures.joint_positions(params.gait, 0.1, command, home)
    later = postures.joint_positions(params.gait, 0.1 + params.gait[0] / 2, command, home)
    mirror = np.array([-1.0, 1, 1])  # of the roll, the hip and the knee
    np.testing.assert_allclose(later[4:], mirror * first[1:4], atol=1e-5)
