"""A hook of MkDocs: it adds files outside `docs/` to the site and adapts the links between pages.

The documents link to each other by their paths in the repository, so that the links work there too.
This hook replaces these links by links of the site. A notebook becomes a page with its stored
outputs; no cell is executed. The gallery gets a page that plays each of its motions, if viser is
installed.
"""

import ast
import base64
import hashlib
import importlib.util
import json
import pathlib
import posixpath
import re
import shutil

ROOT = pathlib.Path(__file__).parents[1]

# files of the repository and their places in the site
PLACES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "LICENSE.txt",
    "benchmarks/README.md": "benchmarks/index.md",
    "benchmarks/RESULTS.md": "benchmarks/results.md",
    "benchmarks/NOTES.md": "benchmarks/notes.md",
    "benchmarks/results.png": "benchmarks/results.png",
    "benchmarks/conformance/README.md": "benchmarks/conformance/index.md",
    "benchmarks/conformance/RESULTS.md": "benchmarks/conformance/results.md",
    "tests/mutants/README.md": "mutants.md",
}
NOTEBOOKS = {
    path.relative_to(ROOT).as_posix(): f"notebooks/{path.stem}.md"
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
}
SOURCES = {place: source for source, place in (PLACES | NOTEBOOKS).items()}

# the pages whose names are links to the reference
INDICES = ("reference/index.md", "choose.md")

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
DIRECTIVE = re.compile(r"^::: (\S+)\n((?: +.*\n)*)", re.MULTILINE)
MEMBER = re.compile(r"^ +- (\w+)$", re.MULTILINE)


def on_files(files, config):
    """Add the files of PLACES and the notebooks."""
    from mkdocs.structure.files import File  # the tests use the rest of this module without MkDocs

    for source, place in PLACES.items():
        content = (ROOT / source).read_bytes()
        files.append(File.generated(config, place, content=content))
    for source, place in NOTEBOOKS.items():
        for added, content in notebook_files(ROOT / source, place).items():
            files.append(File.generated(config, added, content=content))
    for path in gallery_pages():
        files.append(File.generated(config, f"gallery/{path.name}", content=path.read_bytes()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Adapt the links of a page, and turn the names on the pages INDICES into links."""
    place = page.file.src_uri
    source = SOURCES.get(place, f"docs/{place}")
    if place in INDICES:
        paths = documented_names()
        markdown = re.sub(
            r"`([\w.]+)`",
            lambda name: f"[{name[0]}][{paths[name[1]]}]" if name[1] in paths else name[0],
            markdown,
        )
    if place == "gallery.md":
        for path in gallery_pages():
            picture = f"](gallery_{path.stem}.png)"
            markdown = markdown.replace(picture, f"{picture}\n\n[Play](gallery/{path.name})")
    return LINK.sub(lambda link: f"]({site_link(link[1], source, place)}{link[2] or ''})", markdown)


def site_link(target, source, place):
    """The link on the page at `place` for the link `target` in the file `source`."""
    if ":" in target:
        return target
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    found = (PLACES | NOTEBOOKS).get(path, path.removeprefix("docs/"))
    return posixpath.relpath(found, posixpath.dirname(place) or ".")


def directives():
    """Each module that a page of the reference documents, with the documented names, in order."""
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for module, options in DIRECTIVE.findall(page.read_text(encoding="utf-8") + "\n"):
            yield module, MEMBER.findall(options) or public_names(module)


def public_names(module):
    """`__all__` of a module, or else its public functions and classes, without importing it."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    definitions = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [node.name for node in definitions if not node.name.startswith("_")]


def documented_names():
    """The full path of each documented name, for each form of the name that the index can use.

    Examples of forms of `jaxrbd.algorithms.rnea.rnea` are `rnea` and `algorithms.rnea`.
    """
    paths = {}
    for module, names in directives():
        parts = module.split(".")[1:]
        for name in names:
            for n in range(len(parts) + 1):
                paths.setdefault(".".join([*parts[:n], name]), f"{module}.{name}")
    return paths


def gallery_pages():
    """The pages of the motions of docs/gallery.py; empty without viser.

    The pages stay in .cache until the script, its stored motions or the package change.
    """
    if importlib.util.find_spec("viser") is None:
        return []
    script = ROOT / "docs" / "gallery.py"
    stored = (ROOT / "docs" / "motions").glob("*.npy")
    sources = [*sorted(stored), *sorted((ROOT / "jaxrbd").rglob("*.py"))]
    seal = hashlib.sha256(b"".join(path.read_bytes() for path in [script, *sources])).hexdigest()
    folder = ROOT / ".cache" / f"gallery-{seal[:16]}"
    if not folder.exists():
        spec = importlib.util.spec_from_file_location(script.stem, script)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        unfinished = folder.with_suffix(".tmp")
        module.write_pages(unfinished)
        for old in (ROOT / ".cache").glob("gallery-????????????????"):
            shutil.rmtree(old)
        unfinished.replace(folder)
    return sorted(folder.glob("*.html"))


def notebook_files(path, place):
    """The page of a notebook and its pictures: a dict from the place in the site to the content."""
    files, blocks = {}, []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source)
            continue
        blocks.append(fenced(source, "python"))
        printed = ""
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{place.removesuffix('.md')}_{number}.png"
                files[picture] = base64.b64decode("".join(data["image/png"]))
                blocks.append(f"![The plot of the code above]({posixpath.basename(picture)})")
            else:
                text = output.get("text") or data.get("text/plain") or output.get("traceback", ())
                printed += "".join(text)
        if printed:
            blocks.append(fenced(printed, "text"))
    files[place] = "\n\n".join(blocks) + "\n"
    return files


def fenced(text, language):
    """A Markdown block of code."""
    return f"```{language}\n{text.rstrip()}\n```"
