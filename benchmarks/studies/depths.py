"""Depths and distances of random pairs of shapes against searches that share no code with them.

    python -m benchmarks.studies.depths --kinds Box-Cylinder --pairs 2000 --apart 300

The shapes have sizes of 1e-2 to 1e2 with a ratio of at most 30, the sizes of the two shapes of a
pair have a ratio of at most 10, and hulls have 8 to 40 points. Columns:

- overlaps: the pairs that overlap. The depth is the least sum of the support functions of both
  shapes over all directions. For two polyhedra the faces of their Minkowski difference have this
  direction (Qhull). For other pairs, 20,000 directions are tried, and a random pattern search
  improves the best 20 of them that are apart from each other;
- deeper, by 1 %: the overlaps whose depth by jaxrbd is larger than that of the search, by more than
  `TOLERANCE` or by more than 1 % of the latter. Then the largest and the least of these excesses;
- apart: the pairs that are apart. Above, below: those whose distance differs from the result of
  SLSQP of SciPy by more than `TOLERANCE` of the size. Then the largest difference.
"""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.spatial import ConvexHull

from benchmarks.studies import common
from jaxrbd import collision
from jaxrbd.spatial import Pose

KINDS = "Sphere", "Capsule", "Box", "Cylinder", "Ellipsoid", "ConvexMesh"
POLYHEDRA = "Sphere", "Capsule", "Box", "ConvexMesh"  # a core of one of these is a polyhedron
TOLERANCE = 1e-6
DIRECTIONS, STARTS, MOST = 20_000, 20, 40
CORNERS = np.array(list(itertools.product((-1.0, 1), repeat=3)))


def random_shapes(kind: str, rng: np.random.Generator, scale: np.ndarray) -> dict:
    """The sizes (n, 3) of n shapes, or their vertices (n, `MOST`, 3), and their radii (n,)."""
    n = len(scale)
    sizes = scale[:, None] * 30 ** rng.uniform(-1, 0, (n, 3))
    shape = {"kind": kind, "sizes": sizes, "radius": np.zeros(n)}
    if kind in ("Sphere", "Capsule"):
        shape["radius"] = sizes[:, 0]
        shape["sizes"] = sizes * (kind == "Capsule") * [0.0, 0, 1]
    if kind == "ConvexMesh":
        points = rng.normal(size=(n, MOST, 3))
        points *= rng.uniform(0.5, 1, (n, MOST, 1)) / np.linalg.norm(points, axis=2, keepdims=True)
        count = rng.integers(8, MOST + 1, n)
        points[np.arange(MOST) >= count[:, None]] = 0
        # The points after the first `count` ones repeat the first one.
        points = np.where(np.arange(MOST)[:, None] < count[:, None, None], points, points[:, :1])
        shape["vertices"] = points * sizes[:, None]
    return shape


def heights(shape: dict, n: np.ndarray, rows=slice(None)) -> np.ndarray:
    """The support functions (k, m) of the cores of shapes, along directions (k, m, 3)."""
    size = shape["sizes"][rows][:, None]
    if shape["kind"] == "ConvexMesh":
        return np.max(n @ np.swapaxes(shape["vertices"][rows], 1, 2), axis=2)
    if shape["kind"] == "Cylinder":
        return size[..., 0] * np.hypot(n[..., 0], n[..., 1]) + size[..., 1] * np.abs(n[..., 2])
    if shape["kind"] == "Ellipsoid":
        return np.linalg.norm(size * n, axis=2)
    return np.sum(size * np.abs(n), axis=2)


class Pairs:
    """Pairs of shapes a and b.

    - `R`, `p`: the orientations (n, 3, 3) and positions (n, 3) of a and of b in the world;
    - `size` (n,): the sum of the widths of both shapes along a random direction.
    """

    def __init__(self, kinds: tuple[str, str], rng: np.random.Generator, count: int, apart: bool):
        scale = 10 ** rng.uniform(-2, 2, count)
        scales = scale, scale * 10 ** rng.uniform(-1, 1, count)
        self.a, self.b = (random_shapes(*x) for x in zip(kinds, [rng] * 2, scales))
        self.R = [np.linalg.qr(rng.normal(size=(count, 3, 3)))[0] for _ in range(2)]
        for R in self.R:
            R *= np.sign(np.linalg.det(R))[:, None, None]
        n = rng.normal(size=(count, 1, 3))
        n /= np.linalg.norm(n, axis=2, keepdims=True)
        self.p = [np.zeros((count, 3)), np.zeros((count, 3))]
        reach = -self.width(n)
        self.size = reach[:, 0] - self.width(-n)[:, 0]
        # The distance of the centres as a fraction of the one at which the shapes only touch along
        # n.
        fraction = 1 + 10 ** rng.uniform(-3, 0.3, (count, 1)) if apart else rng.random((count, 1))
        self.p[1] = fraction * reach * n[:, 0]
        place = 3 * self.size[:, None] * rng.normal(size=(count, 3))
        self.p = [p + place for p in self.p]

    def width(self, n: np.ndarray, rows=slice(None)) -> np.ndarray:
        """The separations (k, m) along directions (k, m, 3) or (m, 3)."""
        R_a, R_b = (R[rows] for R in self.R)
        found = -heights(self.a, n @ R_a, rows) - heights(self.b, -n @ R_b, rows)
        gap = (self.p[1] - self.p[0])[rows]
        found += (np.broadcast_to(n, (len(gap), *n.shape[-2:])) @ gap[:, :, None])[..., 0]
        return found - (self.a["radius"] + self.b["radius"])[rows][:, None]

    def arguments(self) -> tuple:
        """The arguments of `collision.distance`."""
        X = [Pose(jnp.asarray(R), jnp.asarray(p)) for R, p in zip(self.R, self.p)]
        return library_shapes(self.a), X[0], library_shapes(self.b), X[1]


