"""Write the files of the bundled robots: `python -m support.bundled_robots` in the folder `tests`.

A robot is a list of links, frames and joints. One function makes both the left and the right limb.
A test compares the files with the output of this module.
"""

from __future__ import annotations

from jaxrbd.robots import robot_path

from .robot_parts import (
    ALONG_X,
    ALONG_Y,
    ZERO,
    Box,
    Cylinder,
    Frame,
    Joint,
    Link,
    Robot,
    Sphere,
    Triple,
    X,
    Y,
    Z,
)


def pendulum() -> Robot:
    """A rod of 1 m and 1 kg on a hinge."""
    return Robot(
        "pendulum",
        "A pendulum: one rod of 1 m and 1 kg on a hinge, hanging down at zero.",
        [
            Link("base", 2.0, Box((0.1, 0.1, 0.05))),
            _rod("rod"),
            _hinge("hinge", "base", "rod", ZERO, effort=10.0),
        ],
    )


def double_pendulum() -> Robot:
    """Two rods of 1 m and 1 kg in series."""
    return Robot(
        "double_pendulum",
        "A double pendulum: two rods of 1 m and 1 kg in series, hanging down at zero.",
        [
            Link("base", 2.0, Box((0.1, 0.1, 0.05))),
            _rod("upper_rod"),
            _rod("lower_rod"),
            _hinge("shoulder", "base", "upper_rod", ZERO, effort=30.0),
            _hinge("elbow", "upper_rod", "lower_rod", (0.0, 0.0, -1.0), effort=10.0),
        ],
    )


def cart_pole() -> Robot:
    """A cart on a rail with a pole; the joint of the pole has no motor."""
    names = ("slide", "prismatic", "rail", "cart")
    slide = Joint(*names, (0.0, 0.0, 0.06), X, (-2.4, 2.4), 50.0, 5.0)
    return Robot(
        "cart_pole",
        "A cart on a rail with a pole of 1 m; the pole has no motor, and stands up at zero.",
        [
            Link("rail", 5.0, Box((5.2, 0.05, 0.04))),
            Link("cart", 1.0, Box((0.25, 0.15, 0.08))),
            Link("pole", 0.2, Cylinder(0.01, 1.0), (0.0, 0.0, 0.5)),
            slide,
            _hinge("pivot", "cart", "pole", (0.0, 0.0, 0.04), effort=0.0),
        ],
    )


def arm7() -> Robot:
    """An arm with seven joints and 20 kg, which reaches 0.85 m from its shoulder."""
    # For each link: name, mass, shape, height of the centre above the joint. For the joint of each
    # link: name, height above the previous joint, axis, position, effort and velocity limit.
    chain = [
        ("shoulder_1", 3.6, Cylinder(0.06, 0.16), -0.05, "joint_1", 0.28, Z, 2.9, 90.0, 2.1),
        ("shoulder_2", 3.4, Cylinder(0.06, 0.2), 0.08, "joint_2", 0.05, Y, 1.9, 90.0, 2.1),
        ("upper_arm", 3.0, Cylinder(0.05, 0.2), 0.1, "joint_3", 0.2, Z, 2.9, 60.0, 2.6),
        ("elbow", 2.6, Cylinder(0.05, 0.16), 0.06, "joint_4", 0.2, Y, 2.4, 60.0, 2.6),
        ("forearm", 1.8, Cylinder(0.04, 0.19), 0.1, "joint_5", 0.15, Z, 2.9, 30.0, 3.0),
        ("wrist", 1.1, Cylinder(0.04, 0.08), 0.02, "joint_6", 0.2, Y, 2.1, 20.0, 3.5),
        ("flange", 0.5, Cylinder(0.03, 0.04), 0.02, "joint_7", 0.06, Z, 3.0, 20.0, 3.5),
    ]
    parts: list[Link | Frame | Joint] = [Link("base", 4.0, Cylinder(0.08, 0.15), (0.0, 0.0, 0.075))]
    parent = "base"
    for child, mass, shape, center, joint, height, axis, limit, *effort_velocity in chain:
        names, place = (joint, "revolute", parent, child), (0.0, 0.0, height)
        parts.append(Link(child, mass, shape, (0.0, 0.0, center)))
        parts.append(Joint(*names, place, axis, (-limit, limit), *effort_velocity))
        parent = child
    parts += [Frame("tool"), Joint("tool_mount", "fixed", "flange", "tool", (0.0, 0.0, 0.04))]
    return Robot("arm7", "An arm of seven joints: 20 kg, straight up at zero, reach 0.85 m.", parts)


