"""The relay: moves rows of an outbox table to their topics, each once, in the order of each key.

A batch goes this way, and a crash may come between any two steps:

    1  read rows                                            nothing has happened: they are read again
    2  records and the ids of their rows, one transaction   it is aborted: the rows are read again
    3  delete or mark the rows                              the ids are on the log: the next relay deletes them first

A relay first takes the lock of the table, then the transactional id, which fences the relay before it, and then reads
the ids. So a relay that was cut off from the database, and is about to commit, cannot commit any more.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.connect.failures import ConnectFailed, FencedOut, RecordsRefused, RetriableFailure
from strandline.connect.herder.config_state import StateRecord
from strandline.connect.herder.state_topics import StateReader, prepare_topic
from strandline.connect.tasks.conversion import OutMessage
from strandline.connect.tasks.task_producer import TaskProducer
from strandline.outbox.rows import (
    AfterSend,
    OnInvalid,
    OutboxDatabase,
    OutboxRow,
    OutgoingEvent,
    RowInvalid,
    invalid_row,
    packed,
    sort_rows,
    unpacked,
)
from strandline.outbox.tables import DEFAULT_TABLE
from strandline.runtime.fault_points import fault_point

STATE_TOPIC: Final = "__strandline_outbox"
BATCH_ROWS: Final = 2_000
BATCH_ROWS_MAX: Final = 20_000
"""The ids of a batch are one record, which must stay below a megabyte."""
POLL_S: Final = 0.05
STANDBY_S: Final = 0.2
READ_S_MAX: Final = 60.0
BACKOFF_S: Final = 0.2
BACKOFF_S_MAX: Final = 10.0

log = logging.getLogger("strandline.outbox")


@dataclass(frozen=True)
class RelaySettings:
    """How a relay works."""

    table: str = DEFAULT_TABLE
    after: AfterSend = "delete"
    """What becomes of a row that was sent."""
    invalid: OnInvalid = "stop"
    """A row that cannot be sent: `stop` fails the relay with its name; `park` writes the reason into its `failed`."""
    batch_rows: int = BATCH_ROWS
    poll_s: float = POLL_S
    """How long an idle relay waits at most before it looks again. NOTIFY wakes it earlier."""
    producer: Mapping[str, str] = field(default_factory=dict)
    """Settings of librdkafka."""

    def __post_init__(self) -> None:
        if self.after not in ("delete", "mark") or self.invalid not in ("stop", "park"):
            raise ValueError('a relay needs after="delete" or "mark", and invalid="stop" or "park"')
        if not 1 <= self.batch_rows <= BATCH_ROWS_MAX:
            raise ValueError(f"batch_rows is between 1 and {BATCH_ROWS_MAX}")


@dataclass
class RelayCounts:
    """What a relay has done since it started."""

    sent: int = 0
    parked: int = 0
    batches: int = 0


def database_of(url: str, table: str) -> OutboxDatabase:
    """Return the outbox of a URL: `sqlite:///file`, or one or a connection string of PostgreSQL."""
    if url.startswith("sqlite"):
        from strandline.outbox.sqlite_database import SqliteOutbox

        return SqliteOutbox(url, table)
    scheme = url.partition("://")[0] if "://" in url else "postgresql"
    if scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise ConnectFailed(f"a relay reads PostgreSQL and SQLite, and not {scheme}")
    try:
        from strandline.outbox.postgres_database import PostgresOutbox
    except ModuleNotFoundError as error:
        raise ConnectFailed(f"the relay needs the package {error.name}: pip install 'strandline[postgres]'") from None
    return PostgresOutbox(url, table)


def outgoing_message(event: OutgoingEvent) -> OutMessage:
    """Return a record as the producer of a task takes it."""
    return OutMessage(event.topic, event.key, event.value, None, event.timestamp_ms, list(event.headers))


class OutboxRelay:
    """A relay of one table. Start as many as you like: one works, the others take over when it ends."""

    def __init__(self, database: str, bootstrap: str, settings: RelaySettings | None = None) -> None:
        self.settings = settings or RelaySettings()
        self.counts = RelayCounts()
        self.is_active = threading.Event()
        """Set while this is the relay that works."""
        self._url = database
        self._bootstrap = bootstrap
        self._is_stopping = threading.Event()

    def stop(self) -> None:
        """Have `run` return after its batch."""
        self._is_stopping.set()

    def run_once(self) -> None:
        """Send what is in the table now, and return. Raise ConnectFailed also for what would pass."""
        self._work(is_once=True)

    def run(self) -> None:
        """Work until `stop`. What passes is tried again; raise ConnectFailed for the rest."""
        backoff_s = BACKOFF_S
        while not self._is_stopping.is_set():
            sent = self.counts.sent
            try:
                self._work()
            except (RetriableFailure, FencedOut) as error:
                if self.counts.sent > sent:
                    backoff_s = BACKOFF_S
                log.warning("outbox relay of %s: %s; it tries again in %.1f s", self.settings.table, error, backoff_s)
                self._is_stopping.wait(backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)

    def _work(self, *, is_once: bool = False) -> None:
        database = database_of(self._url, self.settings.table)
        producer: TaskProducer | None = None
        try:
            database.open()
            if is_once and not database.try_lock():
                raise RetriableFailure(f"another relay moves the rows of {self.settings.table}")
            if not is_once and not self._lock(database):
                return
            prepare_topic(self._bootstrap, STATE_TOPIC, 1, READ_S_MAX, is_single=True)
            name = f"strandline-outbox-{database.identity}"
            producer = self._producer(name)
            self._take_over(database, name)
            self.is_active.set()
            log.info("outbox relay of %s works as %s", self.settings.table, name)
            while not self._is_stopping.is_set():
                try:
                    has_moved = self._move(database, producer, name)
                except RecordsRefused:
                    producer.close()
                    self._move_one_by_one(database, name)
                    producer = self._producer(name)
                    continue
                if not has_moved:
                    if is_once:
                        return
                    database.wait(self.settings.poll_s)
        finally:
            self.is_active.clear()
            if producer is not None:
                producer.close()
            # Last: until here no other relay may begin.
            database.close()

    def _lock(self, database: OutboxDatabase) -> bool:
        """Wait for the lock. Return False if the relay is to stop."""
        is_told = False
        while not self._is_stopping.is_set():
            if database.try_lock():
                return True
            if not is_told:
                is_told = True
                log.info("outbox relay of %s stands by: another one works", self.settings.table)
            self._is_stopping.wait(STANDBY_S)
        return False

    def _take_over(self, database: OutboxDatabase, name: str) -> None:
        """Finish what the relay before has begun: delete or mark what its last transaction sent."""
        ids = unpacked(_stored(self._bootstrap, name))
        if ids:
            database.settle(ids, self.settings.after)
        fault_point("outbox-taken-over")

    def _move(self, database: OutboxDatabase, producer: TaskProducer, name: str) -> bool:
        """Move one batch. Return False if there was none."""
        rows = database.rows(self.settings.batch_rows)
        if not rows:
            return False
        fault_point("outbox-read")
        found = sort_rows(rows, self.settings.invalid)
        for row, why in found.invalid:
            self._park(database, row, why)
        if found.ids:
            self._send(database, producer, name, found.events, found.ids)
        return True

    def _producer(self, name: str) -> TaskProducer:
        return TaskProducer(self._bootstrap, name, STATE_TOPIC, self.settings.producer)

    def _move_one_by_one(self, database: OutboxDatabase, name: str) -> None:
        """Move a batch that was refused, each row alone, up to the row that its topic does not take."""
        producer = self._producer(name)
        try:
            for row in database.rows(self.settings.batch_rows):
                found = sort_rows([row], self.settings.invalid)
                if not found.ids:
                    continue
                try:
                    self._send(database, producer, name, found.events, found.ids)
                except RecordsRefused as refused:
                    invalid = invalid_row(row, f"topic {row.topic} does not take it: {refused}")
                    if self.settings.invalid == "stop":
                        raise invalid from None
                    self._park(database, row, invalid)
                    # librdkafka cannot use a producer again whose record was refused.
                    return
        finally:
            producer.close()

    def _send(
        self,
        database: OutboxDatabase,
        producer: TaskProducer,
        name: str,
        events: Sequence[OutgoingEvent],
        ids: Sequence[bytes],
    ) -> None:
        """Send events in a transaction, and settle their rows."""
        producer.send(map(outgoing_message, events))
        fault_point("outbox-sent")
        producer.commit([StateRecord(_state_key(name), json.dumps({"sent": packed(ids)}).encode())])
        fault_point("outbox-committed")
        database.settle(ids, self.settings.after)
        fault_point("outbox-settled")
        self.counts.sent += len(ids)
        self.counts.batches += 1

    def _park(self, database: OutboxDatabase, row: OutboxRow, why: RowInvalid) -> None:
        log.error("%s", why)
        database.park(row, str(why))
        self.counts.parked += 1


def _state_key(name: str) -> bytes:
    return json.dumps([name]).encode()


def _stored(bootstrap: str, name: str) -> str:
    """Return the ids that a relay's last committed transaction has; empty without one."""
    found: dict[bytes, bytes | None] = {}

    def take(records: Any) -> None:
        found.update(records)

    reader = StateReader(bootstrap, STATE_TOPIC, 1, take)
    reader.start()
    try:
        reader.read_to_end(READ_S_MAX)
    finally:
        reader.stop()
    value = found.get(_state_key(name))
    return str(json.loads(value)["sent"]) if value else ""
