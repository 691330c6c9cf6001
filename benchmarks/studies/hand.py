"""Measure steps of a hand with tendons and muscles, and their gradients, beside MuJoCo.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 python -m benchmarks.studies.hand

The hand has 24 joints, and no contact: a wrist of two joints, a thumb of five, and fingers of four
and five. Each finger has a muscle that flexes it and one that extends it, around two cylinders, and
a fixed tendon with a spring between its last two joints. Motors turn the wrist. MuJoCo has float64
and one thread, and a step of its integrator Euler.
"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.studies import common
from jaxrbd.io.mujoco import Imported, from_mujoco

DT = 0.002
FINGERS = {"thumb": 5, "index": 4, "middle": 4, "ring": 4, "little": 5}


def finger(name: str, joints: int, x: float) -> str:
    """The bodies of a finger: joints, bones, cylinders, and the points of its tendons."""
    text = ""
    for i in reversed(range(joints)):
        bends = i >= joints - 3
        axis = "1 0 0" if bends or i % 2 else "0 1 0"
        start = f"{x} 0 0.1" if i == 0 else f"0 0 {0.03 if bends else 0.0}"
        marks = "".join(
            f'<site name="{name}{i}{sign}" pos="0 {sign}0.008 0.02"/>'
            f'<site name="{name}{i}{sign}side" pos="0 {sign}0.012 0"/>'
            for sign in "+-"
        )
        text = (
            f'<body pos="{start}">'
            f'<joint name="{name}{i}" axis="{axis}" damping="0.01" armature="1e-4"/>'
            f'<geom class="bone"/><geom name="{name}{i}" class="roll"/>{marks}{text}</body>'
        )
    return text


def tendons_of(name: str, joints: int) -> tuple[str, str]:
    """The tendons and the muscles of a finger."""
    tendons = muscles = ""
    for sign in "+-":
        path = f'<site site="{name}{joints - 3}{sign}"/>'
        for i in (joints - 2, joints - 1):
            path += f'<geom geom="{name}{i}" sidesite="{name}{i}{sign}side"/>'
            path += f'<site site="{name}{i}{sign}"/>'
        tendons += f'<spatial name="{name}{sign}">{path}</spatial>'
        muscles += f'<muscle tendon="{name}{sign}" lengthrange="0.03 0.09" force="20"/>'
    last = f'<joint joint="{name}{joints - 1}" coef="1"/>'
    last += f'<joint joint="{name}{joints - 2}" coef="-0.7"/>'
    tendons += f'<fixed name="{name}" stiffness="0.2" damping="0.01">{last}</fixed>'
    return tendons, muscles


def hand_text() -> str:
    """The MJCF file of the hand."""
    fingers, tendons, muscles = "", "", ""
    for place, (name, joints) in enumerate(FINGERS.items()):
        fingers += finger(name, joints, 0.02 * (place - 2))
        tendons, muscles = (
            x + y for x, y in zip((tendons, muscles), tendons_of(name, joints), strict=True)
        )
    return f"""
<mujoco>
  <option timestep="{DT}" integrator="Euler">
    <flag contact="disable" constraint="disable" eulerdamp="disable"/>
  </option>
  <default>
    <default class="bone"><geom type="capsule" fromto="0 0 0 0 0 0.03" size="0.007"/></default>
    <default class="roll">
      <geom type="cylinder" size="0.006 0.01" mass="0" euler="0 90 0"/>
    </default>
  </default>
  <worldbody>
    <body>
      <joint name="wrist0" axis="1 0 0" damping="0.05"/>
      <joint name="wrist1" axis="0 1 0" damping="0.05"/>
      <geom type="box" pos="0 0 0.05" size="0.05 0.01 0.05"/>
      {fingers}
    </body>
  </worldbody>
  <tendon>{tendons}</tendon>
  <actuator>{muscles}<motor joint="wrist0"/><motor joint="wrist1"/></actuator>
</mujoco>"""


def stepped(robot: Imported):
    """A step of semi-implicit Euler: the state (q, v, activation) after it."""
    model, tendons = robot.model.with_dissipation(), robot.tendons.only_acting()

    def step(q, v, activation, control):
        activation, filtered = robot.filter.push(activation, control, DT)
        tau = robot.actuators(model, q, v, filtered) + tendons(model, q, v)
        v = v + DT * jaxrbd.forward_dynamics(model, q, v, tau)
        return jaxrbd.integrate(model, q, DT * v), v, activation

    return step


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    import mujoco
    from mujoco import rollout

    compiled = mujoco.MjModel.from_xml_string(hand_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        robot = from_mujoco(compiled)
    batch, steps, n = given.batch, given.steps, compiled.nu
    print(f"{common.machine()}, {jax.devices()[0].device_kind}, batch {batch}\n")
    common.head("program", "step, us", "gradient, us", "compile, s")
    rng = np.random.default_rng(0)
    qpos, control = 0.1 * rng.normal(size=(batch, compiled.nq)), rng.uniform(0, 0.5, (batch, n))
    calls, compile_s = {}, {}
    for dtype in ("float64", "float32"):
        parts = jax.tree.map(
            lambda x, dtype=dtype: x.astype(dtype) if isinstance(x, jax.Array) else x, robot
        )
        parts = parts._replace(model=robot.model.astype(dtype))
        step = stepped(parts)

        def simulate(q, control, step=step, dtype=dtype):
            start = q, jnp.zeros_like(q), jnp.zeros(n, dtype)
            return jax.lax.scan(lambda s, _: (step(*s, control), None), start, length=steps)[0]

        def gradient(q, control, step=step, dtype=dtype):
            def loss(q, v, control):
                return sum(jnp.sum(x) for x in step(q, v, jnp.full(n, 0.2, dtype), control))

            return jax.grad(loss, argnums=(0, 1, 2))(q, jnp.zeros_like(q), control)

        operands = [jnp.asarray(x, dtype) for x in (qpos, control)]
        for name, function in (("step", simulate), ("gradient", gradient)):
            program = common.Program(function, *operands)
            calls[dtype, name] = program.call
            compile_s[dtype, name] = program.trace_s + program.compile_s
    state = np.zeros((batch, mujoco.mj_stateSize(compiled, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    state[:, 1 : 1 + compiled.nq] = qpos
    controls, data = np.tile(control[:, None], (1, steps, 1)), mujoco.MjData(compiled)
    calls["MuJoCo", "step"] = lambda: rollout.rollout(compiled, data, state, controls)[0]
    end = calls["MuJoCo", "step"]()[:, -1, 1 : 1 + compiled.nq]
    apart = np.max(np.abs(np.asarray(calls["float64", "step"]()[0]) - end))
    seconds = common.least_seconds(calls, 5)
    us = {key: 1e6 * seconds[key] / batch for key in calls}
    for name in ("float64", "float32"):
        took = " and ".join(f"{compile_s[name, k]:.1f}" for k in ("step", "gradient"))
        common.row(name, f"{us[name, 'step'] / steps:.2f}", f"{us[name, 'gradient']:.2f}", took)
    common.row("MuJoCo", f"{us['MuJoCo', 'step'] / steps:.2f}", "-", "-")
    print(f"\nlargest difference of the angles after {steps} steps: {apart:.1e} rad")


if __name__ == "__main__":
    main()