def quadruped() -> Robot:
    """A robot with four legs, twelve joints and 15 kg."""
    parts: list[Link | Frame | Joint] = [
        Link("trunk", 7.4, Box((0.38, 0.12, 0.11))),
        Frame("imu"),
        Joint("imu_mount", "fixed", "trunk", "imu", (0.0, 0.0, 0.03)),
    ]
    for end, front in (("front", 1), ("hind", -1)):
        for side, left in (("left", 1), ("right", -1)):
            parts += _quadruped_leg(f"{end}_{side}", front, left)
    return Robot("quadruped", "A quadruped: twelve joints, 15 kg, legs straight at zero.", parts)


def _quadruped_leg(leg: str, front: int, left: int) -> list[Link | Frame | Joint]:
    """Hip (roll), thigh and knee (pitch), and a foot; `front` and `left` are 1 or -1."""

    def joint(name, parent, child, xyz, axis, limits, effort, velocity):
        names = (f"{leg}_{name}", "revolute", parent, f"{leg}_{child}")
        return Joint(*names, xyz, axis, limits, effort, velocity)

    hip, thigh, knee = (front * 0.18, left * 0.05, 0.0), (0.0, left * 0.08, 0.0), (0.0, 0.0, -0.2)
    roll = _mirrored((-0.7, 0.9), left)
    return [
        Link(f"{leg}_hip", 0.6, Cylinder(0.045, 0.06), (0.0, left * 0.03, 0.0), ALONG_Y),
        Link(f"{leg}_thigh", 1.0, Box((0.04, 0.03, 0.22)), (0.0, 0.0, -0.1)),
        Link(f"{leg}_shank", 0.25, Cylinder(0.012, 0.2), (0.0, 0.0, -0.1)),
        Link(f"{leg}_foot", 0.05, Sphere(0.02)),
        joint("hip_joint", "trunk", "hip", hip, X, roll, 24.0, 25.0),
        joint("thigh_joint", f"{leg}_hip", "thigh", thigh, Y, (-1.2, 3.0), 24.0, 25.0),
        joint("knee_joint", f"{leg}_thigh", "shank", knee, Y, (-2.7, 0.0), 36.0, 18.0),
        Joint(f"{leg}_foot_mount", "fixed", f"{leg}_shank", f"{leg}_foot", (0.0, 0.0, -0.2)),
    ]


def humanoid() -> Robot:
    """A humanoid with 29 joints and 66 kg, symmetric in the x-z plane."""

    def joint(name, parent, child, height, axis, limits, effort):
        names = (name, "revolute", parent, child)
        return Joint(*names, (0.0, 0.0, height), axis, limits, effort, 10.0)

    parts: list[Link | Frame | Joint] = [
        Link("pelvis", 8.0, Box((0.18, 0.26, 0.16))),
        Link("waist_1", 0.8, Cylinder(0.07, 0.05)),
        Link("waist_2", 0.8, Cylinder(0.05, 0.1), ZERO, ALONG_X),
        Link("torso", 16.4, Box((0.2, 0.3, 0.36)), (0.0, 0.0, 0.2)),
        Link("neck", 0.4, Cylinder(0.05, 0.08), (0.0, 0.0, 0.02)),
        Link("head", 4.0, Sphere(0.1), (0.02, 0.0, 0.11)),
        Frame("imu"),
        joint("waist_yaw", "pelvis", "waist_1", 0.1, Z, (-1.2, 1.2), 120.0),
        joint("waist_roll", "waist_1", "waist_2", 0.05, X, (-0.4, 0.4), 120.0),
        joint("waist_pitch", "waist_2", "torso", 0.0, Y, (-0.4, 1.2), 150.0),
        joint("neck_yaw", "torso", "neck", 0.4, Z, (-1.4, 1.4), 10.0),
        joint("neck_pitch", "neck", "head", 0.06, Y, (-0.7, 0.8), 10.0),
        Joint("imu_mount", "fixed", "torso", "imu", (0.0, 0.0, 0.25)),
    ]
    for side, left in (("left", 1), ("right", -1)):
        parts += _humanoid_leg(side, left) + _humanoid_arm(side, left)
    return Robot("humanoid", "A humanoid: 29 joints, 66 kg, 1.75 m, upright at zero.", parts)


