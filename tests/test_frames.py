"""Labelled quantities: every formula, every mismatch, and nothing left when compiled."""

import dataclasses
import functools
import inspect
import itertools
import operator
import pickle
import re

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import frames, joints, se3, so3, spatial
from support import finite_differences, nightly, zoo
from support.zoo import close

# A quantity of each type expressed in one frame; the relative ones are of "j" relative to "i".
RELATIVE = {"body": "j", "base": "i"}
MAKE = {
    "point": lambda rng, frame: frames.Point(rng.normal(size=3), frame=frame),
    "free vector": lambda rng, frame: frames.FreeVector(rng.normal(size=3), frame=frame),
    "spatial inertia": lambda rng, frame: frames.SpatialInertia(
        zoo.random_inertia(rng), frame=frame
    ),
    "twist": lambda rng, frame: frames.Twist(rng.normal(size=6), frame=frame, **RELATIVE),
    "spatial acceleration": lambda rng, frame: frames.SpatialAcceleration(
        rng.normal(size=6), frame=frame, **RELATIVE
    ),
    "momentum": lambda rng, frame: frames.Momentum(rng.normal(size=6), frame=frame),
    "wrench": lambda rng, frame: frames.Wrench(rng.normal(size=6), frame=frame),
    "geometric Jacobian": lambda rng, frame: frames.GeometricJacobian(
        rng.normal(size=(6, 4)), frame=frame, **RELATIVE
    ),
    "momentum matrix": lambda rng, frame: frames.MomentumMatrix(
        rng.normal(size=(6, 4)), frame=frame
    ),
}
MOVES_ALONE = [name for name in MAKE if name != "spatial acceleration"]


def make(name, frame="k", seed=0):
    return MAKE[name](np.random.default_rng(seed), frame)


def twist(body="j", base="i", frame="k", seed=0):
    V = np.random.default_rng(seed).normal(size=6)
    return frames.Twist(V, body=body, base=base, frame=frame)


def acceleration(body="j", base="i", frame="k", seed=1):
    A = np.random.default_rng(seed).normal(size=6)
    return frames.SpatialAcceleration(A, body=body, base=base, frame=frame)


exponential = jax.jit(se3.exp)


def pose(seed=0):
    return exponential(np.random.default_rng(seed).normal(size=6))


def placed(from_="k", to="n", seed=0):
    return frames.Transform(pose(seed), from_=from_, to=to)


def curve(seed):
    """A pose as a function of time, with all its derivatives."""
    rpy, p = jnp.array(np.random.default_rng(seed).normal(size=(2, 3, 3)))

    def at(t):
        powers = jnp.stack([jnp.ones_like(t), t, t * t])
        return rbd.Pose(so3.rotation_from_rpy(powers @ rpy), powers @ p)

    return at


def value_and_rate(f, t=0.3):
    """The value of a function of time, and its derivative."""
    return jax.jvp(f, (jnp.asarray(t),), (jnp.ones(()),))


def rate(f, t=0.3):
    """The derivative of a function of time."""
    return value_and_rate(f, t)[1]


