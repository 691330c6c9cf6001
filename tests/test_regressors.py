"""Regressors: their laws, and comparison with Pinocchio."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import spatial
from support import oracles, real_robots, zoo
from support.zoo import close

MODELS = {"everywhere": zoo.everywhere, "connected": zoo.connected, "coupled": zoo.coupled}


@functools.cache
def case(name):
    """A model, and all quantities in the laws, from one compiled program."""
    model = MODELS[name]()
    q, v, a, _ = zoo.state(model)

    @jax.jit
    def evaluate(model, q, v, a):
        def rnea(inertia):
            return rbd.rnea(eqx.tree_at(lambda m: m.inertia, model, inertia), q, v, a)

        bare = eqx.tree_at(lambda m: m.armature, model, jnp.zeros_like(model.armature))
        return {
            "Y": rbd.joint_torque_regressor(model, q, v, a),
            "y_T": rbd.algorithms.kinetic_energy_regressor(model, q, v),
            "y_U": rbd.algorithms.potential_energy_regressor(model, q),
            "tau": rbd.rnea(bare, q, v, a),
            "T": rbd.kinetic_energy(bare, q, v),
            "U": rbd.potential_energy(model, q),
            "dtau": jax.jacfwd(rnea)(model.inertia).reshape(model.nv, -1),
        }

    return model, evaluate(model, q, v, a)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_regressors_times_the_inertias(name):
    model, x = case(name)
    parameters = model.inertia.ravel()
    close(x["Y"] @ parameters, x["tau"], what="torque")
    close(x["y_T"] @ parameters, x["T"], what="kinetic energy")
    close(x["y_U"] @ parameters, x["U"], what="potential energy")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_torque_regressor_is_the_derivative_of_inverse_dynamics(name):
    x = case(name)[1]
    close(x["Y"], x["dtau"])


def test_a_dof_bears_what_it_supports_and_nothing_else():
    model, x = case("connected")
    Y = np.asarray(x["Y"]).reshape(model.nv, model.nb, 10)
    borne = np.any(Y != 0, axis=-1)
    np.testing.assert_array_equal(borne, model.topology.supports[model.topology.dof_body])


def test_body_regressor_is_the_newton_euler_equation(rng):
    """Also for inertias of no rigid body, because it is linear. Leading axes are broadcast."""
    V, A = jnp.array(rng.normal(size=(4, 1, 6))), jnp.array(rng.normal(size=(3, 6)))
    inertia = jnp.array(rng.normal(size=(4, 3, 10)))
    Y = rbd.algorithms.body_regressor(V, A)
    assert Y.shape == (4, 3, 6, 10)
    force = spatial.apply_inertia(inertia, A[None]) + spatial.gyroscopic_force(inertia, V)
    close(jnp.einsum("...ij,...j", Y, inertia), force, 1e-14)


@pytest.mark.slow
def test_derivatives_are_those_of_inverse_dynamics():
    """Derivatives in q, v and a, forward and reverse, also at rest and at the identity."""
    model = zoo.small()
    random = zoo.state(model)[:3]
    at_rest = (rbd.neutral(model), *jnp.zeros((2, model.nv)))

    @jax.jit
    def derivatives(q, v, a):
        def in_tangent_space(function):
            return lambda x: function(model, rbd.integrate(model, q, x[0]), v + x[1], a + x[2])

        def by_regressor(*args):
            return rbd.joint_torque_regressor(*args) @ model.inertia.ravel()

        x, dx = jnp.zeros((3, model.nv)), jnp.sin(jnp.arange(3.0 * model.nv)).reshape(3, -1)
        _, pull = jax.vjp(in_tangent_space(by_regressor), x)
        weights = jnp.cos(jnp.arange(1.0 * model.nv))
        expected = jax.jvp(in_tangent_space(rbd.rnea), (x,), (dx,))
        forward = jax.jvp(in_tangent_space(by_regressor), (x,), (dx,))
        return expected, forward, (weights @ expected[1], jnp.sum(pull(weights)[0] * dx))

    for state in (random, at_rest):
        expected, forward, (paired, reverse) = derivatives(*state)
        jax.tree.map(close, forward, expected)
        close(reverse, paired)


def test_a_robot_far_away_loses_no_digits():
    """A tree 1,000 km from the world's origin has the same forces as at the origin."""
    model = rbd.load_robot("arm7")
    q, v, a, _ = zoo.state(model)
    roots = np.array(model.topology.parents) < 0
    p = jnp.where(roots[:, None], model.placement.p + 1e6, model.placement.p)
    far = eqx.tree_at(lambda m: m.placement.p, model, p)
    here, there = (rbd.joint_torque_regressor(m, q, v, a) for m in (model, far))
    close(there, here, 1e-9)  # the rounding of the poses: 1e6 eps
    close(there[:, :10], here[:, :10], 1e-15)  # of the root, to which the other poses are relative


