"""Wrong arguments: every mistake is an error that names the argument."""

import copy
import functools
import gc
import inspect
import json
import pathlib
import pickle
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, sensors
from jaxrbd.model import arguments
from support import nightly, zoo
from support.algorithms import ALGORITHMS, PUBLIC
from support.zoo import close

Q, V = zoo.small().nq, zoo.small().nv
NEUTRAL = rbd.neutral(zoo.small())

FUNCTIONS = """
    rnea bias_force gravity_force crba minverse mass_matrix_product aba forward_dynamics
    kinetic_energy potential_energy joint_torque_regressor kinetic_energy_regressor
    potential_energy_regressor center_of_mass passive_force forward_kinematics integrate difference
    frame_placement frame_jacobian frame_velocity frame_acceleration
""".split()


def sizes(name):
    """The sizes of the vectors that a public function takes after the model, by argument."""
    required = [
        parameter.name
        for parameter in inspect.signature(PUBLIC[name]).parameters.values()
        if parameter.default is parameter.empty
    ]
    vectors = [argument for argument in required if argument not in ("model", "frame")]
    return {argument: Q if argument in ("q", "q0", "q1") else V for argument in vectors}


def call(name, **changed):
    """Call a public function with vectors of the right sizes, except the given arguments."""
    good = {argument: NEUTRAL if n == Q else jnp.zeros(n) for argument, n in sizes(name).items()}
    frame = {"frame": "l1"} if "frame" in inspect.signature(PUBLIC[name]).parameters else {}
    return PUBLIC[name](zoo.small(), **{**good, **frame, **changed})


BAD = {
    "short": lambda n: jnp.zeros(n - 1),
    "long": lambda n: jnp.zeros(n + 1),
    "column": lambda n: jnp.zeros((n, 1)),
    "batch": lambda n: jnp.zeros((3, n)),
    "scalar": lambda n: jnp.zeros(()),
}
CASES = [(name, argument) for name in FUNCTIONS for argument in sizes(name)]


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize(("name", "argument"), CASES)
def test_a_wrong_shape_names_the_argument_and_both_shapes(name, argument, fault):
    size = sizes(name)[argument]
    value = BAD[fault](size)
    with pytest.raises(rbd.ArgumentError) as error:
        call(name, **{argument: value})
    message = str(error.value)
    assert message.startswith(f"{argument} has shape {value.shape}, expected ({size},)")
    assert ("jax.vmap" in message) == (value.ndim > 1)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.float32, jnp.bool_, jnp.complex128])
@pytest.mark.parametrize(("name", "argument"), CASES)
def test_a_wrong_dtype_names_the_argument_and_both_dtypes(name, argument, dtype):
    value = jnp.zeros(sizes(name)[argument], dtype)
    with pytest.raises(rbd.ArgumentError, match=f"^{argument} of shape .* has dtype {value.dtype}"):
        call(name, **{argument: value})


@pytest.mark.parametrize("name", ["rnea", "bias_force", "aba", "forward_dynamics"])
@pytest.mark.parametrize("shape", [(6,), (2, 6), (4, 6), (3, 5), (18,), (2, 3, 6)])
def test_external_forces_of_a_wrong_shape(name, shape):
    with pytest.raises(rbd.ArgumentError, match=r"f_ext has shape .* expected \(3, 6\)"):
        call(name, f_ext=jnp.zeros(shape))


def test_a_checked_function_makes_arrays():
    """Arguments by place and by name become arrays, and `unchecked` takes them as they are."""
    kinds = []

    @functools.partial(arguments.compiled, arrays=("q", "f_ext"))
    def function(model, q, scale=2.0, f_ext=None):
        kinds.append((isinstance(q, jax.Array), f_ext))
        return scale * q

    model = zoo.small()
    close(function(model, np.asarray(NEUTRAL)), 2 * NEUTRAL, 0)
    close(function(model, scale=1.0, q=np.asarray(NEUTRAL)), NEUTRAL, 0)
    close(function.unchecked(model, jnp.ones(2)), jnp.full(2, 2.0), 0)
    assert kinds == [(True, None)] * 3
    with pytest.raises(rbd.ArgumentError, match=r"^q has shape \(2,\)"):
        function(model, q=jnp.ones(2))
    with pytest.raises(rbd.ArgumentError, match=r"^f_ext has shape \(2,\)"):
        function(model, NEUTRAL, f_ext=jnp.zeros(2))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'q'"):
        function(model)


