"""`jaxrbd export`: the policy of a checkpoint as an ONNX file, for a controller on a robot."""

from __future__ import annotations

import argparse

from ..errors import ArgumentError
from ..learning import export_policy, load_training
from ..learning.policy_file import checked_paths
from . import parsing


def add_parser(commands) -> None:
    """Add the command `export` and its options to the commands."""
    command = commands.add_parser(
        "export",
        help="write the policy of a checkpoint as an ONNX file",
        description=(
            "Write the policy of a checkpoint, without noise, as an ONNX file, which contains the "
            "normalisation of the observation and, if the task states them, the center and the "
            "scale of the commands. A JSON file beside it, NAME.json, describes the "
            "observation, the actuators, the commands, the gains and the control rate."
        ),
        epilog="example: jaxrbd export trained/checkpoint.jaxrbd policy.onnx",
    )
    add = command.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="a file of `jaxrbd train`")
    add("out", metavar="OUT", help="the file to write: NAME.onnx")
    add(
        "--history",
        action="store_true",
        help="the file keeps the history of the observations, for a task that is a History",
    )
    parsing.add_no_cache(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the ONNX file and the JSON file of a policy, and return the exit status."""
    paths = checked_paths(options.out)
    training = load_training(options.checkpoint)
    for path in paths:
        if path.exists() and path.samefile(options.checkpoint):
            raise ArgumentError(f"OUT is {options.out!r}, but {path} is the checkpoint")
    export_policy(training, options.out, history=options.history)
    print(f"ok: {', '.join(map(str, paths))}")
    return 0
