"""Pinocchio models built by hand, with every kind of joint that jaxrbd has too."""

import numpy as np

from support.pinocchio_models import pin

AXIS = np.array([2.0, -3.0, 6.0]) / 7

# A joint of this kind has no constructor with an axis in Python.
_UNBOUNDED = """\
<robot name="r">
  <link name="a"/> <link name="b"/>
  <joint name="j" type="continuous">
    <parent link="a"/> <child link="b"/> <axis xyz="2 -3 6"/>
  </joint>
</robot>"""


def composite(*parts):
    """A composite joint of (joint, placement) pairs."""
    joint = pin.JointModelComposite()
    for part, placement in parts:
        joint.addJoint(part, placement)
    return joint


def placement(seed):
    rng = np.random.default_rng([7, seed])
    rotation = pin.rpy.rpyToMatrix(rng.uniform(-3, 3, 3))
    return pin.SE3(rotation, rng.uniform(-0.5, 0.5, 3))


def kinds():
    """One joint of each kind, by the name of the kind; two nested composites."""
    inner = composite(
        (pin.JointModelRUBY(), placement(1)), (pin.JointModelSpherical(), placement(2))
    )
    outer = composite(
        (pin.JointModelPX(), placement(3)),
        (inner, placement(4)),
        (pin.JointModelUniversal(*np.eye(3)[:2]), placement(5)),
        (pin.JointModelPlanar(), placement(6)),
    )
    return {
        "RX": pin.JointModelRX(),
        "RY": pin.JointModelRY(),
        "RZ": pin.JointModelRZ(),
        "RevoluteUnaligned": pin.JointModelRevoluteUnaligned(AXIS),
        "RUBX": pin.JointModelRUBX(),
        "RUBY": pin.JointModelRUBY(),
        "RUBZ": pin.JointModelRUBZ(),
        "RevoluteUnboundedUnaligned": pin.buildModelFromXML(_UNBOUNDED).joints[1].extract(),
        "PX": pin.JointModelPX(),
        "PY": pin.JointModelPY(),
        "PZ": pin.JointModelPZ(),
        "PrismaticUnaligned": pin.JointModelPrismaticUnaligned(AXIS),
        "HX": pin.JointModelHX(0.3),
        "HY": pin.JointModelHY(-0.2),
        "HZ": pin.JointModelHZ(0.1),
        "HelicalUnaligned": pin.JointModelHelicalUnaligned(AXIS, 0.25),
        "FreeFlyer": pin.JointModelFreeFlyer(),
        "Planar": pin.JointModelPlanar(),
        "Spherical": pin.JointModelSpherical(),
        "SphericalZYX": pin.JointModelSphericalZYX(),
        "Translation": pin.JointModelTranslation(),
        "Universal": pin.JointModelUniversal(np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])),
        "Composite": outer,
        "CompositeOfOne": composite((pin.JointModelRY(), placement(8))),
    }


def build(joints, parents, seed=0):
    """A model of the joints (a dict by name) with random inertias, limits and other parameters.

    `parents`: for each joint the index of its parent joint; 0 is the universe.
    """
    rng = np.random.default_rng(seed)
    model = pin.Model()
    model.name = "hand built"
    for i, ((name, joint), parent) in enumerate(zip(joints.items(), parents)):
        nq, nv = joint.nq, joint.nv
        numbers = rng.uniform(0.5, 2.0, (3, nv)), rng.uniform(0.5, 2.0, (2, nq))
        (effort, velocity, friction), (lower, upper) = numbers
        limits = (-effort, effort, -velocity, velocity, -lower, upper)
        damping = rng.uniform(0.1, 0.5, nv)
        j = model.addJoint(
            parent, joint, placement(100 + i), name, *limits, -friction, friction, damping
        )
        model.appendBodyToJoint(j, inertia(rng), pin.SE3.Identity())
        model.addJointFrame(j)
    model.armature = rng.uniform(0.1, 0.3, model.nv)
    model.gravity.linear = np.array([1.0, -2.0, -9.0])
    return model


def inertia(rng):
    """The inertia of a random cloud of point masses, which is physically consistent."""
    masses, points = rng.uniform(0.1, 0.5, 8), 0.2 * rng.normal(size=(8, 3))
    mass, lever = masses.sum(), masses @ points / masses.sum()
    arms = points - lever
    second = (masses[:, None] * arms).T @ arms
    return pin.Inertia(mass, lever, np.trace(second) * np.eye(3) - second)


def alternating(n):
    """Parents (n,) of two chains whose joints alternate: their order is not depth-first."""
    return [max(0, j - 2) for j in range(1, n + 1)]
