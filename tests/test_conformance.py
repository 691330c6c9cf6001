"""The conformance suite: jaxrbd passes it, and libraries with planted faults do not.

The suite's reference derivatives are compared with mpmath.
"""

import dataclasses
import json
import math
import re
import types

import chex
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax

import jaxrbd as rbd
from jaxrbd import conformance
from jaxrbd.conformance import (
    ALL_TREES,
    CONDITIONS,
    KINDS,
    PLACES,
    Adapter,
    JaxRBD,
    Tree,
    Unsupported,
    check_distances,
    distances,
    make_robot,
    run,
    true_derivatives,
    urdf,
)
from jaxrbd.conformance.__main__ import _QUICK_KINDS, main
from jaxrbd.conformance.report import ERROR, NOT_FINITE
from jaxrbd.conformance.solutions import _check, _motion, _posture, _Problem
from jaxrbd.conformance.truth import stencil
from support import nightly

HINGES = tuple(Tree("revolute", place) for place in PLACES)


# ------------------------------------------------------------------------------------ the truth


def test_stencil_is_exact_for_polynomials():
    points, weights = stencil()
    assert np.min(np.abs(points)) == 0.5
    for degree in range(16):
        expected = [math.factorial(n) * (degree == n) for n in (1, 2, 3)]
        size = np.abs(weights) @ np.abs(points) ** degree
        assert np.all(np.abs(weights @ points**degree - expected) <= 1e-14 * size)


@pytest.mark.parametrize(
    "curve",
    [mpmath.sin, mpmath.exp, lambda t: 1 / (2 + t), lambda t: mpmath.sqrt(3 + mpmath.cos(2 * t))],
)
@pytest.mark.parametrize("at", [0.0, 1e-9, 0.7])
def test_differences_are_the_derivatives_and_know_their_error(curve, at):
    found, gap = true_derivatives(lambda t: np.array(float(curve(mpmath.mpf(at) + t))))
    expected = np.array([float(x) for x in mpmath.diffs(curve, at, 3)])
    assert np.all(np.abs(found - expected) <= np.array([1e-15, 1e-12, 1e-11, 1e-9]))
    assert np.all(np.abs(found - expected) <= gap)


def test_differences_of_a_kink_are_known_to_be_nothing():
    _, gap = true_derivatives(lambda t: np.array(abs(t)))
    assert gap[2] > 1
    _, gap = true_derivatives(lambda t: np.array(np.nan))
    assert np.all(np.isnan(gap[1:]))


def test_truth_of_a_pendulum_is_that_of_mpmath():
    """The acceleration -(g / l) sin(q) of a point mass: the suite's derivatives and exact ones."""
    length = 0.7
    bob = rbd.model.Link("bob", rbd.model.link_inertia(2.0, (0, 0, -length)))
    hinge = rbd.model.JointSpec("hinge", rbd.joints.Revolute((0, 1, 0)), None, "bob")
    model = rbd.build_model([bob], [hinge])
    zero = jnp.zeros(1)

    def acceleration(angle, t):
        return rbd.forward_dynamics(model, jnp.reshape(angle + t, (1,)), zero, zero)[0]

    value = jax.jit(acceleration)
    for angle in conformance.ANGLES.values():
        exact = mpmath.diffs(lambda t: -mpmath.mpf(9.81) / length * mpmath.sin(angle + t), 0, 3)
        expected = np.array([float(x) for x in exact])
        found, _ = true_derivatives(lambda t: np.asarray(value(angle, t)))
        assert np.all(np.abs(found - expected) <= np.array([1e-13, 1e-11, 1e-10, 1e-8]))