def same(actual, expected, tolerance=1e-12):
    """Equal labels, and equal numbers."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected)):
        close(a, b, tolerance)


# ------------------------------------------------------------------------------------------ labels


def test_frames_of_one_name_are_one_and_anonymous_ones_are_not():
    hand = frames.Frame("hand")
    assert hand == frames.Frame("hand") == "hand"
    assert hash(hand) == hash("hand")
    anonymous = frames.Frame()
    assert anonymous == anonymous
    assert anonymous != frames.Frame()
    assert anonymous not in ("hand", "")
    assert pickle.loads(pickle.dumps(anonymous)) == anonymous
    moved = frames.Transform(pose(), from_="k", to=anonymous) @ make("point")
    assert moved.frame == anonymous
    with pytest.raises(rbd.FrameError):
        moved - make("point", frames.Frame())


@pytest.mark.parametrize("name", ["", None, 3, ("a",)])
def test_a_frame_is_named_by_a_string(name):
    with pytest.raises(rbd.ArgumentError, match=r"^frame is .*, expected"):
        frames.Point(np.zeros(3), frame=name)
    if name is not None:  # Frame() is anonymous
        with pytest.raises(rbd.ArgumentError, match=r"^frame is .*, expected"):
            frames.Frame(name)


@pytest.mark.parametrize("name", MAKE)
def test_wrong_numbers_are_errors(name):
    good = make(name)
    labels = {"frame": "k"} | (RELATIVE if hasattr(good, "body") else {})
    kind, sizes = type(good), good.array.shape[:1]
    for shape, hint in (((), ""), ((5, *good.array.shape), "; batch with jax.vmap"), ((7,), "")):
        with pytest.raises(rbd.ArgumentError) as error:
            kind(np.zeros(shape), **labels)
        assert str(error.value).startswith(f"{name} has shape {shape}, expected ({sizes[0]}")
        assert str(error.value).endswith(")" + hint)
    with pytest.raises(rbd.ArgumentError, match=f"^{name} has dtype int"):
        kind(np.zeros(good.array.shape, int), **labels)


def test_wrong_poses_are_errors():
    with pytest.raises(rbd.ArgumentError, match=r"^Transform: found a ndarray, expected a Pose"):
        frames.Transform(np.eye(4), from_="k", to="n")
    with pytest.raises(rbd.ArgumentError, match=r"^p of a transform has shape \(4,\)"):
        frames.Transform(rbd.Pose(jnp.eye(3), jnp.ones(4)), from_="k", to="n")
    with pytest.raises(rbd.ArgumentError, match=r"^R of a transform has shape \(4, 4\)"):
        frames.Transform(rbd.Pose(jnp.eye(4), jnp.ones(3)), from_="k", to="n")


@pytest.mark.parametrize("name", MAKE)
def test_single_precision_stays_single(name):
    def computed(x, t):
        scaled = x if name == "point" else 0.5 * (x * 2.0) / 3
        return scaled - scaled if name == "spatial acceleration" else t @ scaled

    single = jax.tree.map(lambda x: x.astype(jnp.float32), (make(name), placed()))
    assert jax.eval_shape(computed, *single).array.dtype == jnp.float32


# ---------------------------------------------------------------------------------- change of frame


def test_transforms_are_a_group_that_acts_on_every_type():
    quantities = [make(name) for name in MOVES_ALONE]
    t, s, r = placed("k", "n", 1), placed("n", "m", 2), placed("m", "o", 3)

    @jax.jit
    def laws(quantities):
        pairs = [(r @ (s @ t), (r @ s) @ t), (t.inverse().inverse(), t)]
        one = frames.Transform(spatial.identity_pose(), from_="k", to="k")
        pairs += [(t.inverse() @ t, one), ((s @ t).inverse(), t.inverse() @ s.inverse())]
        for x in quantities:
            pairs += [(s @ (t @ x), (s @ t) @ x), (t.inverse() @ (t @ x), x), (one @ x, x)]
            pairs.append((frames.transform(x, t), t @ x))
        return pairs

    for actual, expected in laws(quantities):
        same(actual, expected)


def test_a_change_of_frame_keeps_what_has_no_frame():
    names = ["point", "free vector", "spatial inertia", "twist", "momentum", "wrench"]
    more = ["geometric Jacobian", "momentum matrix"]
    v = jnp.arange(1.0, 5.0)
    t = placed()

    def scalars(p, f, I, T, h, w):
        return frames.dot(w, T), frames.kinetic_energy(I, T), jnp.sum(h.array * T.array)

    def vectors(p, f, I, T, h, w, J, A):
        found = [frames.center_of_mass(I), I @ T, J @ v, A @ v, p + f, f + p, p - f, p - (p + f)]
        found += [w.linear, T.angular, frames.point_velocity(T, p), frames.Wrench.from_force(f, p)]
        return [*found, h + 2 * h, w - w / 2, -f, I + I * 0.5, A - 2.0 * A]

    @jax.jit
    def both(*quantities):
        moved = [t @ x for x in quantities]
        before, after = vectors(*quantities), vectors(*moved)
        return scalars(*quantities[:6]), scalars(*moved[:6]), [t @ x for x in before], after

    before, after, expected, found = both(*(make(n, seed=i) for i, n in enumerate(names + more)))
    for a, b in zip(before, after):
        close(a, b)
    for a, b in zip(found, expected):
        same(a, b)


def test_matrices_are_those_of_the_angular_first_page():
    """`R x + p` of points, `R x` of free vectors, 6x6 matrices on [w; v] and [n; f] of others."""
    t, R, p = placed(), np.array(pose().R), np.array(pose().p)
    lever = np.array(spatial.skew(jnp.array(p))) @ R
    zero = np.zeros((3, 3))
    motion = np.block([[R, zero], [lever, R]])
    force = np.block([[R, lever], [zero, R]])
    for name, matrix in (("twist", motion), ("momentum", force), ("wrench", force)):
        x = make(name)
        found = spatial.swap_halves((t @ x).array)
        close(found, matrix @ spatial.swap_halves(x.array))
    for name, matrix in (("geometric Jacobian", motion), ("momentum matrix", force)):
        x = make(name)
        close(spatial.swap_halves((t @ x).array.T), spatial.swap_halves(x.array.T) @ matrix.T)
    close((t @ make("point")).array, R @ make("point").array + p)
    close((t @ make("free vector")).array, R @ make("free vector").array)
    I = make("spatial inertia")
    page = spatial.swap_blocks(spatial.inertia_matrix(I.array))
    close(spatial.swap_blocks(spatial.inertia_matrix((t @ I).array)), force @ page @ force.T)


# ------------------------------------------------------------------------ what each type stands for


def cloud(seed=0):
    """Masses (n,) and points (n, 3) of a body, in its own frame."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 1.0, 7), rng.normal(size=(7, 3))


def inertia_of(cloud, frame):
    ten = sum(rbd.model.link_inertia(m, p) for m, p in zip(*cloud))
    return frames.SpatialInertia(ten, frame=frame)


def test_inertia_is_the_integral_of_the_page():
    masses, points = cloud()
    page = np.zeros((6, 6))
    for m, p in zip(masses, points):
        p_hat = np.array(spatial.skew(jnp.array(p)))
        page += m * np.block([[p_hat.T @ p_hat, p_hat], [p_hat.T, np.eye(3)]])
    inertia = inertia_of((masses, points), "j")
    close(spatial.swap_blocks(spatial.inertia_matrix(inertia.array)), page)
    com = frames.center_of_mass(inertia)
    same(com, frames.Point(masses @ points / masses.sum(), frame="j"))
    nothing = frames.SpatialInertia(jnp.zeros(10), frame="j")
    same(frames.center_of_mass(nothing), frames.Point(jnp.zeros(3), frame="j"))


def test_wrench_is_the_sum_of_forces_with_their_moments():
    forces, points = np.random.default_rng(0).normal(size=(2, 3, 3))
    total = sum(
        (
            frames.Wrench.from_force(frames.FreeVector(f, frame="k"), frames.Point(r, frame="k"))
            for f, r in zip(forces[1:], points[1:])
        ),
        start=frames.Wrench.from_force(
            frames.FreeVector(forces[0], frame="k"), frames.Point(points[0], frame="k")
        ),
    )
    page = np.concatenate([np.cross(points, forces).sum(0), forces.sum(0)])
    close(spatial.swap_halves(total.array), page)


def test_sum_adds_what_adds_in_one_frame_or_along_a_chain():
    for name in MAKE:
        if name == "point":
            continue
        if hasattr(make(name), "body"):
            parts = [
                dataclasses.replace(make(name, seed=i), body=body, base=base)
                for i, (body, base) in enumerate(["ba", "cb", "dc"])
            ]
        else:
            parts = [make(name, seed=i) for i in range(3)]
        same(sum(parts), parts[0] + parts[1] + parts[2])
        same(sum(parts[:1]), parts[0])
        with pytest.raises(rbd.FrameError, match=r"^addition: "):
            sum([*parts, dataclasses.replace(parts[0], frame="odd")])
        for number in (1, 0.0, False, np.float64(0), None):
            with pytest.raises(TypeError):
                number + parts[0]
    with pytest.raises(TypeError):
        sum([make("point"), make("point")])


