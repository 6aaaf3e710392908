"""The settings of Sphinx, which turns the pages of `docs/` and the docstrings into the documentation site.

Sphinx reads the docstrings as they are: their formulas and lists are reStructuredText. Its pages, its search and
its formulas work from a folder on the disk, without a server and without the internet.
"""

from __future__ import annotations

import logging
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import flanders  # noqa: E402
from api_pages import write_api_pages  # noqa: E402
from catalog_pages import write_catalog_pages  # noqa: E402
from cross_references import resolve_public_name  # noqa: E402
from navigation import complete_navigation  # noqa: E402
from repository_pages import localise_links, write_repository_pages  # noqa: E402

logging.getLogger("flanders").setLevel(logging.ERROR)

project = "flanders"
author = "the authors of flanders"
release = version = flanders.__version__
copyright = "the authors of flanders, Apache-2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["site", "figures"]
default_role = "py:obj"  # `Guard` in a docstring becomes a link if there is something of that name
nitpicky = False
suppress_warnings = ["myst.strikethrough"]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 88

pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = "flanders"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("sortable.js", {"defer": "defer"})]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # a browser does not let a page read other files of a folder
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b63a5", "color-brand-content": "#0b63a5"},
    "dark_css_variables": {"color-brand-primary": "#62b3f0", "color-brand-content": "#62b3f0"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

MATHJAX = Path(str(metadata.distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline")))
mathjax_path = "mathjax/tex-chtml.js"
mathjax3_config = {"options": {"enableMenu": False}}  # its menu would load more files
GENERATED = ("reference", "repository")
"""The folders of `docs/` that hold generated pages. They are written anew for each build."""


def write_pages(app: object) -> None:
    """Write the pages that follow from the package and from files outside `docs/`."""
    docs = HERE.parent
    write_catalog_pages(docs / "reference")
    write_api_pages(docs / "reference")
    write_repository_pages(docs / "repository")


def copy_mathjax(app, error) -> None:  # type: ignore[no-untyped-def]
    """Copy the parts of MathJax that the pages use next to them."""
    from sphinx.util.fileutil import copy_asset

    if error is None and app.builder.format == "html":
        target, source = Path(app.outdir) / "_static" / "mathjax", MATHJAX / "static" / "mathjax"
        fonts = Path("output") / "chtml" / "fonts" / "woff-v2"
        copy_asset(source / "tex-chtml.js", target)
        copy_asset(source / fonts, target / fonts)


def setup(app) -> None:  # type: ignore[no-untyped-def]
    """Connect the steps above to the build."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", complete_navigation)
    app.connect("source-read", localise_links)
    app.connect("missing-reference", resolve_public_name)
    app.connect("build-finished", copy_mathjax)
