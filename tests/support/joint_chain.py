"""A chain of four joints of different kinds, for tests of joint forces."""

import numpy as np

import jaxrbd as rbd
from jaxrbd.joints import Prismatic, Revolute, Spherical
from jaxrbd.model import JointSpec, Link, link_inertia


def chain(mimic=None, first=None):
    """A first joint, a prismatic, a spherical and a revolute joint in a chain."""
    first = first or Revolute((0, 1, 1))
    kinds = {"a": first, "b": Prismatic((1, 0, 1)), "c": Spherical()}
    kinds["d"] = Revolute((1, 0, 0))
    links = [Link(f"l{name}", link_inertia(1.0, (0.1, 0.2, 0.3), np.eye(3))) for name in kinds]
    joints, parent = [], None
    for name, kind in kinds.items():
        follow = mimic if name == "d" else None
        joints.append(JointSpec(name, kind, parent, f"l{name}", mimic=follow))
        parent = f"l{name}"
    return rbd.build_model(links, joints)