def _humanoid_leg(side: str, left: int) -> list[Link | Frame | Joint]:
    """Six joints and a foot; `left` is 1 or -1."""
    joint = _limb(side, left)
    link = _names(side)
    return [
        link("hip_1", 1.0, Cylinder(0.06, 0.06)),
        link("hip_2", 1.2, Cylinder(0.06, 0.1), ZERO, ALONG_X),
        link("thigh", 6.0, Cylinder(0.07, 0.32), (0.0, 0.0, -0.18)),
        link("shank", 3.2, Cylinder(0.05, 0.32), (0.0, 0.0, -0.18)),
        link("ankle", 0.4, Cylinder(0.03, 0.06), ZERO, ALONG_Y),
        link("foot", 1.0, Box((0.24, 0.1, 0.04)), (0.04, 0.0, -0.05)),
        joint("hip_yaw", "pelvis", "hip_1", (0.0, 0.09, -0.1), Z, (-0.6, 0.9), 100.0),
        joint("hip_roll", "hip_1", "hip_2", (0.0, 0.0, -0.04), X, (-0.4, 0.8), 120.0),
        joint("hip_pitch", "hip_2", "thigh", ZERO, Y, (-2.2, 0.8), 200.0),
        joint("knee", "thigh", "shank", (0.0, 0.0, -0.36), Y, (0.0, 2.4), 250.0),
        joint("ankle_pitch", "shank", "ankle", (0.0, 0.0, -0.36), Y, (-0.8, 0.6), 120.0),
        joint("ankle_roll", "ankle", "foot", ZERO, X, (-0.4, 0.4), 60.0),
        Frame(f"{side}_sole"),
        Joint(f"{side}_sole_mount", "fixed", f"{side}_foot", f"{side}_sole", (0.04, 0.0, -0.07)),
    ]


def _humanoid_arm(side: str, left: int) -> list[Link | Frame | Joint]:
    """Six joints and a hand; `left` is 1 or -1."""
    joint = _limb(side, left)
    link = _names(side)
    return [
        link("shoulder_1", 0.7, Cylinder(0.05, 0.08), ZERO, ALONG_Y),
        link("shoulder_2", 0.6, Cylinder(0.04, 0.08), ZERO, ALONG_X),
        link("upper_arm", 1.9, Cylinder(0.04, 0.26), (0.0, 0.0, -0.15)),
        link("forearm", 1.2, Cylinder(0.035, 0.22), (0.0, 0.0, -0.12)),
        link("wrist", 0.2, Cylinder(0.025, 0.04)),
        link("hand", 0.4, Box((0.08, 0.03, 0.16)), (0.0, 0.0, -0.09)),
        joint("shoulder_pitch", "torso", "shoulder_1", (0.0, 0.2, 0.33), Y, (-3.0, 1.2), 50.0),
        joint("shoulder_roll", "shoulder_1", "shoulder_2", (0.0, 0.05, 0.0), X, (-0.3, 2.6), 50.0),
        joint("shoulder_yaw", "shoulder_2", "upper_arm", ZERO, Z, (-1.6, 1.6), 40.0),
        joint("elbow", "upper_arm", "forearm", (0.0, 0.0, -0.28), Y, (-2.4, 0.0), 40.0),
        joint("wrist_yaw", "forearm", "wrist", (0.0, 0.0, -0.25), Z, (-1.6, 1.6), 12.0),
        joint("wrist_pitch", "wrist", "hand", ZERO, Y, (-1.2, 1.2), 12.0),
    ]


def _names(side: str):
    """A function that makes a `Link` with the side in its name."""
    return lambda name, *rest: Link(f"{side}_{name}", *rest)


def _limb(side: str, left: int):
    """A function that makes a `Joint` of a limb from data of the left side.

    For the right side, it mirrors the joint in the x-z plane.
    """

    def joint(name, parent, child, xyz, axis, limits, effort):
        parent_name = parent if parent in ("pelvis", "torso") else f"{side}_{parent}"
        names = (f"{side}_{name}", "revolute", parent_name, f"{side}_{child}")
        position = (xyz[0], left * xyz[1], xyz[2])
        side_limits = limits if axis == Y else _mirrored(limits, left)
        return Joint(*names, position, axis, side_limits, effort, 12.0)

    return joint


def _mirrored(limits: tuple[float, float], left: int) -> tuple[float, float]:
    """The limits of a rotation about x or z; if `left` is -1, mirrored in the x-z plane."""
    lower, upper = limits
    return (lower, upper) if left > 0 else (-upper, -lower)


def _rod(name: str) -> Link:
    return Link(name, 1.0, Cylinder(0.02, 1.0), (0.0, 0.0, -0.5))


def _hinge(name: str, parent: str, child: str, xyz: Triple, effort: float) -> Joint:
    return Joint(name, "continuous", parent, child, xyz, Y, None, effort, 20.0)


ROBOTS = (pendulum, double_pendulum, cart_pole, arm7, quadruped, humanoid)


def main() -> None:
    """Write the files of all robots."""
    for build in ROBOTS:
        robot = build()
        robot_path(robot.name).write_text(robot.xml(), encoding="ascii")


if __name__ == "__main__":
    main()
