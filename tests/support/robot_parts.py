"""The parts of a robot file: solids, links, joints, and the URDF text of each.

A link is one solid of uniform density. The solid is the visual geometry and the collision geometry
of the link, and determines the inertia of the link.
"""

from __future__ import annotations

import dataclasses
import math

Triple = tuple[float, float, float]
ZERO: Triple = (0.0, 0.0, 0.0)
X: Triple = (1.0, 0.0, 0.0)
Y: Triple = (0.0, 1.0, 0.0)
Z: Triple = (0.0, 0.0, 1.0)
ALONG_X: Triple = (0.0, math.pi / 2, 0.0)  # roll, pitch, yaw of a cylinder with its axis in x
ALONG_Y: Triple = (math.pi / 2, 0.0, 0.0)
DAMPING = 0.002  # damping of a joint divided by its effort limit


@dataclasses.dataclass(frozen=True)
class Box:
    """A box of the given sides (m)."""

    sides: Triple

    def inertia(self, mass: float) -> Triple:
        """Principal moments about the centre (kg m^2)."""
        x, y, z = (side**2 for side in self.sides)
        return (mass * (y + z) / 12, mass * (x + z) / 12, mass * (x + y) / 12)

    def xml(self) -> str:
        """The shape as a URDF geometry."""
        return f'<box size="{_numbers(*self.sides)}"/>'


@dataclasses.dataclass(frozen=True)
class Cylinder:
    """A cylinder of the given radius and length (m) about its z axis."""

    radius: float
    length: float

    def inertia(self, mass: float) -> Triple:
        """Principal moments about the centre (kg m^2)."""
        moment = mass * (3 * self.radius**2 + self.length**2) / 12
        return (moment, moment, mass * self.radius**2 / 2)

    def xml(self) -> str:
        """The shape as a URDF geometry."""
        return f'<cylinder radius="{_numbers(self.radius)}" length="{_numbers(self.length)}"/>'


@dataclasses.dataclass(frozen=True)
class Sphere:
    """A sphere of the given radius (m)."""

    radius: float

    def inertia(self, mass: float) -> Triple:
        """Principal moments about the centre (kg m^2)."""
        moment = 2 / 5 * mass * self.radius**2
        return (moment, moment, moment)

    def xml(self) -> str:
        """The shape as a URDF geometry."""
        return f'<sphere radius="{_numbers(self.radius)}"/>'


@dataclasses.dataclass(frozen=True)
class Link:
    """A link: one solid, its mass (kg), and its centre (m) and rpy angles (rad) in the link."""

    name: str
    mass: float
    shape: Box | Cylinder | Sphere
    center: Triple = ZERO
    rpy: Triple = ZERO

    def xml(self) -> str:
        """The link as a URDF element."""
        origin = f'<origin xyz="{_numbers(*self.center)}" rpy="{_numbers(*self.rpy)}"/>'
        ixx, iyy, izz = (_numbers(moment) for moment in self.shape.inertia(self.mass))
        geometry = f"<geometry>{self.shape.xml()}</geometry>"
        return f"""\
  <link name="{self.name}">
    <inertial>
      {origin}
      <mass value="{_numbers(self.mass)}"/>
      <inertia ixx="{ixx}" iyy="{iyy}" izz="{izz}" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <visual>
      {origin}
      {geometry}
    </visual>
    <collision>
      {origin}
      {geometry}
    </collision>
  </link>
"""


@dataclasses.dataclass(frozen=True)
class Frame:
    """A link without mass: a named frame."""

    name: str

    def xml(self) -> str:
        """The frame as a URDF element."""
        return f'  <link name="{self.name}"/>\n'


@dataclasses.dataclass(frozen=True)
class Joint:
    """A joint at `xyz` (m) in the parent link frame.

    `limits` (position), `effort` and `velocity` are the limits in SI units. The damping is
    proportional to the effort limit.
    """

    name: str
    kind: str
    parent: str
    child: str
    xyz: Triple = ZERO
    axis: Triple = Y
    limits: tuple[float, float] | None = None
    effort: float = 0.0
    velocity: float = 0.0

    def xml(self) -> str:
        """The joint as a URDF element."""
        lines = [
            f'<joint name="{self.name}" type="{self.kind}">',
            f'  <parent link="{self.parent}"/>',
            f'  <child link="{self.child}"/>',
            f'  <origin xyz="{_numbers(*self.xyz)}" rpy="0 0 0"/>',
        ]
        if self.kind != "fixed":
            bounds = ""
            if self.limits is not None:
                bounds = 'lower="{}" upper="{}" '.format(*map(_numbers, self.limits))
            bounds += f'effort="{_numbers(self.effort)}" velocity="{_numbers(self.velocity)}"'
            lines += [
                f'  <axis xyz="{_numbers(*self.axis)}"/>',
                f"  <limit {bounds}/>",
                f'  <dynamics damping="{_numbers(DAMPING * self.effort)}" friction="0"/>',
            ]
        lines.append("</joint>")
        return "".join(f"  {line}\n" for line in lines)


@dataclasses.dataclass(frozen=True)
class Robot:
    """A robot: its name, a description, and its links and joints in the order of the file."""

    name: str
    about: str
    parts: list[Link | Frame | Joint]

    def xml(self) -> str:
        """The robot as the text of a URDF file."""
        header = f"""\
<?xml version="1.0" encoding="utf-8"?>
<!--
  {self.about}
  Written by tests/support/bundled_robots.py: change the robot there. SI units.

  Each link with mass is one solid of uniform density; its inertia follows from its visual:
    box of sides x, y, z         m (y^2 + z^2) / 12, m (x^2 + z^2) / 12, m (x^2 + y^2) / 12
    cylinder, radius r, length l along its z axis
                                 m (3 r^2 + l^2) / 12 twice, m r^2 / 2
    sphere of radius r           2 m r^2 / 5
-->
"""
        body = "".join(part.xml() for part in self.parts)
        return f'{header}<robot name="{self.name}">\n{body}</robot>\n'


def _numbers(*values: float) -> str:
    """The values with nine significant digits and without a negative zero."""
    return " ".join(f"{value + 0.0:.9g}" for value in values)