def test_truth_of_a_step_of_a_free_body_is_that_of_mpmath():
    """The quaternion [sin(|w| h/2) w/|w|, cos(|w| h/2)] after a step of h, w = a + t b."""
    body = rbd.model.Link("body", rbd.model.link_inertia(1.0, (0, 0, 0), np.eye(3)))
    model = rbd.build_model(
        [body], [rbd.model.JointSpec("free", rbd.joints.FreeFlyer(), None, "body")]
    )
    axis, b, h = np.array([0.6, 0.0, 0.8]), np.array([0.3, -0.5, 0.2]), 0.5

    def quaternion(speed, t):
        w = jnp.concatenate([jnp.zeros(3), speed * axis + t * b])
        return rbd.integrate(model, rbd.neutral(model), h * w)[3:]

    def exact(i, speed):
        def entry(t):
            w = [
                speed * mpmath.mpf(x) + t * mpmath.mpf(y) for x, y in zip(axis.tolist(), b.tolist())
            ]
            half = mpmath.sqrt(sum(x * x for x in w)) * h / 2
            return mpmath.cos(half) if i == 3 else w[i] * h / 2 * mpmath.sinc(half)

        with mpmath.workdps(60):
            return [float(x) for x in mpmath.diffs(entry, 0, 3)]

    value = jax.jit(quaternion)
    for speed in (*conformance.SPEEDS.values(), 1.0):
        expected = np.array([exact(i, speed) for i in range(4)]).T
        found, _ = true_derivatives(lambda t: np.asarray(value(speed, t)))
        tolerance = np.array([1e-14, 1e-13, 1e-12, 1e-10])[:, None]
        assert np.all(np.abs(found - expected) <= tolerance)


# ------------------------------------------------------------------------------- what is tested


def test_every_kind_stands_at_every_place():
    assert {(tree.kind, tree.place) for tree in ALL_TREES} == {
        (k, p) for k in KINDS for p in PLACES
    }
    model = make_robot(ALL_TREES).model()
    assert {type(joint).__name__ for joint in model.joints} == {
        name for name in vars(rbd.joints) if name[0].isupper() and _is_joint(name)
    } - {"Custom"}  # a user defines it
    assert model.coupling is not None
    assert np.sum(np.asarray(model.inertia)[:, 0] == 0) >= 3


def _is_joint(name):
    kind = getattr(rbd.joints, name)
    return isinstance(kind, type) and hasattr(kind, "nq") and issubclass(kind, rbd.joints.Joint)


@pytest.mark.parametrize("kind", ["revolute", "prismatic", "mimic"])
def test_urdf_of_a_robot_is_the_robot(kind):
    robot = make_robot([Tree(kind, "middle")])
    read, built = rbd.load_urdf(urdf(robot)), robot.model()
    assert read.joint_names == built.joint_names
    chex.assert_trees_all_close(read.placement, built.placement, rtol=0, atol=1e-14)
    np.testing.assert_allclose(read.inertia, built.inertia, atol=1e-14)
    for a, b in zip(read.joints, built.joints):
        np.testing.assert_allclose(_unit(a.axis), _unit(b.axis), atol=1e-14)


def _unit(axes):
    return axes / jnp.linalg.norm(axes, axis=-1, keepdims=True)


def test_urdf_says_what_it_cannot():
    with pytest.raises(Unsupported, match="spherical_leaf_joint3"):
        urdf(make_robot([Tree("spherical", "leaf")]))


# ------------------------------------------------------------------------------- jaxrbd is right


QUICK = [tree for tree in ALL_TREES if tree.kind in ("revolute", "free_flyer")]


QUICK_TREES = [tree for tree in ALL_TREES if tree.kind in _QUICK_KINDS]


def all_right(report):
    assert not report.wrong.any(), report.details()[:3000]
    assert not report.notes
    assert np.any(report.errors > 0)


@pytest.mark.parametrize(
    "quantity",
    nightly.all_but(["placement"], conformance.QUANTITIES),
)
def test_jaxrbd_is_right(quantity):
    """Every quantity of two kinds, in double precision: first and second derivatives."""
    all_right(run(trees=QUICK, quantities=(quantity,), order=2, precisions=("float64",)))


@pytest.mark.slow
def test_jaxrbd_is_right_in_single_precision():
    options = {"precisions": ("float32",), "modes": ("reverse",), "order": 1}
    all_right(run(trees=QUICK, quantities=("forward_dynamics", "step"), **options))