CHECKED = {
    "rnea": "q v a f_ext",
    "forward_dynamics": "q v tau f_ext",
    "com_jacobian": "q",
    "inverse_kinematics": "q0",
    "contact_step": "q v tau dt f_ext regularisation recovery inverse_inertia.contacts "
    "inverse_inertia.joints inverse_inertia.trees",
    "constrained_dynamics": "q v tau f_ext stabilisation",
}


@pytest.mark.parametrize("name", nightly.all_but(["rnea", "com_jacobian", "contact_step"], CHECKED))
def test_one_call_checks_each_argument_once(name, monkeypatch):
    check, checked = arguments.array, []

    def counted(model, x, name, *rest):
        checked.append(name)
        return check(model, x, name, *rest)

    monkeypatch.setattr(arguments, "array", counted)
    # No other test has traced a function with this robot.
    model = zoo.build(["free_flyer", "revolute", "prismatic"], [-1, 0, 1], name=f"counted {name}")
    state = zoo.state(model)
    checked.clear()
    jax.eval_shape(functools.partial(ALGORITHMS[name], model), *state)
    assert sorted(checked) == sorted(CHECKED[name].split())


def test_a_batch_goes_through_vmap():
    model = zoo.small()
    q = jnp.stack([zoo.state(model, seed)[0] for seed in range(4)])
    assert jax.vmap(rbd.crba, (None, 0))(model, q).shape == (4, V, V)


OF_A_FRAME = "frame_placement frame_jacobian frame_velocity frame_acceleration".split()


@pytest.mark.parametrize("name", [*OF_A_FRAME, "external_force"])
@pytest.mark.parametrize(("frame", "message"), [("nowhere", "no frame 'nowhere'"), (99, "99")])
def test_an_unknown_frame(name, frame, message):
    wrench = {"wrench": jnp.zeros(6)} if name == "external_force" else {}
    with pytest.raises(rbd.ArgumentError, match=message):
        call(name, frame=frame, **wrench)


def test_frames_by_index():
    """An index counts from the first frame, or backwards if negative. It is never wrapped."""
    from jaxrbd.model.arguments import frame_index

    model = zoo.small()
    n = len(model.frame_names)
    assert [frame_index(model, i) for i in range(-n, n)] == [*range(n), *range(n)]
    for beyond in (n, -n - 1, 1000, -1000, -999):
        with pytest.raises(rbd.ArgumentError, match=f"frame {beyond} out of range: .* -{n} to"):
            frame_index(model, beyond)


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("hand", "'panda_hand' or 'panda_hand_tcp'"),
        ("Panda_Hand_TCP", "'panda_hand_tcp'"),
        ("panda_hnd", "'panda_hand'"),
        ("xyzzy", None),
        ("", None),
    ],
)
def test_an_unknown_frame_gets_a_suggestion(name, close):
    names = ("base", "panda_hand", "panda_hand_tcp")
    links = [rbd.model.Link(n, rbd.model.link_inertia(1.0, (0, 0, 1), np.eye(3))) for n in names]
    joints = [rbd.model.JointSpec(n, rbd.model.Fixed(), None, n) for n in names]
    model = rbd.build_model(links, joints)
    with pytest.raises(rbd.ArgumentError) as error:
        rbd.frame_placement(model, jnp.zeros(0), name)
    found = str(error.value)
    assert found.startswith(f"no frame {name!r} in Model('robot', nb=0")
    mark = "?" if close else ";"
    assert found.endswith(f"{mark} frames: ['base', 'panda_hand', 'panda_hand_tcp']")
    assert ("did you mean" in found) == (close is not None)
    assert close is None or f"; did you mean {close}" in found


