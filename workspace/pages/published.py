"""Files published with the site: downloads, all verdicts with a schema, an RO-Crate, a report, the search index."""

from __future__ import annotations

import html
import io
import json
import math
import re
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from fedlib import __version__
from fedlib.files import write_whole
from workspace.analysis import words
from workspace.figures.summary import SHADES, ink
from workspace.pages import seals
from workspace.pages.evidence import Evidence

LARGE = 40_000  # bytes of a table that is offered as an archive
NAME = "Client selection in federated learning, re-run"
LICENCE = "https://spdx.org/licenses/MIT"


def download(path: Path) -> tuple[str, bytes]:
    """A file as a page offers it, and its name: a large table as a ZIP archive, a notebook without pictures and tables.

    pandas reads both forms of a table, and a page shows its pictures and tables itself.
    """
    content = path.read_bytes()
    if path.suffix == ".ipynb":
        return path.name, without_pictures(content)
    if len(content) <= LARGE:
        return path.name, content
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        inside = zipfile.ZipInfo(path.name)  # without a date, so that the same table gives the same bytes
        archive.writestr(inside, content, zipfile.ZIP_DEFLATED)
    return f"{path.name}.zip", packed.getvalue()


def without_pictures(notebook: bytes) -> bytes:
    """A notebook in which a note stands for each picture and table; its seal, which would not be right, goes too."""
    content = json.loads(notebook)
    content["metadata"].pop(seals.KEY, None)
    for output in (output for cell in content["cells"] for output in cell.get("outputs", ())):
        data = output.get("data", {})
        for kind, name in (("image/svg+xml", "picture"), ("text/html", "table")):
            if data.pop(kind, None):
                data["text/plain"] = f"A {name}: the page shows it, and running the cell makes it."
    return json.dumps(content, indent=1, ensure_ascii=False).encode()


class PublishedClaim(BaseModel):
    """What one claim of a paper comes to under one reading (a row of `effects.claims`)."""

    model_config = ConfigDict(extra="ignore")

    paper: str = Field(description="the paper's folder in workspace/papers")
    claim: str = Field(description="stable name of the claim")
    text: str = Field(description="the paper's statement, as it is judged here")
    artifact: str = Field(description="the page that shows it: <paper>/<figure or table>")
    kind: str = Field(description="core, supporting, construction, or control (no claim of the paper)")
    reading: str = Field(description="the reading of the paper, by name")
    primary: bool = Field(description="whether it is the reading under which claims are tested")
    outcome: str = Field(description=f"of the order, under the primary reading: {', '.join(words.ORDER)}")
    said: str = Field(description="the same with its numbers")
    size: str = Field(
        description=f"under the primary reading: {', '.join(words.SIZES)}; empty if none is printed"
    )
    unit: str = Field(description="times for ratios; otherwise the unit of a difference")
    null: float | None = Field(description="the value of no effect")
    margin: float | None = Field(
        description="what the effect is tested against: no effect, or a stated bound"
    )
    printed: float | None = Field(description="the printed effect, the mean over the same cells")
    least: float | None = Field(description="the least mean that is as large as printed")
    estimate: float | None = Field(description="the effect, pooled over the judged cells")
    low: float | None = Field(
        description="lower end of its 95 % interval over seeds; null if no run bounds it"
    )
    high: float | None = Field(
        description="upper end of its 95 % interval over seeds; null if no run bounds it"
    )
    n: int = Field(description="number of paired seeds")
    cells: int = Field(description="number of cells that were judged")
    of: int = Field(description="number of all cells")


class Verdicts(BaseModel):
    """All verdicts at one scale."""

    fedlib: str = Field(description="version of the library")
    scale: str = Field(description="demo, cpu or paper")
    coverage: str = Field(description="how many of the planned runs exist")
    claims: list[PublishedClaim]


def verdicts(evidence: Evidence | None, scale: str, coverage: str) -> str:
    """`verdicts.json`: what every claim comes to under every archived reading, in the form of `schema`."""
    rows = [] if evidence is None else evidence.claims.to_dict("records")
    claims = []
    for row in rows:
        published = {key: row[key] for key in PublishedClaim.model_fields if key in row}
        values = {key: None if missing(value) else value for key, value in published.items()}
        claims.append(PublishedClaim.model_validate(values | {"text": Evidence.text(row["claim"])}))
    document = Verdicts(fedlib=__version__, scale=scale, coverage=coverage, claims=claims)
    return document.model_dump_json(indent=1) + "\n"


def missing(value: object) -> bool:
    """Whether a value is no number that JSON has: NaN, or an end of an interval that no run bounds."""
    return isinstance(value, float) and not math.isfinite(value)


def schema() -> str:
    """JSON Schema of `verdicts.json`."""
    return json.dumps(Verdicts.model_json_schema(), indent=1) + "\n"


