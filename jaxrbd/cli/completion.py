"""`jaxrbd completion`: scripts for tab completion, by the library shtab."""

from __future__ import annotations

import argparse

from ..errors import require_package
from ..learning import task_names
from ..robots import robot_names

SHELLS = ("bash", "zsh", "tcsh")
_BASH = """_jaxrbd_robots() {{
  compgen -W "{names}" -- "$1"
  compgen -f -- "$1"
}}
_jaxrbd_tasks() {{
  compgen -W "{tasks}" -- "$1"
}}"""
_ZSH = """_jaxrbd_robots() {{
  compadd {names}
  _files
}}
_jaxrbd_tasks() {{
  compadd {tasks}
}}"""


def add_parser(commands) -> None:
    """Add the command `completion` and its options to the commands."""
    command = commands.add_parser(
        "completion",
        help="print a script for tab completion in a shell",
        epilog="example: jaxrbd completion bash > jaxrbd.sh && source jaxrbd.sh",
    )
    command.add_argument("shell", choices=SHELLS, help="the shell")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script, and return the exit status.

    `options.main_parser` is the parser of the command `jaxrbd`.
    """
    print(completion_script(options.main_parser, options.shell))
    return 0


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script of a parser for one of `SHELLS`.

    Bash and zsh complete ROBOT to the names of the bundled robots and to files, tcsh only to files.
    All shells complete TASK to the names of the tasks. Raises ArgumentError, which states the
    command that installs shtab, if shtab is not installed.
    """
    require_package("shtab", "completion", "completion")
    import shtab

    names, tasks = " ".join(robot_names()), " ".join(task_names())
    for command in commands_of(parser).values():
        for action in command._actions:
            if action.metavar == "ROBOT":
                complete = {"bash": "_jaxrbd_robots", "zsh": "_jaxrbd_robots", "tcsh": "f"}
            elif action.metavar == "TASK":
                complete = {"bash": "_jaxrbd_tasks", "zsh": "_jaxrbd_tasks", "tcsh": f"({tasks})"}
            elif action.metavar in ("CHECKPOINT", "FILE", "OUT"):
                complete = shtab.FILE
            elif action.metavar == "DIR":
                complete = shtab.DIRECTORY
            else:
                continue
            action.complete = complete  # pyright: ignore[reportAttributeAccessIssue]
    preamble = {"bash": _BASH, "zsh": _ZSH}.get(shell, "").format(names=names, tasks=tasks)
    return shtab.complete(parser, shell, preamble=preamble)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands by name, for a parser that has commands."""
    (commands,) = (x for x in parser._actions if isinstance(x, argparse._SubParsersAction))
    return dict(commands.choices)