SWAPPED = """
import inspect, json
import jax, jax.numpy as jnp
import jaxrbd as rbd
model, q = rbd.load_robot("double_pendulum"), jnp.zeros(2)
given = {"frame": "upper_rod", "frames": ("upper_rod",), "joint": "elbow"}
modules = [
    rbd, rbd.algorithms, rbd.configuration, rbd.identification, rbd.integrators, rbd.io, rbd.model
]
for name, function in {n: getattr(module, n) for module in modules for n in module.__all__}.items():
    if not callable(function) or inspect.isclass(function):
        continue
    parameters = list(inspect.signature(function).parameters.values())
    # The tangent functions check the robot when what they return is called.
    if not parameters or parameters[0].name != "model" or function.__module__.endswith("tangent"):
        continue
    names = [p.name for p in parameters if p.default is p.empty and p.kind != p.KEYWORD_ONLY]
    rest = [given.get(name, q) for name in names[2:]]
    try:
        function(q, *[model][: len(names) - 1], *rest)
    except rbd.ArgumentError as error:
        print(json.dumps([name, str(error)]))
    except Exception as error:
        print(json.dumps([name, repr(error)]))
try:
    rbd.rnea(model, q, model, q)
except rbd.ArgumentError as error:
    print(json.dumps(["model as v", str(error)]))
try:
    rbd.frame_placement(model, q, 1.0)
except rbd.ArgumentError as error:
    print(json.dumps(["frame", str(error)]))
"""


def test_swapped_arguments_are_told_what_is_expected():
    """All public functions whose first argument is a model, without the tests' type checker."""
    root = pathlib.Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", SWAPPED], capture_output=True, text=True, cwd=root, check=False
    )
    assert done.returncode == 0, done.stderr
    said = dict(map(json.loads, done.stdout.splitlines()))
    robot = "Model('double_pendulum', nb=2, nq=2, nv=2, frames=3, dtype=float64)"
    assert said.pop("model as v") == f"v is {robot}, expected an array; the model was given before"
    wanted = "expected the name or the index of a frame of"
    assert said.pop("frame") == f"frame is 'float', {wanted} {robot}"
    assert len(said) > 50
    expected = "the first argument is an array of shape (2,), expected the Model of a robot"
    assert {name: text for name, text in said.items() if text != expected} == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, q, v: rbd.rnea("robot.urdf", q, v, v), "the first argument is 'str', expected"),
        (lambda m, q, v: rbd.rnea(m, q, v, "0"), "a is 'str', expected arrays"),
        (lambda m, q, v: rbd.rnea(m, q, v, None), "a is None, expected an array"),
        (lambda m, q, v: rbd.rnea(m, q, v, a={"x": np.array(["0"])}), "a contains an array"),
        (lambda m, q, v: contact.contact_force(m, "ground", q, v), "scene is 'str', expected"),
        (lambda m, q, v: contact.contact_force(m, None, q, v), "scene is None, expected a Scene"),
        (lambda m, q, v: contact.inverse_inertias(m, [q]), "scene is 'list', expected a Scene"),
        (lambda m, q, v: contact.inverse_inertias(m, scene=print), "scene is 'builtin_function"),
    ],
)
def test_objects_that_are_no_arrays_are_named(call, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        call(zoo.small(), NEUTRAL, jnp.zeros(V))


@pytest.mark.parametrize("reference", ["LOCAL", "body", ""])
def test_an_unknown_reference(reference):
    with pytest.raises(rbd.ArgumentError, match="expected one of"):
        rbd.frame_jacobian(zoo.small(), NEUTRAL, "l1", reference)


# ---------------------------------------------------------------- values, where they are known

# The algorithms without a configuration among their arguments.
WITHOUT_Q = {
    "inverse_inertias",
    "joint_torques",
    "ltl_factor",
    "ltl_solve",
    "neutral",
    "random_configuration",
    "shooting_step",
    "state_space",
    "total_mass",
    "transport",
    "turning_acceleration",
    "velocity_bracket",
}


def test_the_functions_without_a_configuration_are_these():
    taken = {
        name
        for name in ALGORITHMS
        if {"q", "q0", "q1"} & set(inspect.signature(PUBLIC[name]).parameters)
    }
    # These pass the configuration to a function of the caller.
    indirect = {"gradient", "jacobian", "hessian", "explicit_dynamics"}
    indirect.add("distance")  # of poses
    assert set(ALGORITHMS) - taken == WITHOUT_Q | indirect


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - WITHOUT_Q))
@pytest.mark.parametrize(("start", "joint"), [(3, "j0"), (7, "j1")])
def test_a_zero_quaternion_is_an_error_that_names_the_joint(name, start, joint):
    model = zoo.small()
    _, v, a, f_ext = zoo.state(model)
    q = NEUTRAL.at[start : start + 4].set(0)
    with pytest.raises(rbd.ArgumentError) as error:
        ALGORITHMS[name](model, q, v, a, f_ext)
    assert f"the zero quaternion for joint {joint!r}" in str(error.value)
    assert "jaxrbd.neutral(model)" in str(error.value)


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray, lambda q: np.asarray(q).tolist()])
def test_a_zero_quaternion_in_any_container(kind):
    with pytest.raises(rbd.ArgumentError, match=r"^q has the zero quaternion for joint 'j0'"):
        rbd.crba(zoo.small(), kind(jnp.zeros(Q)))
    with pytest.raises(rbd.ArgumentError, match=r"^q1 has the zero quaternion for joint 'j0'"):
        rbd.difference(zoo.small(), NEUTRAL, q1=kind(jnp.zeros(Q)))


