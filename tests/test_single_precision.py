"""JAX's default precision, which is single, in a separate process with strict promotion."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import warnings
import equinox, jax, jax.numpy as jnp, jaxtyping, lxml, numpy as np
warnings.simplefilter("error")  # of jaxrbd; older packages may warn of each other
import jaxrbd
from jaxrbd.model import append_model, lock_joints

model, arm = jaxrbd.load_robot("humanoid"), jaxrbd.load_robot("arm7")
robot = append_model(model, arm, model.frame_names[3], prefix="arm_")
robot = lock_joints(robot, {"arm_" + arm.joint_names[2]: 0.3})
q = jaxrbd.random_configuration(robot, jax.random.key(0))
v = jax.random.normal(jax.random.key(1), (robot.nv,))
tau = jaxrbd.rnea(robot, q, v, v)
a = jaxrbd.forward_dynamics(robot, q, v, tau)
b = jaxrbd.aba(robot, q, v, tau)
assert tau.dtype == a.dtype == b.dtype == q.dtype == jnp.float32
M = jaxrbd.crba(robot, q)
np.testing.assert_allclose(M @ v + jaxrbd.bias_force(robot, q, v), tau, atol=2e-4)
cond = float(np.linalg.cond(np.asarray(M, np.float64)))
scale = 1e-7 * cond * float(jnp.max(jnp.abs(v)))
np.testing.assert_allclose(a, v, atol=10 * scale)
np.testing.assert_allclose(b, v, atol=10 * scale)
dq = jaxrbd.difference(robot, q, jaxrbd.integrate(robot, q, 0.1 * v))
np.testing.assert_allclose(dq, 0.1 * v, atol=2e-6)
gradient = jax.grad(lambda d: jaxrbd.rnea(robot, jaxrbd.integrate(robot, q, d), v, v).sum())
assert gradient(jnp.zeros(robot.nv)).dtype == jnp.float32
# Numbers as numpy has them, in double precision, become JAX's default.
assert jaxrbd.rnea(robot, np.asarray(q, np.float64), np.asarray(v), np.asarray(v)).shape
print("done")
"""


@pytest.mark.slow
def test_every_algorithm_in_single_precision():
    environment = {**os.environ, "JAX_ENABLE_X64": "0", "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr[-3000:]
