"""MJCF texts with every feature that jaxrbd reads, and MuJoCo's results in our coordinates."""

import mujoco
import numpy as np

# Every kind of joint; centres of mass off the origins; ref; several joints on one body, with
# different anchors; welded bodies; two trees; sites on a body, on a welded body and on the world.
TREES = """
<mujoco model="trees">
  <compiler angle="radian"/>
  <option gravity="0.3 -0.2 -9.7"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <site name="mark" pos="1 2 3" quat="1 2 3 4"/>
    <body name="trunk" pos="0.1 0.2 0.9" quat="0.9 0.1 -0.2 0.3">
      <joint name="root" type="free" damping="0.7"/>
      <inertial pos="0.1 -0.05 0.2" quat="1 0.2 0.3 -0.4" mass="4" diaginertia="0.3 0.2 0.15"/>
      <body name="pack" pos="-0.1 0.2 0.1" quat="1 1 0 0">
        <geom type="box" size="0.1 0.2 0.05" pos="0.02 0.03 0.04" mass="0.8"/>
        <site name="camera" pos="0.1 0 0.2" quat="1 0 2 0"/>
        <body name="mast" pos="0.3 0 0.1">
          <joint name="mast" type="slide" axis="1 2 -1" pos="0.1 0.2 0.3" ref="0.2" range="-0.4 0.6"
                 limited="true" stiffness="30" springref="0.35" damping="3" armature="0.2"/>
          <geom type="capsule" size="0.03" fromto="0 0 0 0.3 0.1 0.4" mass="0.5"/>
        </body>
      </body>
      <body name="leg" pos="0.2 -0.1 -0.3" quat="0.8 0 0.6 0">
        <joint name="yaw" axis="0.1 0.2 1" pos="0.1 0 0.05" ref="0.4" damping="0.6" armature="0.05"
               stiffness="2" springref="-0.3" range="-1 2" limited="true"/>
        <joint name="reach" type="slide" axis="1 0 0.5" pos="0 0.2 0" ref="-0.1" damping="2"/>
        <joint name="roll" axis="1 -1 0.3" pos="-0.1 0.1 0.2" frictionloss="0" armature="0.01"/>
        <geom type="ellipsoid" size="0.1 0.05 0.2" pos="0.05 0.1 -0.2" euler="0.3 0 0.1" mass="1"/>
        <site name="leg" pos="0 0.1 -0.4"/>
        <body name="foot" pos="0 0 -0.4">
          <joint name="ankle" type="ball" pos="0.02 0.03 0.1" stiffness="3" damping="0.3"
                 armature="0.02"/>
          <geom type="box" size="0.1 0.05 0.02" pos="0.05 0.01 -0.03" mass="0.4"/>
          <geom type="sphere" size="0.03" pos="-0.05 0.1 0" mass="0.2"/>
        </body>
      </body>
    </body>
    <body name="post" pos="2 0 0" quat="1 0 0 1">
      <geom type="cylinder" size="0.1 0.5" pos="0 0 0.5"/>
      <body name="arm" pos="0 0 1" euler="0.1 0.2 0.3">
        <joint name="a0" axis="0 1 1"/>
        <geom type="capsule" size="0.05" fromto="0 0 0 0.3 0 0.1"/>
        <body pos="0.3 0 0.1"><joint axis="0 1 0" pos="0 0 0.1"/><geom size="0.1"/></body>
        <body name="hand" pos="0.1 0 0.2">
          <joint name="a1" type="ball"/>
          <joint name="a2" type="slide" axis="0 0 1" pos="0.1 0.2 0.3"/>
          <geom size="0.1" pos="0.1 0.1 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="mast" gear="3" ctrlrange="-1 1"/>
    <position name="aim" joint="yaw" kp="20" kv="2" gear="0.5" forcerange="-12 12"/>
    <velocity name="spin" joint="roll" kv="4" ctrlrange="-0.5 0.5" ctrllimited="false"/>
    <general name="both" joint="yaw" gaintype="affine" gainprm="1 0.2 0.3" biastype="affine"
             biasprm="0.5 -0.1 0.2" ctrlrange="-2 2"/>
    <general name="lift" joint="a0" gear="-1.5" gainprm="1 3 4" biasprm="1 2 3"/>
  </actuator>
  <keyframe>
    <key name="home" qpos="1 2 3 0 1 0 0  0.1 0.2 0.3 0.4 1 0 0 0  0.5 0.6 0 0 1 0 0.7"
         qvel="1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19" ctrl="0.1 0.2 0.3 0.4 0.5"/>
  </keyframe>
</mujoco>
"""