def test_a_zero_quaternion_that_is_traced_is_the_identity():
    model = zoo.small()
    of_zeros = jax.jit(rbd.crba)(model, jnp.zeros(Q))
    np.testing.assert_allclose(of_zeros, rbd.crba(model, NEUTRAL), rtol=0, atol=1e-15)


def test_quaternions_are_found_among_the_independent_coordinates():
    assert zoo.small().quaternions == (("j0", 3), ("j1", 7))
    assert zoo.chain(2).quaternions == ()
    model = zoo.coupled()
    assert model.quaternions[0] == ("j0", 3)
    for _, start in model.quaternions:
        np.testing.assert_array_equal(rbd.neutral(model)[start : start + 4], [0, 0, 0, 1])


def test_a_checked_model_has_the_tree_definition_of_any_other():
    """The result of a check is not stored in the model, which would then be traced again."""
    model = zoo.build(["free_flyer", "revolute"], [-1, 0])
    before = jax.tree.structure(model)
    rbd.integrate(model, rbd.neutral(model), jnp.zeros(model.nv))
    assert jax.tree.structure(model) == before
    jax.tree.map(jnp.add, model, jax.tree.map(jnp.asarray, model))
    known_models = len(arguments._quaternion_cache)
    del model
    gc.collect()
    assert len(arguments._quaternion_cache) < known_models


def test_values_that_are_known():
    numbers = [1, 2.5, True, np.float32(3), np.ones(2), jnp.ones(2), [1.0, 2.0], (1.0, 2.0)]
    for x in numbers:
        np.testing.assert_array_equal(arguments.known(x), x)
    for x in (None, "text", ((1.0,), 2.0), [1.0, "text"]):
        assert arguments.known(x) is None
    seen = []
    jax.jit(lambda x: seen.append(arguments.known(x)))(jnp.ones(2))
    jax.vmap(lambda x: seen.append(arguments.known(x)))(jnp.ones(2))
    jax.grad(lambda x: (seen.append(arguments.known(x)), x)[1])(1.0)
    assert seen == [None] * 3


@functools.partial(arguments.compiled, checks={"dt": arguments.POSITIVE})
def scaled(model, dt, share=1.0):
    """A function with a requirement."""
    return arguments.POSITIVE.or_nan(jnp.asarray(dt)) * share


@pytest.mark.gives_nan
@pytest.mark.parametrize("dt", [0.0, -1, np.nan, np.array(-2.0), jnp.array(-0.0)])
def test_a_value_that_does_not_satisfy_a_requirement(dt):
    for call in (lambda: scaled(None, dt), lambda: scaled(None, dt=dt)):
        with pytest.raises(
            rbd.ArgumentError, match=r"^dt is .*, expected a finite number above 0$"
        ):
            call()
    assert np.isnan(jax.jit(scaled)(None, dt))


