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
default_role = "literal"  # one backtick in a docstring is code, as in the pages
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "separated"

_CODE = re.compile(r"(`[^`]*`)")
_ITEM = re.compile(r"(\w+(?:, \w+)*): ")


def _as_plain_text(app, what, name, obj, options, lines: list[str]) -> None:
    """Make RST of a docstring, which here is plain text with `code`, drawings and a list of arguments.

    Outside backticks nothing is markup. An indented block after an empty line is shown as it is written; a
    line that begins with a name and a colon is an item, with what is indented below it.
    """
    out: list[str] = []
    is_drawing = is_item = False
    for line in lines:
        is_indented, follows_empty = line.startswith("    "), not out or not out[-1].strip()
        if is_indented and follows_empty and not is_drawing:
            out += ["::", ""]
        is_blank = not line.strip()
        is_drawing = (is_indented and follows_empty) or (is_drawing and (is_indented or is_blank))
        if is_drawing:
            out.append(line)
        elif (item := _ITEM.match(line)) and (is_item or follows_empty):
            out += ["", f"- *{item[1]}*: {_escaped(line[item.end() :])}"]
        else:
            out.append(f"  {_escaped(line.strip())}" if is_item and is_indented else _escaped(line))
        is_item = bool(item) if (item := _ITEM.match(line)) else is_item and is_indented
    lines[:] = out


def _escaped(line: str) -> str:
    parts = _CODE.split(line)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*|]|_(?!\w))", r"\\\1", part) for part in parts
    )


def setup(app) -> None:
    app.connect("autodoc-process-docstring", _as_plain_text)
