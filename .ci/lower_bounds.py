"""Print, for pip, the lower bounds that pyproject.toml states as exact versions.

With names of packages as arguments, those alone.
"""

import pathlib
import sys
import tomllib

PYPROJECT = pathlib.Path(__file__).parents[1] / "pyproject.toml"


def lower_bounds(names: list[str]) -> list[str]:
    """Such as "jax==0.8"; of the dependencies and of the extra `cli`."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    stated = project["dependencies"] + project["optional-dependencies"]["cli"]
    bounds = {line.partition(">=")[0]: line.replace(">=", "==") for line in stated}
    return [bounds[name] for name in names or bounds]


if __name__ == "__main__":
    print(*lower_bounds(sys.argv[1:]))
