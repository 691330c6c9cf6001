"""What every comparison with another library shares: states, our results at them, and the verdict.

All compared quantities of a robot are one compiled program, and programs are what these tests
spend their time on. So models lose their names first: robots of the same tree share a program.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd

REFERENCES = ("local", "world", "local_world_aligned")

# Compile quickly rather than well: the programs run twice. Measured on jax 0.10: 2.2 times quicker.
_QUICKLY = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


class State(NamedTuple):
    """Where the quantities are compared; `q1` is a second configuration, for `difference`."""

    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    tau: np.ndarray
    f_ext: np.ndarray
    q1: np.ndarray


def random_state(model: jaxrbd.Model, seed: int) -> State:
    """Any rotation and any place of the base, joints within one turn either way."""
    rng = np.random.default_rng(seed)
    q = _random_configuration(model, rng, 2.0)
    step = _random_configuration(model, rng, 1.0)
    floating = _floating(model)
    q1 = q + step
    q1[:floating] = step[:floating]
    v, a, tau = rng.uniform(-2, 2, (3, model.nv))
    return State(q, v, a, tau, rng.uniform(-5, 5, (model.nb, 6)), q1)


def _floating(model: jaxrbd.Model) -> int:
    """The number of coordinates of the free-flyer, which is the first joint if there is one."""
    return 7 if model.nb and model.topology.nqs[0] == 7 else 0


def _random_configuration(model, rng, reach):
    q = rng.uniform(-reach, reach, model.nq)
    if _floating(model):
        q[3:7] = rng.normal(size=4)
        q[3:7] /= np.linalg.norm(q[3:7])
    return q


# ------------------------------------------------------------------------------------ our results


def reduced(model: jaxrbd.Model) -> jaxrbd.Model:
    """The model with no names but those of three frames, called as PROBES are."""
    chosen = np.array([*probes(model).values()], int)
    return dataclasses.replace(
        model,
        frame_pose=jax.tree.map(lambda x: x[chosen], model.frame_pose),
        frame_names=tuple(probes(model)),
        frame_bodies=tuple(model.frame_bodies[i] for i in chosen),
        joint_names=tuple(f"joint {i}" for i in range(model.nb)),
        body_names=tuple(f"body {i}" for i in range(model.nb)),
        name="",
    )


def probes(model: jaxrbd.Model) -> dict[str, int]:
    """The frames whose kinematics are compared, by index: each is its body's last.

    They are on the deepest body, on the one in the middle, and fixed to the world, if one is.
    """
    depth = model.topology.supports.sum(axis=0)
    bodies = {"deepest": int(np.argmax(depth)), "middle": model.nb // 2} if model.nb else {}
    bodies |= {"fixed": -1} if -1 in model.frame_bodies else {}
    of_frame = np.array(model.frame_bodies)
    return {probe: int(np.flatnonzero(of_frame == body)[-1]) for probe, body in bodies.items()}


def _results(model: jaxrbd.Model, state: State) -> dict[str, jax.Array]:
    q, v, a, tau, f_ext, q1 = state
    kinematics = jaxrbd.forward_kinematics(model, q)
    results = {
        "body placements": matrices(kinematics.X_WB),
        "rnea": jaxrbd.rnea(model, q, v, a, f_ext),
        "bias_force": jaxrbd.bias_force(model, q, v),
        "gravity_force": jaxrbd.gravity_force(model, q),
        "crba": jaxrbd.crba(model, kinematics),
        "aba": jaxrbd.aba(model, q, v, tau, f_ext),
        "forward_dynamics": jaxrbd.forward_dynamics(model, q, v, tau, f_ext),
        "minverse": jaxrbd.minverse(model, kinematics),
        "total_mass": jaxrbd.total_mass(model),
        "center_of_mass": jaxrbd.center_of_mass(model, kinematics),
        "kinetic_energy": jaxrbd.kinetic_energy(model, q, v),
        "potential_energy": jaxrbd.potential_energy(model, kinematics),
        "integrate": jaxrbd.integrate(model, q, v),
        "difference": jaxrbd.difference(model, q, q1),
    }
    for frame in model.frame_names:
        placement = jaxrbd.frame_placement(model, kinematics, frame)
        results[f"frame_placement {frame}"] = matrices(placement)
        for ref in REFERENCES:
            J = jaxrbd.frame_jacobian(model, kinematics, frame, ref)
            results[f"frame_jacobian {frame} {ref}"] = J
        for ref in motion_references(frame):
            V = jaxrbd.frame_velocity(model, q, v, frame, ref)
            A = jaxrbd.frame_acceleration(model, q, v, a, frame, ref)
            results[f"frame_velocity {frame} {ref}"] = V
            results[f"frame_acceleration {frame} {ref}"] = A
    return results


def motion_references(frame: str) -> tuple[str, ...]:
    """Velocities and accelerations are the dearest to compile: all references for one frame only."""
    return REFERENCES if frame == "deepest" else ("local",)


def matrices(X: jaxrbd.Pose):
    """Poses as (..., 3, 4) matrices `[R p]`."""
    return jnp.concatenate([X.R, X.p[..., None]], axis=-1)


results = jax.jit(_results, compiler_options=_QUICKLY)


def all_frame_placements(model: jaxrbd.Model, body_placements: np.ndarray) -> np.ndarray:
    """Poses (nf, 3, 4) in the world of all frames of a model, by what it says of them."""
    world = np.concatenate([body_placements, np.eye(3, 4)[None]])  # body -1 is the last
    X_WB = world[np.array(model.frame_bodies)]
    R, p = X_WB[..., :3] @ model.frame_pose.R, X_WB[..., :3] @ model.frame_pose.p[..., None]
    return np.concatenate([R, p + X_WB[..., 3:]], axis=-1)


# ------------------------------------------------------------------------------------- the verdict


def error(ours, theirs, scale: float | None = None) -> float:
    """The largest difference of any entry, relative to the largest entry of theirs, or to `scale`."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    assert ours.shape == theirs.shape, f"shapes {ours.shape} and {theirs.shape}"
    if theirs.size == 0:
        return 0.0
    if not (np.all(np.isfinite(ours)) and np.all(np.isfinite(theirs))):
        return np.inf
    difference = np.max(np.abs(ours - theirs))
    scale = np.max(np.abs(theirs)) if scale is None else scale
    return float(difference / scale) if difference else 0.0
