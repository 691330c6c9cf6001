"""The environment in which one policy walks with several robots."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._math.cast import stacked
from ..contact import inverse_inertias
from ..errors import ArgumentError
from ..model import arguments
from ..padded import PaddedRobots, acting_contacts, pad, pad_scenes
from .environment import name_and_settings
from .legged import LeggedEnv, LeggedParams, gait_errors
from .randomisation import Randomised


@dataclasses.dataclass(frozen=True)
class PaddedWalk(LeggedEnv):
    """Several robots with legs follow commands: one program, and one policy for all of them.

    - `walkers`: the environments of the robots, such as `QuadrupedTrot()` or `MjcfWalk(path)`.
      Either all have a gait, or none;
    - action (n,): one entry per joint after the base of the common tree of the robots
      (`jaxrbd.padded`), with the meaning that it has in the environment of the robot. An entry has
      no effect if the robot does not have the joint;
    - observation (12 + 4 n,), or with a gait (14 + 4 n,): as for `QuadrupedJoystick` and
      `QuadrupedTrot`, with zeros for joints that the robot does not have; then, at the end, 1 for
      each joint that it has and 0 for the others, (n,);
    - physics: a `LeggedPhysics`; parameters: a `LeggedParams`. `default_params` returns the
      parameters for the first robot, and `params_of_all` those for any number of environments with
      different robots.

    Raises ArgumentError, which names the robot, for an environment that is no `LeggedEnv`, for
    robots with springs, tendons, constraints or the postures of a gait, for robots with different
    reward terms, and for a stroke that is not more than 0.
    """

    walkers: tuple[LeggedEnv, ...]
    episode_steps: int = 500
    smoothing: float | None = None
    action_size: int = dataclasses.field(init=False)
    base: str = dataclasses.field(init=False)
    phases: tuple[float, ...] | None = dataclasses.field(init=False)

    def __post_init__(self):
        walkers = arguments.sequence(self.walkers, "walkers", "environments")
        object.__setattr__(self, "walkers", tuple(walkers))
        if not self.walkers:
            raise ArgumentError("walkers is empty, expected at least one environment")
        for i, walker in enumerate(self.walkers):
            if not isinstance(walker, LeggedEnv):
                raise ArgumentError(f"walkers[{i}] is {walker!r}, expected a LeggedEnv")
            if (walker.phases is None) != (self.walkers[0].phases is None):
                raise ArgumentError(f"walkers[{i}] and walkers[0] differ in having a gait")
        params = _walker_params(self.walkers)
        model = params.model
        found = {
            "action_size": model.nv - 6,
            "base": model.frame_names[model.frame_bodies.index(0)],
            # Only states that there is a gait: `params.phases` has the phases of each robot.
            "phases": None if params.phases is None else (0.0,) * params.phases.shape[1],
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def default_params(self) -> LeggedParams:
        return jax.tree.map(lambda x: x[0], _walker_params(self.walkers))

    def params_of_all(self, size: int) -> Randomised:
        """The parameters of `size` environments with the robots in turn, as `randomise` returns.

        Environment i has the robot `walkers[i % n]`, for n robots.
        """
        arguments.require_counts(size=size)
        index = np.arange(size) % len(self.walkers)
        params = jax.tree.map(lambda x: x[index], _walker_params(self.walkers))
        return Randomised(params, jax.tree.map(lambda _: 0, params))

    def robots(self) -> PaddedRobots:
        """The robots in their common tree, to convert configurations and to draw each robot."""
        return pad([walker.default_params().model for walker in self.walkers])

    def settings(self):
        """The static settings, with those of the environment of each robot."""
        walkers = [name_and_settings(walker) for walker in self.walkers]
        return super().settings() | {"walkers": walkers}

    def _acting_spheres(self, params):
        return acting_contacts(params.scene)[: len(params.scene.frames)]  # without the pairs

    def initial(self, params, key):
        """As for one robot; the joints that the robot does not have are at rest in the posture."""
        start, has_joint = super().initial(params, key), _has_joint(params)
        q = start.q.at[7:].set(jnp.where(has_joint, start.q[7:], params.home[7:]))
        return start._replace(q=q, v=start.v.at[6:].set(_masked_joints(params, start.v[6:])))

    def advance(self, params, physics, action, key):
        return super().advance(params, physics, _masked_joints(params, action), key)

    def _observed(self, params, physics):
        measured, exact = super()._observed(params, physics)
        return measured, exact | {"has_joint": _has_joint(params).astype(params.model.dtype)}

    def terms(self, params, before, action, after):
        terms = super().terms(params, before, _masked_joints(params, action), after)
        if self.phases is not None:
            errors = gait_errors(params, after, jnp.asarray(params.phases))
            terms["gait"] = -jnp.mean(errors, where=self._acting_spheres(params))
        return terms


def _has_joint(params: LeggedParams) -> Array:
    """Whether the robot has each joint after the base, (n,)."""
    return jnp.asarray(params.stroke) > 0


def _masked_joints(params: LeggedParams, x: Array) -> Array:
    """Values of the joints (n,), with zeros for the joints that the robot does not have."""
    return jnp.where(_has_joint(params), x, 0)


def _walker_params(walkers: Sequence[LeggedEnv]) -> LeggedParams:
    """The parameters of several environments in the common tree of their robots.

    The first axis of each leaf has one row per environment.
    """
    each = [walker.default_params() for walker in walkers]
    for params in each:
        _check_walker(params, each[0])
    robots = pad([params.model for params in each])
    scenes = [dataclasses.replace(params.scene, inverse_inertia=None) for params in each]
    contacts = pad_scenes(robots, scenes)
    scene = eqx.tree_at(
        lambda scene: scene.inverse_inertia,
        contacts.scene,
        jax.jit(jax.vmap(inverse_inertias))(robots.model, contacts.scene),
        is_leaf=lambda x: x is None,
    )
    strokes = [
        np.append(np.zeros(6), np.broadcast_to(params.stroke, params.model.nv - 6)).astype(
            params.model.dtype
        )
        for params in each
    ]
    phases = None
    if walkers[0].phases is not None:
        phases = np.zeros((len(walkers), len(scene.frames)))
        for row, index, walker in zip(phases, contacts.contact_index, walkers):
            row[index[: len(walker.phases or ())]] = walker.phases  # without the pairs
    dtype = robots.model.dtype
    padded = {
        "model": robots.model,
        "scene": scene,
        "control": jax.tree.map(lambda *x: robots.velocities(x), *(p.control for p in each)),
        "home": robots.configurations([params.home for params in each]),
        "stroke": robots.velocities(strokes)[:, 6:],
        "phases": None if phases is None else jnp.asarray(phases, dtype),
    }
    others = [params._replace(**dict.fromkeys(padded)) for params in each]
    return stacked(others)._replace(**padded)


def _check_walker(params: LeggedParams, first: LeggedParams) -> None:
    """Raise ArgumentError for a robot that cannot be in one batch with the first robot."""
    name = params.model.name
    # `_has_joint` takes a stroke of 0 for a joint that the robot does not have.
    strokes = arguments.known(params.stroke)
    if strokes is not None and not np.all(strokes > 0):
        raise ArgumentError(f"the robot {name!r} has the stroke {strokes}, expected more than 0")
    for field in ("passive", "tendons", "constraints", "postures"):
        if any(np.size(x) for x in jax.tree.leaves(getattr(params, field))):
            raise ArgumentError(f"the robot {name!r} has {field}, which can't be padded")
    if set(params.weights) != set(first.weights):
        raise ArgumentError(
            f"the robot {name!r} has the reward terms {sorted(params.weights)}, expected "
            f"{sorted(first.weights)} as the first robot"
        )
    for field in ("delay", "noise", "start", "command", "gait", "pushes"):
        shapes = [jax.tree.map(np.shape, getattr(x, field)) for x in (params, first)]
        if shapes[0] != shapes[1]:
            raise ArgumentError(
                f"the robot {name!r} has {field} of the shapes {shapes[0]}, expected {shapes[1]} "
                "as for the first robot"
            )
