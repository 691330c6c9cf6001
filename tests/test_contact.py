"""Contact: the laws, energy and derivatives of both models, and a robot that lands."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, spatial, tree
from jaxrbd.contact import Height, Material, Plane, Scene, branches, newton
from jaxrbd.contact.coulomb import ContactLaw
from jaxrbd.contact.joint_terms import ClippedLaw
from jaxrbd.model.joint_space import independent_joint_force
from support import zoo
from support.finite_differences import slope
from support.turning import in_first_axes
from support.zoo import close

G = 9.81
DT = 5e-3


class Bumps(eqx.Module):
    """A wavy ground with parameters."""

    size: jax.Array
    waves: jax.Array

    def __call__(self, xy):
        return self.size[0] + self.size[1] * jnp.sin(jnp.sum(self.waves * xy)) * jnp.cos(xy[0])


BUMPS = Bumps(jnp.array([0.1, 0.2]), jnp.array([2.0, -1.5]))
MATERIAL = Material(stiffness=3e3, dissipation=0.7, friction=0.6, slip_speed=0.2)
FLAT = Plane((0.3, -0.2, 2.0))


def shifted(scene, by):
    """The scene with its ground moved along the outward normal."""
    if isinstance(scene.ground, Plane):
        return eqx.tree_at(lambda s: s.ground.offset, scene, scene.ground.offset + by)
    return eqx.tree_at(
        lambda s: s.ground.height.size, scene, scene.ground.height.size.at[0].add(by)
    )


def spheres(model, ground, seed=0):
    """Three spheres on frames of a robot of the zoo, two of them on one frame."""
    rng = np.random.default_rng(seed)
    n = model.nb - 1
    frames = (f"l{n}", "l0", f"l{n}")
    return Scene(frames, [0.05, 0.0, 0.02], 0.2 * rng.normal(size=(3, 3)), ground, MATERIAL)


@jax.jit
def distances(model, scene, q):
    return contact.contact_points(model, scene, q, jnp.zeros(model.nv)).distance


def scenes(model, ground, seed=0, touching=2):
    """A state, and a scene in which the given number of the three spheres penetrate the ground."""
    q, v, tau, f_ext = zoo.state(model, seed)
    scene = spheres(model, ground, seed)
    order = jnp.sort(distances(model, scene, q))
    return q, v, tau, f_ext, shifted(scene, jnp.mean(order[touching - 1 : touching + 1]))


@pytest.fixture(scope="module")
def model():
    return zoo.small()


def body(joint, mass=2.0, radius=0.1, gravity=(0, 0, -G)):
    """One body, a ball."""
    inertia = rbd.model.link_inertia(mass, (0, 0, 0), 0.4 * mass * radius**2 * np.eye(3))
    spec = rbd.model.JointSpec("joint", joint, None, "ball")
    return rbd.build_model([rbd.model.Link("ball", inertia)], [spec], gravity=gravity)


POINT = body(rbd.joints.Translation())
ON_PLANE = Scene(("ball",), material=Material(1e4, 0.5, 0.6, 0.05))


@pytest.mark.gives_nan
def test_one_kernel_computes_the_steps_of_a_batch(monkeypatch):
    """Points that fall, slide and leave the ground; a problem above the limit has no kernel."""
    push = jnp.array([[0.0, 0.0, -0.05], [2.0, -1.0, -0.6], [0.0, 0.0, 4.0]])
    normal, target = jnp.array([[0.0, 0.0, 1.0]]), jnp.zeros((1, 3))
    law = ContactLaw(normal, jnp.full(1, 50.0), target, jnp.full(1, 0.6), jnp.zeros((1, 0, 3)))
    joints = ClippedLaw(*(jnp.full((1, 3), x) for x in (0.3, 0.1, -1.0, 1.0)))
    others = ClippedLaw(*(jnp.zeros((1, 0)) for _ in range(4)))
    J, K = jnp.eye(3)[None], jnp.zeros((0, 3))
    partition = branches.whole(3, 1)

    def minima(way):
        def minimum(push):
            problem = newton.Problem(2 * jnp.eye(3), push, 0 * push, law, J, joints, others, K)
            return newton.minimise(partition, problem).x

        with tree.implementation(way):
            return jax.jit(jax.vmap(minimum))(push)

    kernels = []
    monkeypatch.setattr(newton, "map_states", lambda *a: kernels.append(a) or tree.map_states(*a))
    expected = np.asarray(minima("scan"))
    assert np.all(np.abs(expected[1] - np.asarray(push)[1] / 2)[:2] > 0.1)  # friction acts
    close(minima("interpreted kernels"), expected, 1e-12)
    assert len(kernels) == 2

    monkeypatch.setattr(newton, "KERNEL_ENTRIES", 23)  # of 6 rows and 4 columns
    close(minima("interpreted kernels"), expected, 1e-12)
    assert len(kernels) == 2


# ---------------------------------------------------------------------- both models, all at once


@jax.jit
def evaluate(model, scene, q, v, tau, f_ext):
    """All quantities in the laws of forces and impulses, in one program."""
    points = contact.contact_points(model, scene, q, v)
    force = contact.contact_force(model, scene, q, v)
    step = contact.contact_step(model, scene, q, v, tau, DT, f_ext)

    @jax.vmap
    def on_bodies(forces):
        """The same forces by `external_force`, one frame after another."""
        total = jnp.zeros((model.nb, 6))
        for i, frame in enumerate(scene.frames):
            lever = points.position[i] - rbd.frame_placement(model, q, frame).p
            wrench = jnp.concatenate([forces[i], jnp.cross(lever, forces[i])])
            total = total + rbd.external_force(model, q, frame, wrench)
        return total

    world = force.normal_force[:, None] * points.normal + force.friction_force
    forces, impulses = on_bodies(jnp.stack([world, step.impulse]))
    wrenches = jnp.stack([f_ext, f_ext + impulses / DT])
    on_joints = independent_joint_force(model, q, step.joint_impulse.total)
    taus = jnp.stack([tau, tau + on_joints / DT])
    a = jax.vmap(rbd.forward_dynamics, (None, None, None, 0, 0))(model, q, v, taus, wrenches)
    start, after = in_first_axes(model, v, step.v, DT)
    free, again = start + DT * a
    return {
        "points": points,
        "force": force,
        "step": step,
        "joint power": jnp.sum(on_joints * after),
        "f_ext": forces,
        "v": after,
        "again": again,
        "after": contact.contact_points(model, scene, q, after).velocity,
        "kinetic": jax.vmap(rbd.kinetic_energy, (None, None, 0))(
            model, q, jnp.stack([free, after])
        ),
    }


@jax.jit
def powers(model, scene, q, v, tau):
    """The rate of a robot's energy on compliant ground, and the power of the ground's spring."""
    f_ext = contact.contact_force(model, scene, q, v).f_ext
    a = rbd.forward_dynamics(model, q, v, tau, f_ext)

    def energy(t):
        q_t, v_t = rbd.integrate(model, q, t * v), v + t * a
        mechanical = rbd.kinetic_energy(model, q_t, v_t) + rbd.potential_energy(model, q_t)
        return mechanical + contact.contact_energy(model, scene, q_t)

    still = jnp.zeros_like(v)
    f_ext = contact.contact_force(model, scene, q, still).f_ext
    pushed = rbd.gravity_force(model, q) - rbd.algorithms.static_torque(model, q, f_ext)
    spring = rbd.gradient(model, lambda q: contact.contact_energy(model, scene, q))(q)
    return jax.jvp(energy, (0.0,), (1.0,))[1], spring, -pushed


@jax.jit
def motion(model, scene, q, v):
    """The points, the rates of distances and centers along the motion, velocities at the points."""

    def centers(t):
        points = contact.contact_points(model, scene, rbd.integrate(model, q, t * v), v)
        return points.distance, points.position + scene.radii[:, None] * points.normal

    points = contact.contact_points(model, scene, q, v)
    point_velocities, center_velocities = [], []
    for i, frame in enumerate(scene.frames):
        V = rbd.frame_velocity(model, q, v, frame)
        lever = points.position[i] - rbd.frame_placement(model, q, frame).p
        point_velocities.append(V[:3] + jnp.cross(V[3:], lever))
        center_velocities.append(
            V[:3] + jnp.cross(V[3:], lever + scene.radii[i] * points.normal[i])
        )
    rates = jax.jvp(centers, (0.0,), (1.0,))[1]
    return points, rates, jnp.stack(point_velocities), jnp.stack(center_velocities)


@pytest.mark.parametrize(
    "ground",
    [pytest.param(FLAT, marks=pytest.mark.slow), Height(BUMPS)],
    ids=["plane", "height"],
)
def test_distances_change_as_the_points_move(model, ground):
    q, v, *_, scene = scenes(model, ground)
    points, (rate, center_rate), velocity, center_velocity = motion(model, scene, q, v)
    close(jnp.sum(points.gradient * points.velocity, axis=-1), rate, 1e-12, "rate of the distance")
    close(points.velocity, velocity, 1e-12, "velocity")
    close(center_rate, center_velocity, 1e-12, "velocity of the centre")


CASES = [("small", Height(BUMPS)), ("following", FLAT)]


@pytest.mark.slow
@pytest.mark.parametrize(("robot", "ground"), CASES, ids=["height", "plane, joints that follow"])
def test_the_laws_of_both_models(robot, ground):
    model = getattr(zoo, robot)()
    for seed in range(4):
        q, v, tau, f_ext, scene = scenes(model, ground, seed, 1 + seed % 2)
        found = evaluate(model, scene, q, v, tau, f_ext)
        points, force, step = found["points"], found["force"], found["step"]
        depth = jnp.maximum(-points.distance, 0)
        length = jnp.linalg.norm(points.gradient, axis=-1)
        rate = jnp.sum(points.gradient * points.velocity, axis=-1)
        slip = (
            points.velocity
            - jnp.sum(points.normal * points.velocity, axis=-1)[:, None] * points.normal
        )

        # The compliant law: bodies and frames, Coulomb's cone, energy never increases.
        close(force.f_ext, found["f_ext"], 1e-12, "on the bodies")
        assert jnp.all((force.normal_force > 0) == (depth > 0))
        size = jnp.linalg.norm(force.friction_force, axis=-1)
        speed = jnp.linalg.norm(slip, axis=-1)
        smooth = speed / jnp.sqrt(speed**2 + 0.2**2)
        close(size, 0.6 * force.normal_force * smooth, 1e-12, "friction")
        damping = (force.normal_force / length - 3e3 * depth**2) * rate
        friction = jnp.sum(force.friction_force * points.velocity, axis=-1)
        assert jnp.all(damping <= 0)
        assert jnp.all(friction <= 0)
        if robot == "small":
            power, spring, pushed = powers(model, scene, q, v, tau)
            work = jnp.sum(tau * v) + jnp.sum(damping) + jnp.sum(friction)
            close(power, work, 1e-11, "power")
            close(spring, pushed, 1e-11, "the spring's potential")

        # The step: momentum, Coulomb's cone, no penetration, energy never increases.
        assert step.residual < 1e-12
        close(found["again"], found["v"], 1e-10, "the impulses make the step")
        normal = jnp.sum(step.impulse * points.normal, axis=-1)
        across = jnp.linalg.norm(step.impulse - normal[:, None] * points.normal, axis=-1)
        limit = 0.6 * normal
        assert jnp.all(across <= limit + 1e-12 + 1e-14 * limit)  # the impulses reach 1e7 N s
        target = -points.distance / (length * jnp.where(points.distance < 0, DT + 0.02, DT))
        power = jnp.sum(step.impulse * found["after"], axis=-1)
        assert jnp.all(power <= normal * jnp.maximum(target, 0) + 1e-12)
        free, after = found["kinetic"]
        assert after <= free + jnp.sum(power) + found["joint power"] + 1e-12


def test_the_inverse_inertia_is_the_mean_over_the_sphere(model):
    """Of the inverse inertia at single points, in the neutral configuration."""
    scene = spheres(model, FLAT, 3)
    found, joints, _ = contact.inverse_inertias(model, scene)
    q = rbd.neutral(model)
    inverse = np.linalg.inv(rbd.crba(model, q))
    close(joints, np.diag(inverse), 1e-12)
    # The corners of an octahedron have the second moments of the sphere.
    corners = np.concatenate([np.eye(3), -np.eye(3)])
    for i, frame in enumerate(scene.frames):
        J = np.asarray(rbd.frame_jacobian(model, q, frame, "world"))
        pose = jax.device_get(rbd.frame_placement(model, q, frame))
        centre = pose.R @ scene.offsets[i] + pose.p
        means = []
        for corner in corners:
            position = centre + scene.radii[i] * corner
            at_point = J[:3] + np.cross(J[3:].T, position).T
            means.append(np.trace(at_point @ inverse @ at_point.T) / 3)
        close(np.asarray(found)[i], sum(means) / 6, 1e-12)


@pytest.mark.slow
def test_a_prepared_scene_gives_the_same_step(model):
    q, v, tau, f_ext, scene = scenes(model, FLAT, 1)
    scales = contact.inverse_inertias(model, scene)
    prepared = dataclasses.replace(scene, inverse_inertia=scales)
    step = contact.contact_step(model, scene, q, v, tau, DT, f_ext)
    same = contact.contact_step(model, prepared, q, v, tau, DT, f_ext)
    assert jnp.any(step.impulse != 0)
    for x, y in zip(jax.tree.leaves(same), jax.tree.leaves(step), strict=True):
        close(x, y, 1e-12)
    # Twice the inverse inertia has the effect of twice the regularisation.
    soft = dataclasses.replace(prepared, inverse_inertia=jax.tree.map(lambda x: 2 * x, scales))
    step = contact.contact_step(model, scene, q, v, tau, DT, f_ext, regularisation=2e-3)
    close(contact.contact_step(model, soft, q, v, tau, DT, f_ext).v, step.v, 1e-12)


def test_each_contact_has_its_friction():
    """Two points of one body that slide: the compliant friction of each by its coefficient."""
    mu = np.array([0.2, 0.9])
    scene = Scene(("ball",) * 2, material=Material(1e4, 0.5, mu, 0.05))
    q, v = jnp.array([0, 0, -0.01]), jnp.array([3.0, 0, 0])
    force = jax.jit(contact.contact_force)(POINT, scene, q, v)
    smooth = 3 / np.sqrt(9 + 0.05**2)
    close(force.friction_force[:, 0], -mu * smooth * force.normal_force, 1e-13)


@pytest.mark.slow
def test_friction_of_each_contact(model):
    """One coefficient per contact: the coefficient of all contacts, and its effect on one."""
    q, v, tau, f_ext, scene = scenes(model, FLAT, 4)
    step = contact.contact_step(model, scene, q, v, tau, DT, f_ext)
    force = contact.contact_force(model, scene, q, v)
    sliding = np.flatnonzero(
        [
            x == "slips"
            for x in regimes(scene, contact.contact_points(model, scene, q, v), step.impulse)
        ]
    )
    assert len(sliding)

    def with_friction(mu):
        return dataclasses.replace(scene, material=dataclasses.replace(MATERIAL, friction=mu))

    same = with_friction(np.full(3, 0.6))
    close(contact.contact_step(model, same, q, v, tau, DT, f_ext).v, step.v, 1e-13)
    close(contact.contact_force(model, same, q, v).f_ext, force.f_ext, 1e-13)
    # Compliant friction is proportional to the coefficient of its contact.
    mu = np.array([0.2, 0.5, 0.9])
    friction = contact.contact_force(model, with_friction(mu), q, v).friction_force
    close(friction, force.friction_force * mu[:, None] / 0.6, 1e-13)
    assert np.count_nonzero(np.any(friction, axis=1)) > 1
    mu = np.full(3, 0.6)
    mu[sliding[0]] = 0.1
    other = contact.contact_step(model, with_friction(mu), q, v, tau, DT, f_ext)
    points = contact.contact_points(model, scene, q, v)
    normal = jnp.sum(other.impulse * points.normal, axis=-1)
    across = jnp.linalg.norm(other.impulse - normal[:, None] * points.normal, axis=-1)
    close(across[sliding[0]], 0.1 * normal[sliding[0]], 1e-12)


def contact_laws(rng, n, spins):
    """Laws of n contacts, of which the first four cannot move, and velocities of their points.

    `spins`: the number of velocities of torsional and rolling friction.
    """
    normal = rng.normal(size=(n, 3))
    normal = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    conductance = np.abs(rng.normal(size=n)) * (np.arange(n) > 3)
    numbers = normal, conductance, rng.normal(size=(n, 3 + spins)), np.full(n, 0.7)
    law = ContactLaw(*map(jnp.asarray, (*numbers, rng.normal(size=(n, spins, 3)))))
    return law, jnp.asarray(rng.normal(size=(n, 3 + spins)))


def parts_along(normal, x):
    """The parts of vectors along the normals, and the lengths of the parts across them."""
    normal = np.pad(normal, ((0, 0), (0, x.shape[1] - 3)))
    normal_part = np.sum(x * normal, axis=1)
    return normal_part, np.linalg.norm(x - normal_part[:, None] * normal, axis=1)


@pytest.mark.parametrize("spins", [0, 3])
def test_an_impulse_is_the_nearest_point_of_the_cone(rng, spins):
    """The rest of y is orthogonal to the impulse, and forms no acute angle with the cone."""
    law, u = contact_laws(rng, 1000, spins)
    y = np.array(law.conductance[:, None] * (law.target - u))
    impulse = np.array(jax.jit(ContactLaw.impulses)(law, u))
    normal = np.array(law.normal)
    pushed, rubbed = parts_along(normal, impulse)
    assert np.all(rubbed <= 0.7 * pushed + 1e-12)
    close(np.sum((y - impulse) * impulse, axis=1), np.zeros(1000), 1e-12)
    normal_rest, tangent_rest = parts_along(normal, y - impulse)
    assert np.all(normal_rest + 0.7 * tangent_rest <= 1e-12)


@pytest.mark.parametrize("spins", [0, 3])
def test_the_hessian_of_the_contact_law(rng, spins):
    """Against the derivative of the impulses: sticking, sliding, leaving, immobile points."""
    n = 200
    law, u = contact_laws(rng, n, spins)
    vectors = jnp.asarray(rng.normal(size=(n, 3 + spins, 5)))

    @jax.jit
    def found(u):
        def change(x):
            return jax.jvp(law.impulses, (u,), (x,))[1]

        changes = -jax.vmap(change, 2, 2)(vectors)
        slopes = -jax.grad(law.penalty)(u)
        return law.impulses(u), law.hessian_product(u, vectors), changes, slopes

    impulse, product, changes, slopes = found(u)
    gamma_n, gamma_t = parts_along(np.array(law.normal), np.array(impulse))
    on_edge = np.abs(gamma_t - 0.7 * gamma_n) < 1e-12
    assert {*zip(gamma_n > 1e-9, on_edge)} == {(True, True), (True, False), (False, True)}
    close(product, changes, 1e-12)
    # The impulse is the negative gradient of the penalty, which is 0 where nothing can move.
    close(impulse, slopes, 1e-12)
    immobile = np.array(law.conductance) == 0
    assert np.any(immobile)
    still = law._replace(conductance=jnp.zeros(n))
    assert still.penalty(u) == 0


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_contacts_without_tangential_velocity(mu):
    """One approaches and one leaves the ground; a third one touches it at rest."""
    up = jnp.array([[0.0, 0.0, 1.0]] * 3)
    u = jnp.array([-2.0, 2.0, 0.0])[:, None] * up
    law = ContactLaw(up, jnp.full(3, 3.0), 0 * up, jnp.full(3, mu), jnp.zeros((3, 0, 3)))
    close(law.impulses(u), [[0, 0, 6.0], [0, 0, 0], [0, 0, 0]])
    pushed, apart, _ = law.hessian_product(u, jnp.array([np.eye(3)] * 3))
    close(pushed, 3 * np.eye(3) if mu else np.diag([0.0, 0.0, 3.0]))
    close(apart, np.zeros((3, 3)))


# ------------------------------------------------------------------------- the step of a point mass


@jax.jit
def step_of_a_point(state, direction, smoothing, force):
    """A step from (q, v, tau, dt), and its derivative in one direction."""

    def step(q, v, tau, dt):
        f_ext = jnp.concatenate([force, jnp.zeros(3)])[None]
        return contact.contact_step(
            POINT, ON_PLANE, q, v, tau, dt, f_ext, 1e-3, 0.02, smoothing=smoothing
        )

    return jax.jvp(step, state, direction)


NO_FORCE = jnp.zeros(3)


def state_of_a_point(height, speed, slip):
    q, v = jnp.array([0.3, -0.2, height]), jnp.array([slip, 0.1 * slip, speed])
    return q, v, jnp.array([0.2, -0.1, 0.3]), jnp.asarray(DT)


# Name: height, vertical speed, horizontal speed.
POINTS = {"apart": (0.1, -1.0, 0.4), "sticks": (0.001, -0.5, 0.02), "slips": (-0.001, -0.3, 2.0)}


def test_the_laws_of_the_step_of_a_point_mass():
    """Momentum, Coulomb's cone and the distance after the step, with a force of the wind."""
    wind = jnp.array([0.5, -0.4, 0.2])
    for kind, numbers in POINTS.items():
        state = state_of_a_point(*numbers)
        step = step_of_a_point(state, state, 0.05, wind)[0]
        pushed = DT * (state[2] + wind - jnp.array([0, 0, 2 * G]))
        close(2 * (step.v - state[1]), pushed + step.impulse[0], 1e-12, "momentum")
        normal, across = step.impulse[0, 2], jnp.linalg.norm(step.impulse[0, :2])
        assert normal >= 0
        if kind == "apart":
            assert normal == 0
            assert step.q[2] > 0
        else:
            assert normal > 0
            assert (across < (0.6 - 1e-9) * normal) == (kind == "sticks")
        if kind == "slips":
            close(step.impulse[0, :2], -0.6 * normal * step.v[:2] / jnp.linalg.norm(step.v[:2]))


