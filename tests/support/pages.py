"""The program of a page of docs/: its blocks of code, and what its loops compile."""

import ast
import pathlib
import re

from .jax_events import work

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def blocks(page):
    """The blocks of code of the page with this name."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def repeats(node):
    """Whether a statement is a loop over periods or updates: `range(...)`, or `....run()`."""
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
        return False
    return ast.unparse(node.iter.func) == "range" or ast.unparse(node.iter.func).endswith(".run")


def run(page, names):
    """Execute the blocks, which define `names`: the number of the loops that repeat a program.

    The second iteration of such a loop, and all that follow, must not trace or compile.
    """
    found = 0
    for number, block in enumerate(blocks(page)):
        tree = ast.parse(block)
        with work() as events:
            counts = {}

            def count(line, events=events, counts=counts):
                counts.setdefault(line, []).append(len(events))

            names["_count_compilations"] = count
            for loop in filter(repeats, tree.body):
                call = ast.parse(f"_count_compilations({loop.lineno})").body
                loop.body += call
            exec(compile(ast.fix_missing_locations(tree), f"{page}, block {number}", "exec"), names)
        for line, after in counts.items():
            assert len(after) > 1, f"{page}, block {number}, line {line}: one iteration"
            assert len(set(after)) == 1, f"{page}, block {number}, line {line}: compiles again"
            found += 1
    del names["_count_compilations"]
    return found
