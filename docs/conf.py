"""The site: `make docs`. Pages are Markdown (MyST), the reference comes from docstrings."""

from __future__ import annotations

import os
import re
from pathlib import Path

import evenspan

project = "evenspan"
author = "The evenspan developers"
project_copyright = "2026, The evenspan developers. Apache-2.0"
version = release = evenspan.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_enable_extensions = ["html_image"]
myst_heading_anchors = 3  # links to headings are those of GitHub

default_role = "literal"  # docstrings write names in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_typehints_description_target = "documented_params"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "evenspan"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["llms.txt"]
html_sourcelink_suffix = ""  # `_sources/indexing.md`: pages as plain Markdown, for `llms.txt`
html_theme_options = {"source_repository": os.environ.get("EVENSPAN_REPOSITORY", ""), "source_branch": "main"}


def setup(app):
    """What Sphinx would misread, and the Markdown sources that `llms.txt` links to."""
    app.connect("source-read", _results_are_a_page)
    app.connect("build-finished", _complete_sources)
    app.connect("autodoc-process-docstring", _no_types_in_properties, priority=400)


def _results_are_a_page(app, name, source):
    """Result files are links on GitHub, and one page here."""
    source[0] = _with_measurements(source[0])


def _with_measurements(text):
    return re.sub(r"\]\(\.\./benchmarks(/results/\w+\.md)?\)", "](measurements.md)", text)


def _complete_sources(app, error):
    """Included files become part of `_sources/*.md`, and no link there leads out of the site."""
    here = Path(app.srcdir)
    for source in sorted(Path(app.outdir, "_sources").glob("*.md")):
        text = re.sub(
            r"```\{include\} (\S+)\n.*?```\n",
            lambda found: (here / found[1]).read_text("utf-8"),
            source.read_text("utf-8"),
            flags=re.DOTALL,
        )
        text = _with_measurements(text)
        text = re.sub(r"\]\(docs/(\w+\.md)", r"](\1", text)  # of files that lie above docs/
        text = re.sub(r"(\]\(|src=\")([\w/-]+\.(?:svg|png))", r"\1../_images/\2", text)
        text = re.sub(r"\.\./_images/\w+/", "../_images/", text)
        if repository := os.environ.get("EVENSPAN_REPOSITORY", "").rstrip("/"):
            text = re.sub(r"\]\(\.\./(?!_)", f"]({repository}/blob/main/", text)
        else:
            text = re.sub(r"\[([^\]]*)\]\(\.\./(?!_)[^)]*\)", r"\1", text)
        source.write_text(text, encoding="utf-8")


def _no_types_in_properties(app, what, name, obj, options, lines):
    """Napoleon takes what stands before a property's first colon for its type."""
    if what == "property" and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)
