"""Comparison with another library: states, our results, and the check of all quantities.

One compiled program returns all quantities of a robot. Compilation takes most of the time. So the
names of a model are removed first, and robots with the same tree share one program.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from jaxrbd.model.geometry import LinkGeometry
from support import xla_flags

REFERENCES = ("local", "world", "local_world_aligned")
# Quantities that are solved with the mass matrix M: their errors grow with cond(M).
SOLVED = ("aba", "forward_dynamics", "minverse")
# M counts as singular above this condition number.
SINGULAR = 1e12
# Forces that may be zero: their errors are relative to the result of rnea.
PART_OF_RNEA = ("bias_force", "gravity_force")

# Compile quickly, without optimization: each program runs only a few times.
QUICKLY = xla_flags.known_flags(xla_flags.QUICK_COMPILATION)


class State(NamedTuple):
    """The arguments of all quantities; `q1` is a second configuration, for `difference`."""

    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    tau: np.ndarray
    f_ext: np.ndarray
    q1: np.ndarray


def random_state(model: jaxrbd.Model, seed: int) -> State:
    """A random state: |q| < 2, |q1 - q| < 1, and uniform quaternions."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(-2, 2, model.nq)
    q1 = q + rng.uniform(-1, 1, model.nq)
    for start, nq in zip(model.topology.q_start, model.topology.nqs):
        if nq in (4, 7):  # a ball or a free-flyer
            for configuration in (q, q1):
                quaternion = rng.normal(size=4)
                part = slice(start + nq - 4, start + nq)
                configuration[part] = quaternion / np.linalg.norm(quaternion)
    v, a, tau = rng.uniform(-2, 2, (3, model.nv))
    return State(q, v, a, tau, rng.uniform(-5, 5, (model.nb, 6)), q1)


# ------------------------------------------------------------------------------------ our results


def probes(model: jaxrbd.Model) -> dict[str, int]:
    """Indices of the frames whose kinematics are compared. Each is the last frame of its body.

    They are on the deepest body, on the body in the middle, and, if there is one, on the world.
    """
    depth = model.topology.supports.sum(axis=0)
    bodies = {"deepest": int(np.argmax(depth)), "middle": model.nb // 2} if model.nb else {}
    bodies |= {"fixed": -1} if -1 in model.frame_bodies else {}
    of_frame = np.array(model.frame_bodies)
    return {probe: int(np.flatnonzero(of_frame == body)[-1]) for probe, body in bodies.items()}


def probe_names(model: jaxrbd.Model) -> dict[str, str]:
    """The same frames by their names."""
    return {probe: model.frame_names[index] for probe, index in probes(model).items()}


def references(probe: str) -> tuple[str, ...]:
    """The references for the motion of a probe: all for one probe only, to save compilation."""
    return {"deepest": REFERENCES, "middle": (), "fixed": ("local",)}[probe]


def nameless(model: jaxrbd.Model) -> jaxrbd.Model:
    """The model with the probes as its frames and no other names."""
    chosen = np.array([*probes(model).values()], int)
    fixed = [i for i, body in enumerate(model.frame_bodies) if body < 0]
    kept = [i for i in chosen if i in fixed]
    return dataclasses.replace(
        model,
        frame_pose=jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[chosen]), model.frame_pose),
        fixed_inertia=model.fixed_inertia[np.array([fixed.index(i) for i in kept], int)],
        frame_names=tuple(probes(model)),
        frame_bodies=tuple(model.frame_bodies[i] for i in chosen),
        joint_names=tuple(f"joint {i}" for i in range(model.nb)),
        body_names=tuple(f"body {i}" for i in range(model.nb)),
        name="",
        geometry=LinkGeometry(),
    )


_trees: set = set()


def make_room(model: jaxrbd.Model) -> None:
    """Remove all programs from memory after those of ten trees. Each takes 80 MB."""
    tree = jax.tree.structure(nameless(model))
    if tree not in _trees and len(_trees) == 10:
        jax.clear_caches()
        _trees.clear()
    _trees.add(tree)


def our_results(model: jaxrbd.Model, state: State) -> dict[str, np.ndarray]:
    """Every compared quantity of a model at a state, by name."""
    make_room(model)
    results = jax.tree.map(np.asarray, _results(nameless(model), state))
    results["all frame placements"] = _place_frames(model, results["body placements"])
    return results


