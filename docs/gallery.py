"""The motions of docs/gallery.md: `python docs/gallery.py` writes their pictures.

`python docs/gallery.py walk CHECKPOINT` stores a walk by a policy of `jaxrbd train humanoid-walk`.
The hook `site_pages.py` calls `write_pages` when the site is built, and adds a page that plays each
motion.
"""

import functools
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from jaxrbd import actuators, contact, envs, integrators, inverse_kinematics as ik, learning, view
from jaxrbd.collision import Box, PlacedShape
from jaxrbd.joints import FreeFlyer
from jaxrbd.model import JointSpec, Link, link_inertia

WALK_STEP = 0.02  # s, of the environment


def landing():
    """A quadruped falls 0.2 m and stands: the model, q (T, nq) and the time step."""
    model = jaxrbd.load_robot("quadruped").with_dissipation()
    feet = [name for name in model.frame_names if name.endswith("_foot")]
    scene = contact.Scene(feet, 0.02, material=contact.Material(friction=0.7))
    legs = model.joint_names[1:]
    gains = actuators.PD.for_joints(model, legs, stiffness=60.0, damping=2.0, effort=40.0)
    angles = {"hip": 0.0, "thigh": 0.8, "knee": -1.6}
    bent = jnp.array([angles[name.split("_")[-2]] for name in legs])
    standing = jaxrbd.neutral(model).at[7:].set(bent).at[2].set(0.55)

    def advance(state, _):
        servo = contact.Servo(gains, standing)
        step = contact.contact_step(model, scene, *state, jnp.zeros(model.nv), 0.004, servo=servo)
        return (step.q, step.v), step.q

    start = standing, jnp.zeros(model.nv).at[4].set(0.8)
    _, q = jax.jit(lambda start: jax.lax.scan(advance, start, length=500))(start)
    return model, q, 0.004


def circle():
    """The tool of an arm follows a circle, by differential inverse kinematics."""
    model = jaxrbd.load_robot("arm7")
    start = 0.3 * model.upper_position_limit
    X = jaxrbd.frame_placement(model, start, "tool")
    dt, times = 0.02, jnp.linspace(0, 2 * jnp.pi, 150)

    def advance(q, t):
        p = X.p + 0.15 * jnp.stack([jnp.zeros_like(t), jnp.sin(t), jnp.cos(t) - 1])
        v = ik.differential_inverse_kinematics(
            model, q, [ik.FrameTask("tool", jaxrbd.Pose(X.R, p))], dt
        )
        q = jaxrbd.integrate(model, q, dt * v)
        return q, q

    _, q = jax.jit(lambda q: jax.lax.scan(advance, q, times))(start)
    return model, q, dt


def pendulums():
    """Five double pendulums that start almost alike: q (5, T, nq)."""
    model = jaxrbd.load_robot("double_pendulum")

    def acceleration(q, v):
        return jaxrbd.forward_dynamics(model, q, v, jnp.zeros_like(v))

    def step(q, v, _):
        return integrators.runge_kutta_munthe_kaas(model, acceleration, q, v, 0.01)

    def simulate(angle):
        q = jnp.stack([angle, angle])
        return integrators.rollout(step, (q, jnp.zeros_like(q)), jnp.zeros(600))[0]

    return model, jax.jit(jax.vmap(simulate))(jnp.linspace(2.8, 2.88, 5)), 0.01


FOLDER = pathlib.Path(__file__).parent
STORED = FOLDER / "motions"


def stored(name, robot, dt=0.025):
    """A motion of `benchmarks/studies/legged_motions.py` or `store_walk`, which takes minutes."""
    return jaxrbd.load_robot(robot), np.load(STORED / f"{name}.npy"), dt


def store_walk(checkpoint):
    """Store 8 s of a policy. The command rises and falls: 0.2, 0.8, 0.8, 0.1 and 0.6 m/s."""
    env = envs.HumanoidWalk()
    params = env.default_params()
    policy = learning.load_training(checkpoint).policy()
    times = WALK_STEP * np.arange(400)
    forward = np.interp(times, [0, 2, 4, 6, 8], [0.2, 0.8, 0.8, 0.1, 0.6])

    def advance(state, forward):
        command = jnp.zeros(3).at[0].set(forward)
        physics = state.physics._replace(command=command.astype(params.model.dtype))
        state = env.step(params, state._replace(physics=physics), policy(state.observation))
        return state, (state.physics.q, state.terminated)

    @jax.jit
    def walk(key):
        return jax.lax.scan(advance, env.reset(params, key), jnp.asarray(forward))[1]

    q, terminated = walk(jax.random.key(0))
    assert not np.any(terminated)
    np.save(STORED / "walk.npy", np.asarray(q[::2], np.float32))