def test_the_derivatives_of_the_step_of_a_point_mass():
    """In q, v, tau and dt, compared with differences. The ground has no effect on a point apart."""
    direction = (
        jnp.array([0.3, -0.2, 0.01]),
        jnp.array([0.03, 0.02, -0.2]),
        jnp.array([0.5, 0.4, -0.3]),
        jnp.asarray(1e-3),
    )
    for numbers in POINTS.values():
        state = state_of_a_point(*numbers)

        def moved(t):
            moved_state = jax.tree.map(lambda x, dx: x + t * dx, state, direction)
            step = step_of_a_point(moved_state, direction, 1e-3, NO_FORCE)[0]
            return step.q, step.v, step.impulse

        found = step_of_a_point(state, direction, 1e-3, NO_FORCE)[1]
        for ours, theirs in zip((found.q, found.v, found.impulse), slope(moved)):
            close(ours, theirs, 1e-8)


def test_the_smoothed_derivatives_of_the_step_of_a_point_mass():
    """A fall at another speed loses the share exp(-d / smoothing), with d after the step."""
    regularisation, length = 1e-3, 0.05
    still = jax.tree.map(jnp.zeros_like, state_of_a_point(0, 0, 0))
    faster = (still[0], jnp.array([0, 0, 1.0]), *still[2:])
    for height, speed in ((0.01, 0.4), (0.1, -1.0), (0.5, -1.0)):
        step, rate = step_of_a_point(state_of_a_point(height, speed, 0.2), faster, length, NO_FORCE)
        share = np.exp(-float(step.q[2]) / length)
        assert jnp.all(step.impulse == 0)
        close(rate.v, jnp.array([0, 0, 1 - share / (1 + regularisation * share)]), 1e-9)


