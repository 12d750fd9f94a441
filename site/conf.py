"""Sphinx settings of the site. Everything is local: the site works offline from the file system, without requests."""

from functools import cache

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

from fedlib.pages import docstrings

project = "Client selection in federated learning"
extensions = ["myst_nb", "sphinx_design", "sphinx.ext.autodoc"]
exclude_patterns = []

nb_execution_mode = "off"  # the notebooks are already executed
myst_enable_extensions = ["colon_fence", "dollarmath", "attrs_inline"]
myst_heading_anchors = 3
myst_ref_domains = ["std"]
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"

autodoc_typehints = "none"  # docstrings state types and shapes
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_mock_imports = ["flwr"]  # not installed in the workspace

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["static"]
html_extra_path = ["extra"]
html_css_files = ["house.css"]
html_js_files = ["interactive.js", "board.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # browsers refuse to fetch summaries from the file system
html_theme_options = {
    "logo": {"text": "Client selection"},
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["footer"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "show_toc_level": 2,
}
html_sidebars = dict.fromkeys(["index", "arena*", "scoreboard", "discrepancies", "samplers", "docs/*"], [])
templates_path = ["templates"]
html_context = {"default_mode": "auto"}
html_math_renderer = "mathml"


class Words(SearchEnglish):
    """English for the search index, with each word stemmed once for all pages."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.stem = cache(self.stem)


def _formula(translator, node: nodes.Element, display: str) -> None:
    translator.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def _own_scale(app: Sphinx, page: str, template: str, context: dict, document: nodes.document | None) -> None:
    """Show the scale at the head and foot of a page whose scale is not the site's."""
    meta = context.get("meta") or {}
    context["theme_announcement"] = meta.get("announcement", context["theme_announcement"])
    context["provenance"] = meta.get("provenance", context["provenance"])


def setup(app: Sphinx) -> None:
    """Formulas as MathML, written into the page: no script, no font, no request."""
    app.add_search_language(Words)
    app.connect("html-page-context", _own_scale)
    app.connect("autodoc-process-docstring", docstrings.shown)
    app.connect("autodoc-process-signature", docstrings.signature)
    app.add_html_math_renderer(
        "mathml",
        (lambda translator, node: _formula(translator, node, "inline"), None),
        (lambda translator, node: _formula(translator, node, "block"), None),
    )
