"""Inertias from measurements: the number of base parameters, and errors as large as the noise."""

import functools
import re
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.algorithms.regressors import regressor_bounds
from jaxrbd.inertial_parameters import (
    consistency_margin,
    inertia_from_log_cholesky,
    inertia_from_pseudo,
    is_physically_consistent,
    log_cholesky,
    pseudo_inertia,
)
from support import nightly, zoo
from support.zoo import close

WEIGHT = 0.5  # of the prior
NOISE = 0.05  # N m: 0.1 % of the torque at the arm's shoulder


class Samples(NamedTuple):
    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    tau: np.ndarray


def sine_sums(model, samples, seed):
    """A smooth trajectory about zero, a sum of five sines per coordinate: q, v, a over 20 s."""
    rng = np.random.default_rng(seed)
    amplitude, rate, phase = (
        rng.uniform(low, high, (model.nv, 5)) for low, high in ((0.1, 0.5), (0.5, 4), (0, 6))
    )
    angle = rate * np.linspace(0, 20, samples)[:, None, None] + phase
    q = np.sum(amplitude * np.sin(angle), -1)
    v = np.sum(amplitude * rate * np.cos(angle), -1)
    return q, v, -np.sum(amplitude * rate**2 * np.sin(angle), -1)


rnea = jax.jit(jax.vmap(rbd.rnea, (None, 0, 0, 0)))
regressor = jax.jit(jax.vmap(rbd.joint_torque_regressor, (None, 0, 0, 0)))


def measure(model, samples=400, seed=0, noise=NOISE):
    """A trajectory of the robot, and its joint forces with Gaussian noise."""
    q, v, a = sine_sums(model, samples, seed)
    tau = np.asarray(rnea(model, q, v, a))
    return Samples(q, v, a, tau + noise * np.random.default_rng(seed + 1).normal(size=tau.shape))


def with_inertia(model, inertia):
    return eqx.tree_at(lambda m: m.inertia, model, inertia)


def changed(inertia, size=0.2, seed=3):
    """Changed bodies: each mass distribution is stretched and moved by about 40 %."""
    theta = size * jax.random.normal(jax.random.key(seed), inertia.shape)
    C = jnp.linalg.cholesky(pseudo_inertia(inertia))
    J = pseudo_inertia(inertia_from_log_cholesky(theta))
    return inertia_from_pseudo(C @ J @ jnp.swapaxes(C, -1, -2))


@functools.cache
def arm():
    """The arm of the file with armature, and the true arm, which has other inertias."""
    stated = rbd.load_robot("arm7")
    stated = eqx.tree_at(lambda m: m.armature, stated, jnp.linspace(0.1, 0.4, 7))
    return stated, with_inertia(stated, changed(stated.inertia))


@functools.cache
def linear():
    stated, true = arm()
    return rbd.identification.identify_inertia(stated, *measure(true))


@functools.cache
def consistent():
    stated, true = arm()
    noise = np.full(7, NOISE)
    return rbd.identification.identify_consistent_inertia(
        stated, *measure(true), noise=noise, regularization=WEIGHT
    )


# ------------------------------------------------------------------------------ base parameters

# The number of base parameters. A first hinge adds 3, or 1 if it is vertical. Each other hinge adds
# 7, or 3 if it is parallel to all hinges before it. A first slide adds 1, a free-flyer 10.
COUNTS = {
    "pendulum": 3,
    "double_pendulum": 3 + 3,
    "cart_pole": 1 + 3,
    "arm7": 1 + 6 * 7,
    "quadruped": 10 + 12 * 7,
}


@pytest.mark.parametrize("name", nightly.all_but(["arm7"], COUNTS))
def test_number_of_base_parameters(name):
    assert rbd.identification.base_parameters(rbd.load_robot(name)).rank == COUNTS[name]


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 4])
def test_number_of_base_parameters_of_a_chain_of_skew_hinges(n):
    assert rbd.identification.base_parameters(zoo.chain(n)).rank == 7 * n - 4