@pytest.mark.slow
def test_single_precision():
    model = zoo.connected()
    q, v, a, _ = zoo.state(model)
    single = model.astype(jnp.float32)
    q32, v32, a32 = (x.astype(jnp.float32) for x in (q, v, a))
    x = case("connected")[1]
    pairs = (
        (rbd.joint_torque_regressor(single, q32, v32, a32), x["Y"]),
        (rbd.algorithms.kinetic_energy_regressor(single, q32, v32), x["y_T"]),
        (rbd.algorithms.potential_energy_regressor(single, q32), x["y_U"]),
    )
    for ours, expected in pairs:
        assert ours.dtype == jnp.float32
        close(ours.astype(jnp.float64), expected, 1e-5)


@pytest.mark.parametrize(
    ("V", "A", "message"),
    [
        (jnp.zeros(5), jnp.zeros(6), r"V has shape \(5,\), expected \(..., 6\)"),
        (jnp.zeros(6), jnp.zeros((6, 1)), r"A has shape \(6, 1\), expected"),
        (jnp.zeros(6, int), jnp.zeros(6), "V has dtype int64, expected a floating dtype"),
        (jnp.zeros(6), jnp.zeros(6, jnp.float32), "V has dtype float64 and A has float32"),
        (jnp.zeros((2, 6)), jnp.zeros((3, 6)), r"V has shape \(2, 6\) and A has \(3, 6\)"),
    ],
)
def test_wrong_motions(V, A, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        rbd.algorithms.body_regressor(V, A)


# ------------------------------------------------------------------------------------- Pinocchio

ROBOTS = (
    "ur_description/urdf/ur5_robot.urdf",
    "double_pendulum_description/urdf/double_pendulum.urdf",
    "solo_description/robots/solo12.urdf",
    pytest.param("panda_description/urdf/panda.urdf", marks=pytest.mark.slow),
    pytest.param("talos_data/robots/talos_reduced.urdf", marks=pytest.mark.slow),
)


@pytest.mark.slow
@pytest.mark.parametrize("root_joint", [None, "free_flyer"], ids=["fixed", "free_flyer"])
@pytest.mark.parametrize("name", ROBOTS)
def test_regressors_are_those_of_pinocchio(name, root_joint):
    pin = pytest.importorskip("pinocchio", reason="Pinocchio has no wheel for this platform")
    import test_oracle_pinocchio as pinocchio

    model, oracle = real_robots.load(name, root_joint), pinocchio.load_oracle(name, root_joint)
    data = oracle.createData()
    for seed in range(3):
        q, v, a, *_ = oracles.random_state(model, seed)
        V, A = np.random.default_rng(seed).normal(size=(2, 6))
        ours = regressors(oracles.nameless(model), q, v, a, V, A)
        q = pinocchio.configuration(oracle.joints[1:], q)
        theirs = {
            "body": pin.bodyRegressor(pin.Motion(V), pin.Motion(A)),
            "torque": pin.computeJointTorqueRegressor(oracle, data, q, v, a),
            "kinetic": pin.computeKineticEnergyRegressor(oracle, data, q, v),
            "potential": pin.computePotentialEnergyRegressor(oracle, data, q),
        }
        for what, expected in theirs.items():
            assert oracles.error(ours[what], expected, expected) <= 1e-12, (what, seed)


@jax.jit
def regressors(model, q, v, a, V, A):
    return {
        "body": rbd.algorithms.body_regressor(V, A),
        "torque": rbd.joint_torque_regressor(model, q, v, a),
        "kinetic": rbd.algorithms.kinetic_energy_regressor(model, q, v),
        "potential": rbd.algorithms.potential_energy_regressor(model, q),
    }
