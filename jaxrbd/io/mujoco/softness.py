"""The softness of contacts and of position limits in a compiled MuJoCo model."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ...contact import InverseInertias, Scene, Softness
from ...contact.softness import LEAST_IMPEDANCE, MOST_IMPEDANCE
from ...model import Model
from .source import Source

# MuJoCo treats smaller numbers as zero (mjMINVAL).
_ZERO = 1e-15
# The least coefficient of sliding friction in MuJoCo (mjMINMU).
LEAST_FRICTION = 1e-5


class ContactSoftness(NamedTuple):
    """The softness of n contacts of two geoms, in MuJoCo's words.

    - `solref` (n, 2), `solimp` (n, 5): as in `Softness`;
    - `inverse_inertia` (n,) in 1/kg: the inverse inertia that `solimp` multiplies.
    """

    solref: np.ndarray
    solimp: np.ndarray
    inverse_inertia: np.ndarray


def read_contact_softness(
    source: Source, geoms: np.ndarray, pair: np.ndarray, friction: np.ndarray, condim: np.ndarray
) -> ContactSoftness:
    """The softness of contacts of the geoms (n, 2).

    `pair` (n,): the id of the pair, or -1; `friction`, `condim` (n,): the coefficient of sliding
    and the condim of each contact.

    The parameters are those of the explicit pair or else of the geom with the higher priority. With
    equal priorities, they are means with the weights `solmix`; but if the first number of a
    `solref` is 0 or less, each number of `solref` is the smaller one of both geoms.

    The inverse inertia of a contact is the sum of those of both bodies (`body_invweight0`). With
    pyramidal cones, MuJoCo divides the normal force among 2 (condim - 1) edges with a resistance
    each. The inverse inertia then has a factor, with which the normal force meets the same
    resistance (`mj_makeConstraint`).
    """
    m = source.m
    weights = np.where(m.geom_solmix[geoms] < _ZERO, 0.0, m.geom_solmix[geoms])
    weights[np.all(weights == 0, axis=1)] = 1.0
    priority = m.geom_priority[geoms]
    leads = priority == priority.max(axis=1, keepdims=True)
    equal = np.all(leads, axis=1)
    weights = np.where(equal[:, None], weights, leads)
    weights = weights / weights.sum(axis=1, keepdims=True)
    refs = m.geom_solref[geoms]
    solref = np.sum(weights[..., None] * refs, axis=1)
    direct = equal & np.any(refs[..., 0] <= 0, axis=1)
    solref[direct] = refs[direct].min(axis=1)
    solimp = np.sum(weights[..., None] * m.geom_solimp[geoms], axis=1)
    explicit = np.flatnonzero(pair >= 0)
    ids = pair[explicit]
    solref[explicit], solimp[explicit] = m.pair_solref[ids], m.pair_solimp[ids]
    inverse_inertia = m.body_invweight0[m.geom_bodyid[geoms], 0].sum(axis=1)
    if source.kind("Cone", m.opt.cone) == "pyramidal":
        edges = 2 * np.maximum(condim - 1, 1)
        square = np.maximum(friction, LEAST_FRICTION) ** 2
        of_an_edge = 2 * square / m.opt.impratio * (1 + square)
        inverse_inertia *= np.where(condim > 1, of_an_edge / edges, 1)
    return ContactSoftness(*_corrected(solref, solimp), inverse_inertia)


def soft_scene(source: Source, model: Model, scene: Scene | None) -> Scene:
    """The scene of `read_scene` with soft limits and with MuJoCo's inverse inertias.

    The inverse inertias of the joints are `dof_invweight0`. Without a scene, the result has only
    the limits.
    """
    m = source.m
    joints = [source.joints.index(name) for name in model.joint_names]
    widths = list(model.joint_nvs)
    solref, solimp = _corrected(m.jnt_solref[joints], m.jnt_solimp[joints])
    limits = Softness(*(np.repeat(x, widths, axis=0) for x in (solref, solimp)))
    first = m.jnt_dofadr[joints]
    dofs = [i + k for i, width in zip(first.tolist(), widths) for k in range(width)]
    scene = dataclasses.replace(Scene(()) if scene is None else scene, limit_softness=limits)
    given = scene.inverse_inertia
    contacts = np.zeros(0) if given is None else given.contacts
    scales = InverseInertias(contacts, m.dof_invweight0[dofs])
    return dataclasses.replace(scene, inverse_inertia=scales)


def _corrected(solref: np.ndarray, solimp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`solref` (n, 2) and `solimp` (n, 5) as MuJoCo corrects them when it uses them.

    Its default replaces a `solref` with one positive number and one number of 0 or less.
    """
    mixed = (solref[:, 0] > 0) != (solref[:, 1] > 0)
    solref = np.where(mixed[:, None], Softness().solref, solref)
    ends = np.array([LEAST_IMPEDANCE, LEAST_IMPEDANCE, 0, LEAST_IMPEDANCE, 1])
    return solref, np.clip(
        solimp, ends, [MOST_IMPEDANCE, MOST_IMPEDANCE, np.inf, MOST_IMPEDANCE, np.inf]
    )