def library_shapes(shape: dict):
    """The batch of shapes of `jaxrbd.collision`."""
    kind, sizes, radius = shape["kind"], jnp.asarray(shape["sizes"]), jnp.asarray(shape["radius"])
    if kind == "ConvexMesh":
        made = [collision.ConvexMesh(x) for x in shape["vertices"]]
        most = max(len(x.edge_normals) for x in made)
        normals = [np.resize(x.edge_normals, (most, 2, 3)) for x in made]
        made = [eqx.tree_at(lambda x: x.edge_normals, *pair) for pair in zip(made, normals)]
        return jax.tree.map(lambda *x: jnp.stack(x), *made)
    columns = {"Capsule": (radius, sizes[:, 2]), "Cylinder": (sizes[:, 0], sizes[:, 1])}
    columns |= {"Sphere": (radius,), "Box": (sizes,), "Ellipsoid": (sizes,)}
    return jax.vmap(getattr(collision, kind))(*columns[kind])


def sphere_directions(count: int) -> np.ndarray:
    """Unit vectors (count, 3), spread evenly over the sphere."""
    z = 1 - (2 * np.arange(count) + 1) / count
    angle, r = np.pi * (3 - np.sqrt(5)) * np.arange(count), np.sqrt(1 - z * z)
    return np.stack([r * np.cos(angle), r * np.sin(angle), z], axis=1)


def largest_separations(pairs: Pairs, rng: np.random.Generator, extra: np.ndarray) -> np.ndarray:
    """The largest separation (n,) that the search finds. `extra` (n, 3): one more start."""
    directions = sphere_directions(DIRECTIONS)
    starts = []
    for i in range(len(pairs.size)):
        width = pairs.width(directions, slice(i, i + 1))[0]
        best = np.argpartition(-width, 600)[:600]
        best = best[np.argsort(-width[best])]
        chosen, rest = [], np.ones(len(best), bool)
        near = directions[best] @ directions[best].T > 0.997
        while len(chosen) < STARTS - 1:
            if not np.any(rest):
                chosen.append(chosen[0])
                continue
            k = np.argmax(rest)
            chosen.append(k)
            rest &= ~near[k]
        starts.append(directions[best[chosen]])
    n = np.concatenate([np.array(starts), extra[:, None]], axis=1)
    n, width = improved(pairs, rng, n, 0.02, 40)
    order = np.argsort(-width, axis=1)[:, :3]
    n = np.take_along_axis(n, order[..., None], 1)
    return np.max(improved(pairs, rng, n, 1e-3, 150)[1], axis=1)


def improved(pairs: Pairs, rng: np.random.Generator, n: np.ndarray, step: float, rounds: int):
    """Directions (n, k, 3) and their separations after a random pattern search."""
    width, steps = pairs.width(n), np.full(n.shape[:2], step)
    for _ in range(rounds):
        turn = rng.normal(size=n.shape)
        x = np.cross(n, turn)
        x /= np.linalg.norm(x, axis=2, keepdims=True)
        y = np.cross(n, x)
        best, tried = width, n
        for angle in 2 * np.pi * np.arange(5) / 5:
            new = n + steps[..., None] * (np.cos(angle) * x + np.sin(angle) * y)
            new /= np.linalg.norm(new, axis=2, keepdims=True)
            found = pairs.width(new)
            better = found > best
            best, tried = np.where(better, found, best), np.where(better[..., None], new, tried)
        steps = np.where(best > width, 1.3 * steps, 0.6 * steps)
        n, width = tried, best
    return n, width


def corners(shape: dict, i: int) -> np.ndarray:
    """The corners (k, 3) of the core of shape i, a polyhedron, in its frame."""
    if shape["kind"] == "ConvexMesh":
        return shape["vertices"][i]
    return np.unique(CORNERS * shape["sizes"][i], axis=0)


