"""Programs that tests/test_sharding.py runs in separate processes.

    python -m support.on_devices one FOLDER             # eight devices of one process
    python -m support.on_devices more FOLDER            # the same with explicit axes, and in blocks
    python -m support.on_devices every FOLDER           # eight devices, one algorithm after another
    python -m support.on_devices trainings FOLDER       # one and two devices
    python -m support.on_devices part FOLDER PORT 0     # one of two processes

Each writes its results, and the names of the communication operations of its programs, into FOLDER.
"""

import json
import pathlib
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxrbd as rbd
from jaxrbd import envs, learning
from jaxrbd.envs import Vectorized
from support import zoo
from support.algorithms import ALGORITHMS
from support.point import Point

BATCH, BLOCK = 32, 4
SHARED = (None, 0, 0, 0)
TYPES = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}
SENDS = re.compile(
    r"\b(all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast"
    r"|reduce-scatter|ragged-all-to-all)(-start)?\("
)


def motion(model, q, v, a):
    """One sample's inverse dynamics, their inverse, and a moved configuration."""
    tau = rbd.rnea(model, q, v, a)
    return tau, rbd.forward_dynamics(model, q, v, tau), rbd.integrate(model, q, v)


def effort(model, q, v, a):
    return jnp.sum(rbd.rnea(model, q, v, a) ** 2)


def total(efforts):
    return lambda model, *batch: jnp.sum(efforts(model, *batch))


def samples(operands=3):
    """A robot, and a batch of (q, v, a), or of (q, v, a, f) with `operands=4`."""
    model = zoo.small()
    states = [zoo.state(model, seed)[:operands] for seed in range(BATCH)]
    return model, tuple(jnp.stack(x) for x in zip(*states))


def mesh_of(count, kind="auto"):
    return jax.make_mesh((count,), ("batch",), (TYPES[kind],), devices=jax.devices()[:count])


def sent(compiled):
    """The communication operations between devices in a compiled program."""
    return sorted({match[0] for match in SENDS.findall(compiled.as_text())})


def keep(values, talk, name, program, *args):
    """Store what a program returns and what it sends."""
    compiled = program.lower(*args).compile()
    values[name] = jax.device_get(compiled(*args))
    talk[name] = sent(compiled)


def alone(model, batch):
    """The motions without a mesh, block by block."""
    plain = jax.jit(jax.vmap(motion, SHARED))
    parts = [plain(model, *(x[i : i + BLOCK] for x in batch)) for i in range(0, BATCH, BLOCK)]
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def keep_plain(values, talk, kind, model, batch):
    """The motions of a batch over the devices of a mesh, by `jax.vmap`."""
    mesh = mesh_of(8, kind)
    with jax.set_mesh(mesh):
        everywhere = jax.device_put(model, NamedSharding(mesh, PartitionSpec()))
        plain = jax.jit(jax.vmap(motion, SHARED))
        keep(values, talk, "plain", plain, everywhere, *rbd.sharding.shard_batch(batch, mesh))


def one(folder):
    model, batch = samples()
    values, talk = {"alone": alone(model, batch)}, {}
    keep_plain(values, talk, "auto", model, batch)
    mesh = mesh_of(8)
    few = rbd.sharding.over_devices(effort, mesh, SHARED, block=1)
    try:
        rbd.sharding.shard_batch([x[:12] for x in batch], mesh)
    except rbd.ArgumentError as error:
        talk["refusal"] = str(error)
    values["13"] = jax.device_get(few(model, *(x[:13] for x in batch)))

    split = rbd.sharding.shard_batch(batch, mesh)
    efforts = rbd.sharding.over_devices(effort, mesh, SHARED, block=BLOCK)
    values["efforts"] = jax.device_get(efforts(model, *split))
    by_batch = jax.jit(jax.grad(lambda a, q, v: jnp.sum(efforts(model, q, v, a))))
    keep(values, talk, "by batch", by_batch, split[2], *split[:2])
    keep(values, talk, "by model", jax.jit(jax.grad(total(efforts))), model, *split)
    both = jax.jit(jax.grad(total(jax.vmap(effort, SHARED)), argnums=(0, 3)))(model, *batch)
    values["by model, alone"], values["by batch, alone"] = jax.device_get(both)
    write(folder / "one", values, talk)


def more(folder):
    model, batch = samples()
    values, talk = {"alone": alone(model, batch)}, {}
    keep_plain(values, talk, "explicit", model, batch)
    for name, mesh in {**{kind: mesh_of(8, kind) for kind in TYPES}, "two": mesh_of(2)}.items():
        program = rbd.sharding.over_devices(motion, mesh, SHARED, block=BLOCK)
        split = batch if name == "two" else rbd.sharding.shard_batch(batch, mesh)
        keep(values, talk, name, program, model, *split)
    write(folder / "more", values, talk)


def inverse_inertia(model, q, v, u, f):
    """M(q)^-1, as the derivative of the acceleration."""
    return jax.jacrev(lambda u: rbd.forward_dynamics(model, q, v, u, f))(u)