# ------------------------------------------------------------------- derivatives before touch-down


@jax.jit
def falling(height, v, smoothing, vertical):
    """The vertical velocity after a step of a falling ball, in one direction of derivatives."""

    def after(scale):
        at = jnp.array([0.0, 0.0, height]) + scale * (1 - vertical) * jnp.array([0, 0, 1.0])
        speed = jnp.array([0.2, 0.0, v]) + scale * vertical * jnp.array([0, 0, 1.0])
        still = jnp.zeros(3)
        return contact.contact_step(POINT, ON_PLANE, at, speed, still, DT, smoothing=smoothing)

    step, rate = jax.jvp(after, (0.0,), (1.0,))
    return step, rate.v, jax.grad(lambda scale: after(scale).v[2])(0.0)


@pytest.mark.slow
def test_smoothed_derivatives_before_touch_down():
    """The share exp(-d / smoothing), in both modes; the step itself does not change."""
    regularisation, length = 1e-3, 0.05
    for height, v in ((0.01, 0.4), (0.1, -1.0), (0.5, -1.0), (-0.001, 0.7)):
        step, rate, gradient = falling(height, v, length, 1.0)
        plain = contact.contact_step(
            POINT, ON_PLANE, jnp.array([0.0, 0, height]), jnp.array([0.2, 0, v]), jnp.zeros(3), DT
        )
        close(step.v, plain.v, 1e-15)
        assert jnp.all(step.impulse == 0)
        share = np.exp(-max(height + DT * float(step.v[2]), 0) / length)
        if height < 0:
            share = np.exp(-DT / (DT + 0.02) * (height + (DT + 0.02) * float(step.v[2])) / length)
        expected = 1 - share / (1 + regularisation * share)
        close(rate, jnp.array([0, 0, expected]), 1e-9)
        close(gradient, expected, 1e-9)
    # In contact, the smoothing has no effect on the derivatives.
    plain = jax.jvp(
        lambda v: (
            contact.contact_step(
                POINT, ON_PLANE, jnp.zeros(3), jnp.array([0.2, 0.0, v]), jnp.zeros(3), DT
            ).v
        ),
        (-1.0,),
        (1.0,),
    )[1]
    close(falling(0.0, -1.0, length, 1.0)[1], plain, 1e-12)


