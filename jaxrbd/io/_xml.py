"""Robot files as strict XML: elements, attributes, numbers, and faults with their lines.

Robot files can come from untrusted sources. The parser rejects a DOCTYPE, so a file cannot define
entities. It has no network access, does not recover from errors of syntax, and rejects elements
nested more than 256 deep.

A fault is a `RobotFileError`. At a fault the reader adds the error to a list and continues, so one
pass finds several faults of a file. The caller raises the first error or lists all errors.
`parse_document` raises its errors at once, because there is no document to read.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, RobotFileError

# Only the functions that read a file import lxml: `import jaxrbd` must not import it.
if TYPE_CHECKING:
    from lxml.etree import XMLParser, _Element as Element
else:
    Element = Any

# The possessive quantifiers prevent backtracking in a long prolog without a DOCTYPE.
_PROLOG = r"(?:\s++|<\?.*?\?>|<!--.*?-->)*+"
_DOCTYPE = re.compile(_PROLOG + "<!DOCTYPE", re.DOTALL)
_FIRST_TAG = re.compile(_PROLOG + r"<([\w.:-]+)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


class NotWellFormedError(RobotFileError):
    """A file is not well-formed XML."""


@dataclasses.dataclass
class Document:
    """A parsed robot file: its name, its outermost element `root`, and the `faults` found so far.

    The line of an element is the line on which its start tag ends. Beyond line 65,535, the limit of
    libxml2, the reported line can be too large by one. The methods that read values accept None for
    an absent element, and then return the default, or None if they have no default.
    """

    file: str
    root: Element
    faults: list[RobotFileError] = dataclasses.field(default_factory=list)

    def by_name(self, tag: str) -> dict[str, Element]:
        """The children of the root with a tag, by name; a name that occurs twice is a fault."""
        found: dict[str, Element] = {}
        for element in self.children(self.root, tag):
            name = self.name(element)
            if name in found:
                self.fault(element, f"the {tag} on line {found[name].sourceline} has the same name")
            elif name is not None:
                found[name] = element
        return found

    def fault(self, element: Element, message: str) -> None:
        """Add a fault of `element`; the message names the link or joint around this element."""
        owner = self._owner(element)
        name = None if owner is None else owner.get("name")
        shown = name if name is None else clip(name, 120)
        who = "" if owner is None else f"{written_name(owner)} {shown!r}: "
        self.faults.append(
            RobotFileError(
                who + message,
                file=self.file,
                line=element.sourceline,
                **({} if owner is None else {written_name(owner): name}),
            )
        )

    def children(self, element: Element, tag: str) -> list[Element]:
        """The direct children called `tag`, in the order of the file."""
        return [child for child in element if written_name(child) == tag]

    def child(self, element: Element, tag: str, *, required: bool = False) -> Element | None:
        """The first child called `tag`, or None.

        A second child with this tag is a fault. A missing child is a fault if `required`.
        """
        found = self.children(element, tag)
        for extra in found[1:]:
            self.fault(extra, f"<{tag}> is given twice, first on line {found[0].sourceline}")
        if required and not found:
            self.fault(element, f"<{tag}> is missing")
        return found[0] if found else None

    def text(
        self, element: Element | None, attribute: str, *, required: bool = False
    ) -> str | None:
        """The text of an attribute; None if it is absent or holds an xacro expression.

        An xacro expression is a fault, and so is a missing attribute if `required`.
        """
        if element is None:
            return None
        text = element.get(attribute)
        if text is None:
            if required:
                self.fault(element, f"<{written_name(element)}> has no attribute {attribute!r}")
            return None
        if "${" in text or "$(" in text:
            self._attribute_fault(element, attribute, text, xacro_advice(self.file))
            return None
        return text

    def name(self, element: Element | None, attribute: str = "name") -> str | None:
        """The text of a required attribute; None at a fault. A blank text is a fault."""
        text = self.text(element, attribute, required=True)
        if text is not None and not text.strip():
            self._attribute_fault(element, attribute, text, "a name may not be empty")
            return None
        return text

    def numbers(
        self,
        element: Element | None,
        attribute: str,
        default: tuple[float, ...],
        *,
        required: bool = False,
        minimum: float = -math.inf,
    ) -> tuple[float, ...]:
        """The finite values in an attribute, separated by blanks.

        The result is `default` if the attribute is absent, and at a fault. The attribute must have
        as many values as `default`, each at least `minimum`.
        """
        text = self.text(element, attribute, required=required)
        if text is None:
            return default
        words = text.split()
        wrong = _number_fault(words, len(default), minimum)
        if wrong is None:
            return tuple(float(word) for word in words)
        self._attribute_fault(element, attribute, text, wrong)
        return default

    def number(
        self,
        element: Element | None,
        attribute: str,
        default: float,
        *,
        required: bool = False,
        minimum: float = -math.inf,
    ) -> float:
        """The single finite value in an attribute; see `numbers`."""
        (value,) = self.numbers(element, attribute, (default,), required=required, minimum=minimum)
        return value

    def _attribute_fault(self, element: Element, attribute: str, text: str, wrong: str) -> None:
        self.fault(element, f'<{written_name(element)} {attribute}="{clip(text)}">: {wrong}')

    def _owner(self, element: Element) -> Element | None:
        for ancestor in (element, *element.iterancestors()):
            if written_name(ancestor) in ("link", "joint") and ancestor.get("name"):
                return ancestor
        return None


def parse_document(path_or_text: str | os.PathLike[str]) -> Document:
    """The document in a file, or in a string that starts with '<' after blanks.

    Raises `RobotFileError` for a file that cannot be read, is empty, is not UTF-8, is not
    well-formed, has a DOCTYPE, or is unexpanded xacro: it has elements of xacro, or its name ends
    in ".xacro".
    """
    import lxml.etree as etree  # pyright finds the compiled module only in this form

    file, text = _read(path_or_text)
    if not text.strip():
        raise RobotFileError("the file is empty", file=file, line=1)
    if doctype := _DOCTYPE.match(text):
        line = 1 + text.count("\n", 0, doctype.end())
        raise RobotFileError("a robot file may not have a DOCTYPE", file=file, line=line)
    try:
        root = etree.fromstring(text.encode("utf-8", "surrogatepass"), _strict_parser())
    except etree.XMLSyntaxError as error:
        what = error.msg.partition(", line ")[0].strip()
        message = xacro_advice(file) if "xacro" in what else f"not well-formed XML: {what}"
        raise NotWellFormedError(message, file=file, line=error.lineno) from error
    if root.getroottree().docinfo.internalDTD is not None:  # in case the pattern missed it
        raise RobotFileError("a robot file may not have a DOCTYPE", file=file, line=1)
    for element in root.iter():
        namespace, _, _ = element.tag.rpartition("}")
        if element.prefix == "xacro" or "xacro" in namespace:
            raise RobotFileError(xacro_advice(file), file=file, line=element.sourceline)
    if file.endswith(".xacro"):
        raise RobotFileError(xacro_advice(file), file=file, line=root.sourceline)
    return Document(file, root)


def first_tag(path_or_text: str | os.PathLike[str]) -> str | None:
    """The tag of the first element of a text that need not be well-formed; None without a tag.

    Raises `RobotFileError` for a file that cannot be read or is not UTF-8.
    """
    _, text = _read(path_or_text)
    found = _FIRST_TAG.match(text)
    return found.group(1) if found else None


def large_root(data: bytes) -> Element:
    """The outermost element of an XML file that may have long texts, such as a COLLADA file.

    The parser has no network access and does not recover from errors of syntax. Raises ValueError
    for a file that is not well-formed, and for a DOCTYPE.
    """
    import lxml.etree as etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, recover=False, huge_tree=True
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"not well-formed XML: {error.msg}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise ValueError("the file may not have a DOCTYPE")
    return root


def xacro_advice(file: str) -> str:
    """The message for a file of xacro, with the command that expands it to another file."""
    source, target = "FILE", "robot.urdf"
    if file != "<string>":
        path = Path(file)
        name = path.name.removesuffix(".xacro")
        stem, suffix = os.path.splitext(name)
        if name == path.name:  # the command may not overwrite its source
            stem += "_expanded"
        expanded = path.with_name(f"{stem}{suffix or '.urdf'}")
        source, target = shlex.quote(file), shlex.quote(str(expanded))
    return f"this is xacro, not yet a robot: expand it first with `xacro {source} > {target}`"


def written_name(element: Element) -> str:
    """The tag as written in the file: with its prefix, if any, and without a default namespace."""
    name = element.tag.rpartition("}")[2]
    return name if element.prefix is None else f"{element.prefix}:{name}"


def _strict_parser() -> XMLParser:
    import lxml.etree as etree

    return etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        recover=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def _read(path_or_text: str | os.PathLike[str]) -> tuple[str, str]:
    """The name of the file for messages, and its text."""
    if not isinstance(path_or_text, (str, os.PathLike)):
        raise ArgumentError(
            f"path_or_text: expected a path or a text, found {type(path_or_text).__name__}"
        )
    if isinstance(path_or_text, str) and path_or_text.lstrip("\ufeff \t\r\n").startswith("<"):
        return "<string>", path_or_text.removeprefix("\ufeff")
    file = clip(str(path_or_text), 240)
    try:
        data = Path(path_or_text).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RobotFileError(f"the file cannot be read: {why}", file=file) from error
    try:
        return file, data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        byte = data[error.start]
        raise RobotFileError(
            f"byte 0x{byte:02x} is not UTF-8 text", file=file, line=line
        ) from error


def _number_fault(words: list[str], count: int, minimum: float) -> str | None:
    """The reason why `words` are not `count` finite numbers of at least `minimum`, or None."""
    for word in words:
        if not _NUMBER.fullmatch(word) and not _NOT_FINITE.fullmatch(word):
            return f"{clip(word)!r} is not a number"
    if len(words) != count:
        return f"expected {count} number{'s' * (count > 1)}, found {len(words)}"
    for word in words:
        if not math.isfinite(float(word)):
            return f"{clip(word)!r} is not finite"
        if float(word) < minimum:
            return f"expected at least {minimum:g}"
    return None


def clip(text: str, length: int = 60) -> str:
    """The text, cut to `length` characters, for a message."""
    return text if len(text) <= length else text[: length - 3] + "..."
