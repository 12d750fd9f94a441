"""Finds finished work: in the store, in the earlier results, anywhere in the archive."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.data import datasets
from fedlib.errors import DataError
from fedlib.runs import archive as archives
from fedlib.runs.archive import ARCHIVE, Packed
from fedlib.runs.place import Place
from fedlib.runs.results import RESULTS
from fedlib.runs.store import Store
from fedlib.runs.work import Plan, Work

NO_DATA = {"name": "synthetic", "provenance": "data made for this study", "digest": ""}


class Finished:
    """The finished work of a plan.

    absent: dataset -> why it is not available. For work on it (and for all work, with `any_data`), archived results
    are accepted whatever the digest of their data.
    """

    def __init__(
        self,
        plan: Plan,
        place: Place,
        results: Path = RESULTS,
        archive: Path = ARCHIVE,
        any_data: bool = False,
    ) -> None:
        self.store, self.place, self.any_data = Store(place.runs), place, any_data
        self.packed = archives.sources(plan.name, plan.scale, plan.archived, results, archive)
        self.digests: dict[str, str] = {}
        self.absent: dict[str, str] = {}

    def digest(self, work: Work) -> str | None:
        """The digest of the data of a piece of work, which may need none; None if they are not available."""
        dataset = work.dataset
        if dataset is None:
            return NO_DATA["digest"]
        if dataset not in self.digests and dataset not in self.absent:
            try:
                self.digests[dataset] = datasets.digest(dataset, self.place.datasets)
            except DataError as error:
                self.absent[dataset] = str(error)
        return self.digests.get(dataset)

    def data(self, work: Work) -> dict[str, str]:
        """Name, provenance and digest of its data, which are available."""
        if work.dataset is None:
            return NO_DATA
        provenance = datasets.status(work.dataset, self.place.datasets)["provenance"]
        return {"name": work.dataset, "provenance": provenance, "digest": self.digests[work.dataset]}

    def address(self, work: Work) -> str | None:
        """The address of finished work; None if it is not finished."""
        place = self._place(work)
        return place[1] if place else None

    def contains(self, work: Work) -> bool:
        """Whether work is finished."""
        return self.address(work) is not None

    def why_not(self, work: Work) -> str:
        """Why work cannot be done: its data is not available; empty if it can."""
        self.digest(work)
        return self.absent.get(work.dataset or "", "")

    def failure(self, work: Work) -> dict[str, str] | None:
        """Why work failed when it was last tried (see `Store.failure`)."""
        digest = self.digest(work)
        return None if digest is None or self.contains(work) else self.store.failure(work.address(digest))

    def read(self, work: Work) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """The rows and the record of finished work; None if it is not finished."""
        place = self._place(work)
        return place[0].read(place[1]) if place else None

    def lacking(self, work: Iterable[Work]) -> tuple[list[Work], list[Work]]:
        """Of these pieces of work the unfinished ones: those that can be done, and those without data."""
        unfinished = [piece for piece in work if not self.contains(piece)]
        possible = [piece for piece in unfinished if not self.why_not(piece)]
        return possible, [piece for piece in unfinished if self.why_not(piece)]

    def _place(self, work: Work) -> tuple[Store | Packed, str] | None:
        """The store or the packed table that has finished work, and its address there."""
        digest = self.digest(work)
        if digest is not None and self.store.root.exists():
            addresses = work.addresses(digest)
            for address in addresses:
                if self.store.finished(address):
                    return self.store, address
        data_digest = None if self.any_data else digest
        return archives.find(self.packed, work.dataset or NO_DATA["name"], work.address, data_digest)