# ------------------------------------------------------------------------- one body, closed forms


@jax.jit
def compliant(model, scene, q, v):
    force = contact.contact_force(model, scene, q, v)
    return force, rbd.forward_dynamics(model, q, v, jnp.zeros_like(v), force.f_ext)


@jax.jit
def rigid(model, scene, q, v):
    return contact.contact_step(model, scene, q, v, jnp.zeros(model.nv), DT)


@pytest.mark.slow
def test_a_ball_rests_at_the_depth_that_the_laws_predict():
    ball = body(rbd.joints.FreeFlyer())
    scene = eqx.tree_at(lambda s: s.radii, ON_PLANE, np.array([0.1]))
    rest, still = rbd.neutral(ball), jnp.zeros(6)

    def lowered(depth):
        return rest.at[2].set(0.1 - depth)

    force, a = compliant(ball, scene, lowered(np.sqrt(2 * G / 1e4)), still)
    close(a, still, 1e-13, "rest")
    close(force.normal_force, jnp.array([2 * G]), 1e-12, "weight")

    mobility = (3 / 2 + 2 * 0.1**2 / (0.4 * 2 * 0.1**2)) / 3  # 1 / m three times, r^2 / I twice
    depth = (DT + 0.02) * 1e-3 * mobility * 2 * G * DT
    step = rigid(ball, scene, lowered(depth), still)
    close(step.v, still, 1e-13, "rest")
    close(step.impulse, jnp.array([[0, 0, 2 * G * DT]]), 1e-12, "weight")

    # Friction accelerates a spinning ball against the motion of its lowest point, horizontally.
    spinning = still.at[4].set(3.0)
    for x in (
        compliant(ball, scene, lowered(0.02), spinning)[1],
        rigid(ball, scene, lowered(0), spinning).v,
    ):
        assert x[0] > 0 > x[4] - 3