def random_state(model, rng):
    """A random `qpos`, with unit quaternions, and random `qvel`, `qacc`, `ctrl`."""
    data = mujoco.MjData(model)
    qpos = np.array(model.qpos0)
    mujoco.mj_integratePos(model, qpos, rng.normal(size=model.nv), 0.7)
    data.qpos[:] = qpos
    data.qvel[:] = rng.normal(size=model.nv)
    data.qacc[:] = rng.normal(size=model.nv)
    data.ctrl[:] = rng.normal(size=model.nu)
    return data


def mass_matrix(model, data):
    """MuJoCo's dense mass matrix at the configuration of `data`."""
    M = np.zeros((model.nv, model.nv))
    for row, unit in zip(M, np.eye(model.nv)):
        mujoco.mj_mulM(model, data, row, unit)
    return M


def frame_poses(model, data, imported):
    """MuJoCo's poses (R, p) of the frames of our model, by name of the frame."""
    poses = {}
    for body in range(1, model.nbody):
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body) or f"body{body}"
        poses[name] = data.xmat[body].reshape(3, 3).copy(), data.xpos[body].copy()
    for site, frame in imported.sites.items():
        poses[frame] = data.site(site).xmat.reshape(3, 3).copy(), data.site(site).xpos.copy()
    return poses


# Equality constraints of every kind between two trees, sites and the world.
LOOPS = """
<mujoco model="loops">
  <compiler angle="radian"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <site name="hook" pos="0.5 0.2 0.3" quat="1 0.2 0 0.3"/>
    <body name="a" pos="0.1 0 0">
      <freejoint name="fa"/>
      <geom size="0.1" pos="0.1 0.05 0.02"/>
      <site name="sa" pos="0.2 0.1 0.3" quat="1 1 0.5 0"/>
      <body name="b" pos="0.3 0 0.1" quat="1 0.1 0 0.4">
        <joint name="j1" axis="0 1 0.2" pos="0.05 0 0.1" ref="0.3"/>
        <geom size="0.1" pos="0 0.1 0"/>
        <body name="c" pos="0 0.3 0">
          <joint name="j2" type="slide" axis="1 0 0" ref="-0.2"/>
          <geom size="0.1" pos="0 0 0.1"/>
          <body name="d" pos="0 0.1 0.2" quat="0 1 0 1">
            <joint name="j3" axis="1 0 1"/>
            <joint name="j4" type="slide" axis="0 1 0" pos="0.1 0.2 0"/>
            <geom size="0.1" pos="0.1 0 0"/>
            <site name="sd" pos="0.1 0 0.1" quat="1 0 0.5 0"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <equality>
    <connect name="pin" body1="a" body2="d" anchor="0.1 0.2 0.3"/>
    <connect name="fixed pin" body1="c" anchor="0.2 0 0.1"/>
    <connect name="site pin" site1="sa" site2="hook"/>
    <weld name="weld" body1="b" body2="d" relpose="0.1 0.2 0.3 1 0.4 0.2 0" anchor="0.1 0 0.2"
          torquescale="0.5"/>
    <weld name="world weld" body1="c"/>
    <weld name="site weld" site1="sd" site2="sa"/>
    <joint name="affine" joint1="j1" joint2="j2" polycoef="0.1 0.7 0 0 0"/>
    <joint name="quartic" joint1="j3" joint2="j2" polycoef="0.2 0.3 -0.4 0.5 0.6"/>
    <joint name="constant" joint1="j4" polycoef="0.25 0 0 0 0"/>
    <joint name="sleeping" joint1="j4" joint2="j1" active="false"/>
  </equality>
</mujoco>
"""

# Spheres so large that all of them overlap, and touch the ground: contacts are what the filters of
# MuJoCo allow.
CROWD = """
<mujoco>
  <option><flag filterparent="{filterparent}"/></option>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1" pos="0 0 5" quat="1 0.1 0.05 0"/>
    <body name="post" pos="0 0 1"><geom name="post" size="1" contype="0" conaffinity="4"/></body>
    <body name="a"><joint/><geom name="a1" size="3"/><geom name="a2" size="3.1" contype="2"/>
      <body name="b"><joint/><geom name="b" size="3" pos="0.1 0 0"/>
        <body name="c"><joint axis="1 0 0"/><geom name="c" size="3" pos="0 0.1 0"/></body>
        <body name="d"><joint axis="0 1 0"/>
          <geom name="d" size="3" contype="2" conaffinity="2" pos="0.1 0.1 0"/></body>
      </body>
      <body name="welded"><geom name="welded" size="2.9"/></body>
    </body>
    <body name="e"><freejoint/><geom name="e" size="3" pos="0 0.2 0"/></body>
    <body name="f"><freejoint/><geom name="f" size="3" contype="0" conaffinity="0"/></body>
    <body name="g"><freejoint/><geom name="g" size="3" pos="0 0.3 0"/></body>
  </worldbody>
  <contact>
    <exclude body1="e" body2="c"/>
    <exclude body1="world" body2="g"/>
    <pair geom1="f" geom2="a1"/>
    <pair geom1="b" geom2="e"/>
  </contact>
</mujoco>
"""