def test_an_inertia_from_its_mass_and_centre_of_mass():
    masses, points = cloud()
    com = masses @ points / masses.sum()
    arms = points - com
    moment = sum(m * (r @ r * np.eye(3) - np.outer(r, r)) for m, r in zip(masses, arms))
    com = frames.Point(com, frame="j")
    inertia = frames.SpatialInertia.from_mass(masses.sum(), com, moment, frame="j")
    same(inertia, inertia_of((masses, points), "j"))
    single = jax.tree.map(lambda x: x.astype(jnp.float32), com)
    assert frames.SpatialInertia.from_mass(2.0, single, moment, frame="j").array.dtype == "float32"
    same(
        jax.vmap(lambda m: frames.SpatialInertia.from_mass(m, com, m * moment, frame="j"))(
            jnp.ones(1)
        ).array[0],
        frames.SpatialInertia.from_mass(1.0, com, moment, frame="j").array,
    )
    with pytest.raises(rbd.FrameError, match=r'^from_mass: point expressed in "j": .* in "k"'):
        frames.SpatialInertia.from_mass(1.0, com, moment, frame="k")
    make_inertia = inspect.unwrap(frames.SpatialInertia.from_mass.__func__)
    kind = frames.SpatialInertia
    with pytest.raises(rbd.ArgumentError, match=r"^from_mass: found a ndarray, expected a Point"):
        make_inertia(kind, 1.0, np.zeros(3), moment, frame="k")
    with pytest.raises(rbd.ArgumentError, match=r"^mass has shape \(2,\), expected \(\)"):
        make_inertia(kind, np.ones(2), com, moment, frame="j")
    with pytest.raises(rbd.ArgumentError, match=r"^moment has shape \(3,\), expected \(3, 3\)"):
        make_inertia(kind, 1.0, com, np.ones(3), frame="j")


X_Wi, X_Wj, X_Wk, X_Wn = (curve(seed) for seed in range(1, 5))
PLACES = {"i": X_Wi, "j": X_Wj, "k": X_Wk, "n": X_Wn}


def between(from_, to, t):
    """The transform at time t from one moving frame to another."""
    X = spatial.inverse_compose(PLACES[to](t), PLACES[from_](t))
    return frames.Transform(X, from_=from_, to=to)


def by_definition(body, base, frame, t):
    """The twist whose 4x4 matrix is `H_i^k d/dt(H_j^i) H_k^j`."""
    H_dot = rate(lambda t: spatial.pose_matrix(between(body, base, t).pose), t)
    before = spatial.pose_matrix(between(base, frame, t).pose)
    after = spatial.pose_matrix(between(frame, body, t).pose)
    S = before @ H_dot @ after
    w = jnp.stack([S[2, 1], S[0, 2], S[1, 0]])
    return frames.Twist(jnp.concatenate([S[:3, 3], w]), body=body, base=base, frame=frame)


def test_twists_chain_and_change_frame_by_the_page_definition():
    def define(body, base, frame):
        return by_definition(body, base, frame, 0.3)

    @jax.jit
    def laws():
        total, to_n = define("j", "i", "k"), between("k", "n", 0.3)
        parts = define("n", "i", "k"), define("j", "n", "k")
        return [
            (parts[0] + parts[1], total),
            (parts[1] + parts[0], total),
            (total - parts[0], parts[1]),
            (total - parts[1], parts[0]),
            (-total, define("i", "j", "k")),
            (total - total, define("j", "j", "k")),
            (to_n @ total, define("j", "i", "n")),
        ]

    for actual, expected in laws():
        same(actual, expected, 1e-11)


def test_accelerations_are_rates_of_twists_and_change_frame_with_two_twists():
    @jax.jit
    def laws(t):
        def define(body, base, frame):
            dot = rate(lambda t: by_definition(body, base, frame, t).array, t)
            return frames.SpatialAcceleration(dot, body=body, base=base, frame=frame)

        total = define("j", "i", "k")
        twists = by_definition("k", "n", "k", t), by_definition("j", "i", "k", t)
        parts = define("n", "i", "k"), define("j", "n", "k")
        return [
            (frames.transform(total, between("k", "n", t), *twists), define("j", "i", "n")),
            (parts[0] + parts[1], total),
            (total - parts[1], parts[0]),
            (-total, define("i", "j", "k")),
        ]

    for actual, expected in laws(0.3):
        same(actual, expected, 1e-10)


def test_cross_products_are_rates_of_what_moves_with_a_twist():
    """Of a twist and of a momentum that are constant in j, expressed in i."""
    U = twist("n", "j", "j", seed=5)
    h, f = make("momentum", "j", 6), make("free vector", "j", 7)

    @jax.jit
    def laws(t):
        T = by_definition("j", "i", "i", t)

        def seen(x, t):
            return between("j", "i", t) @ x

        rates = [rate(lambda t: seen(x, t).array, t) for x in (U, h, f)]
        labels = {"body": "n", "base": "j", "frame": "i"}
        # The acceleration of n relative to i is the sum along the chain.
        total = by_definition("j", "i", "i", t) + seen(U, t)
        A = frames.SpatialAcceleration(
            rate(lambda t: by_definition("j", "i", "i", t).array, t), body="j", base="i", frame="i"
        )
        A_total = rate(lambda t: (by_definition("j", "i", "i", t) + seen(U, t)).array, t)
        A_total = frames.SpatialAcceleration(A_total, body="n", base="i", frame="i")
        I = make("spatial inertia", "i")
        gyroscopic = frames.Wrench(spatial.gyroscopic_force(I.array, total.array), frame="i")
        return [
            (frames.cross(T, seen(U, t)), frames.SpatialAcceleration(rates[0], **labels)),
            (frames.cross(T, seen(h, t)), frames.Wrench(rates[1], frame="i")),
            (frames.cross(T.angular, seen(f, t)), frames.FreeVector(rates[2], frame="i")),
            (A + frames.cross(T, seen(U, t)), A_total),
            (frames.cross(total, I @ total), gyroscopic),
        ]

    for actual, expected in laws(0.3):
        same(actual, expected, 1e-11)