def tilted(angle):
    """The gravity of a slope that descends along x, so that the plane stays z = 0."""
    down = jnp.array([np.sin(angle), 0, -np.cos(angle)])
    return dataclasses.replace(POINT, gravity=G * down)


def test_friction_on_a_slope():
    below, above, weight = 0.4, 0.7, 2 * G  # the friction angle is atan 0.6 = 0.54
    # Compliant: the creep of the docstring below the friction angle, Coulomb friction above it.
    f, limit = weight * np.sin(below), 0.6 * weight * np.cos(below)
    depth = np.sqrt(weight * np.cos(below) / 1e4)
    creep = 0.05 * f / np.sqrt(limit**2 - f**2)
    _, a = compliant(tilted(below), ON_PLANE, jnp.array([0, 0, -depth]), jnp.array([creep, 0, 0]))
    close(a, jnp.zeros(3), 1e-12, "creep")
    depth = np.sqrt(weight * np.cos(above) / 1e4)
    _, a = compliant(tilted(above), ON_PLANE, jnp.array([0, 0, -depth]), jnp.array([2.0, 0, 0]))
    smooth = 2 / np.sqrt(4 + 0.05**2)
    expected = G * (np.sin(above) - 0.6 * smooth * np.cos(above))
    close(a, jnp.array([expected, 0, 0]), 1e-12, "slides")

    # Rigid: a sticking body creeps only by the regularization. A sliding body hovers, and has
    # Coulomb's acceleration once the motion is steady.
    R, target = 1e-3 / 2, DT + 0.02
    for angle, start in ((below, 0.0), (above, 0.3)):
        model = tilted(angle)
        step = first = rigid(model, ON_PLANE, jnp.zeros(3), jnp.array([start, 0, 0]))
        for _ in range(60):
            before, step = step, rigid(model, ON_PLANE, step.q, step.v)
        q, v = step.q, step.v
        gamma_n = weight * np.cos(angle) * DT
        if angle == below:
            rest = jnp.array([R * weight * np.sin(angle) * DT, 0, 0])
            close(v, rest, 1e-9, "creeps")
            # The resting depth is reached as exp(-t / (dt + recovery)).
            close(q[2] / (-target * R * gamma_n), 1.0, 1e-4, "rests")
        else:
            expected = DT * G * (np.sin(angle) - 0.6 * np.cos(angle))
            close(v[0] - before.v[0], expected, 1e-10, "slides")
            close(step.impulse[0], gamma_n * jnp.array([-0.6, 0, 1]), 1e-10, "impulse")
            for x in (first, step):
                hover = 0.6 * x.v[0] - R * x.impulse[0, 2] * (1 + 0.6**2)
                close(x.q[2] / (DT * hover), 1.0, 1e-9, "hovers")
            close(first.v[2] / (0.6 * first.v[0]), 1.0, 1e-2, "hops, as it lands sliding")


def test_a_bounce_returns_what_the_damping_leaves():
    """With the damping factor D(u), `v D(-v)` of the approach equals `v D(v)` of the return."""
    model = dataclasses.replace(POINT, gravity=jnp.zeros(3))
    dt, c = 1e-5, 0.5

    @jax.jit
    def bounce(v):
        def step(state, _):
            q, v = state
            v = v + dt * compliant(model, ON_PLANE, q, v)[1]
            return (q + dt * v, v), None

        return jax.lax.scan(step, (jnp.zeros(3), v), length=30000)[0][1]

    out, into = c * bounce(jnp.array([0, 0, -1.5]))[2], c * 1.5
    expected = (1 + into**2) ** 1.5 - into**3
    close((1 + out**2) ** 1.5 + out**3, expected, 1e-4, "restitution")
    assert 0 < out < into


# ------------------------------------------------------------------------------------- invariance


@pytest.mark.slow
def test_moving_the_world_changes_nothing():
    """Gravity, plane and robot moved together; and a height function that describes the plane."""
    model = zoo.following()
    q, v, tau, f_ext, scene = scenes(model, FLAT, 3)
    turn = spatial.pose_from_matrix(jnp.asarray(zoo.random_placement(np.random.default_rng(5))))
    normal = scene.ground.normal / jnp.linalg.norm(scene.ground.normal)
    offset = scene.ground.offset
    root = spatial.compose(turn, jax.tree.map(lambda x: x[0], model.placement))
    moved = dataclasses.replace(
        model,
        placement=jax.tree.map(lambda x, y: x.at[0].set(y), model.placement, root),
        gravity=turn.R @ model.gravity,
    )
    plane = Plane(turn.R @ normal, offset + turn.R @ normal @ turn.p)
    there = dataclasses.replace(scene, ground=plane)
    a, b = evaluate(model, scene, q, v, tau, f_ext), evaluate(moved, there, q, v, tau, f_ext)
    close(b["force"].f_ext, a["force"].f_ext, 1e-10, "force")
    close(b["step"].v, a["step"].v, 1e-10, "step")
    assert jnp.any(a["force"].f_ext != 0)
    assert jnp.any(a["step"].impulse != 0)

    @jax.jit
    def both(scene):
        force = contact.contact_force(model, scene, q, v)
        return force.f_ext, contact.contact_step(model, scene, q, v, tau, DT, f_ext)

    def height(xy):
        return (offset - normal[0] * xy[0] - normal[1] * xy[1]) / normal[2]

    f, step = both(dataclasses.replace(scene, ground=height))
    close(f, a["force"].f_ext, 1e-11, "the plane as a height: force")
    close(step.v, a["step"].v, 1e-11, "the plane as a height: step")


# ------------------------------------------------------------------------------------ derivatives


