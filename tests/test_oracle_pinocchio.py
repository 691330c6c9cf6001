"""Comparison with Pinocchio on every real robot, with a fixed base and on a free-flyer.

The default run takes three robots; `-m slow` takes the others.

Both libraries have the same order of joints, so vectors and matrices are compared directly. An
error is relative to the largest entry. For quantities that are solved with the mass matrix M, it
may grow with cond(M).
"""

import jax
import numpy as np
import pytest
from lxml import etree

import jaxrbd
from support import oracles, real_robots
from support.pinocchio_models import (
    REFERENCES,
    ROOT_JOINTS,
    configuration,
    frame_id,
    load_oracle,
    pin,
    symmetric,
)

SEEDS = range(3)
WITH_MIMIC = real_robots.with_both_bases(real_robots.MIMIC, {real_robots.PANDA: "free_flyer"})
AS_PINOCCHIO_HAS_THEM = real_robots.with_both_bases(
    [name for name in real_robots.MIMIC if name not in real_robots.LEADER_COMES_LATER],
    {real_robots.PANDA: "free_flyer"},
)


@pytest.mark.parametrize(
    ("name", "root_joint"),
    real_robots.with_both_bases(real_robots.ROBOTS, real_robots.TWO_EXAMPLES),
)
def test_every_quantity_of_every_robot(name, root_joint):
    model, oracle = real_robots.load(name, root_joint), load_oracle(name, root_joint)
    assert_same_results(name, model, oracle, singular=name in real_robots.SINGULAR)


@pytest.mark.slow
@pytest.mark.parametrize("root_joint", ["planar", "spherical", "translation"])
def test_every_joint_of_the_specification(root_joint):
    """Joints that no real robot here has: floating and planar ones, and other root joints."""
    model = jaxrbd.load_urdf(EVERY_JOINT, root_joint=root_joint)
    oracle = pin.buildModelFromXML(EVERY_JOINT, ROOT_JOINTS[root_joint]())
    assert_same_results(f"every joint, {root_joint}", model, oracle, singular=False)


def assert_same_results(robot, model, oracle, *, singular):
    assert list(model.joint_names) == list(oracle.names)[1:]
    for seed in SEEDS:
        state = oracles.random_state(model, seed)
        ours = as_pinocchio(oracle.joints[1:], oracles.our_results(model, state))
        theirs = pinocchio_results(oracle, model, state)
        assert set(ours) == set(theirs)
        oracles.assert_agree(f"{robot}, seed {seed}", ours, theirs, singular=singular)


def test_the_robots_are_there():
    assert len(real_robots.ROBOTS) >= 68
    assert set().union(*real_robots.EXCEPTIONS) <= set(real_robots.FILES)


@pytest.mark.parametrize("name", real_robots.UNREADABLE)
def test_neither_reads_what_is_no_robot(name):
    with pytest.raises(ValueError, match="does not contain a valid URDF"):
        load_oracle(name, None)
    with pytest.raises(jaxrbd.RobotFileError):
        real_robots.load(name, None)


# --------------------------------------------------------------------------------------- float32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "root_joint"),
    real_robots.with_both_bases(real_robots.ROBOTS, real_robots.TWO_EXAMPLES),
)
def test_single_precision(name, root_joint):
    """Errors below 1e-4 if cond(M) < 1e4. Else forward dynamics' error may be 1e-7 cond(M)."""
    model, oracle = real_robots.load(name, root_joint), load_oracle(name, root_joint)
    single = model.astype(np.float32)
    for seed in SEEDS:
        state = jax.tree.map(np.float32, oracles.random_state(model, seed))
        ours = oracles.our_dynamics(single, state)
        theirs = pinocchio_results(oracle, model, jax.tree.map(np.float64, state))
        oracles.assert_agree(
            f"{name} in float32, seed {seed}",
            ours,
            {quantity: theirs[quantity] for quantity in ours},
            singular=name in real_robots.SINGULAR,
            direct=1e-4,
            solved=lambda condition: 1e-4 if condition < 1e4 else 1e-7 * condition,
        )


