"""Sphinx settings of the site. Everything is local: the site works offline from the file system, without requests."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx import addnodes
from sphinx.application import Sphinx

from workspace.pages import docstrings

project = "Client selection in federated learning"
extensions = ["myst_nb", "sphinx_design", "sphinx.ext.autodoc"]
exclude_patterns = ["files/**"]  # what pages offer to download, also notebooks

nb_execution_mode = "off"  # the notebooks are already executed
myst_enable_extensions = ["colon_fence", "dollarmath", "attrs_inline"]
myst_heading_anchors = 3
myst_ref_domains = ["std"]
nb_merge_streams = True

autodoc_typehints = "none"  # docstrings state types and shapes
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_mock_imports = ["flwr"]  # not installed in the workspace

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["static"]
html_extra_path = ["extra"]
html_css_files = ["house.css"]
html_js_files = ["interactive.js", "board.js", "glossary.js", "glossary-words.js"]
html_copy_source = False
html_show_sourcelink = False
html_additional_pages = {"search": "search.html"}
html_theme_options = {
    "logo": {"text": "Client selection"},
    "header_links_before_dropdown": 10,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["footer"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "show_toc_level": 2,
}
WITHOUT_SIDEBAR = ("index", "arena*", "leaderboard", "scoreboard", "discrepancies", "samplers")
html_sidebars = dict.fromkeys([*WITHOUT_SIDEBAR, "chooser", "multiverse", "reply"], [])
templates_path = ["templates"]
html_context = {"default_mode": "auto"}
html_math_renderer = "mathml"


def _formula(translator, node: nodes.Element, display: str) -> None:
    translator.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def _own_search(app: Sphinx) -> None:
    """No index of Sphinx's: opened from the file system it finds titles only. `pages/search.py` makes ours."""
    app.builder.search = False


def _own_scale(app: Sphinx, page: str, template: str, context: dict, document: nodes.document | None) -> None:
    """Show the scale at the head and foot of a page whose scale is not the site's."""
    meta = context.get("meta") or {}
    context["theme_announcement"] = meta.get("announcement", context["theme_announcement"])
    context["provenance"] = meta.get("provenance", context["provenance"])


def _pictures_when_seen(
    app: Sphinx, page: str, template: str, context: dict, document: nodes.document | None
) -> None:
    """A picture is loaded when it comes into view: the first page has fifty, most of them in closed folds."""
    if "body" in context:
        context["body"] = context["body"].replace("<img ", '<img loading="lazy" ')


def _folded_reference(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """The sections of the API reference open on a click: together they are too long to look through."""
    if page != "docs/api":
        return
    for section in doctree.findall(nodes.section):
        if section.parent is not doctree and not list(section.findall(nodes.section))[1:]:
            names = [node["ids"][0] for node in section.findall(addnodes.desc_signature) if node.get("ids")]
            words = ", ".join(name.removeprefix("fedlib.") for name in names if name.count(".") < 2) or "Show"
            begin = f'<details class="section"><summary>{words}</summary>'
            section.insert(1, nodes.raw("", begin, format="html"))
            section.append(nodes.raw("", "</details>", format="html"))


def setup(app: Sphinx) -> None:
    """Formulas as MathML, written into the page: no script, no font, no request."""
    app.connect("builder-inited", _own_search)
    app.connect("html-page-context", _own_scale)
    app.connect("html-page-context", _pictures_when_seen)
    app.connect("doctree-resolved", _folded_reference)
    app.connect("autodoc-process-docstring", docstrings.process_docstring)
    app.connect("autodoc-process-signature", docstrings.signature)
    app.add_html_math_renderer(
        "mathml",
        (lambda translator, node: _formula(translator, node, "inline"), None),
        (lambda translator, node: _formula(translator, node, "block"), None),
    )
