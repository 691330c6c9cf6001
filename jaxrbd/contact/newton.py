"""Newton's method for the convex function of a contact step.

The unknown x (nv,) is the change of the velocity in the step. The function is

    x . M x / 2 - p . x + sum over all laws of l(u),     u = J (v + x).

M is the mass matrix, v the velocity from which the step starts, and `p = dt (tau - bias)` is the
impulse of all forces that no law describes (`Problem.free_impulse`). u are velocities, such as the
velocities of contact points, and J is their Jacobian. A law gives the impulse at a velocity u: the
negative derivative of the convex function l(u), which the code calls the penalty. There are laws of
contacts, of joints (limits, friction, damping, servos), of constraints and of tendons. The product
`x . M x` is twice the kinetic energy of the change. `convex.py` states the function in terms of the
velocity `v + x`.

The solver is a loop that JAX never differentiates. In the loop the batch axis is the last axis, so
each operation is on contiguous entries of many states. The dofs are in the order of
`Partition.order`, and each branch has its own small matrices. A row is one velocity u, for example
one component of the velocity of a contact point. A contact has d rows: three, or more with
torsional or rolling friction. Shapes in the loop, for b branches of m dofs, t dofs of the trunk, s
states, and R = d k + r rows per branch (k contacts, r rows of constraints and tendons):

- vectors of all dofs: (m b + t, s);
- vectors of all rows: (R, b, s);
- matrices of all branches: (m, m + t + 1, b, s). The last column is the right-hand side;
- the matrix of the trunk: (t, t + 1, s).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jaxtyping import Float

from .._math.batch_last import plus_terms, row, solutions, sum_of_rows
from .._math.components import Vec3
from .._math.linear import LARGEST_WHOLE, matmul, solve_positive_definite
from .._math.ranks import minus, plus, times
from .._math.rows import take_rows
from .._math.tiles import by_platform, repeat_batch, with_batch_axis
from ..tree import map_states
from .branches import Partition
from .coulomb import ContactLaw, ContactVector, Projection, project
from .joint_terms import ClippedLaw

# The iterations end where the residual is at most TOLERANCE eps. Where rounding errors keep the
# residual above this bound, the last x counts as the minimum if the residual is at most sqrt(eps).
TOLERANCE = 1000
MAX_STEPS = 200
# Bounds for the slope at the end of a line search, as multiples of the slope at its start, which is
# negative: the function may still fall at half the first slope, or rise at a tenth of it.
LARGEST_FALL_RATIO, LARGEST_RISE_RATIO = 0.5, -0.1
MAX_TRIALS = 20
# On a CPU, a batch is computed in blocks of LARGEST_BLOCK states. After BLOCK_STEPS iterations, the
# states of a block that need more iterations join other blocks. So a slow state does not delay the
# others. A batch of at most ONE_BLOCK states is computed at once if the matrices of a state have at
# most ONE_BLOCK_ENTRIES entries, because the start of a block takes time; else in blocks of
# LEAST_BLOCK states.
LEAST_BLOCK, LARGEST_BLOCK, ONE_BLOCK = 16, 32, 64
BLOCK_STEPS, ONE_BLOCK_ENTRIES = 3, 1000
# On a GPU, the largest number of entries of the matrices for which one kernel computes the minimum.
# The time to compile the kernel grows with this number.
KERNEL_ENTRIES = 1000


class Problem(NamedTuple):
    """The convex function of a step; the shapes are for one state.

    - `M` (nv, nv), `free_impulse` p (nv,), `v` (nv,): as at the head of the module;
    - `contacts`, `J` (contacts, d, nv): the law of the contacts, and the Jacobian of their
      velocities;
    - `joints`: the law of the velocities v;
    - `others`, `K` (r, nv): the law of other velocities, such as the rates of constraints and of
      tendons, and the Jacobian of these velocities.
    """

    M: Float[Array, "nv nv"]
    free_impulse: Float[Array, " nv"]
    v: Float[Array, " nv"]
    contacts: ContactLaw
    J: Float[Array, "contacts d nv"]
    joints: ClippedLaw
    others: ClippedLaw
    K: Float[Array, "r nv"]


class Minimum(NamedTuple):
    """The minimizing x (nv,), and the residual.

    The residual is the size of the last step, see `ContactStep.residual`.
    """

    x: Float[Array, " nv"]
    residual: Float[Array, ""]


class Solution(NamedTuple):
    """The minimizing x (nv,), the impulses of the contacts, the residual, and the Hessian at x."""

    x: Float[Array, " nv"]
    impulses: Float[Array, "contacts d"]
    residual: Float[Array, ""]
    hessian: Float[Array, "nv nv"]


def solve(partition: Partition, problem: Problem) -> Solution:
    """The minimum of the function at the head of the module, by `minimise`, and values at it."""
    x, residual = minimise(partition, problem)
    impulses = problem.contacts.impulses(matmul(problem.J, problem.v + x))
    return Solution(x, impulses, residual, _hessian(problem, x))


def _hessian(problem: Problem, x: Array) -> Array:
    """The Hessian (nv, nv) of the function at x."""
    v, J, K = problem.v + x, problem.J, problem.K
    one = jnp.asarray(np.eye(len(v)), v.dtype)
    u = matmul(J, v)
    rows = u.size, len(v)
    DJ = problem.contacts.hessian_product(u, J).reshape(rows)
    H = problem.M + problem.joints.hessian_product(v, one)
    H = H + matmul(J.reshape(rows).T, DJ)
    if len(K):
        H = H + matmul(K.T, problem.others.hessian_product(matmul(K, v), K))
    return H


def minimise(partition: Partition, problem: Problem) -> Minimum:
    """The minimum of the function at the head of the module.

    The iterations start at x = 0, so a robot at rest starts near the minimum. Each step is
    shortened to the approximate minimum along the step. The reason: at dry friction and at limits,
    the slope of the function changes strongly in a short interval of the step, so full steps can
    jump over this interval again and again. The search along the step uses slopes and not values:
    near the minimum, differences of values are rounding errors. The iterations of a state do not
    depend on other states of a batch. x is NaN where they do not converge.
    """

    @custom_vmap
    def batched_minimum(problem: Problem) -> Minimum:
        return _batch_minimum(partition, problem)

    @batched_minimum.def_vmap
    def _(size, is_batched, problem):
        found = batched_minimum(with_batch_axis(problem, *is_batched))
        return found, jax.tree.map(lambda _: True, found)

    return batched_minimum(problem)


def _batch_minimum(partition: Partition, problem: Problem) -> Minimum:
    """The minimum of problems with any leading batch axes.

    The size of a batch axis is 1 in operands that all states share.
    """
    axes = problem.free_impulse.ndim - 1
    if not axes:
        found = _iterate(partition, jax.tree.map(lambda x: x[..., None], problem), None, MAX_STEPS)
        return _minimum(jax.tree.map(lambda x: x[..., 0], found))
    shapes = [x.shape[:axes] for x in jax.tree.leaves(problem)]
    batch = tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*shapes))
    free_impulse = jnp.broadcast_to(
        problem.free_impulse, (*batch, *problem.free_impulse.shape[axes:])
    )
    leaves, structure = jax.tree.flatten(problem._replace(free_impulse=free_impulse))
    shared = [all(n == 1 for n in x.shape[:axes]) for x in leaves]
    count, nv = math.prod(batch), free_impulse.shape[-1]
    leaves = [
        x.reshape(1, *x.shape[axes:])
        if is_shared
        else jnp.broadcast_to(x, (*batch, *x.shape[axes:])).reshape(count, *x.shape[axes:])
        for x, is_shared in zip(leaves, shared)
    ]
    entries = _number_of_entries(partition, problem)

    # Outside, the batch axis is the first axis. In `_iterate`, it is the last axis.
    def iterated(leaves, x, steps):
        last = jax.tree.unflatten(structure, [jnp.moveaxis(x, 0, -1) for x in leaves])
        found = _iterate(partition, last, None if x is None else x.T, steps)
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), found)

    def minima(*leaves):
        return _minimum(iterated(leaves, None, MAX_STEPS))

    def state_minimum(*leaves):
        return jax.tree.map(lambda x: x[0], minima(*(x[None] for x in leaves)))

    def minima_of_blocks(*leaves):
        def step(rows, state):
            found, steps = state
            states = [x if is_shared else x[rows] for x, is_shared in zip(leaves, shared)]
            found, steps = iterated(states, found.x, BLOCK_STEPS), steps + BLOCK_STEPS
            return (found, steps), ~found.finished & (steps < MAX_STEPS)

        x = jnp.zeros((count, nv), free_impulse.dtype)
        zero = jnp.zeros(count, x.dtype)
        start = _Iterated(x, zero, zero > 0), jnp.zeros(count, int)
        block = LARGEST_BLOCK if count > ONE_BLOCK else LEAST_BLOCK
        return _minimum(repeat_batch(step, start, block)[0])

    def platform_minima(*leaves):
        at_once = ONE_BLOCK if entries <= ONE_BLOCK_ENTRIES else LEAST_BLOCK
        if not isinstance(count, int) or count <= at_once or not nv:
            return minima(*leaves)
        return by_platform(minima_of_blocks, minima, *leaves)

    if entries <= KERNEL_ENTRIES:
        found = map_states(platform_minima, state_minimum, *leaves)
    else:
        found = platform_minima(*leaves)
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), found)


def _number_of_entries(partition: Partition, problem: Problem) -> int:
    """The number of entries of `_Matrices.J_and_M` for one state."""
    (m, b), t, k = partition.branches.shape, len(partition.trunk), len(partition.contacts)
    rows = problem.J.shape[-2] * k + problem.others.target.shape[-1]
    return (rows + m + t) * (m + t + 1) * b


class _State(NamedTuple):
    """The state of the loop.

    - `steps` (): the number of iterations;
    - `x`: the unknown; `momentum`: `M x - p`; `u`: the velocities of all rows;
    - `residual` (s,): the residual of the last step;
    - `finished` (s,): whether the iterations of the state have ended.
    """

    steps: Array
    x: Array
    momentum: Array
    u: Array
    residual: Array
    finished: Array


class _Iterated(NamedTuple):
    """The result of some iterations, as in `_State`; x (nv, s) is in the order of the model."""

    x: Array
    residual: Array
    finished: Array


def _minimum(found: _Iterated) -> Minimum:
    """The minima after the last iterations, with the batch axes first; NaN without convergence."""
    converged = found.residual <= float(jnp.finfo(found.x.dtype).eps) ** 0.5
    return Minimum(jnp.where(converged[..., None], found.x, jnp.nan), found.residual)


class _LineSearch(NamedTuple):
    """The state of the search along a step; one value per state of the batch.

    - `trials` (): the number of evaluations;
    - `fraction` (s,): the fraction of the step that is evaluated next, or the accepted one;
    - `low`, `high` (s,): fractions with a negative and with a positive slope;
    - `searching` (s,): whether no fraction is accepted yet.
    """

    trials: Array
    fraction: Array
    low: Array
    high: Array
    searching: Array


def _iterate(partition: Partition, problem: Problem, x: Array | None, steps: int) -> _Iterated:
    """At most `steps` iterations of many states, with the batch axis last, from x (default: 0)."""
    dtype = problem.free_impulse.dtype
    eps, tiny = (float(x) for x in (jnp.finfo(dtype).eps, jnp.finfo(dtype).tiny))
    laws, matrices = _laws(partition, problem), _matrices(partition, problem)
    order = partition.order
    free_impulse, v = (_taken(x, order, 0) for x in (problem.free_impulse, problem.v))
    v = jnp.broadcast_to(v, free_impulse.shape)  # all states may share v
    u_0, Mv = matrices.products(v)
    start_energy = sum_of_rows(v * Mv)  # twice the kinetic energy at the start of the step

    def unfinished(state: _State) -> Array:
        return (state.steps < steps) & ~jnp.all(state.finished)

    def newton(state: _State) -> _State:
        x, momentum, u = state.x, state.momentum, state.u
        linearised = laws.linearised(u, v + x)
        # Without the barrier, XLA would compute and store each slice of the rows before the loop,
        # with one kernel per slice.
        rows, momentum = lax.optimization_barrier((matrices.J_and_M, momentum))
        inside_loop = matrices._replace(J_and_M=rows)
        step = inside_loop.solve(linearised, linearised.joint_impulses - momentum)
        du, M_step = inside_loop.products(step)
        terms = [step * momentum, step * M_step, x * (momentum + free_impulse)]
        # `change_energy` is `x . M x`, twice the kinetic energy of the change.
        sums, (linear, quadratic, change_energy) = linearised.sums(du, step, terms)
        power, curvature, penalty = sums
        # At the start of the step: the slope along the step, and `step . H step` (Hessian H).
        slope, decrement = linear - power, quadratic + curvature
        scale = change_energy + start_energy + 2 * penalty
        residual = jnp.sqrt(decrement / jnp.maximum(scale, tiny))
        accurate = residual <= TOLERANCE * eps

        def evaluate(search: _LineSearch) -> _LineSearch:
            """Evaluate the slope at the fraction, and choose the next fraction."""
            fraction, whole = search.fraction, search.trials == 0
            power, curvature = laws.power_and_curvature(
                u + times(fraction, du), v + x + times(fraction, step), du, step
            )
            reached = linear + fraction * quadratic - power  # the slope at the fraction
            trials = search.trials + 1
            # The whole step is accepted also if the slope is still steep: no step is made longer.
            accepted = (reached <= LARGEST_RISE_RATIO * slope) & (
                (reached >= LARGEST_FALL_RATIO * slope) | whole
            )
            low = jnp.where(reached < 0, fraction, search.low)
            high = jnp.where(reached < 0, search.high, fraction)
            # Newton's method for the zero of the slope. Where the slope bends between `low` and
            # `high`, the proposal can be near one of them or beyond it. Then the middle is next.
            proposed = fraction - reached / (quadratic + curvature)
            width = high - low
            inside = (proposed > low + 0.02 * width) & (proposed < high - 0.02 * width)
            proposed = jnp.where(inside, proposed, low + width / 2)
            # The function is convex, so it descends from 0 to every fraction with a negative slope.
            proposed = jnp.where(trials < MAX_TRIALS, proposed, low)
            searching = search.searching & ~accepted
            return _LineSearch(
                trials,
                jnp.where(searching, proposed, fraction),
                low,
                high,
                searching & (trials < MAX_TRIALS),
            )

        finished = state.finished | accurate | jnp.isnan(residual)
        whole_step = jnp.where(state.finished, 0, jnp.ones_like(start_energy))
        search = _LineSearch(jnp.zeros((), int), whole_step, 0 * whole_step, whole_step, ~finished)
        search = lax.while_loop(lambda search: jnp.any(search.searching), evaluate, search)
        return _State(
            state.steps + 1,
            x + times(search.fraction, step),
            momentum + times(search.fraction, M_step),
            u + times(search.fraction, du),
            jnp.where(state.finished, state.residual, residual),
            finished,
        )

    zero = jnp.zeros(free_impulse.shape[1:], dtype)
    if x is None:
        x, u, momentum = jnp.zeros_like(free_impulse), plus(u_0, zero), minus(zero, free_impulse)
    else:
        x = _taken(x, order, 0)
        du, Mx = matrices.products(x)
        u, momentum = u_0 + du, Mx - free_impulse
    start = _State(jnp.zeros((), int), x, momentum, u, zero + jnp.inf, zero > 0)
    last = lax.while_loop(unfinished, newton, start)
    # From the order of the solver to the order of the model. The padding has the index nv, so it is
    # sorted to the end.
    place = np.argsort(order, kind="stable")[: len(problem.free_impulse)]
    return _Iterated(take_rows(last.x, place), last.residual, last.finished)


# --------------------------------------------------------------------------------------- the laws


class _Linearised(NamedTuple):
    """The impulses and the penalties of all laws, and the second derivatives of the penalties.

    - `impulses`, `penalties` (R, b, s): of the rows;
    - `hessian` (d, d, k, b, s): of the contacts; `curvatures` (r, b, s): of the other rows;
    - `joint_impulses`, `joint_curvatures`, `joint_penalties`: of the velocities v.
    """

    impulses: Array
    hessian: Array
    curvatures: Array
    penalties: Array
    joint_impulses: Array
    joint_curvatures: Array
    joint_penalties: Array

    def sums(self, du: Array, dv: Array, terms: list[Array]) -> tuple[Array, Array]:
        """Three sums over all laws, (3, s), and the sums of `terms` over all dofs.

        The three sums are, for changes du of u and dv of v: the power of the impulses, the second
        derivative of the penalties, and the penalties.
        """
        row_terms = [du * self.impulses, du * self.hessian_product(du), self.penalties]
        joint_terms = [
            dv * self.joint_impulses,
            dv * self.joint_curvatures * dv,
            self.joint_penalties,
        ]
        rows, joints = _sums(row_terms), _sums([*joint_terms, *terms])
        return rows + joints[:3], joints[3:]

    def hessian_product(self, x: Array) -> Array:
        """The product of the Hessian of the rows with x (R, ..., b, s)."""
        # The first axis is divided: d k rows of contacts, as (d, k), and r other rows.
        H, extra = self.hessian, [1] * (x.ndim - 3)
        H = H.reshape(*H.shape[:3], *extra, *H.shape[3:])
        curvatures = self.curvatures.reshape(
            len(self.curvatures), *extra, *self.curvatures.shape[1:]
        )
        d, k = H.shape[1:3]
        parts, rest = x[: d * k].reshape(d, k, *x.shape[1:]), x[d * k :]
        products = (H[:, i] * parts[i : i + 1] for i in range(d))
        product = functools.reduce(operator.add, products)
        product = product.reshape(d * k, *product.shape[2:])
        return jnp.concatenate([product, curvatures * rest]) if len(rest) else product


class _AllLaws(NamedTuple):
    """The laws of all rows and of the velocities v, with the batch axis last.

    - `normal` (3, k, b, s), `target` (d, k, b, s), `conductance`, `mu` (k, b, s): the law of the
      contacts;
    - `others` (kinds, r, 1, s), `joints` (kinds, m b + t, s). If r > 0, all dofs are in the trunk
      and b = 1;
    - `d`: the number of rows of a contact.
    """

    normal: Array
    target: Array
    conductance: Array
    mu: Array
    others: ClippedLaw
    joints: ClippedLaw
    d: int

    def _parts(self, u: Array) -> tuple[ContactVector, Array]:
        # Rows (d k + r, b, s): vectors of contacts, (k, b, s) in each component, and other rows.
        k, d = self.mu.shape[0], self.d
        components = tuple(u[: d * k].reshape(d, k, *u.shape[1:]))
        return ContactVector(Vec3(*components[:3]), components[3:]), u[d * k :]

    def _projection(self, u: ContactVector) -> Projection:
        target = ContactVector(Vec3(*self.target[:3]), tuple(self.target[3:]))
        return project(Vec3(*self.normal), self.conductance, target, self.mu, u)

    def linearised(self, u: Array, v: Array) -> _Linearised:
        """The laws at the velocities u and v."""
        contacts, others = self._parts(u)
        projection = self._projection(contacts)
        impulse = projection.impulse()
        # The penalty R |gamma|^2 / 2 is gamma . (target - u) / 2, because gamma is the projection
        # of y = (target - u) / R on the cone (`ContactLaw`).
        pairs = zip(impulse.components, self.target, contacts.components)
        products = [gamma * (target - u) / 2 for gamma, target, u in pairs]
        return _Linearised(
            jnp.concatenate([_as_rows(impulse.components), self.others.impulses(others)]),
            projection.hessian(),
            self.others.curvatures(others),
            jnp.concatenate([_as_rows(products), self.others.penalties(others)]),
            self.joints.impulses(v),
            self.joints.curvatures(v),
            self.joints.penalties(v),
        )

    def power_and_curvature(self, u: Array, v: Array, du: Array, dv: Array) -> Array:
        """The first two of `_Linearised.sums` at the velocities u and v, without the Hessian."""
        contacts, others = self._parts(u)
        du_contacts, du_others = self._parts(du)
        pairs = [
            self._projection(contacts).power_and_curvature(du_contacts),
            (
                du_others * self.others.impulses(others),
                du_others**2 * self.others.curvatures(others),
            ),
            (dv * self.joints.impulses(v), dv**2 * self.joints.curvatures(v)),
        ]
        return _sums([jnp.concatenate([_rows(x) for x in p]) for p in zip(*pairs)])


def _sums(parts: list[Array]) -> Array:
    """The sum of each part (..., s) over all entries of each state, (n, s) for n parts."""
    return sum_of_rows(jnp.stack([_rows(x) for x in parts], axis=1))


def _rows(x: Array) -> Array:
    """x (..., s) as a matrix with s columns, also if s is 0."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _as_rows(components: Sequence[Array]) -> Array:
    """Vectors of contacts, (k, b, ...) in each component, as values of rows (d k, b, ...)."""
    values = jnp.stack(components)
    return values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])