@pytest.mark.slow
def test_derivatives_at_touch_down_and_at_rest():
    """Derivatives of the force on a point in its position and velocity: differences and limits."""
    soft = eqx.tree_at(lambda s: s.material, ON_PLANE, Material(2.0, 0.5, 0.6, 0.05))

    def force_twice(x):
        found = contact.contact_force(POINT, soft, x[:3], x[3:]).f_ext[0, :3]
        return found, found

    def reverse_twice(x):
        found, _ = jax.jacrev(force_twice, has_aux=True)(x)
        return found, found

    @jax.jit
    def everything(x):
        """The force, its derivatives by forward and by reverse mode, and second derivatives."""
        forward, force = jax.jacfwd(force_twice, has_aux=True)(x)
        second, reverse = jax.jacfwd(reverse_twice, has_aux=True)(x)
        return force, forward, reverse, second

    def force(x):
        return np.asarray(everything(x)[0])

    down, aside = jnp.array([0, 0, -0.3]), jnp.array([0.1, 0.2, 0])
    for v in (jnp.zeros(3), down, -down, aside, down + aside):
        # Touch-down: all derivatives are zero from both sides, and continuous.
        there = jnp.concatenate([jnp.zeros(3), v])
        _, *derivatives, second = everything(there)
        close(jnp.stack(derivatives), jnp.zeros((2, 3, 6)), 0.0, "touch-down")
        for side in (1e-12, -1e-12):
            _, *near, _ = everything(there.at[2].set(side))
            close(jnp.stack(near), jnp.zeros((2, 3, 6)), 1e-11, "near touch-down")
        for h in (1e-7, -1e-7):
            close((force(there.at[2].set(h)) - force(there)) / h, jnp.zeros(3), 1e-6, "one side")
        assert jnp.all(jnp.isfinite(second))
        # In contact, moving and at rest: compared with differences.
        inside = there.at[2].set(-0.1)
        for x in (inside, inside.at[2].set(0.1)):
            _, *derivatives, second = everything(x)
            rates = [slope(lambda t: everything(x + t * e)) for e in np.eye(6)]
            for derivative in derivatives:
                close(
                    derivative, np.stack([rate[0] for rate in rates], axis=1), 1e-9, "differences"
                )
            close(
                second, np.stack([rate[2] for rate in rates], axis=-1), 1e-7, "second differences"
            )
    viscous = everything(inside.at[3:].set(0))[1][0, 3]
    close(viscous, -0.6 * 2.0 * 0.1**2 / 0.05, 1e-12, "friction at rest is viscous")


LIMITS = ("lower_position_limit", "upper_position_limit", "velocity_limit", "effort_limit")


def direction_of(operands, seed, size=0.1):
    """A random direction for all values of the operands, the first of which is a model.

    The margins of scenes stay 0: a negative margin is refused, and differences need both signs.
    """
    rng = np.random.default_rng(seed)
    direction = jax.tree.map(lambda x: jnp.asarray(size * rng.normal(size=np.shape(x))), operands)

    def turning(X, dX):
        """A change of the pose that keeps its rotation matrix orthogonal."""
        return spatial.Pose(jnp.matmul(X.R, spatial.skew(dX.R[..., 0])), dX.p)

    changes = {name: jnp.zeros_like(getattr(operands[0], name)) for name in LIMITS}  # infinite
    for name in ("placement", "frame_pose"):
        changes[name] = turning(getattr(operands[0], name), getattr(direction[0], name))

    def with_no_margin(operand):
        if not isinstance(operand, Scene):
            return operand
        return eqx.tree_at(lambda scene: scene.material.margin, operand, jnp.zeros(()))

    return (dataclasses.replace(direction[0], **changes), *map(with_no_margin, direction[1:]))


def derivative_check(function):
    """A check of the derivative along a direction with differences of the values.

    `function` returns its value, and results that the check returns.
    """

    @jax.jit
    def both(operands, direction):
        arguments = tuple(range(len(operands)))
        (value, results), gradient = jax.value_and_grad(function, arguments, has_aux=True)(
            *operands
        )
        terms = jax.tree.map(lambda x, y: jnp.sum(x * y), gradient, direction)
        return value, sum(jax.tree.leaves(terms)), results

    def check(operands, direction, h):
        def moved_value(t):
            moved = jax.tree.map(lambda x, dx: x + t * dx, operands, direction)
            return both(moved, direction)[0]

        _, derivative, results = both(operands, direction)
        close(derivative, slope(moved_value, h), 1e-6, "the true derivative")
        return results

    return check


@pytest.mark.slow
def test_a_gradient_through_a_bounce_is_the_true_one():
    """In the initial state, body, scene and ground, through touch-down, sliding and flight."""
    ball = body(rbd.joints.FreeFlyer())
    scene = Scene(("ball",), 0.1, None, Height(BUMPS), Material(3e4, 0.3, 0.5, 0.1))
    q = rbd.neutral(ball).at[:3].set(jnp.array([0.3, 0.1, 0.35]))
    v = jnp.array([0.5, 0.2, -1.0, 1.0, 2.0, 3.0])
    weights = jnp.asarray(np.random.default_rng(1).normal(size=6))

    def end(model, scene, dq, v):
        def step(state, _):
            q, v = state
            force = contact.contact_force(model, scene, q, v)
            a = rbd.forward_dynamics(model, q, v, jnp.zeros_like(v), force.f_ext)
            v = v + 1e-3 * a
            return (rbd.integrate(model, q, 1e-3 * v), v), force.normal_force[0]

        start = (rbd.integrate(model, q, dq), v)
        (_, v), pushes = jax.lax.scan(step, start, length=200)
        return jnp.sum(weights * v), pushes

    operands = jax.tree.map(jnp.asarray, (ball, scene, jnp.zeros(6), v))
    direction = direction_of(operands, 2)
    # The direction in the stiffness has the scale of the stiffness.
    direction = eqx.tree_at(lambda d: d[1].material.stiffness, direction, jnp.asarray(3e3))
    pushes = derivative_check(end)(operands, direction, 1e-5)
    assert pushes[0] == 0
    assert jnp.max(pushes) > 100
    assert pushes[-1] == 0


def regimes(scene, at, impulse):
    normal = jnp.sum(impulse * at.normal, axis=-1)
    across = jnp.linalg.norm(impulse - normal[:, None] * at.normal, axis=-1)
    edge = across >= scene.material.friction * normal * (1 - 1e-9)
    return [("apart" if n == 0 else "slips" if e else "sticks") for n, e in zip(normal, edge)]


@pytest.mark.slow
def test_derivatives_of_the_step_are_the_true_ones(model):
    """In q, v, tau, dt and all parameters of model and scene, for all kinds of contact."""

    def number(model, scene, q, v, tau, dt, regularisation, recovery):
        step = contact.contact_step(model, scene, q, v, tau, dt, None, regularisation, recovery)
        parts = jnp.concatenate([step.q, step.v, step.impulse.ravel()])
        weights = jnp.cos(jnp.arange(len(parts)).astype(parts.dtype))
        return jnp.sum(weights * parts), step.impulse

    seen, check = set(), derivative_check(number)
    for seed, mu in ((0, 0.6), (1, 5.0), (2, 0.2), (4, 5.0)):
        q, v, tau, _, scene = scenes(model, Height(BUMPS), seed, 1 + seed % 2)
        scene = eqx.tree_at(lambda s: s.material.friction, scene, np.asarray(mu))
        operands = jax.tree.map(jnp.asarray, (model, scene, q, v, tau, 0.01, 0.02, 0.03))
        direction = direction_of(operands, seed, 1e-2)
        direction = (*direction[:5], *(0.1 * x for x in operands[5:]))
        impulse = check(operands, direction, 1e-4)
        seen |= set(regimes(scene, contact.contact_points(model, scene, q, v), impulse))
    assert seen == {"apart", "slips", "sticks"}