@pytest.mark.slow
def test_jaxrbd_is_right_everywhere():
    report = run()
    all_right(report)
    assert np.all(report.uncertainty <= np.array([0, 1e-10, 1e-9, 1e-8]) / 3)


# ----------------------------------------------------------------- what is broken is found out


@dataclasses.dataclass
class Broken(Adapter):
    """jaxrbd with q and v changed by given functions first."""

    spoil_q: object = staticmethod(lambda q: q)
    spoil_v: object = staticmethod(lambda v: v)
    name = "broken"

    def load(self, robot):
        right = JaxRBD().load(robot)
        return conformance.Functions(
            placement=lambda q: right.placement(self.spoil_q(q)),
            step=lambda q, v: right.step(q, self.spoil_v(v)),
        )


def guarded(q):
    """A guard that cuts the derivative at small angles."""
    return jnp.where(jnp.abs(q) < 1e-8, 0.0, q)


def through_norm(v):
    """A norm whose derivative at rest is NaN."""
    return v + 0 * jnp.sqrt(v * v)


@jax.custom_jvp
def cosine(x):
    return jnp.cos(x)


@jax.custom_jvp
def sine(x):
    return jnp.sin(x)


cosine.defjvp(lambda p, t: (jnp.cos(*p), jnp.sin(*p) * t[0]))  # the sign
sine.defjvp(lambda p, t: (jnp.sin(*p), cosine(*p) * t[0]))


def of_wrong_sign(q):
    """A wrong sign in the second derivative."""
    return q + (sine(q) - jnp.sin(q))


def looped(q):
    """A loop that has no reverse mode."""
    return lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, 2 * c[1] / 2), (0, q))[1]


def broken_at(report, **labels):
    """The names of the states with a wrong case."""
    return {c.name for c in report.conditions if report.select(condition=c, **labels)[1].any()}


def states(predicate):
    return {c.name for c in CONDITIONS if predicate(c) and c.scale == 1}


@pytest.mark.slow
def test_a_guard_that_cuts_the_derivative_at_small_angles_is_found():
    report = run(
        Broken(guarded), trees=HINGES, quantities=("placement",), order=1, precisions=("float64",)
    )
    small = states(lambda c: c.angle is not None and c.angle < 1e-8)
    for mode in conformance.MODES:
        assert broken_at(report, order=1, mode=mode) == small
    assert broken_at(report, order=0) == states(lambda c: c.angle == 1e-9)
    assert broken_at(report, direction="v") == broken_at(report, order=0)
    for tree in HINGES:
        assert "WRONG" in report.verdict(tree=tree, order=1)
        errors, wrong = report.select(tree=tree, order=1, direction="q")
        assert np.nanmax(errors[wrong]) > 0.01


@pytest.mark.gives_nan
def test_a_norm_at_rest_is_found():
    report = run(
        Broken(spoil_v=through_norm),
        trees=HINGES,
        quantities=("step",),
        order=1,
        precisions=("float64",),
    )
    assert broken_at(report) == states(lambda c: c.speed == 0)
    errors, wrong = report.select(order=1)
    assert np.all(errors[wrong] == NOT_FINITE)
    assert report.verdict(order=1, condition=CONDITIONS[0]).startswith("nan ")
    assert report.verdict(order=0).startswith("ok ")


def test_a_wrong_sign_in_the_second_derivative_is_found():
    report = run(
        Broken(of_wrong_sign),
        trees=HINGES,
        quantities=("placement",),
        order=2,
        precisions=("float64",),
    )
    assert not broken_at(report, order=[0, 1])
    for mode in conformance.MODES:
        found = broken_at(report, order=2, mode=mode, tree=HINGES[0], direction="q")
        # At the neutral state sin(q) is zero or close to it. All other states show the fault.
        assert found == states(lambda c: not (c.whole and c.angle == 0))


