"""How Sphinx builds the pages: `scripts/docs` runs it, with warnings as errors."""

import re
from importlib import metadata

project = "robot-runtime"
author = "the authors of robot-runtime"
version = release = metadata.version("robot-runtime")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "robot-runtime"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
highlight_language = "none"
default_role = "literal"  # one backtick in a docstring is code, as in the pages
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "separated"

_CODE = re.compile(r"(`[^`]*`)")
_DRAWN = re.compile(r"^ {4}|\S {3,}\S|\|-|─", re.MULTILINE)
_ITEM = re.compile(r"(\w+(?:, \w+)*): ")
_MODULE = re.compile(r"~?(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")


def _as_plain_text(app, what, name, obj, options, lines: list[str]) -> None:
    """Make RST of a docstring, which here is plain text with `code`, drawings and lists of arguments.

    Outside backticks nothing is markup. A paragraph with columns or lines of its own is shown as it is
    written; one that begins with a name and a colon is a list, with what is indented below an item.
    """
    paragraphs = [text.split("\n") for text in re.split(r"\n\s*\n", "\n".join(lines).strip())]
    lines[:] = [line for paragraph in paragraphs for line in (*_paragraph(paragraph), "")]


def _paragraph(lines: list[str]) -> list[str]:
    if _ITEM.match(lines[0]) and not any("   " in line.strip() for line in lines):
        return [_item(line) for line in lines]
    if _DRAWN.search("\n".join(lines)):
        return ["::", "", *(f"    {line}" for line in lines)]
    return [_escaped(line) for line in lines]


def _item(line: str) -> str:
    if (name := _ITEM.match(line)) is None:
        return f"  {_escaped(line.strip())}"
    return f"- *{name[1]}*: {_escaped(line[name.end() :])}"


def _escaped(line: str) -> str:
    parts = _CODE.split(line)
    return "".join(part if part[:1] == "`" else re.sub(r"([*|]|_(?!\w))", r"\\\1", part) for part in parts)


def _without_modules(app, what, name, obj, options, signature, returned):
    """Of a class whose defaults Python cannot show, types come with their modules: too long to read."""
    if signature is None or "<factory>" not in signature:
        return None
    return _MODULE.sub("", signature).replace("<factory>", "..."), returned


def setup(app) -> None:
    app.connect("autodoc-process-docstring", _as_plain_text)
    app.connect("autodoc-process-signature", _without_modules)
