"""Runs a shipper as long as it can: what passes by itself is tried again."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from strandline.sqlite.database import FollowedDatabase
from strandline.sqlite.failures import ShippingFailed, TopicUnavailable
from strandline.sqlite.shipper import DatabaseShipper, ShipSettings
from strandline.sqlite.topic import ShippedTopic, ShippingProducer

AGAIN_S: Final = 1.0


def ship(
    path: Path,
    topic: ShippedTopic,
    client: Mapping[str, Any],
    settings: ShipSettings,
    *,
    timeout_s: float,
    set_wal: bool = False,
    once: bool = False,
    say: Callable[[str], None] = lambda _: None,
    on_ready: Callable[[DatabaseShipper], None] = lambda _: None,
) -> DatabaseShipper:
    """Ship a database until the process is interrupted; with `once`, what it holds now.

    While the cluster is away the database is still followed, so that the shipper can go on later.
    """
    with FollowedDatabase(path, set_wal=set_wal) as database:
        topic.check(create=True)
        while True:
            writer = ShippingProducer(client, topic.name)
            try:
                topic.check()
                shipper = DatabaseShipper(database, topic, writer, settings, say)
                shipper.start(timeout_s)
                on_ready(shipper)
                shipper.follow(once=once)
                return shipper
            except TopicUnavailable as failure:
                if once:
                    raise
                say(f"{failure}; try again")
                time.sleep(AGAIN_S)
            except sqlite3.Error as error:
                database.check_in_place()
                raise ShippingFailed(f"SQLite failed on {path}: {error}") from error
            except OSError as error:
                raise ShippingFailed(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
            finally:
                writer.close()