def test_an_exception_in_one_mode_is_an_error_in_its_cells():
    report = run(
        Broken(looped), trees=HINGES, quantities=("placement",), order=1, precisions=("float64",)
    )
    assert report.verdict(mode="forward").startswith("ok ")
    errors, wrong = report.select(mode="reverse", order=1)
    assert np.all(errors[wrong] == ERROR)
    assert np.all(wrong | np.isnan(errors))
    (note,) = report.notes
    assert "reverse, order 1" in note


def test_what_a_library_does_not_have_is_not_tested():
    class Little(JaxRBD):
        name = "little"

        def robots(self, trees):
            return [[tree] for tree in trees if tree.place != "leaf"]

        def load(self, robot):
            if robot.trees[0].place == "middle":
                raise Unsupported("no middle")
            return dataclasses.replace(super().load(robot), placement=None)

    report = run(
        Little(),
        trees=HINGES,
        quantities=("placement", "step"),
        order=1,
        precisions=("float64",),
        modes=("forward",),
    )
    assert report.verdict(quantity="placement") == "-"
    assert report.verdict(tree=HINGES[0]).startswith("ok ")
    assert report.verdict(tree=HINGES[1]) == report.verdict(tree=HINGES[2]) == "-"
    assert report.notes == ["revolute_middle: no middle"]


def off_by(first, second=0.0, third=0.0):
    """The identity, with given errors in its first, second and third derivative."""

    @jax.custom_jvp
    def curvature(q):
        return jnp.full_like(q, second)

    @jax.custom_jvp
    def slope(q):
        return jnp.full_like(q, 1 + first)

    @jax.custom_jvp
    def identity(q):
        return q

    curvature.defjvp(lambda p, t: (curvature(*p), jnp.asarray(third, t[0].dtype) * t[0]))
    slope.defjvp(lambda p, t: (slope(*p), curvature(*p) * t[0]))
    identity.defjvp(lambda p, t: (p[0], slope(*p) * t[0]))
    return identity


@dataclasses.dataclass
class Off(Adapter):
    """jaxrbd with planted relative errors in the values and in the derivatives in q."""

    value: float
    derivatives: object
    name = "off"

    def load(self, robot):
        right = JaxRBD().load(robot).placement

        def placement(q):
            R, p = right(self.derivatives(q))
            factor = jnp.asarray(1 + self.value, q.dtype)
            return factor * R, factor * p

        return conformance.Functions(placement=placement)


@pytest.mark.parametrize(("size", "found"), [(4.0, True), (0.03, False)])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_an_error_just_above_the_tolerance_is_found_and_one_below_it_is_not(precision, size, found):
    """For every order and both precisions, the tolerances are those of the documents."""
    stated = {"float64": (1e-11, 1e-10, 1e-9, 1e-8), "float32": (1e-4, 1e-4, 1e-4, 1e-4)}
    # A coordinate changes by about 0.5 along the curve, and its powers reduce the errors.
    sizes = np.array([1, 2, 5, 15]) * size
    value, *derivatives = (float(x) for x in sizes * stated[precision])
    if precision == "float32":
        derivatives[1:] = 0.0, 0.0
    order = len(np.flatnonzero(derivatives))
    report = run(
        Off(value, off_by(*derivatives)),
        trees=HINGES,
        quantities=("placement",),
        order=order,
        modes=("forward",),
        precisions=(precision,),
    )
    for tree in HINGES:
        for n in range(order + 1):
            assert report.select(tree=tree, order=n)[1].any() == found, f"{tree}, order {n}"


# ------------------------------------------------------------------------ derivatives of solutions


def test_the_bounds_of_tested_solutions_exclude_the_solution_without_bounds():
    model, rng = rbd.load_robot("pendulum"), np.random.default_rng(0)
    q, v = jnp.asarray(rng.normal(size=(2, 5, 1)))
    motion = types.SimpleNamespace(xs=(q, v), us=jnp.asarray(rng.normal(size=(4, 1))))
    force, speed, last = _motion(model).bounds(motion)
    assert 0 < force < np.max(np.abs(motion.us))
    assert 0 < speed < np.max(v**2)
    assert abs(last) < abs(v[-1, 0])
    for q in (jnp.array([-0.9]), jnp.array([0.9])):
        lower, upper = _posture(model).bounds(types.SimpleNamespace(q=q))
        assert not lower <= q <= upper


