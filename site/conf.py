"""Sphinx settings of the site. Everything is local: it works from the file system, offline, asking nobody."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

project = "Client selection in federated learning"
extensions = ["myst_nb", "sphinx_design"]
exclude_patterns = []

nb_execution_mode = "off"  # the notebooks come executed
myst_enable_extensions = ["colon_fence", "dollarmath", "attrs_inline"]
myst_heading_anchors = 3
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["static"]
html_extra_path = ["extra"]
html_css_files = ["house.css"]
html_js_files = ["interactive.js", "board.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # summaries would be fetched, which browsers refuse on the file system
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


def _formula(translator, node: nodes.Element, display: str) -> None:
    translator.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def _own_scale(app: Sphinx, page: str, template: str, context: dict, document: nodes.document | None) -> None:
    """A page at another scale than the site's says which at its head and foot."""
    meta = context.get("meta") or {}
    context["theme_announcement"] = meta.get("announcement", context["theme_announcement"])
    context["provenance"] = meta.get("provenance", context["provenance"])


def setup(app: Sphinx) -> None:
    """Formulas as MathML, written when the page is: no script, no font, no request."""
    app.connect("html-page-context", _own_scale)
    app.add_html_math_renderer(
        "mathml",
        (lambda translator, node: _formula(translator, node, "inline"), None),
        (lambda translator, node: _formula(translator, node, "block"), None),
    )