def _laws(partition: Partition, problem: Problem) -> _AllLaws:
    """The laws of the problem, with its contacts and dofs in the order of the solver."""
    law, joints, index = problem.contacts, problem.joints, partition.contacts

    # The contacts (contacts, ..., s) are sorted by branches: (k, b, ..., s).
    def sorted_contacts(x):
        return _taken(x, index, 0)

    # The dofs, the second axis of (kinds, nv, s), are sorted as `Partition.order`.
    def sorted_dofs(x):
        return jnp.moveaxis(_taken(jnp.moveaxis(x, 1, 0), partition.order, 0), 0, 1)

    # The components of the vectors (k, b, 3 or d, s) become the first axis.
    normal, target = (jnp.moveaxis(sorted_contacts(x), 2, 0) for x in (law.normal, law.target))
    return _AllLaws(
        normal,
        target,
        sorted_contacts(law.conductance),
        sorted_contacts(law.mu),
        ClippedLaw(*(x[:, :, None] for x in problem.others)),
        ClippedLaw(*map(sorted_dofs, joints)),
        problem.J.shape[1],
    )


# ------------------------------------------------------------------------------------ the matrices


class _Matrices(NamedTuple):
    """The matrices of one problem. The order of the dofs is the branches, then the trunk.

    - `J_and_M` (R + m + t, m + t + 1, b, s): for each branch, the R rows of the Jacobian, then the
      m + t rows of M. A column is a dof of the branch or of the trunk. The last column is zero.
      The part of M in the rows and columns of the trunk is only in branch 0, and zero in the other
      branches. So the product of M with a vector is a sum over the branches;
    - `m`: the number of dofs of a branch.
    """

    J_and_M: Array
    m: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """R, m, b, t."""
        both, width, b, _ = self.J_and_M.shape
        return both - width + 1, self.m, b, width - 1 - self.m

    def products(self, x: Array) -> tuple[Array, Array]:
        """`J x`, (R, b, s), and `M x` for a vector x of all dofs."""
        R, m, b, t = self.shape
        s = x.shape[-1]
        # From one axis of all dofs (m b + t, s) to the dofs of each branch and of the trunk,
        # (m + t, b, s).
        shared = jnp.broadcast_to(x[m * b :, None], (t, b, s))
        x_b = jnp.concatenate([x[: m * b].reshape(m, b, s), shared])
        zero = jnp.zeros((R + m + t, b, s), x.dtype)
        product = plus_terms(
            zero, m + t, lambda i: row(self.J_and_M, i, 1) * row(x_b, i)[None], stored=True
        )
        # And back to one axis of all dofs.
        branches = product[R : R + m].reshape(m * b, s)
        return product[:R], jnp.concatenate([branches, _sum_over_branches(product[R + m :])])

    def solve(self, linearised: _Linearised, right: Array) -> Array:
        """The solution x of `(M + J^T D J + C) x = right + J^T impulses`.

        D is the Hessian of the laws of the rows. The diagonal matrix C has the curvatures of the
        laws of the joints.
        """
        R, m, b, t = self.shape
        n, s = m + t, right.shape[-1]
        J, curvatures = self.J_and_M[:R], linearised.joint_curvatures
        last = np.arange(n + 1).reshape(-1, 1, 1) == n
        # The last column of J is zero.
        DJ = linearised.hessian_product(J) + jnp.where(last, linearised.impulses[:, None], 0)
        # The rows of the branches.
        A = self.J_and_M[R : R + m] + _augmented(curvatures[: m * b], right[: m * b], (m, b), n)
        A = plus_terms(A, R, lambda i: row(J, i)[:m, None] * row(DJ, i)[None], stored=True)
        coupling, A = A[:, m:n], solutions(A)
        # The rows of the trunk.
        S = _augmented(curvatures[m * b :], right[m * b :], (t,), t)
        S = S + _sum_over_branches(self.J_and_M[R + m :, m:])
        S = _plus_branches(S, J[:, m:n], DJ[:, m:])
        x_t = _trunk_solution(_plus_branches(S, -coupling, A))
        x_b = plus_terms(A[:, t], t, lambda i: -row(A, i, 1) * row(x_t, i)[None, None])
        return jnp.concatenate([x_b.reshape(m * b, s), x_t])