@pytest.mark.parametrize("frame", nightly.all_but(["j"], ["i", "j"]))
def test_points_energy_momentum_and_its_rate_are_those_of_point_masses(frame):
    """Of a body j that moves in an inertial frame i, expressed in either."""
    masses, points = cloud()
    inertia = inertia_of((masses, points), "j")

    @jax.jit
    def both(t):
        T, dot = value_and_rate(lambda t: by_definition("j", "i", frame, t), t)
        A = frames.SpatialAcceleration(dot.array, body="j", base="i", frame=frame)
        to_frame, to_i = between("j", frame, t), between(frame, "i", t)
        I = to_frame @ inertia
        fixed = [to_frame @ frames.Point(p, frame="j") for p in points]
        velocities = [to_i @ frames.point_velocity(T, p) for p in fixed]
        second = [to_i @ frames.point_acceleration(T, A, p) for p in fixed]
        energy = frames.kinetic_energy(I, T)
        return energy, to_i @ (I @ T), to_i @ frames.newton_euler(I, A, T), velocities, second

    @jax.jit
    def truth(t):
        def position(t):
            return jnp.stack(
                [(between("j", "i", t) @ frames.Point(p, frame="j")).array for p in points]
            )

        def momentum(t):
            p, u = value_and_rate(position, t)
            l = masses[:, None] * u
            return jnp.concatenate([l.sum(0), jnp.cross(p, l).sum(0)])

        u, u_dot = value_and_rate(lambda t: rate(position, t), t)
        energy = jnp.sum(masses * jnp.sum(u * u, axis=1)) / 2
        return energy, *value_and_rate(momentum, t), u, u_dot

    energy, momentum, wrench, velocities, second = both(0.3)
    expected = truth(0.3)
    close(energy, expected[0])
    same(momentum, frames.Momentum(expected[1], frame="i"))
    same(wrench, frames.Wrench(expected[2], frame="i"), 1e-11)
    for i in range(len(points)):
        same(velocities[i], frames.FreeVector(expected[3][i], frame="i"))
        same(second[i], frames.FreeVector(expected[4][i], frame="i"), 1e-11)


# -------------------------------------------------------------------------------------- exp and log

ANGLES = [0.0, 1e-20, 1e-9, 1e-4, 0.5, 2.0, 3.1]


def coordinates(angle):
    w = np.array([0.6, -0.48, 0.64])
    V = jnp.array([0.3, -2.0, 1.0, *(angle * w)])
    return frames.Twist(V, body="j", base="i", frame="i")


@pytest.mark.parametrize("angle", nightly.all_but([0.5], ANGLES))
def test_log_its_rate_and_exp(angle):
    xi = coordinates(angle)
    hat = np.block([[spatial.skew(xi.array[3:]), xi.array[:3, None]], [np.zeros((1, 4))]])
    with mpmath.workdps(40):
        expm = np.array(mpmath.expm(mpmath.matrix(hat)).tolist(), float)
    t = frames.exp(xi)
    assert (t.from_, t.to) == ("j", "i")
    close(spatial.pose_matrix(t.pose), expm, 1e-14)
    same(frames.log(t), xi)

    expected, in_body, in_base = rates_of_log(t)
    same(in_body[0], xi)
    for found in (in_body[1], in_base[1]):
        same(found, as_acceleration(xi, expected[0]), 1e-11)
    close(in_body[2], expected[1], 1e-10)
    close(in_base[2], expected[1], 1e-10)


def as_acceleration(xi, array):
    return frames.SpatialAcceleration(array, body=xi.body, base=xi.base, frame=xi.frame)


@jax.jit
def rates_of_log(t):
    """The first two derivatives of log along a motion, and `log_with_time_derivative` with its."""
    V = jnp.array([0.2, 1.0, -0.5, 0.3, -0.7, 0.4])
    in_body = frames.Twist(V, body="j", base="i", frame="j")

    def moved(s):
        return t @ frames.Transform(se3.exp(s * V), from_="j", to="j")

    def along(express):
        def found(s):
            return frames.log_with_time_derivative(moved(s), express(moved(s)))

        value, change = value_and_rate(found, 0.0)
        return *value, change[1].array

    def first(s):
        return rate(lambda s: frames.log(moved(s)).array, s)

    return value_and_rate(first, 0.0), along(lambda t: in_body), along(lambda t: t @ in_body)


# --------------------------------------------------------------------------------------- mismatches


def one_frame(operation, f, *names):
    """A case for each argument in a frame of its own."""
    for i, name in enumerate(names):
        arguments = [make(n, "odd" if n == name and j == i else "k") for j, n in enumerate(names)]
        yield operation, f, arguments, {"odd", "k"}


SUMS = [name for name in MAKE if name != "point"]
MISMATCHES = [
    *itertools.chain(*(one_frame("addition", operator.add, name, name) for name in SUMS)),
    *itertools.chain(*(one_frame("subtraction", operator.sub, name, name) for name in SUMS)),
    *one_frame("addition", operator.add, "point", "free vector"),
    *one_frame("addition", operator.add, "free vector", "point"),
    *one_frame("subtraction", operator.sub, "point", "free vector"),
    *one_frame("subtraction", operator.sub, "point", "point"),
    *one_frame("product", operator.matmul, "spatial inertia", "twist"),
    *one_frame("kinetic_energy", frames.kinetic_energy, "spatial inertia", "twist"),
    *one_frame("dot", frames.dot, "wrench", "twist"),
    *one_frame("cross", frames.cross, "twist", "twist"),
    *one_frame("cross", frames.cross, "twist", "momentum"),
    *one_frame("cross", frames.cross, "free vector", "free vector"),
    *one_frame("point_velocity", frames.point_velocity, "twist", "point"),
    *one_frame("from_force", frames.Wrench.from_force, "free vector", "point"),
    *(("transform", frames.transform, [make(x), placed("odd", "n")], {"k", "odd"}) for x in MAKE),
    *(("transform", operator.matmul, [placed("odd", "n"), make(x)], {"k", "odd"}) for x in MAKE),
    ("composition", operator.matmul, [placed("a", "b"), placed("c", "d")], {"a", "d"}),
    ("addition", operator.add, [twist("a", "b"), twist("c", "d")], set("abcd")),
    ("addition", operator.add, [acceleration("a", "b"), acceleration("c", "b")], set("abc")),
    ("subtraction", operator.sub, [twist("a", "b"), twist("c", "d")], set("abcd")),
    ("subtraction", operator.sub, [twist("a", "b"), twist("b", "c")], set("abc")),
    ("exp", frames.exp, [twist("a", "b", "a")], {"a", "b"}),
]
TO_N = placed("k", "n")
GOOD = {"A": ("j", "i", "k"), "current": ("k", "n", "k"), "twist": ("j", "i", "k")}


def moved_acceleration(A, current, twist):
    return frames.transform(A, TO_N, current, twist)


def odd_ones(good, f, operation, kinds):
    """Every label of every argument wrong in turn; the rest as in `good`."""
    for name, labels in good.items():
        for i in range(3):
            wrong = {**good, name: (*labels[:i], "odd", *labels[i + 1 :])}
            arguments = [kinds[n](*wrong[n]) for n in good]
            yield operation, f, arguments, {"odd", labels[i]}