# ----------------------------------------------------------------------------- a robot that lands

KP, KD = 100.0, 3.0


@pytest.fixture(scope="module")
def quadruped():
    """The quadruped with rotors, 5 cm above the ground with bent legs; the scene of its feet."""
    model = rbd.load_robot("quadruped")
    model = dataclasses.replace(model, armature=model.armature.at[6:].set(0.03))
    scene = Scene([name for name in model.frame_names if name.endswith("_foot")], 0.02)
    bent = {"hip": 0.0, "thigh": 0.8, "knee": -1.6}
    angles = [bent[name.split("_")[-2]] for name in model.joint_names[1:]]
    q = rbd.integrate(model, rbd.neutral(model), jnp.array([0.0] * 6 + angles))
    q = q.at[2].add(0.05 - jnp.min(distances(model, scene, q)))
    return model, scene, q


def posture(model, q0, q, v):
    """Torques of springs and dampers at the joints, and the energy of the springs."""
    stretch = rbd.difference(model, q0, q).at[:6].set(0)
    return -KP * stretch - KD * v.at[:6].set(0), KP / 2 * jnp.sum(stretch**2)


def drop(model, scene, q0, advance, dt, seconds):
    @jax.jit
    def run(model, scene, q0):
        def step(state, _):
            q, v, normal_force = advance(model, scene, *state, posture(model, q0, *state)[0])
            energy = rbd.kinetic_energy(model, q, v) + rbd.potential_energy(model, q)
            energy = energy + contact.contact_energy(model, scene, q) + posture(model, q0, q, v)[1]
            depth = -jnp.min(contact.contact_points(model, scene, q, v).distance)
            return (q, v), (energy, depth, jnp.sum(normal_force), jnp.max(jnp.abs(v)))

        start = (q0, jnp.zeros(model.nv))
        return jax.lax.scan(step, start, length=round(seconds / dt))[1]

    return run(model, scene, q0)


@pytest.mark.slow
def test_a_quadruped_lands_on_compliant_ground(quadruped):
    model, scene, q0 = quadruped
    dt = 5e-4

    def advance(model, scene, q, v, tau):
        force = contact.contact_force(model, scene, q, v)
        v = v + dt * rbd.forward_dynamics(model, q, v, tau, force.f_ext)
        return rbd.integrate(model, q, dt * v), v, jnp.sum(force.normal_force)

    energy, depth, normal_force, speed = drop(model, scene, q0, advance, dt, 4.0)
    weight = rbd.total_mass(model) * G
    assert speed[-1] < 1e-3
    close(normal_force[-1] / weight, 1.0, 1e-3)
    # The bound of the depth: one foot's spring stores all of the energy of the fall.
    fall = weight * 0.06
    assert jnp.max(depth) < (3 * fall / 1e7) ** (1 / 3)
    # At rest no foot supports more than half of the weight.
    assert depth[-1] < np.sqrt(weight / 2 / 1e7)
    # With the springs the energy decreases, up to the integrator's error.
    assert jnp.max(jnp.diff(energy)) < 1e-4 * fall
    assert jnp.max(energy) < energy[0] + 1e-4 * fall
    assert energy[0] - energy[-1] > fall / 2


@pytest.mark.slow
def test_a_quadruped_lands_on_rigid_ground(quadruped):
    model, scene, q0 = quadruped
    dt = 1e-2

    def advance(model, scene, q, v, tau):
        step = contact.contact_step(model, scene, q, v, tau, dt)
        return step.q, step.v, jnp.sum(step.impulse[:, 2]) / dt

    energy, depth, normal_force, speed = drop(model, scene, q0, advance, dt, 4.0)
    weight = rbd.total_mass(model) * G
    assert speed[-1] < 1e-3
    close(normal_force[-1] / weight, 1.0, 1e-3)
    assert jnp.max(depth) < 5e-5
    # The energy decreases in every step.
    assert jnp.max(jnp.diff(energy)) < 0
    assert energy[0] - energy[-1] > weight * 0.03


# ------------------------------------------------------------------------- as functions of JAX


@pytest.mark.slow
def test_second_derivatives_of_the_step():
    """Of a point that sticks, slides or separates, in its state and in the friction coefficient."""

    direction = jnp.array([0.3, -0.2, 1e-3, 0.5, 0.4, -0.6, 0.2])

    def number(x):
        scene = eqx.tree_at(lambda s: s.material.friction, ON_PLANE, x[6])
        step = contact.contact_step(POINT, scene, x[:3], x[3:6], jnp.zeros(3), DT)
        return jnp.sum(jnp.array([0.4, -0.7, 0.5]) * step.v)

    @jax.jit
    def twice(x):
        return jax.jvp(jax.grad(number), (x,), (direction,))

    for v in ((1e-3, 2e-3, -0.3), (0.5, -0.3, -0.2), (0.1, 0.1, 0.3)):
        x = jnp.array([0, 0, -1e-3, *v, 0.6])
        close(twice(x)[1], slope(lambda t: twice(x + t * direction)[0]), 1e-7)


@pytest.mark.slow
def test_batches_and_single_precision(model):
    """Batches of states, grounds and materials; float32 gives correct results in float32."""
    q, v, tau, f_ext, scene = scenes(model, Height(BUMPS), 2)
    factors = jnp.array([0.5, 1.0, 2.0])

    def results(model, scene, q, v, tau, f_ext, factor):
        material = jax.tree.map(lambda x: factor.astype(x.dtype) * x, scene.material)
        scene = dataclasses.replace(scene, material=material)
        force = contact.contact_force(model, scene, q, v)
        step = contact.contact_step(model, scene, q, v, tau, DT, f_ext)
        return force.f_ext, step.v, step.impulse

    in_axes = (None, None, None, None, None, None, 0)
    batched = jax.jit(jax.vmap(results, in_axes))(model, scene, q, v, tau, f_ext, factors)
    single = evaluate(model, scene, q, v, tau, f_ext)
    close(batched[0][1], single["force"].f_ext, 1e-12)
    close(batched[1][1], single["step"].v, 1e-11)

    operands = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (q, v, tau, f_ext, factors))
    low = jax.jit(jax.vmap(results, in_axes))(model.astype(jnp.float32), scene, *operands)
    for x, y in zip(low, batched):
        assert x.dtype == jnp.float32
        close(x.astype(float), y, 1e-4)