@pytest.mark.slow
def test_derivatives_of_solutions_are_right(capsys):
    """Bounds of every kind are active, and no solution is the same for all parameters."""
    assert main(["--solutions", "double_pendulum"]) == 0
    table = capsys.readouterr().out
    assert "WRONG" not in table
    assert table.count("| ok ") == 10
    active = re.search("Active at the solutions: (.*)\\.", table)[1]
    counts = dict(reversed(part.split(" ", 1)) for part in active.split(", "))
    assert list(counts) == [
        "forces at a bound",
        "stages at the limit of the speed",
        "coordinates at a limit",
    ]
    assert "0" not in counts.values()


def planted(forward=0.0, reverse=0.0, scale=1.0):
    """A problem of `solutions.py` whose derivatives have relative errors in one of the modes."""

    @jax.custom_jvp
    def solution(x):
        return jnp.sin(x)

    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        slope = jnp.cos(x) * dx

        def linear(_, dx):
            return (1 + forward) * dx

        def transposed(_, cotangent):
            return (1 + reverse) * cotangent

        return jnp.sin(x), jax.custom_derivatives.linear_call(linear, transposed, (), slope)

    solution.defjvp(rule)
    return _Problem(
        lambda changes, bounds: (scale * solution(1 + changes["x"] + bounds), None),
        {"x": 1},
        jnp.zeros(1),
        lambda found: jnp.ones(1),
        lambda found, bounds: {},
    )


DERIVATIVES = ["first, forward", "first, reverse", "second", "points"]


def sine_distance(wrong, error, kink):
    """The function `_derivatives` of a "distance" sin(1 + t), with an error in one derivative."""
    length = distances._LENGTH
    factors = {name: 1 + (error if name == wrong else 0) for name in DERIVATIVES}

    def derivatives(t, *_):
        x = 1 + length * t
        first, second = length * jnp.cos(x), -(length**2) * jnp.sin(x)
        value = jnp.full(10, jnp.sin(x) + kink * jnp.abs(t - 0.01))
        forward = (
            jnp.full(10, factors["points"] * first).at[0].set(factors["first, forward"] * first)
        )
        return distances._Derivatives(
            value, forward, factors["first, reverse"] * first, factors["second"] * second
        )

    return derivatives


@pytest.mark.gives_nan
@pytest.mark.parametrize("name", DERIVATIVES)
def test_an_error_in_a_derivative_of_a_distance_is_found(name, monkeypatch):
    """An error just above the tolerance, one just below it, NaN, and unsure references."""
    for error, kink, wrong in (
        (4e-6, 0, [name]),
        (1e-6, 0, []),
        (np.nan, 0, [name]),
        (0, 1e-3, DERIVATIVES),
    ):
        monkeypatch.setattr(distances, "_derivatives", sine_distance(name, error, kink))
        report = check_distances([("sphere", "sphere")], samples=9)
        assert [check.derivative for check in report.checks if check.wrong] == wrong
        assert ("WRONG" in report.table()) == report.wrong == bool(wrong)


@pytest.mark.gives_nan
@pytest.mark.parametrize("mode", conformance.MODES)
@pytest.mark.parametrize(("size", "found"), [(2e-6, True), (5e-7, False), (np.nan, True)])
def test_an_error_in_the_derivative_of_a_solution_is_found(mode, size, found):
    """An error just above the stated tolerance, one just below it, and NaN."""
    with jax.enable_x64(True):
        checks, _ = _check("solver", planted(**{mode: size}))
    assert [check.mode for check in checks if check.wrong] == [mode] * found


def test_a_solution_that_does_not_depend_on_the_parameters_is_wrong():
    with jax.enable_x64(True):
        checks, _ = _check("solver", planted(scale=0.0))
    assert all(check.wrong for check in checks)


# ------------------------------------------------------------------------------------ the command