def algorithms():
    """Functions of (model, q, v, u, f) by name."""
    names = """
        aba aba_minverse bias_force center_of_mass centroidal_derivatives centroidal_momentum
        close_loops constrained_dynamics contact_force contact_step coriolis_matrix crba difference
        external_force forward_dynamics forward_dynamics_derivatives forward_dynamics_second_order
        forward_kinematics frame_acceleration frame_jacobian frame_jacobian_dot frame_placement
        frame_velocity gravity_force integrate interpolate joint_torque_regressor kinetic_energy
        ltl_solve mass_matrix_product minverse operational_space_inertia passive_force
        potential_energy rnea rnea_derivatives rnea_second_order runge_kutta_munthe_kaas
        variational_midpoint
    """.split()
    return {**{name: ALGORITHMS[name] for name in names}, "inverse_inertia": inverse_inertia}


def every(folder):
    """For each algorithm: what its programs send, and whether 1, 2 and 8 devices agree exactly."""
    model, batch = samples(operands=4)
    axes = (None, 0, 0, 0, 0)
    found = {}
    for name, algorithm in algorithms().items():
        plain = jax.jit(jax.vmap(algorithm, axes))
        parts = [plain(model, *(x[i : i + BLOCK] for x in batch)) for i in range(0, BATCH, BLOCK)]
        alone = jax.tree.map(lambda *x: np.concatenate(x), *parts)
        blocks = {
            n: rbd.sharding.over_devices(algorithm, mesh_of(n), axes, block=BLOCK) for n in (2, 8)
        }
        values = [blocks[n](model, *batch) for n in blocks]
        found[name] = {
            "blocks": sent(
                blocks[8].lower(model, *rbd.sharding.shard_batch(batch, mesh_of(8))).compile()
            )
        }
        found[name]["same"] = [
            all(map(np.array_equal, jax.tree.leaves(alone), jax.tree.leaves(value)))
            for value in values
        ]
        for kind in TYPES:
            mesh = mesh_of(8, kind)
            with jax.set_mesh(mesh):
                everywhere = jax.device_put(model, NamedSharding(mesh, PartitionSpec()))
                try:
                    split = rbd.sharding.shard_batch(batch, mesh)
                    found[name][kind] = sent(plain.lower(everywhere, *split).compile())
                except Exception as error:
                    found[name][kind] = type(error).__name__
        print(name, found[name], flush=True)
    write(folder / "every", {}, found)


def part(folder, port, number):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=number)
    model, batch = samples()
    mesh = jax.make_mesh((jax.device_count(),), ("batch",))
    size = BATCH // 2
    mine = jax.tree.map(lambda x: x[number * size : (number + 1) * size], batch)
    split = rbd.sharding.shard_batch(mine, mesh)
    blocks = rbd.sharding.over_devices(motion, mesh, SHARED, block=BLOCK)
    values = {"blocks": rbd.sharding.local_batch(blocks(model, *split))}
    talk = {"blocks": sent(blocks.lower(model, *split).compile())}
    efforts = rbd.sharding.over_devices(effort, mesh, SHARED, block=BLOCK)
    found = jax.jit(jax.grad(total(efforts)))(model, *split)
    values["by model"] = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), found)
    write(folder / f"part{number}", values, talk)


def trainings(folder):
    """Three trainings on one device and on two: losses, environments per simulation, and devices.

    In the last one, each environment has its own parameters.
    """
    sizes, devices = [], set()
    step, put = Vectorized.step, jax.device_put

    def recorded_step(batch, params, state, action):
        sizes.append(state.steps.size)
        return step(batch, params, state, action)

    def recorded_put(x, device=None, **more):
        devices.add(device)
        return put(x, device, **more)

    Vectorized.step, jax.device_put = recorded_step, recorded_put
    env = Point(episode_steps=5)
    names = {"friction": envs.Uniform(0.0, 0.5)}
    drawn, axes = envs.randomise(env.default_params(), names, jax.random.key(0), 8)
    cases = {
        "shac": (learning.Shac(8, 9, (6,), critic_epochs=2, critic_minibatches=3, updates=4), {}),
        "ppo": (learning.Ppo(8, 9, (6,), epochs=2, minibatches=3, updates=4), {}),
        "own": (learning.Apg(8, 9, (6,), updates=4), {"params": drawn, "params_axes": axes}),
    }
    values, talk = {}, {}
    for name, (algorithm, more) in cases.items():
        meshes = {"alone": None, **{kind: mesh_of(2, kind) for kind in TYPES}}
        for kind, mesh in meshes.items():
            sizes.clear()
            devices.clear()
            training = learning.Training(algorithm, env, 1, **more, mesh=mesh)
            values[f"{name}, {kind}"] = [x.metrics["loss"] for x in training.run()]
            used = devices & {*jax.devices()}
            talk[f"{name}, {kind}"] = {"sizes": sorted({*sizes}), "devices": len(used)}
    write(folder / "trainings", values, talk)


def write(path, values, talk):
    leaves = {
        f"{name}/{i}": np.asarray(x)
        for name, value in values.items()
        for i, x in enumerate(jax.tree.leaves(value))
    }
    np.savez(path.with_suffix(".npz"), **leaves)
    path.with_suffix(".json").write_text(json.dumps(talk))


if __name__ == "__main__":
    what, folder, *rest = sys.argv[1:]
    if what == "trainings":
        jax.config.update("jax_enable_x64", True)
    if what != "part":
        jax.config.update("jax_num_cpu_devices", 8)
    globals()[what](pathlib.Path(folder), *map(int, rest))