@pytest.mark.parametrize("length", [1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("name", ["cart_pole", "arm7"])
def test_number_of_base_parameters_does_not_depend_on_the_size_of_the_robot(name, length):
    """Gravity does not scale: it dominates the forces of a small robot, but not of a large one."""
    model = rbd.load_robot(name)
    model = eqx.tree_at(lambda m: m.placement.p, model, model.placement.p * length)
    base = rbd.identification.base_parameters(model)
    assert base.rank == COUNTS[name]
    by_hand = rbd.identification.base_parameters(rbd.load_robot(name)).independent
    assert base.independent.tolist() == by_hand.tolist()


@pytest.mark.parametrize("lengths", [(1, 1e3, 1e-3, 1), (1, 1e-4, 1e4, 1e-2)])
def test_number_of_base_parameters_of_very_different_links(lengths):
    model = zoo.chain(4)
    p = model.placement.p * np.array(lengths)[:, None]
    assert (
        rbd.identification.base_parameters(eqx.tree_at(lambda m: m.placement.p, model, p)).rank
        == 7 * 4 - 4
    )


@pytest.mark.parametrize(
    ("tilt", "tolerance", "rank"),
    [
        (0.0, None, 1),
        (1e-12, None, 1),
        (1e-10, None, 1),
        (1e-10, 1e-12, 3),
        (1e-4, None, 3),
        (1e-4, 1e-2, 1),
    ],
)
def test_an_axis_that_is_vertical_but_for_its_digits_is_vertical(tilt, tolerance, rank):
    """In a hinge inclined by 1e-10 rad the effect of gravity is below the default tolerance."""
    joint = rbd.model.JointSpec(
        "j",
        rbd.joints.Revolute((0, 0, 1)),
        None,
        "a",
        rbd.model.placement_matrix((1, 2, 3), (tilt, 0, 0)),
    )
    link = rbd.model.Link("a", zoo.random_inertia(np.random.default_rng(0)))
    model = rbd.build_model([link], [joint])
    assert rbd.identification.base_parameters(model, tolerance).rank == rank


def test_the_default_tolerance_is_that_of_the_precision():
    model = rbd.load_robot("double_pendulum").astype(jnp.float32)
    assert rbd.identification.base_parameters(model).rank == COUNTS["double_pendulum"]


@pytest.mark.slow
def test_no_entry_of_the_regressor_is_larger_than_what_was_summed():
    sizes_of = jax.jit(regressor_bounds)
    for model in (zoo.chain(4), zoo.small()):
        q, v, a, _ = zoo.state(model)
        Y, sizes = regressor(model, q[None], v[None], a[None])[0], sizes_of(model, q, v, a)
        assert Y.shape == sizes.shape
        assert np.all(np.abs(Y) <= sizes * (1 + 1e-12))
        felt = sizes > 0
        assert np.median(np.abs(Y)[felt] / sizes[felt]) > 0.01


def test_base_parameters_by_hand():
    """Two parallel hinges at a distance l: the second mass acts as a mass of the first link."""
    model = rbd.load_robot("double_pendulum")
    base = rbd.identification.base_parameters(model)
    l = np.asarray(model.placement.p[1])
    names = ["m", "hx", "hy", "hz", "xx", "xy", "yy", "xz", "yz", "zz"]
    assert [names[i % 10] for i in base.independent] == [
        "hx",
        "hz",
        "yy",
    ] * 2  # both rotate about y
    mass_of_second = np.array([l[0], l[2], l @ l, 0, 0, 0])
    close(base.grouping[:, 10], mass_of_second, 1e-12)


@pytest.mark.parametrize("name", nightly.all_but(["arm7"], ["coupled", "arm7"]))
def test_base_parameters_are_all_that_forces_depend_on(name):
    model = zoo.coupled() if name == "coupled" else rbd.load_robot(name)
    base = rbd.identification.base_parameters(model)
    states = [zoo.state(model, seed)[:3] for seed in range(40)]
    Y = np.asarray(regressor(model, *map(jnp.stack, zip(*states)))).reshape(-1, 10 * model.nb)
    close(Y[:, base.independent] @ base.grouping, Y, 1e-11)
    close(base.grouping[:, base.independent], np.eye(base.rank), 1e-12)
    singular_values = np.linalg.svd(Y / np.abs(Y).max(), compute_uv=False)
    assert np.sum(singular_values > 1e-8) == base.rank


# ------------------------------------------------------------------------------- identification


@pytest.mark.slow
def test_without_noise_the_base_parameters_are_exact():
    stated, true = arm()
    found = rbd.identification.identify_inertia(stated, *measure(true, noise=0))
    close(found.base_parameters, found.base.grouping @ true.inertia.ravel(), 1e-10)
    assert found.residual_rms < 1e-11


@pytest.mark.parametrize("estimate", nightly.all_but([consistent], [linear, consistent]))
def test_base_parameters_are_within_their_deviations(estimate):
    """None of the 43 errors is above 4 standard deviations, nor is their chi-squared."""
    true = arm()[1]
    found = estimate()
    error = found.base_parameters - found.base.grouping @ np.asarray(true.inertia).ravel()
    assert found.converged
    assert np.max(np.abs(error) / found.standard_deviation) < 4
    chi_squared = error @ np.linalg.solve(found.covariance, error)
    assert abs(chi_squared - 43) < 4 * np.sqrt(2 * 43)


@pytest.mark.parametrize(("estimate", "unit"), [(linear, NOISE), (consistent, 1)])
def test_forces_of_another_motion_are_predicted_to_the_noise(estimate, unit):
    stated, true = arm()
    found = estimate()
    assert abs(found.residual_rms / unit - 1) < 0.05
    q, v, a, tau = measure(true, seed=10)
    predicted = rnea(found.model, q, v, a)
    before = np.sqrt(np.mean((rnea(stated, q, v, a) - tau) ** 2))
    after = np.sqrt(np.mean((predicted - tau) ** 2))
    assert after < 1.05 * NOISE < before / 20
    noiseless = np.sqrt(np.mean((predicted - rnea(true, q, v, a)) ** 2))
    assert noiseless < 0.3 * NOISE


def test_what_forces_do_not_tell_stays_at_the_prior():
    stated, _ = arm()
    found = linear()
    change = np.asarray(found.inertia - stated.inertia).ravel()
    unit = units(stated.inertia)
    untold = np.linalg.svd(found.base.grouping * unit)[2][found.base.rank :]
    assert np.max(np.abs(untold @ (change / unit))) < 1e-12 < 1e-2 < np.max(np.abs(change))
    prior = jnp.array(np.random.default_rng(0).normal(size=(7, 10)))
    other = rbd.identification.identify_inertia(stated, *measure(arm()[1]), prior=prior)
    change, unit = np.asarray(other.inertia - prior).ravel(), units(prior)
    untold = np.linalg.svd(found.base.grouping * unit)[2][found.base.rank :]
    assert np.max(np.abs(untold @ (change / unit))) < 1e-11
    close(other.base_parameters, found.base_parameters, 1e-11)


def units(inertia):
    """The scales of the bodies' ten inertial parameters."""
    m = np.abs(inertia[:, 0])
    r = np.sqrt(np.sum(np.abs(inertia[:, np.array([4, 6, 9])]), axis=1) / (2 * m))
    m, r = m[:, None], r[:, None]
    return np.asarray(m * np.concatenate([r**0] + [r] * 3 + [r**2] * 6, axis=1)).ravel()


def test_only_the_consistent_estimate_is_of_rigid_bodies():
    assert not np.all(is_physically_consistent(linear().inertia))
    assert np.all(consistency_margin(consistent().inertia) > 0)


def test_regularization_draws_towards_the_prior():
    stated, true = arm()
    samples = measure(true)
    distances = []
    for regularization in (0.0, 1e2, 1e12):
        found = rbd.identification.identify_inertia(stated, *samples, regularization=regularization)
        distances.append(np.linalg.norm(found.inertia - stated.inertia))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-6


@pytest.mark.parametrize("weight", [1e-2, 1e2, 1e6])
def test_regularization_is_the_weight_that_it_says(weight):
    """Compared with the normal equations of all 70 parameters, which are regular with a weight."""
    stated, true = arm()
    q, v, a, tau = measure(true)
    found = rbd.identification.identify_inertia(stated, q, v, a, tau, regularization=weight)
    Y = np.asarray(regressor(stated, q, v, a)).reshape(-1, 70)
    missing = (tau - np.asarray(rnea(stated, q, v, a))).ravel()
    unit = units(stated.inertia)
    A = np.concatenate([Y * unit, np.sqrt(weight) * np.eye(70)])
    change = np.linalg.lstsq(A, np.append(missing, np.zeros(70)), rcond=None)[0]
    close(np.asarray(found.inertia - stated.inertia).ravel() / unit, change, 1e-9)


# Units of mass and length. The unit of time stays, so gravity scales like a length.
UNITS = {"a thousand metres": (1.0, 1e3), "milligrams": (1e-6, 1.0), "both": (1e-6, 1e3)}


def in_units(model, mass, length):
    scale = mass * length ** np.array([0, 1, 1, 1, 2, 2, 2, 2, 2, 2])
    return eqx.tree_at(
        lambda m: (m.inertia, m.placement.p, m.gravity, m.armature),
        model,
        (
            model.inertia * scale[None],
            model.placement.p * length,
            model.gravity * length,
            model.armature * mass * length**2,
        ),
    ), scale


@pytest.mark.parametrize("units_of", UNITS)
@pytest.mark.parametrize("consistent_ones", [False, True])
def test_the_estimate_does_not_depend_on_units(units_of, consistent_ones):
    stated, true = arm()
    mass, length = UNITS[units_of]
    torque = mass * length**2
    q, v, a, tau = measure(true)
    noise = np.full(7, NOISE)
    identify = (
        rbd.identification.identify_consistent_inertia
        if consistent_ones
        else rbd.identification.identify_inertia
    )
    expected = identify(stated, q, v, a, tau, noise=noise, regularization=2.0)
    model, scale = in_units(stated, mass, length)
    found = identify(model, q, v, a, tau * torque, noise=noise * torque, regularization=2.0)
    assert expected.converged
    assert found.converged
    assert found.base.rank == 43
    close(found.inertia / scale[None], expected.inertia, 1e-6 if consistent_ones else 1e-8)
    close(found.residual_rms, expected.residual_rms, 1e-9)
    head = np.tile(scale, 7)[expected.base.independent]
    deviation = found.standard_deviation / head / expected.standard_deviation
    close(deviation, np.ones(43), 1e-6)


def test_a_robot_at_rest_tells_as_much_in_any_units():
    stated, true = arm()
    q, _, _ = sine_sums(stated, 400, 0)
    v = a = np.zeros_like(q)
    for mass, length in UNITS.values():
        model, scale = in_units(stated, mass, length)
        tau = rnea(with_inertia(model, true.inertia * scale[None]), q, v, a)
        with pytest.raises(rbd.ArgumentError, match=r"determine 12 of the 43 base parameters"):
            rbd.identification.identify_inertia(model, q, v, a, tau)


def test_gravity_that_is_only_rounding_tells_nothing():
    """Gravity has no torque in two vertical hinges; its terms cancel, apart from rounding."""
    placement = rbd.model.placement_matrix((0, 0, 0), (0.3, 0.7, 0.2))
    vertical = rbd.joints.Revolute(placement[2, :3])
    elbow = rbd.model.placement_matrix((1, 0, 0))
    joints = [
        rbd.model.JointSpec("ja", vertical, None, "a", placement),
        rbd.model.JointSpec("jb", vertical, "a", "b", elbow),
    ]
    inertia = rbd.model.link_inertia(1.0, (0.1, 0.2, 0.3), np.diag([0.1, 0.2, 0.25]))
    model = rbd.build_model([rbd.model.Link(name, inertia) for name in "ab"], joints)
    q, zero = np.random.default_rng(0).normal(size=(60, 2)), np.zeros((60, 2))
    with pytest.raises(rbd.ArgumentError, match="determine 0 of the 4 base parameters"):
        rbd.identification.identify_inertia(model, q, zero, zero, zero)


def test_dissipation_is_accounted_for_where_it_is_on():
    """Damping and friction are exact with dissipation. Without it they disturb the inertias."""
    stated, true = (
        eqx.tree_at(
            lambda m: (m.damping, m.friction),
            model,
            (jnp.linspace(1.0, 3.0, 7), jnp.linspace(0.5, 2.0, 7)),
        ).with_dissipation()
        for model in arm()
    )
    samples = measure(true, noise=0)
    for identify in (
        rbd.identification.identify_inertia,
        rbd.identification.identify_consistent_inertia,
    ):
        found = identify(stated, *samples, regularization=1e-9)
        expected = found.base.grouping @ np.asarray(true.inertia).ravel()
        close(found.base_parameters, expected, 1e-5)
        assert found.residual_rms < 1e-5
        assert identify(stated.with_dissipation(False), *samples).residual_rms > 0.1


def test_covariance_is_that_of_many_estimates():
    """The spread of 3,000 estimates from few samples is the covariance that each returns.

    There are 12 equations for 6 parameters: dividing by 12 in place of 12 - 6 would halve the
    covariance. The mean of 3,000 variances has an error of about 1 %.
    """
    model = rbd.load_robot("double_pendulum")
    q, v, a = sine_sums(model, 6, 4)
    tau = np.asarray(rnea(model, q, v, a))
    base = rbd.identification.base_parameters(model)
    Y = np.asarray(regressor(model, q, v, a)).reshape(12, 20)[:, base.independent]
    exact = NOISE**2 * np.linalg.inv(Y.T @ Y)
    rng = np.random.default_rng(2)
    noise = NOISE * rng.normal(size=(3000, 6, 2))
    # The estimate is linear in tau: one call gives the covariance of a unit of residual.
    found = rbd.identification.identify_inertia(model, q, v, a, tau + noise[0])
    unit = found.covariance / found.residual_rms**2
    residual = noise.reshape(-1, 12) @ (np.eye(12) - Y @ np.linalg.pinv(Y)).T
    stated = np.mean(residual**2) * unit
    close(stated / np.sqrt(np.outer(np.diag(exact), np.diag(exact))), correlation(exact), 0.03)


def correlation(covariance):
    deviation = np.sqrt(np.diag(covariance))
    return covariance / np.outer(deviation, deviation)


@pytest.mark.gives_nan
@pytest.mark.parametrize(
    "identify",
    [rbd.identification.identify_inertia, rbd.identification.identify_consistent_inertia],
)
@pytest.mark.parametrize("what", nightly.all_but(["noise"], ["v", "a", "tau", "noise"]))
def test_huge_data_are_an_error(identify, what):
    model = rbd.load_robot("double_pendulum")
    q, v, a, tau = measure(model, samples=10)
    given = {"q": q, "v": v, "a": a, "tau": tau, "noise": np.ones(2)}
    given[what] = given[what] * (1e-200 if what == "noise" else 1e200)
    with pytest.raises(rbd.ArgumentError, match=f"{what}.*: the squares of the forces over the no"):
        identify(model, **given)


@pytest.mark.parametrize(
    "identify",
    [rbd.identification.identify_inertia, rbd.identification.identify_consistent_inertia],
)
@pytest.mark.parametrize(("what", "factor"), [("v", 1e20), ("v", 1e60), ("tau", 1e20), ("a", 1e30)])
def test_large_data_are_an_error_or_explained(identify, what, factor):
    """There is no exception of NumPy, and no estimate worse than the prior."""
    model = rbd.load_robot("double_pendulum")
    q, v, a, tau = measure(model, samples=10, noise=0)
    given = {"q": q, "v": v, "a": a, "tau": tau}
    given[what] = given[what] * factor
    before = np.sqrt(np.mean((given["tau"] - rnea(model, *list(given.values())[:3])) ** 2))
    found, message = None, ""
    try:
        found = identify(model, **given)
    except rbd.ArgumentError as error:
        message = str(error)
    if found is None:
        assert re.search("double precision|too different sizes", message)
    else:
        assert found.residual_rms < before
        assert np.all(np.isfinite(found.inertia))


def test_an_estimate_beyond_single_precision_is_an_error():
    """The moments of inertia are the forces, divided by small accelerations."""
    model = rbd.load_robot("double_pendulum").astype(jnp.float32)
    rng = np.random.default_rng(0)
    q, a, tau = (rng.normal(size=(10, 2)).astype(np.float32) for _ in range(3))
    with pytest.raises(rbd.ArgumentError, match="too different sizes: by rounding in float32"):
        rbd.identification.identify_inertia(model, q, 0 * q, 1e-4 * a, 1e37 * tau)


@pytest.mark.parametrize("factor", [1e-100, 1e100])
def test_large_and_small_data_are_explained(factor):
    model = rbd.load_robot("double_pendulum")
    q, v, a, tau = measure(model, samples=10)
    expected = rbd.identification.identify_inertia(model, q, v, a, tau)
    found = rbd.identification.identify_inertia(
        model, q, v, a, tau * factor, prior=model.inertia * factor
    )
    close(found.inertia / factor, expected.inertia, 1e-9)
    close(found.residual_rms / factor, expected.residual_rms, 1e-9)


def test_massless_links():
    """A rigid body fits best with the massless link massless; else it gets the mean unit."""
    model = rbd.load_robot("double_pendulum")
    inertia = np.asarray(model.inertia) * [[0.0], [1.0]]
    true = with_inertia(model, jnp.asarray(1.3 * inertia))
    model = with_inertia(model, jnp.asarray(inertia))
    samples = measure(true, samples=10, noise=0)
    found = rbd.identification.identify_consistent_inertia(model, *samples, regularization=1e-9)
    assert found.converged
    np.testing.assert_array_equal(found.inertia[0], np.zeros(10))
    assert consistency_margin(found.inertia)[1] > 0
    assert found.residual_rms < 1e-6
    assert not rbd.identification.identify_consistent_inertia(
        model, *samples, regularization=1e-9, max_steps=3
    ).converged
    # The units of the bodies with mass are those of the body without mass.
    expected = rbd.identification.identify_inertia(model, *samples, regularization=2.0).inertia
    *motion, tau = samples
    for factor in (1e-6, 1e6):
        found = rbd.identification.identify_inertia(
            *(model, *motion, tau * factor),
            prior=model.inertia * factor,
            noise=np.full(2, factor),
            regularization=2.0,
        )
        close(found.inertia / factor, expected, 1e-9)


def test_regularization_stands_in_for_motion_that_is_missing():
    """A robot at rest measures only gravity: an error, or the prior with regularization."""
    stated, true = arm()
    q, v, a = sine_sums(stated, 400, 0)
    v = a = np.zeros_like(v)
    tau = rnea(true, q, v, a)
    with pytest.raises(rbd.ArgumentError, match=r"determine 12 of the 43 base parameters"):
        rbd.identification.identify_inertia(stated, q, v, a, tau)
    found = rbd.identification.identify_inertia(stated, q, v, a, tau, regularization=1e-9)
    assert found.residual_rms < 1e-5
    found = rbd.identification.identify_consistent_inertia(stated, q, v, a, tau)
    assert found.converged
    assert found.residual_rms < 1e-3
    assert np.all(consistency_margin(found.inertia) > 0)


def test_noise_of_its_own_for_each_joint():
    """Weights from the noise make exact joints count more than noisy joints."""
    stated, true = arm()
    noise = np.array([5.0, 1e-3, 5.0, 1e-3, 1e-3, 1e-3, 1e-3])
    q, v, a, tau = measure(true, noise=0)
    tau = tau + noise * np.random.default_rng(0).normal(size=tau.shape)
    expected = np.asarray(true.inertia).ravel()
    weighed = rbd.identification.identify_inertia(stated, q, v, a, tau, noise=noise)
    equal = rbd.identification.identify_inertia(stated, q, v, a, tau)
    errors = [
        np.linalg.norm(x.base_parameters - x.base.grouping @ expected) for x in (weighed, equal)
    ]
    assert errors[0] < errors[1] / 2
    assert abs(weighed.residual_rms - 1) < 0.05


@pytest.mark.slow
def test_consistent_estimate_does_not_depend_on_the_frames():
    """The last link's frame moves along and about its joint's axis: the body is the same."""
    stated, true = arm()
    X = rbd.se3.exp(jnp.array([0, 0, 0.7, 0, 0, 1.1]))
    last = jnp.arange(7)[:, None] == 6

    def moved(model):
        inertia = rbd.spatial.inverse_transform_inertia(X, model.inertia)
        placement = rbd.spatial.compose(model.placement, X)
        return eqx.tree_at(
            lambda m: (m.inertia, m.placement.R, m.placement.p),
            model,
            (
                jnp.where(last, inertia, model.inertia),
                jnp.where(last[..., None], placement.R, model.placement.R),
                jnp.where(last, placement.p, model.placement.p),
            ),
        )

    samples, noise = measure(true), np.full(7, NOISE)
    close(rnea(moved(true), *samples[:3]), rnea(true, *samples[:3]))
    found = rbd.identification.identify_consistent_inertia(
        moved(stated), *samples, noise=noise, regularization=WEIGHT
    )
    close(found.inertia, moved(with_inertia(stated, consistent().inertia)).inertia, 1e-9)


@pytest.mark.parametrize(("factor", "steps"), [(20.0, 40), (1e-3, 500)])
def test_consistent_estimate_from_priors_of_other_masses(factor, steps):
    """The search converges within the steps; far from the minimum, whole steps would fail."""
    stated, true = arm()
    prior = factor * stated.inertia
    found = rbd.identification.identify_consistent_inertia(
        stated, *measure(true), prior=prior, regularization=1e-3, max_steps=steps
    )
    assert found.converged
    assert found.residual_rms < 1.2 * NOISE


def test_consistent_estimate_is_the_minimum():
    """The gradient of the objective is zero, by automatic differentiation."""
    stated, true = arm()
    q, v, a, tau = measure(true)
    J0 = pseudo_inertia(stated.inertia)

    @jax.jit
    def gradients(theta, noise):
        def cost(theta):
            inertia = inertia_from_log_cholesky(theta)
            model = with_inertia(stated, inertia)
            missing = (tau - jax.vmap(rbd.rnea, (None, 0, 0, 0))(model, q, v, a)) / noise
            ratio = jnp.linalg.solve(J0, pseudo_inertia(inertia))
            D = jnp.trace(ratio, axis1=1, axis2=2) - jnp.linalg.slogdet(ratio)[1] - 4
            return jnp.sum(missing**2) / 2 + WEIGHT * jnp.sum(D)

        return jax.grad(cost)(theta)

    there = gradients(log_cholesky(consistent().inertia), NOISE)
    before = gradients(log_cholesky(stated.inertia), NOISE)
    assert np.max(np.abs(there)) < 1e-9 * np.max(np.abs(before))


@pytest.mark.slow
def test_massless_links_stay_massless_and_mimic_joints_are_one():
    """A floating robot with coupled joints and a massless link."""
    model = zoo.coupled()
    model = with_inertia(model, model.inertia.at[4].set(0))
    true = with_inertia(
        model,
        jnp.where(
            jnp.arange(7)[:, None] == 4,
            0,
            changed(zoo.coupled().inertia),
        ),
    )
    states = [zoo.state(model, seed)[:3] for seed in range(40)]
    q, v, a = map(jnp.stack, zip(*states))
    tau = rnea(true, q, v, a)
    found = rbd.identification.identify_consistent_inertia(model, q, v, a, tau, regularization=1e-6)
    assert found.converged
    assert found.residual_rms < 1e-5
    close(found.inertia[4], jnp.zeros(10), 0)
    assert np.all(is_physically_consistent(found.inertia))


@pytest.mark.slow
def test_single_precision():
    stated, true = arm()
    q, v, a, tau = (np.float32(x) for x in measure(true))
    found = rbd.identification.identify_inertia(stated.astype(jnp.float32), q, v, a, tau)
    assert found.inertia.dtype == jnp.float32
    assert found.base.rank == 43
    error = np.abs(found.base_parameters - linear().base_parameters)
    assert np.all(error < 0.1 * linear().standard_deviation)


# ------------------------------------------------------------------------------------ wrong input

WRONG = {
    "q": (np.zeros((5, 6)), r"q has shape \(5, 6\), expected \(5, 7\)"),
    "v": (np.zeros((4, 7)), r"v has shape \(4, 7\), expected \(5, 7\)"),
    "a": (np.zeros((5, 7), np.float32), "a of shape .* has dtype float32, expected float64"),
    "tau": (np.full((5, 7), np.nan), "tau is not finite"),
    "prior": (np.zeros((7, 9)), r"prior has shape \(7, 9\), expected \(7, 10\)"),
    "noise": (np.arange(7.0), "noise is .*, expected numbers above 0"),
    "regularization": (-1.0, "regularization is -1.0, expected finite, 0 or more"),
}


@pytest.mark.parametrize(
    "identify",
    [rbd.identification.identify_inertia, rbd.identification.identify_consistent_inertia],
)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(identify, name):
    value, message = WRONG[name]
    given = {"q": np.zeros((5, 7)), "v": np.zeros((5, 7)), "a": np.zeros((5, 7))}
    given |= {"tau": np.zeros((5, 7)), name: value}
    with pytest.raises(rbd.ArgumentError, match=message):
        identify(arm()[0], **given)


@pytest.mark.gives_nan
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["q", "v", "a", "tau", "prior", "noise", "regularization"])
def test_values_that_are_not_finite_are_named(name, value):
    given = {x: np.zeros((5, 7)) for x in ("q", "v", "a", "tau")}
    given |= {"prior": arm()[0].inertia, "noise": np.ones(7), "regularization": 1.0}
    given[name] = given[name] + value
    with pytest.raises(rbd.ArgumentError, match=f"^{name} is (not finite|{value}, expected fin)"):
        rbd.identification.identify_inertia(arm()[0], **given)


def test_one_state_is_no_batch():
    with pytest.raises(rbd.ArgumentError, match=r"q has shape \(7,\), expected \(7, 7\)"):
        rbd.identification.identify_inertia(arm()[0], *np.zeros((4, 7)))


def test_a_robot_that_cannot_move():
    model = zoo.build([], [])
    base = rbd.identification.base_parameters(model)
    assert (base.rank, base.grouping.shape) == (0, (0, 0))
    with pytest.raises(rbd.ArgumentError, match="0 equations for 0 base parameters"):
        rbd.identification.identify_inertia(model, *np.zeros((4, 5, 0)))


def test_too_few_samples():
    with pytest.raises(rbd.ArgumentError, match="42 equations for 43 base parameters"):
        rbd.identification.identify_inertia(arm()[0], *measure(arm()[1], samples=6))
    model = rbd.load_robot("double_pendulum")
    with pytest.raises(rbd.ArgumentError, match="6 equations for 6 base parameters, expected more"):
        rbd.identification.identify_inertia(model, *measure(model, samples=3))


def test_a_prior_that_no_body_has():
    prior = (
        arm()[0]
        .inertia.at[2, 4]
        .set(-1.0)
        .at[4]
        .set(jnp.array(rbd.model.link_inertia(1, (0, 0, 1))))
    )
    with pytest.raises(rbd.ArgumentError, match=r"inertia of \['upper_arm', 'forearm'\]"):
        rbd.identification.identify_consistent_inertia(
            *(arm()[0], *np.zeros((4, 5, 7))), prior=prior
        )
    with pytest.raises(rbd.ArgumentError, match="regularization is 0"):
        rbd.identification.identify_consistent_inertia(
            *(arm()[0], *np.zeros((4, 5, 7))), regularization=0.0
        )