# Shapes on a tilted ground of a welded body.
SHAPES = """
<mujoco>
  <worldbody>
    <body name="slope" pos="0.2 0.1 0.7" quat="1 0.2 0.1 0">
      <body pos="0 0 0.3" quat="1 0 0.1 0"><geom name="floor" type="plane" size="1 1 1" pos="0 0 2"
        friction="0.6"/></body>
    </body>
    <body name="ball"><freejoint/><geom name="sphere" size="0.2" pos="0.1 0.2 0.3" friction="0.5"/>
    </body>
    <body name="rod"><freejoint/><geom name="rod" type="capsule" size="0.1 0.4" pos="0.1 0.2 0.3"
      quat="1 2 3 4" friction="0.5"/></body>
    <body name="brick"><freejoint/><geom name="box" type="box" size="0.1 0.2 0.3" pos="0.3 0.2 0.1"
      quat="1 2 0 4" friction="0.6"/></body>
  </worldbody>
</mujoco>
"""

# Every passive force: a floating base, two trees, and bodies that are welded to others.
PASSIVE = """
<mujoco model="passive">
  <compiler angle="radian"/>
  <option gravity="0.3 -0.2 -9.7" density="12" viscosity="0.7" wind="0.5 -0.8 0.3"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body name="trunk" gravcomp="0.4">
      <joint name="root" type="free" stiffness="3 2 1" damping="0.4 0.3 0.2" armature="0.7"/>
      <inertial pos="0.1 -0.05 0.2" quat="1 0.2 0.3 -0.4" mass="4" diaginertia="0.3 0.2 0.15"/>
      <body name="pack" pos="-0.1 0.2 0.1" quat="1 1 0 0" gravcomp="1.3">
        <geom type="box" size="0.1 0.2 0.05" pos="0.02 0.03 0.04" mass="0.8"/>
      </body>
      <body name="arm" pos="0.2 -0.1 -0.3" quat="0.8 0 0.6 0" gravcomp="1">
        <joint name="swing" axis="0.1 0.2 1" pos="0.1 0 0.05" ref="0.4"
               stiffness="2 0.7 -0.3" springref="-0.3" damping="0.6 0.4 0.1"/>
        <geom type="capsule" size="0.05 0.1" pos="0.05 0.1 -0.2" euler="0.3 0 0.1" mass="1"
              fluidshape="ellipsoid"/>
        <body name="hand" pos="0 0 -0.4">
          <joint name="wrist" type="ball" pos="0.02 0.03 0.1" stiffness="3 0.5 0.4"
                 damping="0.3 0 0.2"/>
          <geom type="ellipsoid" size="0.1 0.05 0.02" pos="0.05 0.01 -0.03" mass="0.4"
                fluidshape="ellipsoid" fluidcoef="0.3 0.7 1.1 1.3 0.8"/>
          <geom type="sphere" size="0.03" pos="0 0.1 0" mass="0.1" fluidshape="ellipsoid"/>
          <geom type="box" size="0.03 0.02 0.05" pos="0 0 0.1" mass="0.1"/>
        </body>
      </body>
    </body>
    <body name="post" pos="2 0 0" gravcomp="1">
      <geom size="0.1" mass="1"/>
      <body name="sled" gravcomp="-0.5">
        <joint name="rail" type="slide" axis="1 0 1" stiffness="5" springref="0.2"/>
        <geom type="cylinder" size="0.05 0.1" pos="0.1 0 0" mass="0.5" fluidshape="ellipsoid"/>
        <geom type="box" size="0.1 0.05 0.02" pos="0 0.1 0" euler="0.1 0.2 0.3" mass="0.2"
              fluidshape="ellipsoid"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="belt" stiffness="3 -0.8 0.5" damping="0.2 0.3 0.4" springlength="-0.1 0.2">
      <joint joint="swing" coef="0.7"/><joint joint="rail" coef="-1.2"/>
    </fixed>
  </tendon>
  <actuator>
    <motor name="m0" joint="swing" gear="-2" damping="0.1 0.2 0.3"/>
    <motor name="m1" tendon="belt" gear="-1.5" damping="0.3 0.2 0.1"/>
  </actuator>
</mujoco>
"""