@partial(jax.jit, compiler_options=QUICKLY)
def _results(model: jaxrbd.Model, state: State) -> dict[str, jax.Array]:
    q, v, a, tau, f_ext, q1 = state
    kinematics = jaxrbd.forward_kinematics(model, q)
    results = {
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
        "neutral": jaxrbd.neutral(model),
        "body placements": _matrices(kinematics.X_WB),
    }
    for probe in model.frame_names:
        placement = jaxrbd.frame_placement(model, kinematics, probe)
        results[f"frame_placement of {probe}"] = _matrices(placement)
        results[f"frame_jacobian of {probe}"] = jaxrbd.frame_jacobian(model, kinematics, probe)
        for ref in references(probe):
            J = jaxrbd.frame_jacobian(model, kinematics, probe, ref)
            V = jaxrbd.frame_velocity(model, q, v, probe, ref)
            A = jaxrbd.frame_acceleration(model, q, v, a, probe, ref)
            results[f"frame_jacobian of {probe}, {ref}"] = J
            results[f"frame_velocity of {probe}, {ref}"] = V
            results[f"frame_acceleration of {probe}, {ref}"] = A
    return results


def our_dynamics(model: jaxrbd.Model, state: State) -> dict[str, np.ndarray]:
    """The quantities that are compared in single precision."""
    make_room(model)
    return jax.tree.map(np.asarray, _dynamics(nameless(model), state))


@partial(jax.jit, compiler_options=QUICKLY)
def _dynamics(model: jaxrbd.Model, state: State) -> dict[str, jax.Array]:
    q, v, a, tau, f_ext, _ = state
    return {
        "rnea": jaxrbd.rnea(model, q, v, a, f_ext),
        "crba": jaxrbd.crba(model, q),
        "forward_dynamics": jaxrbd.forward_dynamics(model, q, v, tau, f_ext),
    }


def _matrices(X: jaxrbd.Pose) -> jax.Array:
    """Poses as (..., 3, 4) matrices `[R p]`."""
    return jnp.concatenate([X.R, X.p[..., None]], axis=-1)


def _place_frames(model: jaxrbd.Model, X_WB: np.ndarray) -> np.ndarray:
    """Poses (nf, 3, 4) of all frames in the world, from the model's frames and the body poses."""
    X_WB = np.concatenate([X_WB, np.eye(3, 4)[None]])[np.array(model.frame_bodies)]  # -1: the world
    X_BF = np.asarray(_matrices(model.frame_pose))
    R, p = X_WB[..., :3] @ X_BF[..., :3], X_WB[..., :3] @ X_BF[..., 3:]
    return np.concatenate([R, p + X_WB[..., 3:]], axis=-1)


# ------------------------------------------------------------------------------------- the verdict


def assert_agree(
    robot: str,
    ours: dict[str, np.ndarray],
    theirs: dict[str, np.ndarray],
    *,
    singular: bool = False,
    direct: float = 1e-12,
    solved: Callable[[float], float] = lambda condition: 1e-12 + 1e-15 * condition,
) -> None:
    """Every quantity of `theirs` equals ours within `direct`, relative to its largest entry.

    Quantities in SOLVED may differ by `solved(cond(M))`. They are skipped if M is singular.
    """
    M_condition = condition(theirs["crba"])
    assert (M_condition > SINGULAR) == singular, f"{robot}: cond(M) = {M_condition:.1e}"
    wrong = []
    for quantity, expected in theirs.items():
        if singular and quantity in SOLVED:
            continue
        allowed = solved(M_condition) if quantity in SOLVED else direct
        scale = theirs["rnea"] if quantity in PART_OF_RNEA else expected
        found = error(ours[quantity], expected, scale)
        if not found <= allowed:
            wrong.append(f"  {quantity}: relative error {found:.1e}, allowed {allowed:.1e}")
    assert not wrong, f"{robot}, cond(M) = {M_condition:.1e}:\n" + "\n".join(wrong)


def condition(M: np.ndarray) -> float:
    """The condition number of a mass matrix, 1 for an empty one."""
    return float(np.linalg.cond(M)) if M.size else 1.0


def error(ours: np.ndarray, theirs: np.ndarray, scale: np.ndarray) -> float:
    """The largest difference of two entries over the largest entry of `scale`."""
    if np.shape(ours) != np.shape(theirs):
        return np.inf
    difference = float(np.max(np.abs(np.subtract(ours, theirs)), initial=0.0))
    size = float(np.max(np.abs(scale), initial=0.0))
    return difference / size if size else (np.inf if difference else 0.0)