# ---------------------------------------------------------------------------------- mimic joints


@pytest.mark.slow
@pytest.mark.parametrize(("name", "root_joint"), WITH_MIMIC)
def test_mimic_joints(name, root_joint):
    """Pinocchio's results without mimic, converted by `v_tree = G v` with G from the file."""
    model, oracle = real_robots.load(name, root_joint, mimic=True), load_oracle(name, root_joint)
    coupling = Coupling(name, oracle)
    for seed in SEEDS:
        state = oracles.random_state(model, seed)
        ours = as_pinocchio(coupling.independent, oracles.our_results(model, state))
        tree = pinocchio_results(oracle, model, coupling.tree_state(state))
        theirs = coupling.results(state, tree)
        assert set(ours) == set(theirs)
        singular = name in real_robots.SINGULAR
        oracles.assert_agree(f"{name}, mimic, seed {seed}", ours, theirs, singular=singular)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "root_joint"), AS_PINOCCHIO_HAS_THEM)
def test_mimic_joints_as_pinocchio_has_them(name, root_joint):
    """Pinocchio's own mimic joints, for the robots and the algorithms that support them."""
    model, oracle = (load(name, root_joint, mimic=True) for load in (real_robots.load, load_oracle))
    for seed in SEEDS:
        state = oracles.random_state(model, seed)
        ours = as_pinocchio(oracle.joints[1:], oracles.our_results(model, state))
        theirs = results_with_mimic(oracle, model, state)
        oracles.assert_agree(f"{name}, mimic, seed {seed}", ours, theirs)


@pytest.mark.parametrize("name", real_robots.LEADER_COMES_LATER)
def test_pinocchio_refuses_a_mimic_joint_before_its_leader(name):
    with pytest.raises(ValueError, match="not in the kinematic tree"):
        load_oracle(name, None, mimic=True)


@pytest.mark.parametrize("name", real_robots.UNREADABLE_MIMIC)
def test_neither_reads_a_mimic_of_no_joint(name):
    with pytest.raises(ValueError, match="not in the kinematic tree"):
        load_oracle(name, None, mimic=True)
    with pytest.raises(jaxrbd.RobotFileError, match="mimic"):
        jaxrbd.load_urdf(real_robots.path_of(name))


class Coupling:
    """The map from independent coordinates to the coordinates of the tree, from a URDF file.

    `v_tree = G v`. For joints with one coordinate per dof, `q_tree = G q + offset`. The base's
    configuration is the same in both.
    """

    def __init__(self, name, oracle):
        mimics = read_mimics(name, oracle)
        independent = [j for j in oracle.names[1:] if j not in mimics]
        self.independent = [oracle.joints[oracle.getJointId(j)] for j in independent]
        self.q_index = spread((joint.idx_q, joint.nq) for joint in self.independent)
        self.v_index = spread((joint.idx_v, joint.nv) for joint in self.independent)
        self.G = np.eye(oracle.nv)[:, self.v_index]
        self.offset = np.zeros(oracle.nv)
        for joint, (leader, multiplier, offset) in mimics.items():
            assert leader in independent, "there are no chains of mimic joints in these files"
            self.G[dof(oracle, joint)] = multiplier * self.G[dof(oracle, leader)]
            self.offset[dof(oracle, joint)] = offset

    def tree_state(self, state):
        """The state of the tree without its mimic joints; `tau` has no counterpart there."""
        q, q1 = self._tree_position(state.q), self._tree_position(state.q1)
        v, a = self.G @ state.v, self.G @ state.a
        return oracles.State(q, v, a, np.zeros(len(v)), state.f_ext, q1)

    def _tree_position(self, q):
        base = len(q) - len(self.v_index)  # 1 with a free-flyer: 7 coordinates, 6 dofs
        tree = self.G @ q[base:] + self.offset
        return np.concatenate([q[: 7 * base], tree[6 * base :]])

    def results(self, state, tree):
        """The tree's results, converted to the independent coordinates."""
        G = self.G
        M, rnea = G.T @ tree["crba"] @ G, G.T @ tree["rnea"]
        singular = oracles.condition(M) > oracles.SINGULAR
        inverse = np.full(M.shape, np.nan) if singular else np.linalg.inv(M)
        accelerations = inverse @ (state.tau - (rnea - M @ state.a))
        mapped = {
            "crba": M,
            "rnea": rnea,
            "bias_force": G.T @ tree["bias_force"],
            "gravity_force": G.T @ tree["gravity_force"],
            "aba": accelerations,
            "forward_dynamics": accelerations,
            "minverse": inverse,
            "integrate": tree["integrate"][self.q_index],
            "neutral": tree["neutral"][self.q_index],
            "difference": tree["difference"][self.v_index],
        }
        return tree | mapped | {k: J @ G for k, J in tree.items() if k.startswith("frame_jacobian")}