def _sum_over_branches(x: Array) -> Array:
    """The sum of x (..., b, s) over the branches."""
    return functools.reduce(operator.add, (x[..., i, :] for i in range(x.shape[-2])))


def _plus_branches(S: Array, a: Array, b: Array) -> Array:
    """S (i, j, s) plus `a^T b` of each branch, for a (r, i, branches, s) and b (r, j, ...)."""
    branches = a.shape[2]

    def product(k):
        a_k, b_k = (row(row(x, k // branches), k % branches, 1) for x in (a, b))
        return a_k[:, None] * b_k[None]

    return plus_terms(S, len(a) * branches, product)


def _matrices(partition: Partition, problem: Problem) -> _Matrices:
    """The matrices of the problem, with its contacts and dofs in the order of the solver."""
    (m, b), nv, t = partition.branches.shape, len(problem.free_impulse), len(partition.trunk)
    # The columns of each branch, of the trunk, and the right-hand side; nv stands for no dof.
    dofs = partition.columns.T
    columns = np.append(dofs, np.full((1, b), nv), axis=0)
    # J (contacts, d, nv, s) has all dofs; here each branch has its dofs, (d, k, m + t + 1, b, s).
    count, d, _, s = problem.J.shape
    contacts = partition.contacts[None, :, None] * d + np.arange(d).reshape(d, 1, 1, 1)
    J = _entries(problem.J.reshape(d * count, nv, s), contacts, columns)
    K = _entries(problem.K, np.arange(len(problem.K)).reshape(-1, 1, 1), columns)
    i, j, branch = np.ogrid[: m + t, : m + t + 1, :b]
    repeats_trunk = (i >= m) & (j >= m) & (branch > 0)
    M = _entries(problem.M, np.where(repeats_trunk, nv, dofs[:, None]), columns)
    if nv in dofs:
        # A padded dof has a 1 on the diagonal, so that M is positive definite.
        M = jnp.where(((i == j) & (dofs == nv)[:, None])[..., None], 1, M)
    # The components and the contacts become one axis of rows, (d k, m + t + 1, b, s).
    parts = [J.reshape(J.shape[0] * J.shape[1], *J.shape[2:]), K, M]
    size = next((x.shape[-1] for x in parts if x.shape[-1] != 1), 1)  # of the batch
    rows = jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:-1], size)) for x in parts])
    return _Matrices(rows, m)