def exact_separation(pairs: Pairs, i: int) -> float:
    """The separation of two polyhedra, or NaN if the cores do not overlap."""
    a, b = (corners(x, i) @ R[i].T for x, R in zip((pairs.a, pairs.b), pairs.R))
    gap = (pairs.p[1] - pairs.p[0])[i]
    points = (a[:, None] - b[None] - gap).reshape(-1, 3)
    hull = ConvexHull(points / pairs.size[i])
    n = hull.equations[:, :3]
    if np.any(hull.equations[:, 3] > 0):
        return np.nan
    return np.max(-np.max(points @ n.T, axis=0)) - pairs.a["radius"][i] - pairs.b["radius"][i]


def constraints(shape: dict, i: int, place: slice, size: float) -> list[dict]:
    """Inequalities of SLSQP: the entries `place` of x are in the core, in units of `size`."""
    kind, sizes = shape["kind"], shape["sizes"][i] / size
    part = np.eye(6)[place]
    A, b = np.vstack([np.eye(3), -np.eye(3)]) @ part, np.tile(sizes, 2)
    if kind == "ConvexMesh":
        hull = ConvexHull(shape["vertices"][i] / size)
        A, b = hull.equations[:, :3] @ part, -hull.equations[:, 3]
    if kind == "Cylinder":
        A, b = A[[2, 5]], np.tile(sizes[1], 2)
    curved = {"Cylinder": lambda: np.array([1, 1, 0]) / sizes[0], "Ellipsoid": lambda: 1 / sizes}
    found = []
    if kind != "Ellipsoid":
        found.append({"type": "ineq", "fun": lambda x: b - A @ x, "jac": lambda x: -A})
    if kind in curved:
        scale = curved[kind]()
        found.append(
            {
                "type": "ineq",
                "fun": lambda x: 1 - np.sum((scale * x[place]) ** 2),
                "jac": lambda x: -2 * (scale**2 * x[place]) @ part,
            }
        )
    return found


def slsqp_distance(pairs: Pairs, i: int) -> float:
    """The distance of the shapes of a pair that is apart, by SLSQP from the centres."""
    size = pairs.size[i]
    R_a, R_b = (R[i] for R in pairs.R)
    M, gap = np.hstack([-R_a, R_b]), (pairs.p[1] - pairs.p[0])[i] / size
    all_constraints = constraints(pairs.a, i, slice(0, 3), size)
    all_constraints += constraints(pairs.b, i, slice(3, 6), size)
    found = minimize(
        lambda x: np.sum((M @ x + gap) ** 2),
        np.zeros(6),
        jac=lambda x: 2 * M.T @ (M @ x + gap),
        constraints=all_constraints,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-16},
    )
    feasible = min(np.min(c["fun"](found.x)) for c in all_constraints) > -1e-9
    distance = size * np.linalg.norm(M @ found.x + gap)
    return distance - pairs.a["radius"][i] - pairs.b["radius"][i] if feasible else np.nan


def study(kinds: tuple[str, str], overlaps: int, apart: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    compute = jax.jit(jax.vmap(collision.distance))
    pairs = Pairs(kinds, rng, overlaps, apart=False)
    found = jax.tree.map(np.asarray, compute(*pairs.arguments()))
    assert all(np.all(np.isfinite(x)) for x in found)
    rows = np.arange(overlaps)
    if set(kinds) <= set(POLYHEDRA) and set(kinds) - {"Sphere", "Capsule"}:
        best = np.array([exact_separation(pairs, i) for i in rows])
        best = np.where(np.isnan(best), found.distance, best)
    else:
        best = largest_separations(pairs, rng, found.normal)
    overlap = found.distance < 0
    excess = (best - found.distance)[overlap] / -best[overlap]
    row = [f"{np.sum(overlap)}", f"{np.sum(excess > TOLERANCE)}", f"{np.sum(excess > 0.01)}"]
    row += [f"{np.max(excess):.2g}", f"{np.min(excess):.2g}"]
    pairs = Pairs(kinds, rng, apart, apart=True)
    found = jax.tree.map(np.asarray, compute(*pairs.arguments()))
    rows = np.flatnonzero(found.distance > 0)
    other = np.array([slsqp_distance(pairs, i) for i in rows])
    known = np.isfinite(other)
    error = ((found.distance[rows] - other) / pairs.size[rows])[known]
    row += [f"{np.sum(known)}", f"{np.sum(error > TOLERANCE)}", f"{np.sum(error < -TOLERANCE)}"]
    common.row(", ".join(kinds), *row, f"{np.max(np.abs(error)):.2g}")


def main() -> None:
    every = [f"{a}-{b}" for a, b in itertools.combinations_with_replacement(KINDS, 2)]
    given = common.options(__doc__, kinds=tuple(every), pairs=2000, apart=300, seed=1)
    jax.config.update("jax_enable_x64", True)
    common.head(
        "shapes",
        *("overlaps", "deeper", "by 1 %", "largest excess", "least"),
        *("apart", "above", "below", "largest difference"),
    )
    for kinds in given.kinds:
        study(tuple(kinds.split("-")), given.pairs, given.apart, given.seed)


if __name__ == "__main__":
    main()
