"""Values that functions of several rooms refuse, by name."""

import jax
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints, envs, identification, io, optimal_control

ARM = rbd.load_robot("double_pendulum")
SAMPLES = np.zeros((30, ARM.nv))


def started(episode_steps):
    env = envs.CartPoleSwingUp(episode_steps=episode_steps)
    return env.reset(env.default_params(), jax.random.key(0))


def fitted(max_steps):
    return identification.identify_consistent_inertia(
        ARM, SAMPLES, SAMPLES, SAMPLES, SAMPLES, max_steps=max_steps
    )


def rollout(steps):
    return rbd.integrators.rollout(lambda x: (x,), (np.zeros(1),), steps=steps)


REFUSED = {
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
