"""Values that functions of several rooms refuse, by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import (
    actuators,
    collision,
    constraints,
    contact,
    envs,
    frames,
    identification,
    io,
    optimal_control,
    tendons,
    view,
)
from support import zoo

ARM = rbd.load_robot("double_pendulum")
SAMPLES = np.zeros((30, ARM.nv))


def started(episode_steps):
    env = envs.CartPoleSwingUp(episode_steps=episode_steps)
    return env.reset(env.default_params(), jax.random.key(0))


def fitted(max_steps):
    return identification.identify_consistent_inertia(
        ARM, SAMPLES, SAMPLES, SAMPLES, SAMPLES, max_steps=max_steps
    )


def fitted_parameters(measurements):
    return identification.identify_parameters(lambda p: p * jnp.ones(3), 1.0, measurements)


def shooting(**options):
    return optimal_control.contact_shooting(ARM, contact.Scene((TIP,)), **options)


def rollout(steps):
    return rbd.integrators.rollout(lambda x: (x,), (np.zeros(1),), steps=steps)


def locked_sphere():
    ball = zoo.build(["spherical"], [-1])
    return rbd.model.lock_joints(ball, {ball.joint_names[0]: np.zeros(4)})


TIP = ARM.frame_names[-1]
ROPE = tendons.FixedTendon("rope", {ARM.joint_names[0]: 1.0})
BALL = collision.PlacedShape(collision.Sphere(0.1), None, np.zeros(3))
PAST = actuators.Delay(1.0, 2).init((np.zeros(2), np.zeros(3)))
SKEWED = [[1.0, 9.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
REFUSED = {
    "mass is -1.0, expected a finite number": lambda: ARM.with_mass(ARM.body_names[0], -1.0),
    "mass is nan": lambda: ARM.with_mass(ARM.body_names[0], np.nan),
    "mass is inf, expected finite": lambda: ARM.with_payload(TIP, np.inf),
    "expected a symmetric matrix": lambda: ARM.with_payload(TIP, 1.0, inertia_com=SKEWED),
    "on is 'off', expected True or False": lambda: ARM.with_dissipation("off"),
    "has a zero quaternion": locked_sphere,
    "prefix is None, expected a text": lambda: rbd.model.append_model(ARM, ARM, prefix=None),
    "poses is ['a'], expected a mapping": lambda: rbd.model.place_frames(ARM, ["a"]),
    "measured is array([0.+1.j": lambda: fitted_parameters(np.ones(3) * 1j),
    "start has no entries": lambda: identification.identify_parameters(
        lambda p: jnp.ones(3), jnp.zeros(0), np.ones(3)
    ),
    "stiffness is [inf], expected 0 or more, and finite": lambda: tendons.Tendons(
        [ROPE], stiffness=[np.inf]
    ),
    "rest[:, 0] is [inf]": lambda: tendons.Tendons([ROPE], rest=[[np.inf, np.inf]]),
    "disabled has None, expected pairs": lambda: collision.pairs_of(ARM, disabled=[None]),
    "disabled has {'a'}": lambda: collision.pairs_of(ARM, disabled=[{"a"}]),
    "members has (0.0, 1.0)": lambda: collision.DistancePairs((BALL, BALL), ((0.0, 1.0),)),
    "shapes[0] is Sphere": lambda: collision.DistancePairs((BALL.shape, BALL), ((0, 1),)),
    "parts is 5, expected a mapping": lambda: io.save_model(ARM, "unused.jaxrbd", 5),
    "command[1] has shape (3,), expected (2,)": lambda: actuators.Delay([1.0, 2.0], 2).push(
        PAST, (np.zeros(2), np.zeros(3))
    ),
    "height is '3', expected an integer": lambda: view.show(ARM, height="3"),
    "width is True, expected a whole": lambda: view.render(ARM, width=True),
    "distance is 'a', expected": lambda: view.render(ARM, distance="a"),
    "dt is inf, expected a finite number": lambda: shooting(dt=np.inf),
    "recovery is inf, expected a finite": lambda: shooting(dt=0.01, recovery=np.inf),
    "path_or_text is 3, expected a path or a text": lambda: io.load_mjcf(3),
    "root_joint is ['free_flyer']": lambda: io.load_urdf("<robot/>", root_joint=["free_flyer"]),
    "episode_steps is 0": lambda: started(0),
    "episode_steps is 1.5": lambda: started(1.5),
    "episode_steps is nan": lambda: started(float("nan")),
    "dofs is (0.2, 0.7)": lambda: optimal_control.joint_torques(ARM, dofs=[0.2, 0.7]),
    "dofs is (True,)": lambda: optimal_control.joint_torques(ARM, dofs=[True]),
    "tolerance is nan": lambda: identification.base_parameters(ARM, float("nan")),
    "tolerance is -1.0": lambda: identification.base_parameters(ARM, -1.0),
    "max_steps is 0": lambda: fitted(0),
    "max_steps is 2.5": lambda: fitted(2.5),
    "steps is 2.5": lambda: rollout(2.5),
    "steps is True": lambda: rollout(True),
    "steps is -1": lambda: rollout(-1),
    "constraints is": lambda: constraints.close_loops(ARM, np.zeros(2), constraints.point(None, 0)),
    "axis is [0. 0. 0.]": lambda: constraints.hinge(None, 0, (0, 0, 0)),
    "a point is [ 0. nan  0.]": lambda: constraints.point(None, 0, (0, np.nan, 0)),
}


def test_a_robot_without_joints_has_no_momentum():
    model = rbd.model.lock_joints(ARM, dict.fromkeys(ARM.joint_names, 0.0))
    state = frames.State(model, jnp.zeros(0), jnp.zeros(0))
    np.testing.assert_array_equal(state.momentum().array, np.zeros(6))


@pytest.mark.parametrize("message", REFUSED)
def test_values_are_refused_by_name(message):
    with pytest.raises(rbd.ArgumentError) as error:
        REFUSED[message]()
    assert message in str(error.value)


@pytest.mark.parametrize("tag", ["group", "virtual_joint", "end_effector"])
def test_names_that_occur_twice_in_an_srdf_file_are_refused(tag):
    attributes = 'type="fixed" parent_frame="w" child_link="a" parent_link="a" group="g"'
    line = f'<{tag} name="x" {attributes}/>\n'
    with pytest.raises(rbd.RobotFileError, match=f"the {tag} on line 2 has the same name"):
        rbd.io.load_srdf(f'<robot name="r">\n{line}{line}</robot>', ARM)