def test_a_value_that_satisfies_a_requirement():
    assert scaled(None, 0.5) == 0.5
    assert jax.jit(scaled)(None, 0.5) == 0.5
    arguments.FRACTION("e", np.array([0.0, 0.3, 1.0]))
    arguments.NOT_NEGATIVE("e", np.array(0))
    for requirement, value in ((arguments.FRACTION, 1.1), (arguments.NOT_NEGATIVE, -1e-9)):
        with pytest.raises(rbd.ArgumentError, match=f"^e is {value}, expected {requirement[0]}$"):
            requirement("e", np.array(value))


def test_a_checked_function_is_a_jitted_function():
    """It has the documentation and the methods of a jitted function, and it is traced once."""
    traces = []

    @arguments.compiled(static_argnames="power")
    def root(q, power=2):
        """Documented."""
        traces.append(power)
        return q ** (1 / power)

    assert root.__doc__ == "Documented."
    assert list(inspect.signature(root).parameters) == ["q", "power"]
    for _ in range(3):
        assert root(jnp.array([4.0]), power=2) == 2
    assert traces == [2]
    assert root.lower(jnp.array([4.0])).compile()(jnp.array([9.0])) == 3
    assert root.eval_shape(jnp.array([4.0])).shape == (1,)
    # A transformed function has the methods of JAX.
    mapped = jax.jit(jax.vmap(root)).lower(jnp.array([4.0, 9.0])).compile()
    np.testing.assert_array_equal(mapped(jnp.array([4.0, 9.0])), [2, 3])
    assert pickle.loads(pickle.dumps(rbd.crba)) is copy.deepcopy(rbd.crba) is rbd.crba
    with pytest.raises(KeyError):
        arguments.compiled(lambda q: q, checks={"nothing": arguments.POSITIVE})


def test_the_hundredth_call_traces_no_more_than_the_first():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def program(model, q, v, a):
        return rbd.rnea(model, q, v, a)

    model = zoo.small()
    q, v, a, _ = zoo.state(model)
    for k in range(100):
        program(model, q + k, v, a)


def test_an_equal_model_built_again_is_not_traced_again():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def program(model, q):
        return rbd.crba(model, q)

    for _ in range(3):
        model = zoo.build(["free_flyer", "revolute"], [-1, 0])
        program(model, rbd.neutral(model))


def functions_of_a_frame():
    """The public functions with an argument `frame`, by name, and their other arguments."""
    model = rbd.load_robot("arm7")
    values = {
        "model": model,
        "wrench": jnp.ones(6),
        "point": jnp.ones(3),
        "ground": contact.Plane(),
        "pattern": jnp.zeros((1, 2)),
        **{name: jnp.ones(7, model.dtype) for name in ("q", "v", "a")},
    }
    found = {}
    for name, function in {**vars(rbd), **vars(rbd.algorithms), **vars(sensors)}.items():
        names = (
            inspect.signature(function).parameters if callable(function) and name.islower() else ()
        )
        if "frame" in names:
            given = {name: values[name] for name in names if name in values}
            found[name] = function, given, "reference" in names
    return found


FRAME_FUNCTIONS = """
    external_force frame_acceleration frame_acceleration_derivatives frame_jacobian
    frame_jacobian_dot frame_placement frame_velocity frame_velocity_derivatives height_scan imu
    point_jacobian projected_gravity
""".split()


def test_the_functions_of_a_frame_are_listed():
    assert sorted(functions_of_a_frame()) == FRAME_FUNCTIONS


@pytest.mark.parametrize("name", FRAME_FUNCTIONS)
def test_a_wrong_frame_or_reference_is_refused(name):
    function, given, has_reference = functions_of_a_frame()[name]
    for frame in (None, True, 1.0, jnp.array(1)):
        with pytest.raises(rbd.ArgumentError, match="frame"):
            function(**given, frame=frame)
    for frame in ("base", "tool") if has_reference else ():
        with pytest.raises(rbd.ArgumentError, match="reference is 'bogus'"):
            function(**given, frame=frame, reference="bogus")