KINDS = {"A": acceleration, "current": twist, "twist": twist, "t": lambda *_: placed("j", "i")}
IN_BODY = {"A": ("j", "i", "j"), "twist": ("j", "i", "j")}


def forces(A, twist):
    return frames.newton_euler(make("spatial inertia", "j"), A, twist)


def of_point(A, twist):
    return frames.point_acceleration(twist, A, make("point", "j"))


def log_rate(twist):
    return frames.log_with_time_derivative(placed("j", "i"), twist)


MISMATCHES += [
    *odd_ones(GOOD, moved_acceleration, "transform", KINDS),
    *odd_ones(IN_BODY, forces, "newton_euler", KINDS),
    *odd_ones(IN_BODY, of_point, "point_acceleration", KINDS),
    *odd_ones({"twist": ("j", "i", "j")}, log_rate, "log_with_time_derivative", KINDS),
    # Expressed in a third frame, which may move relative to both body and base.
    (
        "newton_euler",
        frames.newton_euler,
        [make("spatial inertia"), acceleration(), twist()],
        set("ijk"),
    ),
    (
        "point_acceleration",
        frames.point_acceleration,
        [twist(), acceleration(), make("point")],
        set("ijk"),
    ),
]


@pytest.mark.parametrize(("operation", "f", "arguments", "named"), MISMATCHES)
def test_a_mismatch_names_the_operation_and_the_frames_while_tracing(
    operation, f, arguments, named
):
    traced = {
        "eval_shape": lambda: jax.eval_shape(f, *arguments),
        "jit": lambda: jax.jit(f).lower(*arguments),
        "vmap": lambda: jax.make_jaxpr(jax.vmap(f))(*jax.tree.map(lambda x: x[None], arguments)),
    }
    for call in traced.values():
        with pytest.raises(rbd.FrameError) as error:
            call()
        message = str(error.value)
        assert message.startswith(f"{operation}: ")
        assert ": expected " in message
        assert {f'"{name}"' for name in named} <= set(re.findall(r'"[^"]*"', message)), message


def test_an_error_reads_well():
    with pytest.raises(rbd.FrameError) as error:
        twist("torso", "world", "world") + twist("hand", "elbow", "world")
    assert str(error.value) == (
        'addition: twist of "torso" relative to "world" expressed in "world" and twist of "hand" '
        'relative to "elbow" expressed in "world": expected the base of one to be the body of the '
        "other"
    )
    with pytest.raises(rbd.FrameError) as error:
        placed("elbow", "world") @ make("point", "hand")
    assert str(error.value) == (
        'transform: point expressed in "hand" and transform from "elbow" to "world": expected a '
        'transform from "hand"'
    )


def test_check_accepts_the_allowed_frames_and_names_all_others():
    point, hand = make("point"), frames.Frame("hand")
    for allowed in (["k"], ["hand", "k"], ["k", "hand"], [hand, make("wrench")]):
        frames.check("k", *allowed)
        frames.check(point, *allowed)
    frames.check(twist(frame="hand"), hand)

    with pytest.raises(rbd.FrameError) as error:
        jax.eval_shape(lambda p: frames.check(p, "hand", make("wrench", "n")), point)
    assert str(error.value) == (
        'check: point expressed in "k": expected "hand" or wrench expressed in "n"'
    )
    with pytest.raises(rbd.FrameError, match=r'^check: "hand": expected "k"$'):
        frames.check(hand, "k")
    with pytest.raises(rbd.FrameError):
        frames.check(frames.Frame(), frames.Frame())
    bare_check = inspect.unwrap(frames.check)
    for call in (lambda: bare_check("", "k"), lambda: bare_check("k", "k", None)):
        with pytest.raises(rbd.ArgumentError, match=r"^frame is .*, expected"):
            call()
    with pytest.raises(rbd.ArgumentError, match=r"^check: the allowed frames are missing"):
        frames.check("k")


def test_an_acceleration_needs_its_twists_and_nothing_else_takes_any():
    with pytest.raises(rbd.ArgumentError, match=r'acceleration of "j".* needs twist_of_current'):
        TO_N @ acceleration()
    with pytest.raises(rbd.ArgumentError, match=r"point expressed in .* takes no twists"):
        frames.transform(make("point"), TO_N, twist())


# The annotations would catch these in the tests before the functions do.
WRONG_TYPES = [
    (frames.dot, [make("momentum"), twist()], "Wrench"),
    (frames.dot, [make("wrench"), acceleration()], "Twist"),
    (frames.cross, [twist(), acceleration()], "Twist"),
    (frames.cross, [make("momentum"), make("momentum")], "FreeVector"),
    (frames.cross, [make("free vector"), twist()], "FreeVector"),
    (frames.cross, [twist(), make("free vector")], "FreeVector"),
    (frames.kinetic_energy, [make("spatial inertia"), acceleration()], "Twist"),
    (frames.newton_euler, [make("spatial inertia"), twist(), acceleration()], "Spatial"),
    (frames.point_acceleration, [acceleration(), twist(), make("point")], "Twist"),
    (frames.point_velocity, [twist(), make("free vector")], "Point"),
    (frames.center_of_mass, [jnp.zeros(10)], "SpatialInertia"),
    (frames.exp, [acceleration()], "Twist"),
    (frames.log, [pose()], "Transform"),
    (frames.log_with_time_derivative, [placed(), acceleration()], "Twist"),
    (frames.transform, [jnp.zeros(3), TO_N], "Quantity"),
    (frames.transform, [make("point"), pose()], "Transform"),
    (frames.transform, [acceleration(), TO_N, acceleration(), twist()], "Twist"),
]


@pytest.mark.parametrize(("f", "arguments", "expected"), WRONG_TYPES)
def test_a_wrong_type_is_an_error(f, arguments, expected):
    with pytest.raises(
        rbd.ArgumentError, match=rf"{f.__name__}: found a \w+, expected a _?{expected}"
    ):
        inspect.unwrap(f)(*arguments)