NORM, SIGN, LOOP = Broken(spoil_v=through_norm), Broken(of_wrong_sign), Broken(looped)
GUARD = Broken(guarded)


@pytest.mark.parametrize(
    ("fault", "quantity", "words"),
    [
        ("GUARD", "placement", ("along q: off by",)),
        ("NORM", "step", ("nan",)),
        ("SIGN", "placement", ("order 2, ", "along q: off by")),
        ("LOOP", "placement", ("reverse, ", "order 1", "Reverse-mode differentiation")),
    ],
)
def test_the_quick_run_finds_the_usual_faults(fault, quantity, words, capsys):
    """With the quick run's orders and modes, and one joint kind and one quantity to save time."""
    few = ["--kinds", "revolute", "--quantities", quantity, "--details"]
    assert main(["--quick", *few, "--adapter", f"test_conformance:{fault}"]) == 1
    out = capsys.readouterr().out
    for word in words:
        assert word in out


@pytest.mark.slow
def test_the_quick_run_says_how_long_it_will_take_and_how_far_it_is(capsys):
    few = "--kinds revolute --quantities placement step".split()
    assert main(["--quick", *few]) == 0
    out, progress = capsys.readouterr()
    assert "WRONG" not in out
    first, *lines = progress.splitlines()
    assert re.fullmatch(r"8 programs to compile and run, in about \d+ s", first)
    assert len(lines) == 8
    shares = [
        int(re.match(r" *(\d+)%, \d+ s left: revolute_root and 2 more: ", x)[1]) for x in lines
    ]
    assert shares == sorted(shares)
    assert shares[-1] == 100


class Told(Exception):
    """Raised after the estimate is printed, in place of the work."""


def test_the_quick_run_is_a_small_part_of_the_whole():
    """The estimates of both, which are printed before the work starts, are compared."""

    def tell(line):
        raise Told(line)

    told = []
    for trees, order in ((ALL_TREES, 3), (QUICK_TREES, conformance.QUICK_ORDERS)):
        with pytest.raises(Told) as line:
            run(trees=trees, order=order, progress=tell)
        told.append(re.search(r"about (\d+) (\w+)$", str(line.value)).groups())
    (minutes, unit), (seconds, small_unit) = told
    assert (unit, small_unit) == ("min", "s")
    assert int(seconds) < 60
    assert 6 * int(seconds) < 60 * int(minutes)


FEW = "--kinds revolute --quantities placement --order 1 --modes forward --precisions float64"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--adapter no_module:ADAPTER", "--adapter no_module:ADAPTER: No module named 'no_module'"),
        ("--adapter json:adapter", "--adapter json:adapter: module 'json' has no attribute"),
        ("--adapter json", "--adapter json: "),
        ("--adapter :GUARD", "--adapter :GUARD: Empty module name"),
        ("--adapter json:dumps", "--adapter json:dumps is <function dumps"),
        ("--adapter json:JSONEncoder", "--adapter json:JSONEncoder is <class"),
        ("--state nowhere", "--state: no state has 'nowhere' in its name"),
        ("--solutions no_robot.urdf", "no_robot.urdf: "),
        ("--solutions no.urdf --json a.json", "--json cannot be used with --solutions"),
        ("--solutions no.urdf --kinds planar", "--kinds cannot be used with --solutions"),
        ("--distances --order 1", "--order cannot be used with --distances"),
        (f"{FEW} --json no/folder", "--json no/folder: No such file or directory"),
    ],
)
def test_bad_options_of_the_command(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_command_prints_the_tables_and_fails_where_something_is_wrong(capsys, tmp_path):
    few = FEW.split()
    file = tmp_path / "report.json"
    assert main([*few, "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "| robot neutral, at rest" in out
    assert "WRONG" not in out
    report = json.loads(file.read_text())
    assert report["library"] == "jaxrbd"
    assert report["notes"] == []
    assert main([*few, "--details", "--adapter", "test_conformance:GUARD"]) == 1
    out = capsys.readouterr().out
    assert "WRONG" in out
    assert "revolute_root, angle 1e-20, at rest, along q: off by" in out
