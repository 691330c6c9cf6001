"""An MJCF file of a planar arm with two joints and six muscles that wrap around its joints."""


def _muscle(kind, side, force, length):
    """A muscle with its tendon; `kind`: the joints that it crosses."""
    at_shoulder = f"""<site site="root_{side}"/>
        <geom geom="shoulder_roll" sidesite="shoulder_{side}"/><site site="upper_{side}"/>"""
    at_elbow = f"""<geom geom="elbow_roll" sidesite="elbow_{side}"/><site site="lower_{side}"/>"""
    path = {
        "shoulder": at_shoulder,
        "elbow": f'<site site="middle_{side}"/>{at_elbow}',
        "long": at_shoulder + at_elbow,
    }[kind]
    name = f"{kind}_{side}"
    tendon = f'<spatial name="{name}">{path}</spatial>'
    actuator = f"""<muscle name="{name}" tendon="{name}" force="{force}" range="0.6 1.3" vmax="6"
        lengthrange="{0.7 * length} {1.3 * length}" timeconst="0.03 0.06" tausmooth="0.2"/>"""
    return tendon, actuator


def _sites(**x):
    """Sites above and below the middle line of a link, at distances x along the link."""
    return "".join(
        f'<site name="{name}_{side}" pos="{at} 0 {sign * height}"/>'
        for name, (at, height) in x.items()
        for side, sign in (("flexor", 1), ("extensor", -1))
    )


_TENDONS, _ACTUATORS = (
    "".join(x)
    for x in zip(
        *(
            _muscle(kind, side, force, length)
            for side in ("flexor", "extensor")
            for kind, force, length in (
                ("shoulder", 600, 0.25),
                ("elbow", 400, 0.3),
                ("long", 300, 0.5),
            )
        )
    )
)
_BONE = 'type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"'
_ROLL = 'type="cylinder" size="0.03 0.05" euler="90 0 0"'

# A positive angle raises the arm; at zero, it lies along the x axis.
ARM = f"""
<mujoco>
  <compiler autolimits="true"/>
  <default>
    <joint axis="0 -1 0" damping="0.3" armature="0.01"/><geom contype="0" conaffinity="0"/>
  </default>
  <worldbody>
    {_sites(root=(-0.1, 0.03), shoulder=(0.04, 0.05))}<geom name="shoulder_roll" {_ROLL}/>
    <body name="upper">
      <joint name="shoulder"/><geom {_BONE} mass="1.5"/>
      {_sites(upper=(0.15, 0.03), middle=(0.1, 0.03), elbow=(0.35, 0.03))}
      <body name="lower" pos="0.3 0 0">
        <joint name="elbow"/><geom {_BONE} mass="1"/><geom name="elbow_roll" {_ROLL}/>
        {_sites(lower=(0.1, 0.03))}<site name="hand" pos="0.3 0 0"/>
      </body>
    </body>
  </worldbody>
  <tendon>{_TENDONS}</tendon>
  <actuator>{_ACTUATORS}</actuator>
  <sensor>
    <framepos name="hand" objtype="site" objname="hand"/>
    <framelinvel name="speed" objtype="site" objname="hand"/>
  </sensor>
  <keyframe><key name="hanging" qpos="-1.2 0.6"/></keyframe>
</mujoco>
"""