def test_only_numbers_scale_and_only_what_adds_adds():
    for x, y in itertools.product(map(make, MAKE), map(make, MAKE)):
        allowed = {(frames.Point, frames.FreeVector), (frames.FreeVector, frames.Point)}
        if type(x) is not type(y) and (type(x), type(y)) not in allowed:
            with pytest.raises(TypeError):
                x + y
        if type(x) is not type(y) and (type(x), type(y)) != (frames.Point, frames.FreeVector):
            with pytest.raises(TypeError):
                x - y
    point, wrench = make("point"), make("wrench")
    for f in (
        lambda: point + point,
        lambda: 2 * point,
        lambda: wrench * np.ones(6),
        lambda: np.ones(6) * wrench,
        lambda: jnp.ones(6) * wrench,
        lambda: wrench / jnp.ones(6),
        lambda: "2" * wrench,
        lambda: placed() @ jnp.ones(3),
        lambda: make("spatial inertia") @ acceleration(),
    ):
        with pytest.raises(TypeError):
            f()
    for number in (2, 2.0, np.float64(2), jnp.array(2.0)):
        same(number * wrench, frames.Wrench(2 * wrench.array, frame="k"))
        same(wrench * number / number, wrench)
    one = dict.fromkeys(("body", "base", "frame"), "k")
    columns = [frames.GeometricJacobian(np.zeros((6, n)), **one) for n in (1, 4)]
    for combine, operation in ((operator.add, "addition"), (operator.sub, "subtraction")):
        with pytest.raises(
            rbd.ArgumentError, match=rf"^{operation}: .* shapes \(6, 1\) and \(6, 4\)"
        ):
            combine(*columns)
    for matrix in (make("geometric Jacobian"), make("momentum matrix")):
        with pytest.raises(rbd.ArgumentError, match=r"v has shape \(3,\), expected \(4,\)"):
            matrix @ jnp.ones(3)


# ------------------------------------------------------------------- nothing is left when compiled


def labelled(X_WA, X_AB, I_A, I_B, V_A, V_B, A_A, A_B):
    """Newton-Euler of a two-body chain: wrench and momentum in the world, and a power."""
    to_world = frames.Transform(X_WA, from_="a", to="world")
    to_a = frames.Transform(X_AB, from_="b", to="a")
    I_A = frames.SpatialInertia(I_A, frame="a")
    I_B = frames.SpatialInertia(I_B, frame="b")
    V_A = frames.Twist(V_A, body="a", base="world", frame="a")
    V_B = frames.Twist(V_B, body="b", base="a", frame="b")
    A_A = frames.SpatialAcceleration(A_A, body="a", base="world", frame="a")
    A_B = frames.SpatialAcceleration(A_B, body="b", base="a", frame="b")
    to_b = to_a.inverse()
    V_AB = to_b @ V_A
    A_AB = frames.transform(A_A, to_b, -(to_a @ V_B), V_A)
    V, A = V_AB + V_B, A_AB + A_B
    w_B = frames.newton_euler(I_B, A, V)
    w_A = frames.newton_euler(I_A, A_A, V_A) + to_a @ w_B
    power = frames.dot(w_B, V) + frames.kinetic_energy(I_A, V_A)
    h = to_world @ (I_A @ V_A + to_a @ (I_B @ V))
    return (to_world @ w_A).array, power, h.array


def bare(X_WA, X_AB, I_A, I_B, V_A, V_B, A_A, A_B):
    """The same without labels."""
    X_BA = spatial.inverse(X_AB)
    V_AB = spatial.transform_motion(X_BA, V_A)
    current = -spatial.transform_motion(X_AB, V_B)
    A_AB = spatial.transform_motion(X_BA, A_A + spatial.cross_motion(current, V_A))
    V, A = V_AB + V_B, A_AB + A_B
    w_B = spatial.apply_inertia(I_B, A) + spatial.gyroscopic_force(I_B, V)
    w_A = spatial.apply_inertia(I_A, A_A) + spatial.gyroscopic_force(I_A, V_A)
    w_A = w_A + spatial.transform_force(X_AB, w_B)
    power = jnp.sum(w_B * V) + jnp.sum(V_A * spatial.apply_inertia(I_A, V_A)) / 2
    h_A = spatial.apply_inertia(I_A, V_A)
    h_B = spatial.transform_force(X_AB, spatial.apply_inertia(I_B, V))
    h = spatial.transform_force(X_WA, h_A + h_B)
    return spatial.transform_force(X_WA, w_A), power, h


def chain_of_two():
    rng = np.random.default_rng(0)
    inertias = [jnp.array(zoo.random_inertia(rng)) for _ in range(2)]
    return (pose(1), pose(2), *inertias, *jnp.array(rng.normal(size=(4, 6))))


def instructions(program, arguments):
    """The compiled program, without the files, lines and functions that it came from."""
    text = jax.jit(program).lower(*arguments).compile().as_text()
    text = text[re.search(r"^(%|ENTRY )", text, re.MULTILINE).start() :]
    return re.sub(r", metadata=\{[^}]*\}", "", text)


def test_the_compiled_program_is_the_one_without_labels():
    arguments = chain_of_two()
    assert str(jax.make_jaxpr(labelled)(*arguments)) == str(jax.make_jaxpr(bare)(*arguments))
    found, expected = instructions(labelled, arguments), instructions(bare, arguments)
    assert len(expected.splitlines()) > 50
    assert found == expected


@pytest.mark.slow
def test_labelled_programs_transform_as_others_do():
    arguments = chain_of_two()

    def derivatives(program):
        def f(V_A, A_B):
            wrench, power, h = program(*arguments[:4], V_A, arguments[5], arguments[6], A_B)
            return power + jnp.sum(wrench * h)

        def all_of_them(V_A, A_B):
            return (
                jax.grad(f, argnums=(0, 1))(V_A, A_B),
                jax.jacfwd(f)(V_A, A_B),
                jax.hessian(f)(V_A, A_B),
            )

        return jax.jit(jax.vmap(all_of_them, in_axes=(0, None)))

    V = jnp.stack([arguments[4], 2 * arguments[4], 0 * arguments[4]])
    found, expected = (derivatives(program)(V, arguments[7]) for program in (labelled, bare))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        close(a, b, 0)
    assert found[2].shape == (3, 6, 6)


