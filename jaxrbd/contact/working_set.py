"""The minimum of a contact step, from the contacts that can act.

Of many pairs of shapes, few touch. So Newton's method first solves a smaller problem for each
state, with a working set of contacts. These are the contacts with the largest
`ContactLaw.approach`: the speed before the step at which the two points approach each other, minus
their distance divided by dt, plus the speed of sliding times the friction coefficient. The size of
the set is fixed. Then the impulses of all contacts are evaluated at the minimum. If no contact
outside of the set has an impulse, the gradient of the whole convex function is zero at this point.
So the point is the minimum for all contacts. The states for which another contact has an impulse
are solved again, with all contacts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from .._math.tiles import retried
from ..algorithms.kinematics import Kinematics
from ..model import Model
from .branches import Partition, partition, whole
from .contacts import contact_bodies, contact_jacobians, contact_velocities
from .coulomb import with_spins
from .newton import Problem, Solution, solve
from .points import dof_movers, jacobians_at, point_positions
from .scene import Scene

# The least size of a working set. For a robot of more than 24 dofs, the size is two thirds of the
# number of dofs: a free body has six dofs and rests on four points.
LEAST_SIZE = 16


class Partitions(NamedTuple):
    """The partitions of the dofs for all contacts, and for a working set.

    `working` is None if a working set would not halve the cost of an iteration of Newton's method.
    """

    all: Partition
    working: Partition | None


def partitions_of(model: Model, scene: Scene, others: int) -> Partitions:
    """The partitions for a step; `others`: the number of rows of `Problem.K`."""
    bodies = contact_bodies(model, scene)
    n, pairs = len(scene.frames), len(scene.pairs)
    touched = [[int(a)] for a in bodies[:n]]
    touched += [[int(a), int(b)] for a, b in zip(bodies[n : n + pairs], bodies[n + pairs :])]
    # Each contact of a working set can be any contact, so it can touch each of these bodies.
    size = max(LEAST_SIZE, 2 * model.nv // 3)
    touchable = [sorted({body for bodies in touched for body in bodies})] * size
    if others or not model.velocity_map_is_identity:
        found = [whole(model.nv, len(contacts)) for contacts in (touched, touchable)]
    else:
        found = [partition(model.topology, contacts) for contacts in (touched, touchable)]
    complete, working = found
    return Partitions(complete, working if 2 * working.cost < complete.cost else None)


def contact_solution(
    model: Model,
    scene: Scene,
    kinematics: Kinematics,
    columns: Float[Array, "nv_tree 6"],
    arm: Float[Array, "points 3"],
    problem: Problem,
    partitions: Partitions,
) -> Solution:
    """The solution of the problem, which has all contacts of the scene.

    `columns`: as for `point_jacobians`; `arm`: as in `Contacts`.
    """
    complete, working = partitions
    if working is None:
        return solve(complete, problem)
    law = problem.contacts

    def velocities(v: Array) -> Array:
        return contact_velocities(model, scene, kinematics, arm, law.spin, v)

    # The order of the contacts does not need the precision of float64, in which `top_k` is slow.
    approach = law.approach(velocities(problem.v)).astype(jnp.float32)
    chosen = lax.top_k(approach, len(working.contacts))[1]
    chosen_law = jax.tree.map(lambda x: x[chosen], law)
    J = _chosen_jacobians(model, scene, kinematics, columns, arm, chosen)
    J = with_spins(chosen_law.spin, J[:, :3], J[:, 3:])
    found = solve(working, problem._replace(contacts=chosen_law, J=J))
    acts = jnp.any(law.impulses(velocities(problem.v + found.x)) != 0, axis=1)
    incomplete = jnp.sum(acts) > jnp.sum(acts[chosen])
    impulses = jnp.zeros((scene.size, J.shape[1]), J.dtype).at[chosen].set(found.impulses)

    def with_all_contacts(model, kinematics, columns, arm, problem):
        spin = problem.contacts.spin
        J = contact_jacobians(model, scene, kinematics, columns, arm, spin)
        return solve(complete, problem._replace(J=J))

    # The Jacobian of all contacts is computed only where it is needed.
    operands = model, kinematics, columns, arm, problem._replace(J=problem.J[:0])
    return retried(with_all_contacts, incomplete, operands, found._replace(impulses=impulses))


def _chosen_jacobians(
    model: Model,
    scene: Scene,
    kinematics: Kinematics,
    columns: Float[Array, "nv_tree 6"],
    arm: Float[Array, "points 3"],
    chosen: Int[Array, " k"],
) -> Float[Array, "k 6 nv"]:
    """The Jacobians of the relative linear and angular velocities of the chosen contacts."""
    bodies = contact_bodies(model, scene)
    positions = point_positions(model, kinematics, bodies, arm)
    n, size = len(scene.frames), scene.size
    # The points a and b of each contact. A sphere on the ground has no point b: no dof moves it.
    points = np.concatenate([np.arange(size), np.arange(n), np.arange(size, len(bodies))])
    moves = dof_movers(model, np.concatenate([bodies[:size], np.full(n, -1), bodies[size:]]))
    both = jnp.concatenate([chosen, size + chosen])
    moves, positions = jnp.asarray(moves)[both], positions[jnp.asarray(points)[both]]
    J = jacobians_at(model, kinematics.q, columns, moves, positions)
    return J[: len(chosen)] - J[len(chosen) :]