def describe(site: Path, title: str, provenance: Mapping[str, Iterable[str]]) -> None:
    """Write `ro-crate-metadata.json` for a rendered site: its pages, data, pictures, verdicts, code and licence."""
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate()
    crate.name, crate.description, crate.license = NAME, title, LICENCE
    code = {"@type": "SoftwareSourceCode", "name": "fedlib", "version": __version__, "license": LICENCE}
    crate.add(ContextEntity(crate, "#fedlib", properties=code))
    for key, values in provenance.items():
        for value in values:
            properties = {"@type": "PropertyValue", "name": key, "value": value}
            crate.root_dataset.append_to(
                "additionalProperty", crate.add(ContextEntity(crate, f"#{value}", properties=properties))
            )
    kinds = {
        ".csv": "text/csv",
        ".svg": "image/svg+xml",
        ".html": "text/html",
        ".json": "application/json",
        ".pdf": "application/pdf",
        ".zip": "application/zip",
    }
    for path in sorted(site.rglob("*")):
        if path.suffix in kinds and "_static" not in path.parts:
            name = path.relative_to(site).as_posix()
            properties = {"encodingFormat": kinds[path.suffix], "contentSize": str(path.stat().st_size)}
            crate.add_file(dest_path=name, properties=properties, source=str(path))
    crate.metadata.write(str(site))


def report(
    pdf: Path, template: Path, data: Mapping[str, Any], pictures: Mapping[str, bytes] | None = None
) -> None:
    """Write the report from a Typst template, which reads `data` as `report.json` next to it, and pictures by name."""
    import typst

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, template.name)
        source.write_bytes(template.read_bytes())
        content = {**data, "colours": {name: [shade, ink(shade)] for name, shade in SHADES.items()}}
        Path(folder, "report.json").write_text(json.dumps(content), encoding="utf-8")
        for name, picture in (pictures or {}).items():
            Path(folder, name).write_bytes(picture)
        write_whole(pdf, typst.compile(str(source)))


def lighten(site: Path) -> None:
    """Write pages without indentation, and show each picture from one file, also where several pages have it.

    What no page leads to any more is for `prune`.
    """
    names: dict[str, str] = {}
    shared = {
        picture.name: names.setdefault(
            picture.read_text(encoding="utf-8").partition("<svg")[2].strip(), picture.name
        )
        for picture in sorted((site / "_images").glob("*.svg"))
    }
    for path in site.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        page = PICTURE.sub(
            lambda link: f"_images/{quote(shared.get(unquote(link[1]), unquote(link[1])))}", page
        )
        parts = AS_TYPED.split(page)
        parts[::2] = [INDENTED.sub("\n", part) for part in parts[::2]]
        path.write_text("".join(parts), encoding="utf-8")


PICTURE = re.compile(r"_images/([^\"?#/]+\.svg)")
AS_TYPED = re.compile(r"(<(?:pre|textarea|script|style)\b.*?</(?:pre|textarea|script|style)>)", re.DOTALL)
INDENTED = re.compile(r"\s*\n\s*")


def prune(site: Path) -> None:
    """Delete pictures and downloads to which no page leads: Sphinx keeps those of pages as they once were."""
    led_to: set[str] = set()
    for page in site.rglob("*.html"):
        led_to |= {
            *map(unquote, re.findall(r"_(?:images|downloads)/[^\"?#]+", page.read_text(encoding="utf-8")))
        }
    for folder in ("_images", "_downloads"):
        for path in [*(site / folder).rglob("*")]:
            if path.is_file() and path.relative_to(site).as_posix() not in led_to:
                path.unlink()


ARTICLE = re.compile(r'<article class="bd-article".*?</article>', re.DOTALL)
UNREAD = re.compile(r"<(script|style|svg|math|template)\b.*?</\1>", re.DOTALL)  # not words
HEADING = re.compile(r'<h([1-4])>(.*?)<a class="headerlink" href="#([^"]*)"', re.DOTALL)
TAG = re.compile(r"<[^>]+>")


def words(markup: str) -> str:
    """The text of a piece of HTML."""
    return " ".join(html.unescape(TAG.sub(" ", markup)).split())


def entry(page: str, address: str) -> dict[str, object] | None:
    """A page's address, title, headings (text, id) and text; None if it has no article."""
    article = ARTICLE.search(page)
    if not article:
        return None
    markup = UNREAD.sub(" ", article.group())
    headings = [(words(text), name) for _, text, name in HEADING.findall(markup)]
    text = words(HEADING.sub(" ", markup))
    return {
        "url": address,
        "title": headings[0][0] if headings else address,
        "headings": headings[1:],
        "text": text,
    }


def index(site: Path, repeated: Iterable[str] = ()) -> str:
    """The script that holds the index of a rendered site. repeated: pages that repeat another one."""
    left_out = {"search.html", "genindex.html", *repeated}
    pages = {path.relative_to(site).as_posix(): path for path in sorted(site.rglob("*.html"))}
    entries = [
        entry(path.read_text(encoding="utf-8"), name) for name, path in pages.items() if name not in left_out
    ]
    return f"searchIndex({json.dumps([page for page in entries if page], ensure_ascii=False)});\n"