def test_labelled_quantities_pass_through_transformations():
    """As arguments and results of jit, vmap, grad and scan."""
    I, T, t = make("spatial inertia"), twist(), placed()
    energy = jax.jit(jax.grad(frames.kinetic_energy, argnums=1))(I, T)
    same(energy, frames.Twist((I @ T).array, body="j", base="i", frame="k"))
    many = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), T)
    moved = jax.jit(jax.vmap(lambda x: t @ x))(many)
    assert (moved.frame, moved.array.shape) == ("n", (2, 6))
    close(moved.array[1], 2 * (t @ T).array)

    def step(total, x):
        return total + t @ frames.Wrench(x, frame="k"), total.array

    total, _ = jax.lax.scan(step, frames.Wrench(jnp.zeros(6), frame="n"), jnp.eye(6))
    same(total, t @ frames.Wrench(jnp.ones(6), frame="k"))
    with pytest.raises(TypeError, match="carry"):  # whose frame changes from step to step
        jax.lax.scan(lambda carry, x: (t @ carry, x), T, jnp.eye(6))


# --------------------------------------------------------------------------------- a robot's state

ROBOTS = {"coupled": zoo.coupled, "following": zoo.following}
robots = pytest.mark.parametrize("robot", nightly.all_but(["coupled"], ["coupled", "following"]))


@jax.jit
def placements(model, q, v, a):
    """World poses of the bodies as 4x4 matrices, with two derivatives along the motion."""

    def at(t):
        moved = rbd.integrate(model, q, t * v + t * t / 2 * a)
        return spatial.pose_matrix(rbd.forward_kinematics(model, moved).X_WB)

    return at(0.0), rate(at, 0.0), rate(lambda t: rate(at, t), 0.0)


def vector(S):
    return np.array([*S[:3, 3], S[2, 1], S[0, 2], S[1, 0]])