@pytest.mark.slow
def test_the_program_does_not_grow_with_the_number_of_spheres(model):
    q, v, tau, *_ = zoo.state(model)

    def size(function, n):
        scene = Scene(("l0", "l2") * n, 0.1)
        return str(jax.make_jaxpr(function)(model, scene, q, v)).count(" = ")

    def step(model, scene, q, v):
        return contact.contact_step(model, scene, q, v, tau, DT)

    for function in (contact.contact_force, step):
        # With few spheres, shapes agree by chance, and a subprogram is printed once, not twice.
        assert size(function, 8) == size(function, 12) > 1
        # With many, a step solves with a working set of the contacts first.
        assert size(function, 20) == size(function, 30) < 1.5 * size(function, 8)


@pytest.mark.slow
def test_nothing_touches_nothing(model):
    q, v, tau, f_ext = zoo.state(model)
    none = Scene(())
    start, after = in_first_axes(
        model, v, contact.contact_step(model, none, q, v, tau, DT, f_ext).v, DT
    )
    close(after, start + DT * rbd.forward_dynamics(model, q, v, tau, f_ext), 1e-12)
    close(contact.contact_force(model, none, q, v).f_ext, jnp.zeros((model.nb, 6)), 0.0)


WRONG = {
    "frames is 'ball'": lambda: Scene("ball"),
    "radii has shape (2,)": lambda: Scene(("ball",), [0.1, 0.2]),
    "radii is": lambda: Scene(("ball",), -0.1),
    "inverse_inertia.contacts has shape (2,)": lambda: scaled(np.ones(2), np.ones(3)),
    "inverse_inertia.contacts is [-1.], expected": lambda: scaled([-1.0], np.ones(3)),
    "inverse_inertia.contacts is [inf], expected": lambda: scaled([np.inf], np.ones(3)),
    "inverse_inertia.joints is": lambda: scaled([1.0], [1.0, -2.0, 3.0]),
    "inverse_inertia.trees is": lambda: scaled([1.0], np.ones(3), np.full((1, 10), np.nan)),
    "inverse_inertia.joints has shape (2,)": lambda: rest_in(scaled([1.0], [1.0, 2.0])),
    "offsets has shape (3,)": lambda: Scene(("ball",), 0.1, (0.0, 0.0, 0.1)),
    "normal has shape (2,)": lambda: Plane((0.0, 1.0)),
    "normal is": lambda: Plane((0.0, 0.0, 0.0)),
    "stiffness is -1.0": lambda: Material(stiffness=-1.0),
    "friction is nan": lambda: Material(friction=np.nan),
    "slip_speed is 0.0, expected finite, more than 0": lambda: Material(slip_speed=0.0),
    "dissipation has shape (1,)": lambda: Material(dissipation=np.ones(1)),
    "stiffness has shape () and dtype int": lambda: Material(stiffness=jnp.asarray(3)),
    "no frame 'foot'": lambda: rest_in(Scene(("foot",))),
    "frame 1 out of range": lambda: rest_in(Scene((1,))),
    "friction has shape (2,), expected () or (1,)": lambda: rest_in(
        Scene(("ball",), material=Material(friction=[0.5, 0.6]))
    ),
    "height gives shape (2,)": lambda: rest_in(Scene(("ball",), ground=lambda xy: xy)),
    "q has shape (2,)": lambda: rest_in(ON_PLANE, q=jnp.zeros(2)),
    "tau has shape (2,)": lambda: rest_in(ON_PLANE, tau=jnp.zeros(2)),
    "dt has shape (1,)": lambda: rest_in(ON_PLANE, dt=jnp.zeros(1)),
    "fixed to the world": lambda: rest_in(Scene(("base",)), model=rbd.load_robot("arm7")),
}


def scaled(spheres, joints, trees=None):
    return Scene(("ball",), inverse_inertia=contact.InverseInertias(spheres, joints, trees))


def rest_in(scene, model=POINT, q=None, tau=None, dt=DT):
    zero = jnp.zeros(model.nv)
    q, tau = zero if q is None else q, zero if tau is None else tau
    return contact.contact_step(model, scene, q, zero, tau, dt)


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_named(message):
    with pytest.raises(rbd.ArgumentError) as error:
        WRONG[message]()
    assert message in str(error.value)


@jax.jit
def step_with(numbers):
    at_rest = jnp.zeros(3)
    return contact.contact_step(POINT, ON_PLANE, at_rest, at_rest, at_rest, **numbers)


@jax.jit
def with_material(parameters, q, v, inverse_inertia=1.0):
    """Force and energy of the ground, and the velocity after a step, with traced parameters."""
    inverse_inertias = contact.InverseInertias(jnp.asarray([inverse_inertia]), np.ones(3))
    material = contact.Material(**parameters)
    scene = dataclasses.replace(ON_PLANE, material=material, inverse_inertia=inverse_inertias)
    after = contact.contact_step(POINT, scene, q, v, jnp.zeros(3), DT).v
    force = contact.contact_force(POINT, scene, q, v).f_ext
    return force, contact.contact_energy(POINT, scene, q), after


@pytest.mark.gives_nan
@pytest.mark.parametrize(
    "name",
    ["friction", "margin", "torsional", "rolling", "stiffness", "dissipation", "slip_speed"],
)
def test_traced_materials_out_of_their_range_give_nan(name):
    usual = {"friction": 0.8, "margin": 1e-3, "torsional": 1e-3, "rolling": 1e-3}
    usual |= {"stiffness": 1e7, "dissipation": 2.0, "slip_speed": 0.1}
    start = jnp.array([0.0, 0.0, -1e-3]), jnp.array([1.0, 0.0, -0.1])
    for x in with_material(usual, *start):
        assert np.all(np.isfinite(x))
    force, energy, after = with_material(usual | {name: -0.5 * usual[name]}, *start)
    assert np.any(np.isnan(force))
    if name in ("friction", "margin", "torsional", "rolling"):
        assert np.all(np.isnan(after))
    if name == "stiffness":
        assert np.isnan(energy)
        for wrong in (jnp.nan, -1.0, jnp.inf):  # of the inverse inertia
            assert np.all(np.isnan(with_material(usual, *start, wrong)[2]))


@pytest.mark.gives_nan
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dt", 0.0),
        ("dt", -0.01),
        ("dt", float("nan")),
        ("regularisation", 0.0),
        ("regularisation", -1.0),
        ("recovery", -0.1),
        ("smoothing", 0.0),
    ],
)
def test_a_number_out_of_range(name, value):
    numbers = {"dt": DT, "regularisation": 0.1, "recovery": 0.1, "smoothing": 0.1, name: value}
    with pytest.raises(rbd.ArgumentError, match=f"{name} is {value}, expected"):
        step_with.__wrapped__(numbers)
    assert np.all(np.isnan(step_with(numbers).v))
