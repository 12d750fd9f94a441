"""Train runs on the workers of a Dask cluster: groups are sent out, finished files are returned and checked.

A worker trains as on its own machine, in that machine's store and on its datasets.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from fedlib.errors import ConfigError, StoreError
from fedlib.runs.group import groups_of
from fedlib.runs.place import Place
from fedlib.runs.store import Store
from fedlib.runs.work import TIMES
from fedlib.settings.schema import Run

SCHEDULER_SECONDS = 10.0
Files = tuple[str, bytes, bytes, dict[str, Any]]  # a finished run as `Store.adopt` takes it


def train_on_cluster(
    missing: Mapping[str, Run],
    place: Place,
    tell: Callable[[str], None],
    work: Callable[[list[dict[str, Any]]], list[Files]],
) -> None:
    """Let the workers of a Dask scheduler train runs, given by address. Their finished runs are copied to this store.

    work: what a worker does with the settings of a group (`train.train_elsewhere`). If a worker dies, the scheduler
        gives its group to another one.

    Raises:
        ConfigError: the scheduler's address is invalid.
        StoreError: the scheduler does not answer or disappears, workers keep dying, or a worker sent back something
            else than it was asked for. Runs that finished before are kept.
    """
    from concurrent.futures import CancelledError

    from distributed import Client, KilledWorker, as_completed
    from distributed.comm import get_address_host_port

    # its traceback says less than our message
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    lost = StoreError(
        f"the Dask scheduler {place.scheduler} does not answer; start it, or unset FEDLIB_SCHEDULER, and repeat the "
        "command: finished runs are kept."
    )
    scheduler = place.scheduler or ""
    try:
        get_address_host_port(scheduler)
        client = Client(scheduler, timeout=SCHEDULER_SECONDS)
    except ValueError as error:
        raise ConfigError(
            f"FEDLIB_SCHEDULER is {place.scheduler!r}; it must be an address such as tcp://host:8786 ({error})."
        ) from None
    except OSError:
        raise lost from None
    store = Store(place.runs)
    try:
        with client:
            if not client.nthreads():
                tell(f"the Dask scheduler {place.scheduler} has no workers; waiting for the first")
                client.wait_for_workers(1)
            groups = groups_of(list(missing.values()), sum(client.nthreads().values()))
            settings = [[run.model_dump(mode="json") for run in group] for group in groups]
            futures = client.map(work, settings, pure=False)
            for i, future in enumerate(as_completed(futures), start=1):
                if isinstance(error := future.exception(), OSError):
                    raise StoreError(
                        f"a worker of the cluster cannot read or write there ({error}); mend that and repeat the "
                        "command: finished runs are kept."
                    )
                for files in future.result():
                    if files[0] in missing and "trace" in files[3]:
                        store.fail(files[0], files[3]["reason"], files[3]["trace"])
                        continue
                    check_returned(files, missing)
                    if not store.finished(files[0]):  # it is finished where workers share our disk
                        store.adopt(*files)
                tell(f"{i} of {len(groups)} groups of runs are back from the cluster")
    except KilledWorker as error:
        raise StoreError(
            f"a group of runs was given up after its workers died ({error.last_worker.address} the last); is "
            "memory exhausted there? Repeat the command: finished runs are kept."
        ) from None
    except (CancelledError, OSError):  # closed connections and time-outs are OSErrors
        raise lost from None


def check_returned(files: Files, expected: Mapping[str, Run]) -> None:
    """Check that a worker returned the complete result of a requested run, made with our numerics and our data.

    Raises:
        StoreError: it did not.
    """
    a, rounds, timing, record = files
    if a not in expected:
        raise StoreError(
            f"a worker of the cluster sent run {a}, which was not asked for: its fedlib or its dataset differs "
            "from ours; bring both up to date there and repeat the command."
        )
    run = expected[a]
    try:
        if record["run"] != run.model_dump(mode="json"):
            raise ValueError("other settings")
        if record["rounds_sha256"] != hashlib.sha256(rounds).hexdigest():
            raise ValueError("contents do not match their digest")
        table = pd.read_parquet(io.BytesIO(rounds))
        if table["round"].tolist() != list(range(len(table))) or not is_over(run, table):
            raise ValueError("rounds are missing")
        if len(pd.read_parquet(io.BytesIO(timing), columns=TIMES)) != len(table):
            raise ValueError("times are missing")
    except (KeyError, TypeError, OSError, ValueError) as error:  # of pyarrow: the last two
        raise StoreError(
            f"a worker of the cluster sent run {a} in a state that cannot be used ({error}); delete its folder there "
            "and repeat the command."
        ) from None


def is_over(run: Run, rounds: pd.DataFrame) -> bool:
    """Whether a run may end with these rows (from round 0 on): at round T, by divergence, or by reaching its target."""
    if len(rounds) == run.T + 1 or rounds["diverged"].iloc[-1]:
        return True
    return run.until is not None and run.until.ends(rounds["test_accuracy"].tolist()[1:])