def read_mimics(name, oracle):
    """`joint: (leader, multiplier, offset)` for the moving mimic joints of a file."""
    mimics = {}
    for joint in etree.parse(real_robots.path_of(name)).getroot().iterfind("joint"):
        mimic = joint.find("mimic")
        if mimic is not None and joint.get("name") in oracle.names:
            terms = (float(mimic.get(key, default)) for key, default in NEUTRAL_MIMIC.items())
            mimics[joint.get("name")] = (mimic.get("joint"), *terms)
    return mimics


NEUTRAL_MIMIC = {"multiplier": 1, "offset": 0}


def dof(oracle, joint):
    return oracle.joints[oracle.getJointId(joint)].idx_v


def spread(ranges):
    return np.concatenate([np.arange(start, start + size) for start, size in ranges])


# ------------------------------------------------------------------------------------- Pinocchio


def as_pinocchio(joints, ours):
    """Our results, with configurations in Pinocchio's coordinates."""
    q = {key: configuration(joints, ours[key]) for key in ("integrate", "neutral")}
    return ours | q


def results_with_mimic(oracle, model, state):
    """Pinocchio's results for any robot, under the names of `oracles.our_results`."""
    data = oracle.createData()
    q, q1 = (configuration(oracle.joints[1:], x) for x in (state.q, state.q1))
    v, a = state.v, state.a
    f_ext = pin.StdVec_Force([pin.Force.Zero(), *map(pin.Force, state.f_ext)])
    results = {
        "rnea": pin.rnea(oracle, data, q, v, a, f_ext).copy(),
        "bias_force": pin.nonLinearEffects(oracle, data, q, v).copy(),
        "gravity_force": pin.computeGeneralizedGravity(oracle, data, q).copy(),
        "crba": symmetric(pin.crba(oracle, data, q)),
        "total_mass": pin.computeTotalMass(oracle),
        "center_of_mass": center_of_mass(oracle, data, q),
        "integrate": pin.integrate(oracle, q, v),
        "difference": pin.difference(oracle, q, q1),
        "neutral": pin.neutral(oracle),
    }
    pin.forwardKinematics(oracle, data, q, v, a)
    pin.updateFramePlacements(oracle, data)
    bodies = [X.homogeneous[:3] for X in data.oMi[1:]]
    frames = [data.oMf[frame_id(oracle, name)].homogeneous[:3] for name in model.frame_names]
    results["body placements"] = np.reshape(bodies, (-1, 3, 4))
    results["all frame placements"] = np.array(frames)
    for probe, name in oracles.probe_names(model).items():
        frame = frame_id(oracle, name)
        results[f"frame_placement of {probe}"] = data.oMf[frame].homogeneous[:3]
        for ref in oracles.references(probe):
            V, A = motion(oracle, data, frame, ref)
            results[f"frame_velocity of {probe}, {ref}"] = V
            results[f"frame_acceleration of {probe}, {ref}"] = A
    return results


