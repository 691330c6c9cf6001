"""The command `jaxrbd`: simulate, time and view robots, check and convert files, train policies."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import jax

from .. import __version__
from ..errors import (
    ArgumentError,
    ContactWarning,
    GeometryWarning,
    InertiaWarning,
    JaxRBDError,
    ModelError,
    RobotFileError,
)
from ..io._sealed import replace_file
from ..io.model_file import load_model, save_model
from ..io.mujoco import Imported, inspect_mjcf, is_mjcf, load_mjcf
from ..io.urdf import inspect_urdf, load_urdf
from ..io.urdf_writer import save_urdf
from ..learning import task_names
from ..model import Model
from ..model.names import similar_names
from ..robots import load_robot, robot_names, robot_path
from ..view import LAYERS, render, save_html, serve
from . import (
    bench_command as _bench_command,
    cache as _cache,
    rollout_command as _rollout_command,
    training_commands as _training_commands,
)
from .completion import SHELLS, commands_of, completion_script
from .overview import overview
from .png import png_bytes
from .reports import check_report, print_json, robot_report

_ROBOT = "name of a bundled robot, or a URDF file, an MJCF file, or a model file (.jaxrbd)"
_MODEL_FILE = ".jaxrbd"
# The options that stand for arguments of functions, in messages.
_OPTIONS = {
    "geometry": "--no-geometry",
    "packages": "--package NAME=DIR",
    "reorder": "--reorder",
    "unlimited": "--unlimited X",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    The status is 0 for success. It is 1 for an error, with a message of one line on standard error
    (for `jaxrbd convert`, of one line per fault), and for faults that `jaxrbd check` finds. It is
    130 after an interrupt from the keyboard, and 143 after SIGTERM during `jaxrbd train`.

    `argv`: the arguments of the program; None means the arguments of this process. Raises
    SystemExit for `--help` and `--version` (status 0) and for invalid options (status 2), as
    argparse does.
    """
    options, unknown = _parser().parse_known_args(argv)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        _check_folders(options)
        _cache.keep_programs(options)
        status = options.run(options)
        sys.stdout.flush()  # a closed pipe raises here, not at exit
        return status
    except (JaxRBDError, OSError, MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has ended
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        print(f"jaxrbd: error: {_error_message(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _one_line(message: object) -> str:
    return "; ".join(line.strip() for line in str(message).splitlines() if line.strip())


def _error_message(error: BaseException) -> str:
    """The message of an error in one line; for an error that states several, each in one line."""
    faults = error.faults if isinstance(error, ModelError) else ()
    if faults:
        head = str(error).splitlines()[0]
        return "\n  ".join([head, *(_error_message(fault) for fault in faults)])
    return _one_line(_with_option(error) if isinstance(error, JaxRBDError) else error)


def _with_option(problem: JaxRBDError | GeometryWarning) -> str:
    """A message with the option of the command in place of the argument of the function."""
    option = _OPTIONS.get(problem.argument or "")
    if option is None:
        return str(problem)
    return str(problem).replace(f"the argument `{problem.argument}`", f"the option {option}")


def _check_folders(options: argparse.Namespace) -> None:
    """Raise ArgumentError if the folder of a page or picture to write does not exist."""
    for name in ("html", "png"):
        folder = os.path.dirname(getattr(options, name, None) or "")
        if folder and not os.path.isdir(folder):
            raise ArgumentError(f"--{name}: the folder {folder!r} does not exist")


class _Parser(argparse.ArgumentParser):
    """A parser whose error about an unknown command names similar commands."""

    def error(self, message: str) -> NoReturn:
        found = re.search(r"argument COMMAND: invalid choice: '([^']*)'", message)
        hint = similar_names(found[1], list(commands_of(self))) if found else ""
        super().error(message + hint)


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """A formatter that shows the default of an option, if it is a value and not yet in its help."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        no_value = action.default is None or action.default is False or action.default == []
        if no_value or "(default: " in (action.help or ""):
            return action.help
        return super()._get_help_string(action)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="jaxrbd",
        description="Rigid-body dynamics for JAX.",
        epilog=(
            "exit status: 0 for success, 1 for an error or a fault in a file, 2 for invalid "
            "options, 130 after Ctrl-C, 143 for SIGTERM in `train`; example: jaxrbd info quadruped"
        ),
    )
    parser.add_argument("--version", action="version", version=f"jaxrbd {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_rollout(commands)
    _add_bench(commands)
    _add_info(commands)
    _add_check(commands)
    _add_convert(commands)
    _add_view(commands)
    _add_train(commands)
    _add_play(commands)
    _add_completion(commands)
    for name in _cache.COMMANDS:
        _cache.add_option(commands.choices[name])
    for command in commands.choices.values():
        command.set_defaults(parser=command)  # prints the usage of the command after an error
    return parser


def _add_rollout(commands) -> None:
    command = commands.add_parser(
        "rollout",
        help="simulate a batch of random-torque trajectories and compute their gradients",
        description=(
            "Simulate a batch of trajectories under random joint torques, and compute the gradient "
            "of a cost of each trajectory with respect to its torques. Check the energy balance "
            "and the gradient. There is no ground: a robot with a free-flyer joint falls."
        ),
        epilog="example: jaxrbd rollout arm7 --batch 256 --dt 5e-4 --out arm",
        formatter_class=_HelpFormatter,
    )
    _add_robot(command, nargs="?", default="quadruped")
    add = command.add_argument
    add("--batch", type=_count, default=1024, metavar="N", help="number of trajectories")
    add("--steps", type=_count, default=100, metavar="N", help="time steps per trajectory")
    add("--dt", type=_positive, default=2e-3, metavar="S", help="length of a step in seconds")
    add("--torque", type=_positive, default=0.1, metavar="F", help="fraction of the effort limits")
    add("--undamped", action="store_true", help="set the joint damping to zero")
    add("--seed", type=_seed, default=0, metavar="N", help="seed of the random numbers")
    add("--devices", type=_count, default=1, metavar="N", help="use N devices")
    add("--float32", action="store_true", help="single precision instead of double")
    add("--no-plot", action="store_true", help="write no plot (matplotlib is not needed)")
    add("--html", metavar="FILE", help="write a page that plays the first eight trajectories")
    _add_package(command)
    add("--out", metavar="DIR", help="output folder (default: rollout-ROBOT)")
    _add_json(command)
    command.set_defaults(run=_rollout)


def _add_bench(commands) -> None:
    command = commands.add_parser(
        "bench",
        help="measure the times of the algorithms for a robot on this machine",
        description=(
            "Compile each algorithm for a batch of random states, and measure the time per state. "
            "The compilation time is short if JAX finds the program in its compilation cache."
        ),
        epilog="example: jaxrbd bench arm7 --batch 256 --jobs rnea,forward_dynamics",
        formatter_class=_HelpFormatter,
    )
    _add_robot(command, nargs="?", default="quadruped")
    add = command.add_argument
    add("--batch", type=_count, default=64, metavar="N", help="number of states")
    jobs = tuple(_bench_command.JOBS)
    text = f"some of {', '.join(jobs)} (default: all)"
    add("--jobs", type=_some_of(jobs), metavar="A,B", help=text)
    add("--seconds", type=_positive, default=1.0, metavar="S", help="time of the calls of a job")
    add("--seed", type=_seed, default=0, metavar="N", help="seed of the random states")
    add("--float32", action="store_true", help="single precision instead of double")
    _add_json(command)
    command.set_defaults(run=_bench)


def _add_info(commands) -> None:
    command = commands.add_parser(
        "info",
        help="show a robot: joints, bodies, frames, tree",
        epilog="example: jaxrbd info robot.urdf --free-flyer",
    )
    _add_robot(command)
    _add_json(command)
    command.set_defaults(run=_info)


def _add_check(commands) -> None:
    command = commands.add_parser(
        "check",
        help="validate a robot file; exit status 1 if it has faults",
        epilog="example: jaxrbd check robot.urdf --strict",
    )
    _add_robot_name(command)
    _add_json(command)
    command.add_argument("--strict", action="store_true", help="exit status 1 for warnings, too")
    command.set_defaults(run=_check)


def _add_convert(commands) -> None:
    command = commands.add_parser(
        "convert",
        help="write a robot as a URDF file or as a model file of jaxrbd",
        description=(
            "Write a robot in another format: as a URDF file if OUT ends in .urdf, and as a model "
            "file of jaxrbd, which load_model reads, if OUT ends in .jaxrbd."
        ),
        epilog="example: jaxrbd convert robot.xml robot.urdf --unlimited 1000",
    )
    _add_robot(command)
    add = command.add_argument
    add("out", metavar="OUT", help="the file to write: NAME.urdf or NAME.jaxrbd")
    add(
        "--unlimited",
        type=_positive,
        metavar="X",
        help="the limit to write where URDF needs a limit and the robot has none",
    )
    add("--reorder", action="store_true", help="accept another order of joints in the URDF file")
    add("--no-geometry", action="store_true", help="write no shapes to the URDF file")
    command.set_defaults(run=_convert)


def _add_view(commands) -> None:
    command = commands.add_parser(
        "view",
        help="show a robot in the browser, or write a page or a picture of it",
        description=(
            "Show a robot in the browser, with a slider for each joint, until Ctrl-C. With --html "
            "or --png, write a file instead."
        ),
        epilog="example: jaxrbd view robot.urdf --png robot.png --layers visuals,frames",
    )
    _add_robot(command)
    add = command.add_argument
    add("--html", metavar="FILE", help="write a page that needs no server and no network")
    add("--png", metavar="FILE", help="write a picture")
    add(
        "--port",
        type=_port,
        default=8080,
        metavar="N",
        help="port of the server, or the next free port (8080)",
    )
    add(
        "--layers",
        type=_some_of(LAYERS),
        default=("visuals",),
        metavar="A,B",
        help=f"what is visible at the start: {', '.join(LAYERS)} (default: visuals)",
    )
    _add_package(command)
    command.set_defaults(run=_view)


def _add_train(commands) -> None:
    command = commands.add_parser(
        "train",
        help="train a policy for a task",
        description=(
            "Train a policy. The folder gets a checkpoint, the metrics of each update (one line of "
            "JSON each), and a picture of the learning curve. Ctrl-C and SIGTERM write a "
            "checkpoint of the last complete update, so that --resume continues after it."
        ),
        epilog="example: jaxrbd train cart-pole --seed 3 --out trained",
    )
    add = command.add_argument
    add("task", metavar="TASK", help=f"one of {', '.join(task_names())}")
    add("--algorithm", default="shac", metavar="NAME", help="shac (default), apg or ppo")
    add("--seed", type=_seed, default=0, metavar="N", help="seed of the random numbers")
    add("--steps", type=_count, metavar="N", help="steps of all environments (default: by task)")
    add("--every", type=_count, default=25, metavar="N", help="updates per checkpoint (25)")
    add("--resume", action="store_true", help="continue from the checkpoint in the output folder")
    add("--no-plot", action="store_true", help="draw no curve (matplotlib is not needed)")
    add("--out", metavar="DIR", help="output folder (default: train-TASK-NAME)")
    command.set_defaults(run=_train)


def _add_play(commands) -> None:
    command = commands.add_parser(
        "play",
        help="run the policy of a checkpoint without noise",
        epilog="example: jaxrbd play trained/checkpoint.jaxrbd --html motion.html",
    )
    add = command.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="a file of `jaxrbd train`")
    add("--episodes", type=_count, default=64, metavar="N", help="number of episodes")
    add("--html", metavar="FILE", help="write a page that plays eight episodes")
    add("--png", metavar="FILE", help="write eight postures of one episode as a PNG file")
    add("--seed", type=_seed, default=0, metavar="N", help="seed of the starts")
    command.set_defaults(run=_play)


def _add_completion(commands) -> None:
    command = commands.add_parser(
        "completion",
        help="print a script for tab completion in a shell",
        epilog="example: jaxrbd completion bash > jaxrbd.sh && source jaxrbd.sh",
    )
    command.add_argument("shell", choices=SHELLS, help="the shell")
    command.set_defaults(
        run=lambda options: print(completion_script(_parser(), options.shell)) or 0
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--json", action="store_true", help="print one JSON object, and nothing else, to the output"
    )


def _add_package(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--package",
        action="append",
        default=[],
        type=_package,
        metavar="NAME=DIR",
        help="the folder of a ROS package that package:// URIs of meshes name; may be repeated",
    )


def _add_robot_name(command: argparse.ArgumentParser, **kwargs) -> None:
    command.add_argument("robot", metavar="ROBOT", help=_ROBOT, **kwargs)


def _add_robot(command: argparse.ArgumentParser, **kwargs) -> None:
    _add_robot_name(command, **kwargs)
    command.add_argument(
        "--free-flyer",
        action="store_true",
        help="connect the root link to the world by a free-flyer joint; for URDF files",
    )


def _rollout(options: argparse.Namespace) -> int:
    # The gradient check needs double precision, also if the rollout uses single precision.
    jax.config.update("jax_enable_x64", True)
    devices = _rollout_command.first_devices(options.devices)
    model = _load_in_precision(options)
    with _said_warnings():
        return _report(options, lambda: _rollout_command.run(model, options, devices))


def _bench(options: argparse.Namespace) -> int:
    jax.config.update("jax_enable_x64", True)
    model = _load_in_precision(options)
    return _report(options, lambda: _bench_command.run(model, options))


def _report(options: argparse.Namespace, run: Callable[[], dict[str, Any]]) -> int:
    """Run a command; with `--json`, its object is the only output, and its text an error output."""
    if not options.json:
        run()
        return 0
    with contextlib.redirect_stdout(sys.stderr):
        report = run()
    print_json(report)
    return 0


def _train(options: argparse.Namespace) -> int:
    return _training_commands.train(options)


def _play(options: argparse.Namespace) -> int:
    _training_commands.play(options)
    return 0


def _info(options: argparse.Namespace) -> int:
    if options.json:
        jax.config.update("jax_enable_x64", True)  # JSON has all digits
    model = _load(options.robot, options.free_flyer)
    if options.json:
        print_json(robot_report(model))
    else:
        print(overview(model))
    return 0


def _check(options: argparse.Namespace) -> int:
    path = _find(options.robot)
    faults, warned = _inspect(path)
    refused = bool(faults or (warned and options.strict))
    if options.json:
        print_json(check_report(path, faults, warned, refused))
        return int(refused)
    for found in [*faults, *warned]:
        print(_one_line(found))
    counts = ((len(faults), "fault"), (len(warned), "warning"))
    summary = ", ".join(f"{n} {what}{'s' * (n > 1)}" for n, what in counts if n)
    if refused:
        print(f"{path}: {summary}")
    else:
        print(f"ok: {path}" + f" ({summary})" * bool(warned))
    return int(refused)


def _load_model_file(path: str) -> Model:
    jax.config.update("jax_enable_x64", True)  # the file may have double precision
    return load_model(path)


def _inspect(path: str) -> tuple[list[RobotFileError], list[RobotFileError]]:
    """The faults and the warnings of a file. Raises SavedFileError for a bad model file."""
    if path.endswith(_MODEL_FILE):
        _load_model_file(path)
        return [], []
    return inspect_mjcf(path) if is_mjcf(path) else inspect_urdf(path)


def _convert(options: argparse.Namespace) -> int:
    jax.config.update("jax_enable_x64", True)  # files have all digits
    ending = os.path.splitext(options.out)[1]
    if ending not in (".urdf", _MODEL_FILE):
        raise ArgumentError(
            f"OUT is {options.out!r}, expected a name that ends in .urdf or .jaxrbd"
        )
    if os.path.exists(options.out) and os.path.samefile(_find(options.robot), options.out):
        raise ArgumentError(f"OUT is {options.out!r}, which is the file of the robot")
    model = _load(options.robot, options.free_flyer)
    if ending == _MODEL_FILE:
        save_model(model, options.out)
    else:
        save_urdf(
            model,
            options.out,
            unlimited=options.unlimited,
            reorder=options.reorder,
            geometry=not options.no_geometry,
        )
    print(f"ok: {options.out}")
    return 0


def _view(options: argparse.Namespace) -> int:
    model = _load(options.robot, options.free_flyer)
    arguments = {"layers": options.layers, "packages": dict(options.package)}
    with _said_warnings():
        if options.html:
            save_html(options.html, model, **arguments)
            print(f"ok: {options.html}")
        if options.png:
            replace_file(options.png, png_bytes(render(model, **arguments)))
            print(f"ok: {options.png}")
        if options.html or options.png:
            return 0
        with serve(model, port=options.port, **arguments) as viewer:
            print(f"{model.name}: {viewer.url} (Ctrl-C ends)", flush=True)
            viewer.wait()
    return 0


@contextlib.contextmanager
def _said_warnings() -> Iterator[None]:
    """Print every warning in the block in the form of the messages of the command.

    Only the first warning about a mesh lists the places of the search: a robot has many meshes.
    """
    said: list[str] = []

    def say(message: Warning | str, *_: object, **__: object) -> None:
        text = _with_option(message) if isinstance(message, GeometryWarning) else str(message)
        if said:
            text = text.partition("; looked for:\n")[0]
        said.append(text)
        print(f"jaxrbd: warning: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", GeometryWarning)
        warnings.showwarning = say
        yield


def _load_in_precision(options: argparse.Namespace) -> Model:
    model = _load(options.robot, options.free_flyer)
    return model.astype("float32") if options.float32 else model


def _load(robot: str, free_flyer: bool) -> Model:
    """The model of a bundled robot or of a file; warnings go to standard error."""
    path = _find(robot)
    if path.endswith(_MODEL_FILE):
        if free_flyer:
            raise ArgumentError(
                f"{path}: --free-flyer is for URDF files; a model file has its joints"
            )
        return _load_model_file(path)
    mjcf = is_mjcf(path)
    if mjcf and free_flyer:
        raise ArgumentError(f"{path}: --free-flyer is for URDF files; an MJCF file has its joints")
    omitted: tuple[str, ...] = ()
    left_out = ""
    with warnings.catch_warnings(record=True) as caught:
        for category in (InertiaWarning, ContactWarning):
            warnings.simplefilter("always", category)
        if robot in robot_names() and not free_flyer:
            model = load_robot(robot)
        elif mjcf:
            found = load_mjcf(path, strict=False)
            model, omitted, left_out = found.model, found.omitted, _left_out(found)
        else:
            model = load_urdf(path, root_joint="free_flyer" if free_flyer else None)
    for warning in caught:
        print(f"jaxrbd: warning: {warning.message}", file=sys.stderr)
    for feature in omitted:
        print(f"jaxrbd: warning: {path}: no counterpart for {feature}", file=sys.stderr)
    if left_out:
        print(f"jaxrbd: warning: {path}: left out: {left_out}", file=sys.stderr)
    return model


def _left_out(found: Imported) -> str:
    """The parts of an MJCF file that are not in its `Model`, with their counts."""
    scene, springs = found.scene, found.springs
    counts = {
        "actuator": len(found.actuators.joints),
        "contact point": 0 if scene is None else len(scene.frames),
        "pair of shapes": len(found.pairs),
        "spring": len(springs.joints) + len(springs.balls),
        "constraint": len(found.constraints) + len(found.inactive_constraints),
        "keyframe": len(found.keyframes),
    }
    words = (f"{n} {_plural(what, n)}" for what, n in counts.items() if n)
    return ", ".join(words)


def _plural(noun: str, count: int) -> str:
    head, blank, rest = noun.partition(" of ")
    return noun if count == 1 else f"{head}s{blank}{rest}"


def _find(robot: str) -> str:
    """The path of a bundled robot, or the given path. Raises ArgumentError if neither exists."""
    if robot in robot_names():
        return str(robot_path(robot))
    if not os.path.isfile(robot):
        raise ArgumentError(_not_found(robot))
    return robot


def _not_found(robot: str) -> str:
    """The message for a robot that is neither a bundled robot nor a file."""
    if os.path.isdir(robot):
        return f"{robot!r} is a folder, expected a file"
    if os.path.splitext(robot)[1].lower() in (".urdf", ".xml", ".mjcf", ".jaxrbd"):
        return f"file not found: {robot!r}"
    hint = similar_names(robot, robot_names())
    return f"no file and no bundled robot {robot!r}; bundled: {', '.join(robot_names())}{hint}"


def _package(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"expected NAME=DIR, found {text!r}")
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"{folder!r} is no folder")
    return name, folder


def _some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A parser of names that commas separate. It refuses a name that is not known."""

    def names(text: str) -> tuple[str, ...]:
        for name in (found := tuple(text.split(","))):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r}, expected some of {', '.join(known)}")
        return found

    return names


def _count(text: str) -> int:
    value = _number(text, int, "a whole number")
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return value


def _seed(text: str) -> int:
    value = _number(text, int, "a whole number")
    if not -(2**63) <= value < 2**63:
        raise argparse.ArgumentTypeError(f"expected a whole number of 64 bits, found {text}")
    return value


def _port(text: str) -> int:
    value = _number(text, int, "a whole number")
    if not 1 <= value < 2**16:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 65535, found {text}")
    return value


def _positive(text: str) -> float:
    value = _number(text, float, "a positive number")
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number, found {text}")
    return value


def _number(text: str, kind: type, expected: str):
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}") from None
