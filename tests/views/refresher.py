"""A process that keeps a view: it refreshes it again and again, or dies in the middle of a snapshot.

python -m tests.views.refresher BOOTSTRAP TOPIC DIRECTORY rounds N      N snapshots; prints a count of rows for each
python -m tests.views.refresher BOOTSTRAP TOPIC DIRECTORY dies N        SIGKILL at the Nth file that is synced
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.views.ground import SCHEMA

from strandline.views import define, snapshots
from strandline.views import open as open_view


def main(bootstrap: str, topic: str, directory: str, what: str, number: str) -> None:
    definition = define("totals", topic, schema=SCHEMA, key=("customer",))
    if what == "dies":
        _die_at(int(number))
    with open_view(definition, bootstrap=bootstrap, directory=Path(directory)) as view:
        if what == "dies":
            view.snapshot()
            return
        for _ in range(int(number)):
            view.snapshot()
            rows = view.query("select count(*), count(distinct customer) from totals").rows[0]
            print(*rows, flush=True)


def _die_at(number: int) -> None:
    synced = 0
    sync = snapshots.sync

    def dying(path: Path) -> None:
        nonlocal synced
        synced += 1
        if synced == number:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(path)

    snapshots.sync = dying


if __name__ == "__main__":
    main(*sys.argv[1:])
