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


def programs(robot: Imported, operands, steps: int) -> dict[str, common.Program]:
    """Simulations of so many steps of semi-implicit Euler, and gradients of one step.

    `operands`: the positions and the controls of a batch, in the precision of the robot.
    """
    model, tendons = robot.model.with_dissipation(), robot.tendons.only_acting()

    def step(q, v, activation, control):
        activation, filtered = robot.filter.push(activation, control, DT)
        tau = robot.actuators(model, q, v, filtered) + tendons(model, q, v)
        v = v + DT * jaxrbd.forward_dynamics(model, q, v, tau)
        return jaxrbd.integrate(model, q, DT * v), v, activation

    def simulate(q, control):
        start = q, jnp.zeros_like(q), jnp.zeros_like(control)
        return jax.lax.scan(lambda s, _: (step(*s, control), None), start, length=steps)[0]

    def gradient(q, control):
        def loss(q, v, control):
            return sum(jnp.sum(x) for x in step(q, v, jnp.full_like(control, 0.2), control))

        return jax.grad(loss, argnums=(0, 1, 2))(q, jnp.zeros_like(q), control)

    return {
        name: common.Program(function, *operands)
        for name, function in (("step", simulate), ("gradient", gradient))
    }


def main() -> None:
    given = common.options(__doc__, batch=64, steps=100)
    common.start()
    import mujoco

    compiled = mujoco.MjModel.from_xml_string(hand_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        robot = from_mujoco(compiled)
    rng = np.random.default_rng(0)
    qpos = 0.1 * rng.normal(size=(given.batch, compiled.nq))
    control = rng.uniform(0, 0.5, (given.batch, compiled.nu))
    found = {}
    for dtype in ("float64", "float32"):
        parts = jax.tree.map(lambda x: x.astype(dtype) if isinstance(x, jax.Array) else x, robot)
        parts = parts._replace(model=robot.model.astype(dtype))
        operands = [jnp.asarray(x, dtype) for x in (qpos, control)]
        for name, program in programs(parts, operands, given.steps).items():
            found[dtype, name] = program
    calls = {key: program.call for key, program in found.items()}
    calls["MuJoCo", "step"] = common.in_mujoco(compiled, qpos, 0 * qpos, control, given.steps)
    us = {key: 1e6 * x / given.batch for key, x in common.least_seconds(calls).items()}
    common.head("program", "step, us", "gradient, us", "compile, s")
    for name in ("float64", "float32"):
        took = " and ".join(found[name, column].compilation for column in ("step", "gradient"))
        step, gradient = us[name, "step"] / given.steps, us[name, "gradient"]
        common.row(name, f"{step:.2f}", f"{gradient:.2f}", took)
    common.row("MuJoCo", f"{us['MuJoCo', 'step'] / given.steps:.2f}", "-", "-")
    end = calls["MuJoCo", "step"]()[:, -1, 1 : 1 + compiled.nq]
    apart = np.max(np.abs(np.asarray(calls["float64", "step"]()[0]) - end))
    print(f"\nlargest difference of the angles after {given.steps} steps: {apart:.1e} rad")


if __name__ == "__main__":
    main()
