"""Inertias, velocities and contact forces of MuJoCo's bodies, in the axes and order of MuJoCo."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ...algorithms.kinematics import Kinematics, forward_kinematics
from ...algorithms.places import Places, find_places, place_motions, wrenches_at_points
from ...contact import ContactStep, Scene
from ...contact.contacts import find_contacts, opposed
from ...contact.convex import require_step_of
from ...contact.scene import scene_for
from ...model import Link, Model, arguments
from ...model.joint_space import relative_velocities
from ...spatial import (
    Pose,
    inertia_center_of_mass,
    inverse_transform_point,
    swap_halves,
    transform_inertia,
    transform_motion,
    transform_point,
)
from ...tree import propagate
from .source import Source


class MujocoBodies(eqx.Module):
    """The bodies of MuJoCo, with their quantities about the centers of mass of their trees.

    The methods have the names of fields of MuJoCo's `mjData`. Their results have one row for each
    body of MuJoCo except the world: row i is for body i + 1. The results are in world axes, about
    the center of mass of the whole tree of the body. A tree begins at a child of the world.

    - `inertia` (n, 10): the inertias in the frames of the bodies, as in `Link`. Here a body without
      joints has a row; in `Model.inertia`, the inertia of this body is part of the body to which it
      is fixed. A change of `Model.inertia` does not change these inertias;
    - `frames` (n,), static: the index of the frame of each body, `Imported.body_frames`;
    - `roots` (n,), static: for each body, the row of the first body of its tree.
    """

    inertia: Float[arguments.Parameter, "n 10"]
    frames: tuple[int, ...] = eqx.field(static=True)
    roots: tuple[int, ...] = eqx.field(static=True)

    def cinert(self, model: Model, q: ArrayLike | Kinematics) -> Float[Array, "n 10"]:
        """The inertias `[xx, yy, zz, xy, xz, yz, m c, m]`, in kg m^2, kg m and kg.

        c is the center of mass of the body, relative to the center of mass of the tree. `q` (nq,)
        or its `Kinematics`.
        """
        _, X_CF = self._poses(model, forward_kinematics(model, q))
        inertia = transform_inertia(X_CF, jnp.asarray(self.inertia, model.dtype))
        return inertia[:, np.array([4, 6, 9, 5, 7, 8, 1, 2, 3, 0])]

    def cvel(self, model: Model, q: ArrayLike | Kinematics, v: ArrayLike) -> Float[Array, "n 6"]:
        """The velocities `[w; v]` in rad/s and m/s, for `q` (nq,) and `v` (nv,)."""
        kinematics = forward_kinematics(model, q)
        places, X_CF = self._poses(model, kinematics)
        rates = relative_velocities(model, kinematics.q, arguments.velocity(model, v))
        V_B = propagate(model.topology, kinematics.X_PB, rates)
        return swap_halves(transform_motion(X_CF, place_motions(places, V_B)))

    def cfrc_ext(
        self,
        model: Model,
        scene: Scene,
        q: ArrayLike | Kinematics,
        step: ContactStep,
        dt: ArrayLike,
    ) -> Float[Array, "n 6"]:
        """The mean forces `[moment; force]` of the contacts on the bodies in a step.

        - `q` (nq,) or its `Kinematics`: the configuration before the step;
        - `step`: the result of `contact_step` for the scene, and `dt` in s its duration.

        In N m and N. They are the forces of jaxrbd's contacts in the convention of MuJoCo. Rows of
        bodies that are fixed to the world are zero, except for mocap bodies and bodies that they
        carry. Raises ArgumentError for a step of a scene with another number of contacts, and for a
        dt that is not positive. For a traced dt that is not positive, the result is NaN.
        """
        require_step_of(scene, step)
        arguments.POSITIVE.check_known("dt", dt)
        scene = scene_for(model, scene)
        dt = arguments.POSITIVE.or_nan(arguments.number(model, dt, "dt"))
        kinematics = forward_kinematics(model, q)
        names = [*scene.frames, *scene.pairs.frames[0], *scene.pairs.frames[1]]
        touched = [-1 if name is None else model.frame_index(name) for name in names]
        points = np.flatnonzero([frame in self.frames for frame in touched])
        rows = np.array([self.frames.index(touched[point]) for point in points], int)
        places, X_CF = self._poses(model, kinematics)
        X_CF, X_BF = (Pose(X.R[rows], X.p[rows]) for X in (X_CF, places.X_BF))
        arm = find_contacts(model, scene, kinematics).arm[points]
        positions = transform_point(X_CF, inverse_transform_point(X_BF, arm))
        forces, moments = (opposed(scene, x / dt)[points] for x in (step.impulse, step.moment))
        wrenches = wrenches_at_points(positions, forces, moments)
        total = jnp.zeros((len(self.frames), 6), model.dtype).at[rows].add(wrenches)
        return swap_halves(total)

    def _poses(self, model: Model, kinematics: Kinematics) -> tuple[Places, Pose]:
        """The frames of the bodies, and their poses relative to the trees' centers of mass."""
        places, roots = find_places(model, kinematics, self.frames), np.array(self.roots, int)
        (R, p), p_WR = places.X
        X = Pose(R, (p - p[roots]) + (p_WR - p_WR[roots]))  # relative to the first body of the tree
        inertia = transform_inertia(X, jnp.asarray(self.inertia, model.dtype))
        tree = jnp.zeros_like(inertia).at[roots].add(inertia)
        return places, Pose(X.R, X.p - inertia_center_of_mass(tree)[roots])


def read_bodies(source: Source, links: Sequence[Link], frames: tuple[int, ...]) -> MujocoBodies:
    """The bodies of a compiled model. `links`: of the robot; `frames`: as in `MujocoBodies`."""
    inertia = {link.name: link.inertia for link in links}
    rows = [inertia[name] for name in source.bodies[1:]]
    roots = tuple(int(root) - 1 for root in source.m.body_rootid[1:])
    return MujocoBodies(np.array(rows).reshape(-1, 10), frames, roots)
