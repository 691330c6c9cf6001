"""Parameters of a prediction from measurements: estimates, covariances, confidence intervals."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import jaxrbd as rbd
from jaxrbd import actuators
from jaxrbd.identification import identify_parameters
from support.zoo import close

TIMES = jnp.linspace(0.0, 3.0, 40)
DECAY = {"rate": jnp.asarray(1.3), "size": jnp.asarray([2.0, -0.7])}
START = {"rate": jnp.asarray(0.6), "size": jnp.asarray([1.0, 0.0])}
DEVIATION = np.linspace(0.01, 0.05, 40)  # of the noise


def decay(p):
    """An exponential curve (40,): the rate is nonlinear, the sizes are linear."""
    return p["size"][0] * jnp.exp(-p["rate"] * TIMES) + p["size"][1]


def noisy(clean, seed, deviation):
    return np.asarray(clean) + deviation * np.random.default_rng(seed).normal(size=clean.shape)


def test_without_noise_the_parameters_are_exact():
    """A common factor of the noise does not change the steps."""
    fits = {f: identify_parameters(decay, START, decay(DECAY), f) for f in (1, 2.0**-40, 2.0**40)}
    for factor, fit in fits.items():
        assert fit.converged
        assert fit.steps == fits[1].steps
        assert jax.tree.structure(fit.parameters) == jax.tree.structure(START)
        jax.tree.map(lambda x, y: close(x, y, 1e-12), fit.parameters, DECAY)
        assert fit.residual_rms * factor < 1e-12


def test_estimate_and_covariance_of_another_library():
    measured = noisy(decay(DECAY), 0, DEVIATION)

    def curve(t, rate, first, second):
        return first * np.exp(-rate * t) + second

    expected, covariance = scipy.optimize.curve_fit(
        curve, np.asarray(TIMES), measured, [0.6, 1, 0], sigma=DEVIATION, xtol=1e-14, ftol=1e-14
    )
    fit = identify_parameters(decay, START, measured, DEVIATION)
    found = np.concatenate([[fit.parameters["rate"]], fit.parameters["size"]])
    deviation = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(found - expected) / deviation) < 1e-3
    np.testing.assert_allclose(
        fit.covariance / np.outer(deviation, deviation),
        covariance / np.outer(deviation, deviation),
        atol=1e-3,
    )
    close(fit.standard_deviation["size"], np.sqrt(np.diag(fit.covariance))[1:], 1e-12)


def test_a_common_factor_of_the_noise_changes_only_the_size_of_the_residuals():
    measured = noisy(decay(DECAY), 0, DEVIATION)
    one, ten = (identify_parameters(decay, START, measured, f * DEVIATION) for f in (1.0, 10.0))
    assert abs(one.residual_rms - 1) < 0.3
    close(one.residual_rms, 10 * ten.residual_rms, 1e-9)
    np.testing.assert_allclose(one.covariance, ten.covariance, rtol=1e-5)


@pytest.mark.parametrize(("level", "width"), [(0.95, 1.959964), (0.5, 0.674490)])
def test_intervals(level, width):
    fit = identify_parameters(decay, START, noisy(decay(DECAY), 0, 0.1))
    low, high = fit.interval(level)
    jax.tree.map(
        lambda a, b, x, s: close(
            jnp.stack([a, b]), jnp.stack([x - width * s, x + width * s]), 1e-6
        ),
        *(low, high, fit.parameters, fit.standard_deviation),
    )
    if level == 0.95:  # the default
        assert fit.interval()[0]["rate"] == low["rate"]


def test_each_column_of_a_measurement_has_its_noise():
    """Two curves beside each other and one after the other are one measurement."""
    deviation = np.array([0.01, 0.05])

    def curves(p):
        return jnp.stack([decay(p), 2 * decay(p)], axis=-1)

    measured = noisy(curves(DECAY), 0, deviation)
    fit = identify_parameters(curves, START, measured, deviation)
    other = identify_parameters(
        lambda p: curves(p).T.ravel(), START, measured.T.ravel(), np.repeat(deviation, 40)
    )
    close(fit.parameters["size"], other.parameters["size"], 1e-12)
    close(fit.covariance, other.covariance, 1e-12)
    close(fit.residual_rms, other.residual_rms, 1e-12)


def test_units_do_not_matter():
    """With the sizes in millionths, the estimate takes the same steps."""
    measured = noisy(decay(DECAY), 0, 0.02)

    def in_millionths(p):
        return decay({"rate": p["rate"], "size": 1e-6 * p["size"]})

    fit = identify_parameters(decay, START, measured)
    start = {"rate": START["rate"], "size": 1e6 * START["size"]}
    other = identify_parameters(in_millionths, start, measured)
    assert fit.steps == other.steps
    close(other.parameters["size"], 1e6 * fit.parameters["size"], 1e-9)
    close(other.standard_deviation["size"], 1e6 * fit.standard_deviation["size"], 1e-6)


def test_a_start_that_is_far_away():
    """A full step from here increases the residuals."""
    start = {"rate": jnp.asarray(9.0), "size": jnp.asarray([-3.0, 5.0])}
    fit = identify_parameters(decay, start, decay(DECAY))
    assert fit.converged
    close(fit.parameters["rate"], DECAY["rate"], 1e-9)


@pytest.mark.parametrize(
    "function", [jnp.log, lambda a: jnp.sqrt(jnp.maximum(a, 0))], ids=["logarithm", "root"]
)
def test_a_step_out_of_the_range_of_the_prediction_is_shortened(function):
    """A full step from here leads to a negative value: NaN, or a derivative that is NaN."""

    def prediction(a):
        return function(a) * TIMES

    true, start = 0.01, jnp.asarray(1.0)
    fit = identify_parameters(prediction, start, prediction(true))
    assert fit.converged
    close(fit.parameters, true, 1e-9)
    once = identify_parameters(prediction, start, prediction(true), max_steps=1)
    assert once.steps == 1, "steps that were shortened do not count"


def test_a_wrong_derivative_is_no_convergence():
    """Each step increases the residuals."""

    def prediction(a):
        return (2 * jax.lax.stop_gradient(a) - a) * TIMES

    fit = identify_parameters(prediction, jnp.asarray(3.0), 2.0 * TIMES)
    assert not fit.converged
    assert (fit.steps, fit.parameters) == (0, 3.0)


def test_the_number_of_steps():
    measured = noisy(decay(DECAY), 0, 0.02)
    fit = identify_parameters(decay, START, measured)
    assert fit.converged
    assert 3 < fit.steps < 20
    short = identify_parameters(decay, START, measured, max_steps=2)
    assert not short.converged
    assert short.steps == 2


def test_single_precision():
    single = jax.tree.map(lambda x: x.astype(jnp.float32), START)

    def prediction(p):
        return p["size"][0] * jnp.exp(-p["rate"] * TIMES.astype(jnp.float32)) + p["size"][1]

    fit = identify_parameters(prediction, single, noisy(decay(DECAY), 0, 0.02))
    expected = identify_parameters(decay, START, noisy(decay(DECAY), 0, 0.02))
    assert fit.converged
    assert fit.parameters["size"].dtype == fit.interval()[0]["size"].dtype == jnp.float32
    np.testing.assert_allclose(fit.covariance, expected.covariance, rtol=1e-2)


def test_several_measurements_compile_once():
    traced = []

    def prediction(p):
        traced.append(p)
        return decay(p)

    identify_parameters(prediction, START, noisy(decay(DECAY), 0, 0.02))
    before = len(traced)
    identify_parameters(prediction, START, noisy(decay(DECAY), 1, 0.02))
    assert len(traced) == before


# ------------------------------------------------------------------------------------ a robot


class Drive(NamedTuple):
    """The parameters of the drives of a double pendulum."""

    stall_torque: jax.Array
    armature: jax.Array
    damping: jax.Array
    friction: jax.Array
    lag: jax.Array


TRUE = Drive(*map(jnp.asarray, ([9.0, 4.0], [0.05, 0.02], [0.3, 0.1], [0.4, 0.2], 2.6)))
NOMINAL = Drive(*map(jnp.asarray, ([14.0, 7.0], [0.02, 0.05], [0.1, 0.2], [0.1, 0.1], 0.5)))
DT = 0.01
NOISE = np.array([1e-3, 2e-3])  # rad


@functools.cache
def motion():
    """A function from the drives to the joint positions (150, 2) under PD control with a delay."""
    model = rbd.load_robot("double_pendulum")
    t = DT * jnp.arange(150.0)[:, None]
    targets = 0.5 * jnp.sin(jnp.array([[4.0, 7.0]]) * t) + 0.5 * jnp.sign(jnp.sin(2.9 * t))
    servo = actuators.PD(np.array([30.0, 15.0]), np.array([1.0, 0.5]))

    def predict(drive):
        arm = dataclasses.replace(model, armature=drive.armature)
        motor = actuators.DCMotor(drive.stall_torque, np.full(2, 20.0))
        delay = actuators.Delay(drive.lag, 4)

        def step(q, v, past, target):
            past, delayed = delay.push(past, target)
            tau = motor(arm, v, servo(arm, q, v, delayed))
            tau -= drive.damping * v + drive.friction * jnp.tanh(v / 0.2)
            q, v = rbd.integrators.semi_implicit_euler(
                arm, lambda q, v: rbd.forward_dynamics(arm, q, v, tau), q, v, DT
            )
            return q, v, past

        rest = jnp.zeros(2)
        return rbd.integrators.rollout(step, (rest, rest, delay.init(rest)), targets)[0][1:]

    return predict, predict(TRUE)


@pytest.mark.slow
def test_drives_of_a_robot():
    """Motors, friction, armature and a delay from one noisy motion, from a start far away."""
    predict, clean = motion()
    fit = identify_parameters(predict, NOMINAL, noisy(clean, 0, NOISE), NOISE)
    assert fit.converged
    assert abs(fit.residual_rms - 1) < 0.15
    for found, true, deviation in zip(fit.parameters, TRUE, fit.standard_deviation):
        assert np.all(np.abs(found - true) < 4 * deviation)
        assert np.all(deviation < 0.15 * true)


@pytest.mark.slow
def test_intervals_contain_the_truth_as_often_as_stated():
    """100 experiments, 9 parameters: of the 95 % intervals between 93 and 97 % hold."""
    predict, clean = motion()
    inside = []
    for seed in range(100):
        fit = identify_parameters(predict, TRUE, noisy(clean, seed, NOISE), NOISE)
        low, high = fit.interval()
        held = jax.tree.map(lambda a, x, b: np.ravel((a < x) & (x < b)), low, TRUE, high)
        inside.append(np.concatenate(held))
    assert 0.93 < np.mean(inside) < 0.97
    assert np.all(np.mean(inside, axis=0) > 0.86)  # of each parameter; four deviations


@pytest.mark.slow
def test_steps_out_of_the_range_of_a_delay_are_shortened():
    """The lag is near the length of the delay, and a full step leads beyond it."""
    predict, _ = motion()
    true, start = TRUE._replace(lag=jnp.asarray(3.98)), NOMINAL._replace(lag=jnp.asarray(1.0))
    fit = identify_parameters(predict, start, predict(true))
    assert fit.converged
    close(fit.parameters.lag, 3.98, 1e-6)


def test_parameters_without_effect_are_named():
    """A motor that is never at its limit says nothing about its limit."""
    predict, _ = motion()
    strong = TRUE._replace(stall_torque=jnp.array([9.0, 400.0]))
    with pytest.raises(rbd.ArgumentError, match=r"does not determine \.stall_torque\[1\];"):
        identify_parameters(predict, strong, predict(strong))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_that_only_act_together_are_named(dtype):
    start = {"a": jnp.asarray(1.3, dtype), "b": jnp.asarray([2.7, 3.1], dtype)}

    def product(p):
        return p["a"] * p["b"][0] * TIMES.astype(dtype) + p["b"][1]

    with pytest.raises(rbd.ArgumentError, match=r"determine \['a'\], \['b'\]\[0\];"):
        identify_parameters(product, start, 5.0 * TIMES + 1.0)


@pytest.mark.gives_nan
def test_wrong_arguments():
    clean = decay(DECAY)
    for arguments, message in (
        ((decay, START, clean[:3]), "measured has 3 values for 3 parameters"),
        ((decay, START, clean[:, None]), r"shape \(40,\), expected the shape of measured, \(40, 1"),
        ((decay, START, clean.at[2].set(jnp.nan)), "measured is not finite"),
        ((decay, START, clean, 0.0), "noise has the smallest value 0.0"),
        ((decay, START, clean, np.ones(3)), r"noise has shape \(3,\)"),
        ((decay, {"rate": jnp.asarray(1), "size": DECAY["size"]}, clean), r"start\['rate'\] has"),
        ((lambda p: (p, p), START, clean), "predict returns tuple"),
        ((lambda p: decay(p) / 0, START, clean), "start: the prediction"),
    ):
        with pytest.raises(rbd.ArgumentError, match=message):
            identify_parameters(*arguments)
    mixed = {"rate": jnp.asarray(1.0, jnp.float32), "size": DECAY["size"]}
    with pytest.raises(rbd.ArgumentError, match=r"dtypes \['float32', 'float64'\]"):
        identify_parameters(decay, mixed, clean)
    with pytest.raises(rbd.ArgumentError, match="max_steps is 0"):
        identify_parameters(decay, START, clean, max_steps=0)
    fit = identify_parameters(decay, START, clean)
    for level in (0.0, 1.0, np.nan):
        with pytest.raises(rbd.ArgumentError, match="expected a number between 0 and 1"):
            fit.interval(level)