def pinocchio_results(oracle, model, state):
    """Pinocchio's results for a robot without mimic joints."""
    data = oracle.createData()
    q, v = configuration(oracle.joints[1:], state.q), state.v
    f_ext = pin.StdVec_Force([pin.Force.Zero(), *map(pin.Force, state.f_ext)])
    accelerations = pin.aba(oracle, data, q, v, state.tau, f_ext).copy()
    results = results_with_mimic(oracle, model, state) | {
        "aba": accelerations,
        "forward_dynamics": accelerations,
        "minverse": symmetric(pin.computeMinverse(oracle, data, q)),
        "kinetic_energy": pin.computeKineticEnergy(oracle, data, q, v),
        "potential_energy": pin.computePotentialEnergy(oracle, data, q),
    }
    pin.computeJointJacobians(oracle, data, q)
    pin.updateFramePlacements(oracle, data)
    for probe, name in oracles.probe_names(model).items():
        arguments = (oracle, data, frame_id(oracle, name))
        results[f"frame_jacobian of {probe}"] = frame_jacobian(*arguments, "local_world_aligned")
        for ref in oracles.references(probe):
            results[f"frame_jacobian of {probe}, {ref}"] = frame_jacobian(*arguments, ref)
    return results


def motion(oracle, data, frame, ref):
    """Velocity and acceleration of a frame, a classical one in `local_world_aligned`."""
    classical = ref == "local_world_aligned"
    acceleration = pin.getFrameClassicalAcceleration if classical else pin.getFrameAcceleration
    arguments = (oracle, data, frame, REFERENCES[ref])
    return pin.getFrameVelocity(*arguments).vector, acceleration(*arguments).vector


# For a robot without dofs, Pinocchio's center of mass is 0/0 and its frame Jacobian crashes.


def center_of_mass(oracle, data, q):
    return pin.centerOfMass(oracle, data, q).copy() if oracle.nv else np.zeros(3)


def frame_jacobian(oracle, data, frame, ref):
    arguments = (oracle, data, frame, REFERENCES[ref])
    return pin.getFrameJacobian(*arguments) if oracle.nv else np.zeros((6, 0))


EVERY_JOINT = """\
<robot name="every_joint">
  <link name="base">{inertia}</link>
  <link name="a">{inertia}</link>
  <link name="b">{inertia}</link>
  <link name="c">{inertia}</link>
  <link name="d">{inertia}</link>
  <link name="e">{inertia}</link>
  <link name="f">{inertia}</link>
  <joint name="hinge" type="revolute">
    <parent link="base"/> <child link="a"/> {origin} <axis xyz="0.6 -0.3 0.2"/> {limit}
  </joint>
  <joint name="plane" type="planar">
    <parent link="a"/> <child link="b"/> {origin} <axis xyz="0 0 1"/>
  </joint>
  <joint name="wheel" type="continuous">
    <parent link="b"/> <child link="c"/> {origin} <axis xyz="0.1 0.2 0.9"/>
  </joint>
  <joint name="flight" type="floating"> <parent link="b"/> <child link="d"/> {origin} </joint>
  <joint name="slide" type="prismatic">
    <parent link="d"/> <child link="e"/> {origin} <axis xyz="-1 2 0.5"/> {limit}
  </joint>
  <joint name="weld" type="fixed"> <parent link="c"/> <child link="f"/> {origin} </joint>
</robot>
""".format(
    origin='<origin xyz="0.1 0.2 -0.3" rpy="0.4 -0.5 0.6"/>',
    limit='<limit lower="-1" upper="1" effort="1" velocity="1"/>',
    inertia="""<inertial>
      <origin xyz="0.01 -0.05 0.1" rpy="-0.3 0.2 0.1"/> <mass value="1.5"/>
      <inertia ixx="0.02" ixy="0.001" ixz="-0.002" iyy="0.03" iyz="0.003" izz="0.025"/>
    </inertial>""",
)
