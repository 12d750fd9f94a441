"""Files published with the site: all verdicts in one file with a schema, an RO-Crate, and a printed report."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fedlib.files import write_whole

NAME = "Client selection in federated learning, re-run"
LICENCE = "https://spdx.org/licenses/MIT"


class Claim(BaseModel):
    """One claim of a paper and its verdict."""

    model_config = ConfigDict(extra="ignore")

    paper: str = Field(description="the paper's folder in fedlib/papers")
    id: str = Field(description="stable name of the claim")
    artifact: str = Field(description="the page that shows it: <paper>/<figure or table>")
    claim: str = Field(description="the paper's statement, as it is decided here")
    printed: str = Field(description="the paper's value, as text")
    replicated: str = Field(description="the value over our runs, as written, in text form")
    interval: str = Field(description="its interval over seeds, as text; empty if there is none")
    verdict: str = Field(description="status as written")
    words: str = Field(description="the verdict as written, by dataset, with the parts that held")
    strength: str = Field(description="settled, indicated, or empty")
    as_run: str = Field(default="", alias="as run", description="the verdict under the reading as run")
    headline: str = Field(description="the reading under which it held")
    detail: str = Field(description="details of the verdict")


class Verdicts(BaseModel):
    """All verdicts at one scale."""

    fedlib: str = Field(description="version of the library")
    scale: str = Field(description="demo, cpu or paper")
    coverage: str = Field(description="how many of the planned runs exist")
    claims: list[Claim]


def verdicts(rows: Iterable[Mapping[str, Any]], scale: str, coverage: str) -> str:
    """`verdicts.json`: the rows of `judging.verdicts`, in the form of `schema`."""
    claims = [Claim.model_validate(row) for row in rows]
    made = Verdicts(fedlib=version("fedlib"), scale=scale, coverage=coverage, claims=claims)
    return made.model_dump_json(indent=1) + "\n"


def schema() -> str:
    """JSON Schema of `verdicts.json`."""
    return json.dumps(Verdicts.model_json_schema(by_alias=False), indent=1) + "\n"


def describe(site: Path, title: str, made: Mapping[str, Iterable[str]]) -> None:
    """Write `ro-crate-metadata.json` for a rendered site: its pages, data, pictures, verdicts, code and licence."""
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate()
    crate.name, crate.description, crate.license = NAME, title, LICENCE
    code = {"@type": "SoftwareSourceCode", "name": "fedlib", "version": version("fedlib"), "license": LICENCE}
    crate.add(ContextEntity(crate, "#fedlib", properties=code))
    for what, values in made.items():
        for value in values:
            about = {"@type": "PropertyValue", "name": what, "value": value}
            crate.root_dataset.append_to(
                "additionalProperty", crate.add(ContextEntity(crate, f"#{value}", properties=about))
            )
    kinds = {".csv": "text/csv", ".svg": "image/svg+xml", ".html": "text/html", ".json": "application/json"}
    for path in sorted(site.rglob("*")):
        if path.suffix in kinds and "_static" not in path.parts:
            name = path.relative_to(site).as_posix()
            about = {"encodingFormat": kinds[path.suffix], "contentSize": str(path.stat().st_size)}
            crate.add_file(dest_path=name, properties=about, source=str(path))
    crate.metadata.write(str(site))


def report(pdf: Path, template: Path, data: Mapping[str, Any]) -> None:
    """Write the report from a Typst template, which reads `data` as `report.json` next to it."""
    import typst

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, template.name)
        source.write_bytes(template.read_bytes())
        Path(folder, "report.json").write_text(json.dumps(data))
        write_whole(pdf, typst.compile(str(source)))