def test_an_acceleration_is_the_rate_of_the_twist_in_a_moving_frame():
    model = zoo.chain(3)
    q, v, a, _ = zoo.state(model)

    @jax.jit
    def at(t):
        state = frames.State(model, rbd.integrate(model, q, t * v + t * t / 2 * a), v + t * a, a)
        of_bodies = "l2", "l1", "l0"
        return (
            state.relative_twist(*of_bodies).array,
            state.relative_acceleration(*of_bodies).array,
        )

    close(at(jnp.zeros(()))[1], finite_differences.slope(lambda t: at(t)[0], 1e-3), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
def test_relative_motions_of_any_two_bodies_in_any_frame(robot):
    """Against the definition of the twist in 4x4 matrices, and its derivative."""
    model = ROBOTS[robot]()
    q, v, a, _ = zoo.state(model)
    state = frames.State(model, q, v, a)
    names = ["world", *model.body_names]
    derivatives = (np.array(x) for x in placements(model, q, v, a))
    still = (np.eye(4), np.zeros((4, 4)), np.zeros((4, 4)))
    H, H_dot, H_ddot = (dict(zip(names, [w, *x])) for w, x in zip(still, derivatives))
    omega = {n: H_dot[n] @ np.linalg.inv(H[n]) for n in names}
    alpha = {n: H_ddot[n] @ np.linalg.inv(H[n]) - omega[n] @ omega[n] for n in names}
    picks = np.random.default_rng(0).integers(len(names), size=(6, 3))
    triples = [("l2", "world", "world"), *(tuple(names[n] for n in pick) for pick in picks)]
    for j, i, k in triples:
        to_k, S = np.linalg.inv(H[k]), omega[j] - omega[i]
        S_dot = alpha[j] - alpha[i] + S @ omega[k] - omega[k] @ S
        V = frames.Twist(vector(to_k @ S @ H[k]), body=j, base=i, frame=k)
        A = frames.SpatialAcceleration(vector(to_k @ S_dot @ H[k]), body=j, base=i, frame=k)
        same(state.relative_twist(j, i, k), V, 1e-11)
        same(state.transform(state.relative_twist(j, i), k), V, 1e-11)
        same(state.jacobian(j, i, k) @ v, V, 1e-11)
        same(state.relative_acceleration(j, i, k), A, 1e-10)
        same(state.transform(state.relative_acceleration(j, i), k), A, 1e-10)


def laws_of_mass(model, q, v, a):
    """Pairs that must be equal, of labelled quantities of a whole robot without armature."""
    state = frames.State(model, q, v, a)
    bodies, last = model.body_names, model.body_names[-1]

    def total(f):
        """The sum over the bodies of something in the frame of the last."""
        return functools.reduce(operator.add, (state.transform(f(b), last) for b in bodies))

    def momentum(t):
        moved = rbd.integrate(model, q, t * v + t * t / 2 * a)
        return frames.State(model, moved, v + t * a).momentum().array

    def force(b):
        T, A = state.relative_twist(b), state.relative_acceleration(b)
        return frames.newton_euler(state.inertia(b), A, T)

    weight = {b: state.gravity_wrench(b) for b in bodies}
    twists = {b: state.relative_twist(b) for b in bodies}
    weight_on_bodies = sum(state.external_force(weight[b], b) for b in bodies)
    power = sum(frames.dot(weight[b], twists[b]) for b in bodies)
    energy = sum(frames.kinetic_energy(state.inertia(b), twists[b]) for b in bodies)
    h, com = state.momentum(last), state.center_of_mass()
    to_com = frames.Transform(rbd.Pose(jnp.eye(3), -com.array), from_="world", to="com")
    centroidal = frames.Momentum(rbd.centroidal_momentum(model, q, v), frame="com")
    wrench = frames.Wrench(jnp.arange(1.0, 7.0), frame="world")
    pushed = rbd.bias_force(model, q, v, state.external_force(wrench, last))
    to_last = state.relative_transform("world", last)
    rate_of_momentum = frames.Wrench(rate(momentum, 0.0), frame="world")
    return {
        "Newton-Euler": (total(force), to_last @ rate_of_momentum),
        "sum of forces": (
            sum(state.newton_euler(b, last) for b in bodies),
            to_last @ rate_of_momentum,
        ),
        "force in the body": (state.newton_euler(last), force(last)),
        "momentum": (total(lambda b: state.inertia(b) @ twists[b]), h),
        "momentum matrix": (state.momentum_matrix(last) @ v, h),
        "centroidal momentum": (to_com @ state.momentum(), centroidal),
        "centre of mass": (com, frames.Point(rbd.center_of_mass(model, q), frame="world")),
        "its frame": (to_last @ com, state.center_of_mass(last)),
        "inertia": (frames.center_of_mass(total(state.inertia)), state.center_of_mass(last)),
        "weight": (rbd.algorithms.static_torque(model, q, -weight_on_bodies), jnp.zeros(model.nv)),
        "power": (power, -jnp.sum(rbd.gravity_force(model, q) * v)),
        "energy": (energy, rbd.kinetic_energy(model, q, v)),
        "push": (
            rbd.bias_force(model, q, v) - pushed,
            wrench.array @ state.jacobian(last, frame="world").array,
        ),
    }


@pytest.mark.slow
@robots
def test_a_state_has_the_mass_momentum_and_forces_of_its_robot(robot):
    model = ROBOTS[robot]()
    model = dataclasses.replace(model, armature=0 * model.armature)
    q, v, a, _ = zoo.state(model)
    for law, (found, expected) in laws_of_mass(model, q, v, a).items():
        assert jax.tree.structure(found) == jax.tree.structure(expected), law
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
            close(x, y, 1e-11, law)


def test_a_welded_link_is_a_frame_and_a_fixed_one_is_a_base():
    arm = rbd.load_robot("arm7")
    state = frames.State(arm, *zoo.state(arm)[:3])
    tool, flange = (state.relative_twist(name, "base", "world") for name in ("tool", "flange"))
    close(tool.array, flange.array)
    assert (tool.body, tool.base, tool.frame) == ("tool", "base", "world")
    close(state.relative_twist("tool", "flange").array, jnp.zeros(6))
    push = frames.Wrench(jnp.ones(6), frame="tool")
    expected = rbd.external_force(arm, state.kinematics, "tool", push.array, "local")
    close(state.external_force(push, "tool"), expected)
    close(state.external_force(push, "base"), jnp.zeros((arm.nb, 6)), 0)
    link = arm.body_names[-1]
    assert link != "tool"
    T, A = state.relative_twist(link), state.relative_acceleration(link)
    force = frames.newton_euler(state.inertia(link), A, T)
    to_tool = state.relative_transform(link, "tool")
    same(state.newton_euler(link, "tool"), to_tool @ force)
    same(state.newton_euler(link), force)
    J = state.jacobian("tool", frame="tool").array
    close(J, rbd.frame_jacobian(arm, state.kinematics, "tool", "local"))


def world_link(joint):
    link, arm = (
        rbd.model.Link("world"),
        rbd.model.Link("arm", rbd.model.link_inertia(1.0, (0.1, 0.0, 0.3))),
    )
    hinge = rbd.model.JointSpec("hinge", joints.Revolute((1, 0, 0)), "world", "arm")
    placement = rbd.model.placement_matrix((1.0, 2.0, 3.0), (0.1, 0.2, 0.3))
    fixed = rbd.model.JointSpec("base", joint, None, "world", placement)
    return rbd.build_model([link, arm], [fixed, hinge])


@pytest.mark.slow
def test_a_link_named_world_is_the_world_if_it_is_fixed():
    model = world_link(rbd.model.Fixed())
    state = frames.State(model, jnp.array([0.4]), jnp.array([2.0]))
    close(state.relative_twist("arm", frame="world").array, jnp.array([0, 0, 0, 2.0, 0, 0]))
    expected = spatial.transform_point(
        spatial.inverse(rbd.frame_placement(model, jnp.array([0.4]), "world")),
        rbd.center_of_mass(model, jnp.array([0.4])),
    )
    same(state.center_of_mass(), frames.Point(expected, frame="world"))
    to_world = state.relative_transform("arm")
    same(state.momentum(), to_world @ (state.inertia("arm") @ state.relative_twist("arm")))
    same(to_world @ state.gravity_wrench("arm"), state.gravity_wrench("arm", "world"))
    moving = world_link(joints.Prismatic((0, 0, 1)))
    with pytest.raises(rbd.ArgumentError, match=r"^Model.* has a moving link named 'world'"):
        frames.State(moving, jnp.zeros(2), jnp.zeros(2))


def test_a_state_names_what_a_robot_has_not():
    model = zoo.small()
    q, v, a, _ = zoo.state(model)
    state = frames.State(model, q, v, a)
    for call in (
        lambda: state.relative_twist("l7"),
        lambda: state.relative_twist("l1", "l7"),
        lambda: state.jacobian("l1", "l2", "l7"),
        lambda: state.relative_transform("l1", "l7"),
        lambda: state.momentum("l7"),
        lambda: state.transform(frames.Point(jnp.zeros(3), frame="l7"), "l1"),
        lambda: state.external_force(frames.Wrench(jnp.zeros(6), frame="l1"), "l7"),
    ):
        with pytest.raises(rbd.ArgumentError, match=r"^no frame 'l7' in Model.*; frames: \['l0'"):
            call()
    for call in (
        lambda: state.inertia("world"),
        lambda: state.gravity_wrench("world"),
        lambda: state.newton_euler("world"),
    ):
        with pytest.raises(
            rbd.ArgumentError, match=r"^no moving body 'world' in .*; bodies: \['l0'"
        ):
            call()
    with pytest.raises(rbd.ArgumentError, match=r"^q has shape"):
        frames.State(model, q[1:], v)
    with pytest.raises(rbd.ArgumentError, match=r"^v has shape"):
        frames.State(model, q, v[1:])
    with pytest.raises(rbd.ArgumentError, match=r"^a has shape"):
        frames.State(model, q, v, a[1:])
    with pytest.raises(rbd.ArgumentError, match=r"^external_force: found a Momentum, expected a W"):
        inspect.unwrap(type(state).external_force)(state, state.momentum(), "l1")
    bias = frames.State(model, q, v).relative_acceleration("l2", frame="world").array
    close(bias, rbd.frame_acceleration(model, q, v, 0 * a, "l2", "world"), 1e-11)


def test_a_state_is_single_where_its_robot_is_and_batches():
    model = zoo.small().astype(jnp.float32)
    q, v, a, _ = zoo.state(model)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0, 0, 0))
    def all_of_it(model, q, v, a):
        state = frames.State(model, q, v, a)
        T = state.relative_acceleration("l2", "l1", "l0"), state.relative_twist("world", "l1")
        more = state.momentum(), state.momentum_matrix("l1") @ v, state.jacobian("world") @ v
        return T, more, state.gravity_wrench("l1"), state.center_of_mass("l2"), state

    shapes = jax.eval_shape(all_of_it, model, *(jnp.stack([x, x]) for x in (q, v, a)))
    assert {(x.dtype, x.shape[0]) for x in jax.tree.leaves(shapes)} == {(jnp.dtype("float32"), 2)}
    gradient = jax.grad(lambda model: frames.State(model, q, v).center_of_mass("l2").array[0])
    assert jax.eval_shape(gradient, model).inertia.shape == model.inertia.shape
