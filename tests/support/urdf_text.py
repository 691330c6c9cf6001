"""Texts of URDF files without a fault, which tests damage."""

SOUND = """\
<robot name="arm" version="1.0">
  <link name="base"/>
  <link name="upper">
    <inertial>
      <origin xyz="0 0 0.1" rpy="0.3 0 0"/>
      <mass value="2"/>
      <inertia ixx="0.3" ixy="0" ixz="0" iyy="0.4" iyz="0" izz="0.5"/>
    </inertial>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/>
    <child link="upper"/>
    <origin xyz="0 0 1" rpy="0 0 0"/>
    <axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="10" velocity="5"/>
    <dynamics damping="0.1" friction="0.2"/>
  </joint>
  <link name="hand"/>
  <joint name="wrist" type="continuous">
    <parent link="upper"/>
    <child link="hand"/>
    <mimic joint="shoulder" multiplier="2" offset="0.5"/>
  </joint>
</robot>
"""

# `SOUND` with every element and attribute that the reader knows.
EVERYTHING = SOUND.replace(
    '<robot name="arm" version="1.0">',
    """\
<?xml version="1.0" encoding="utf-8"?>
<!-- a robot with every element that the reader knows -->
<robot name="all" version="1.2" xmlns:xacro="http://ros.org/wiki/other">
  <material name="grey"><color rgba="0.5 0.5 0.5 1"/></material>""",
).replace(
    "</robot>",
    """\
  <link name="lower">
    <visual name="plate">
      <origin xyz="0 0 0.1" rpy="0 0.2 0"/>
      <geometry><box size="1 2 0"/></geometry>
      <material name="grey"/>
    </visual>
    <visual>
      <geometry><mesh filename="package://all/lower.stl" scale="1 -1 1"/></geometry>
      <material name="red"><color rgba="1 0 0 0.5"/></material>
    </visual>
    <collision><geometry><sphere radius="0.5"/></geometry></collision>
    <collision><geometry><cylinder radius="0.5" length="2"/></geometry></collision>
    <collision><geometry><capsule radius="0.5" length="2"/></geometry></collision>
    <inertial>
      <origin xyz="0.1 0 0" quat_xyzw="0.5 0.5 0.5 0.5"/>
      <mass value="1.5"/>
      <inertia ixx="0.02" ixy="0.001" ixz="0" iyy="0.03" iyz="0" izz="0.04"/>
    </inertial>
  </link>
  <link name="tip"><inertial><mass value="0"/>
    <inertia ixx="0" ixy="0" ixz="0" iyy="0" iyz="0" izz="0"/></inertial></link>
  <link name="ball"/>
  <link name="sheet"/>
  <joint name="elbow" type="prismatic">
    <parent link="upper"/><child link="lower"/><axis xyz="1 2 3"/>
    <limit effort="10" velocity="5"/>
    <mimic joint="wrist" multiplier="-2"/>
  </joint>
  <joint name="weld" type="fixed"><parent link="lower"/><child link="tip"/></joint>
  <joint name="air" type="floating"><parent link="base"/><child link="ball"/></joint>
  <joint name="table" type="planar">
    <parent link="ball"/><child link="sheet"/><axis xyz="0 0 1"/>
  </joint>
  <gazebo reference="tip"/>
</robot>""",
)