def found_contacts(name, dt):
    """A motion of `benchmarks/studies/contact_motions.py`, which has the robot."""
    if (root := str(FOLDER.parent)) not in sys.path:
        sys.path.append(root)
    from benchmarks.studies import contact_motions as study

    model = study.MOTIONS[name].problem(study.DT).dynamics.model
    return model, np.load(STORED / f"{name}.npy"), dt


def g1():
    """A walk of G1 by `benchmarks/studies/humanoid.py`: each body is a box with a free joint."""
    found = np.load(STORED / "g1.npz")
    links, joints = [], []
    for i, moments in enumerate(found["inertia"]):
        links.append(Link(f"box_{i}", link_inertia(1.0, inertia_com=np.diag(moments))))
        joints.append(JointSpec(f"place_{i}", FreeFlyer(), None, f"box_{i}"))
    return jaxrbd.build_model(links, joints), found["q"], 0.04


MOTIONS = {
    "landing": landing,
    "circle": circle,
    "pendulums": pendulums,
    "push": functools.partial(found_contacts, "push", 0.03),
    "step": functools.partial(found_contacts, "step", 0.015),
    "stand_up": functools.partial(stored, "stand_up", "quadruped"),
    "turn": functools.partial(stored, "turn", "quadruped"),
    "trot": functools.partial(stored, "trot", "quadruped"),
    "catch": functools.partial(stored, "catch", "humanoid"),
    "walk": functools.partial(stored, "walk", "humanoid", 2 * WALK_STEP),
    "g1": g1,
}


def write_pages(folder):
    """Write one page per motion to a folder, and return their paths."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, motion in MOTIONS.items():
        model, q, dt = motion()
        paths.append(folder / f"{name}.html")
        view.save_html(paths[-1], model, q, dt=dt, markers=MARKERS.get(name, ()))
    return paths


def write_pictures(folder):
    """Write one picture per motion to a folder: four frames side by side."""
    import matplotlib.pyplot as plt

    for name, motion in MOTIONS.items():
        model, q, _ = motion()
        look = {"width": 220, "height": 200, "markers": MARKERS.get(name, ()), **CAMERAS[name]}
        pictures = [view.render(model, q[..., i, :], **look) for i in FRAMES[name]]
        path = pathlib.Path(folder) / f"gallery_{name}.png"
        plt.imsave(path, np.concatenate(pictures, axis=1))


# what is drawn besides the robot: the step of 0.2 m
MARKERS = {
    "step": [
        view.Obstacles(
            [PlacedShape(Box([0.4, 0.3, 0.1]), X_FS=jaxrbd.Pose(np.eye(3), [0.75, 0.0, 0.1]))]
        )
    ]
}
# the indices of the frames of each picture, and the camera
FRAMES = {
    "landing": (0, 35, 60, 499),
    "circle": (5, 45, 85, 120),
    "pendulums": (0, 70, 250, 480),
    "push": (0, 10, 20, 40),
    "step": (0, 60, 70, 80),
    "stand_up": (0, 4, 8, 40),
    "turn": (0, 14, 27, 40),
    "trot": (0, 14, 27, 40),
    "catch": (0, 8, 16, 40),
    "walk": (96, 103, 110, 117),
    "g1": (10, 16, 22, 28),
}
CAMERAS = {
    "landing": {"target": (0.1, 0.0, 0.33), "distance": 1.5},
    "circle": {"target": (0.15, 0.0, 0.45), "distance": 2.2},
    "pendulums": {
        "target": (0.0, 0.0, 0.0),
        "distance": 5.0,
        "camera": (0.3, -1.0, 0.1),
        "ground": False,
    },
    "push": {"target": (0.05, 0.0, 0.1), "distance": 1.1, "camera": (0.3, -1.0, 0.2)},
    "step": {"target": (0.35, 0.0, 0.45), "distance": 2.4, "camera": (0.3, -1.0, 0.15)},
    "stand_up": {"target": (0.0, 0.0, 0.2), "distance": 1.5},
    "turn": {"target": (0.0, 0.0, 0.2), "distance": 1.4},
    "trot": {"target": (0.2, 0.0, 0.2), "distance": 1.6, "camera": (0.3, -1.0, 0.15)},
    "catch": {"target": (-0.05, -0.05, 0.85), "distance": 4.8},
    "g1": {"target": (3.35, -0.58, 0.6), "distance": 3.0, "camera": (0.5, -1.0, 0.15)},
    "walk": {"target": (2.1, 0.06, 0.8), "distance": 3.4, "camera": (0.3, -1.0, 0.15)},
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["walk"]:
        store_walk(sys.argv[2])
    else:
        write_pictures(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
