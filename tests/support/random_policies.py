"""Trainings whose policies have random weights, without a program, and runs of ONNX files."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd import learning
from jaxrbd.learning import apg, networks, ppo, shac

HIDDEN = (7, 6)
STATES = {"Shac": shac.ShacState, "Apg": apg.ApgState, "Ppo": ppo.PpoState}


def trained(algorithm, env, size, count, dtype=jnp.float64):
    """A training with random weights and statistics, without a program."""
    training = object.__new__(learning.Training)
    training.algorithm, training.env, training.task = algorithm, env, "a task"
    training.params, training.params_axes = env.default_params(), None
    training.records = [learning.Record(1, 8, {}), learning.Record(2, 16, {})]
    keys = jax.random.split(jax.random.key(3), 4)

    def seen(size):
        mean = 2 * jax.random.normal(keys[0], (size,), dtype)
        variance = 0.1 + 3 * jax.random.uniform(keys[1], (size,), dtype)
        return networks.Statistics(jnp.ones((), dtype), mean, variance)

    def network(key, *sizes):
        def layer(m, n, key):
            weight = jax.random.normal(key, (m, n), dtype) / np.sqrt(m).astype(dtype)
            return networks.Layer(weight, jax.random.normal(key, (n,), dtype))

        keys = jax.random.split(key, len(sizes) - 1)
        return tuple(map(layer, sizes, sizes[1:], keys))

    kind = STATES[type(algorithm).__name__]
    parts = dict.fromkeys(kind._fields)
    policy = networks.Policy(network(keys[2], size, *HIDDEN, count), jnp.ones(count, dtype))
    statistics = seen(size)
    if algorithm.policy_observation is not None:
        statistics = {"state": seen(size), "privileged_state": seen(2 * size)}
    parts |= {"policy": policy, "statistics": statistics}
    if "critic" in kind._fields:
        parts["critic"] = network(keys[3], size, *HIDDEN, 1)
    training.state = kind(**parts)
    return training


def session(path):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
