"""Install a wheel in a new environment, away from the checkout, and run the README with it.

    python .ci/check_wheel.py dist/jaxrbd-VERSION-py3-none-any.whl

The steps: the first command of the README, with the wheel in place of the folder; the version and
the place of the imported package; the example of the README; and the command that the error about a
missing package states.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

README = pathlib.Path(__file__).parents[1] / "README.md"
PROGRAMS = "Scripts" if os.name == "nt" else "bin"  # the folder of an environment


def blocks(language: str) -> list[str]:
    """The blocks of code of the README in one language."""
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def words(command: str, wheel: pathlib.Path) -> list[str]:
    """The words of a command of the README, with the wheel and the programs of this platform."""
    names = {"python3": sys.executable, ".[cli]": f"{wheel}[cli]"}
    found = [names.get(word, word) for word in shlex.split(command)]
    return [found[0].replace(".venv/bin", os.path.join(".venv", PROGRAMS)), *found[1:]]


def main(wheel: pathlib.Path) -> None:
    """Raises CalledProcessError or AssertionError at the first step that fails."""
    environment = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        programs = folder / ".venv" / PROGRAMS

        def run(*command: str, **options) -> subprocess.CompletedProcess:
            print("==", shlex.join(command)[:200], flush=True)
            # A path of a program in the folder is relative to the folder, also on Windows.
            head = str(folder / command[0]) if command[0].startswith(".venv") else command[0]
            return subprocess.run(
                [head, *command[1:]], cwd=folder, env=environment, text=True, **options
            )

        for command in blocks("sh")[0].split("&&"):
            run(*words(command, wheel), check=True)

        code = "import jaxrbd; print(jaxrbd.__version__); print(jaxrbd.__file__)"
        found = run(str(programs / "python"), "-c", code, check=True, capture_output=True)
        version, place = found.stdout.splitlines()
        assert f"-{version}-" in wheel.name, (version, wheel.name)
        assert pathlib.Path(place).resolve().is_relative_to(folder), place

        (example,) = blocks("python")
        run(str(programs / "python"), "-c", example, check=True)

        page = [str(programs / "jaxrbd"), "view", "pendulum", "--html", "pendulum.html"]
        refused = run(*page, capture_output=True)
        print(refused.stderr, end="")
        assert refused.returncode == 1, refused
        pip, *packages = shlex.split(refused.stderr.partition(": pip ")[2])
        run(str(programs / "python"), "-m", "pip", pip, "-q", *packages, check=True)
        run(*page, check=True)
    print("ok:", wheel.name)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