def _entries(x: Array, rows: np.ndarray, columns: np.ndarray) -> Array:
    """The entries of x (n, m, s) in these rows and columns; 0 for a row n or a column m."""
    n, m, s = x.shape
    rows, columns = np.broadcast_arrays(rows, columns)
    index = np.where((rows < n) & (columns < m), rows * m + columns, n * m)
    return _taken(x.reshape(n * m, s), index, 0)


def _taken(x: Array, index: np.ndarray, fill: int) -> Array:
    """`x[index]` along the first axis, where row len(x) is `fill`."""
    if np.any(index == len(x)):
        x = jnp.concatenate([x, jnp.full_like(x, fill, shape=(1, *x.shape[1:]))])
    rows = take_rows(x, index)
    return rows.reshape(*index.shape, *x.shape[1:])


def _augmented(diagonal: Array, right: Array, shape: tuple[int, ...], n: int) -> Array:
    """Matrices with this diagonal, and with `right` in the last column.

    For the shape (m, b) of the rows, the result is (m, n + 1, b, s).
    """
    row, column = (x.reshape(*x.shape, *[1] * len(shape)) for x in np.ogrid[: shape[0], : n + 1])
    diagonal, right = (x.reshape(shape[0], 1, *shape[1:], x.shape[-1]) for x in (diagonal, right))
    return jnp.where(row == column, diagonal, 0) + jnp.where(column == n, right, 0)


def _trunk_solution(S: Array) -> Array:
    """The solution x (t, s) of symmetric systems; S (t, t + 1, s) has the right-hand sides last."""
    t = len(S)
    if t > LARGEST_WHOLE:
        # The batch axis is the first axis in the solver, and the last axis outside.
        return jax.vmap(solve_positive_definite, (-1, -1), -1)(S[:, :t], S[:, t])
    return solutions(S)[:, 0]
