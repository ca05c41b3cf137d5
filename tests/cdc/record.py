"""Records the profiles from a live Debezium: `python -m tests.cdc.record [PROFILE ...]`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psycopg
from bench.cdc_engine.jars import DEBEZIUM_VERSION
from tests.cdc.debezium.engine import EngineFailed, LiveDebezium
from tests.cdc.profile import BASE, CdcProfile
from tests.cdc.profiles import PROFILES
from tests.cdc.recorded import RecordedWith, store
from tests.cdc.running import CdcRecord, prepare, stream
from tests.connect.postgres_server import PostgresOnTcp

_ENGINE: Final = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "offset.flush.interval.ms": "1000",
    "poll.interval.ms": "20",
    "slot.drop.on.stop": "true",
}


class _Tail:
    """The records of a file that grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._position = 0
        self._records: list[CdcRecord] = []

    def __call__(self) -> list[CdcRecord]:
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._position)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._position += len(whole) + len(newline)
            self._records += [json.loads(line) for line in whole.split(b"\n") if line]
        return self._records


def recorded(profile: CdcProfile, server: PostgresOnTcp, engine: LiveDebezium) -> list[CdcRecord]:
    """Run a profile in a fresh database and return its records."""
    dsn = server.fresh_database()
    prepare(profile, dsn)
    database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    connection = {
        "name": profile.name,
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": str(database),
        "slot.name": f"slot_{database}",
        "publication.name": f"publication_{database}",
    }
    tail = _Tail(engine.start(profile.name, {**_ENGINE, **BASE, **connection, **profile.settings}))
    try:
        stream(profile, dsn, tail)
    finally:
        engine.stop()
    return list(tail())


def main(names: Iterable[str]) -> None:
    """Write the recordings of these profiles; of all without a name."""
    profiles = [PROFILES[name] for name in names] or list(PROFILES.values())
    with tempfile.TemporaryDirectory() as directory, LiveDebezium(Path(directory)) as engine:
        server = PostgresOnTcp()
        server.start()
        try:
            with psycopg.connect(server.dsn()) as connection:
                version = connection.info.parameter_status("server_version") or ""
            for profile in profiles:
                begin = time.monotonic()
                try:
                    records = recorded(profile, server, engine)
                except (EngineFailed, AssertionError, psycopg.Error) as error:
                    print(f"{profile.name}: {type(error).__name__}: {error}", flush=True)
                    continue
                store(profile, RecordedWith(profile.fingerprint, DEBEZIUM_VERSION, version), records)
                print(f"{profile.name}: {len(records)} records in {time.monotonic() - begin:.1f} s", flush=True)
        finally:
            server.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
