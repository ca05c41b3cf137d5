"""Random lives of a log: appends by producers, rolls, cuts, trims, flushes, clean stops and crashes, in any order.

After every step the log holds exactly the records it should, and its producers remember exactly what the batches say:
the same after a crash as before it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.log.engine import NOON_MS, abandon, append, batch_of, open_log, read_bytes, records_in

from strandline.codec.record_batch import parse_header
from strandline.log.trimming import trim_now
from strandline.log.truncation import truncate_to
from strandline.partition.producers import BATCHES_KEPT, Producers

pytestmark = pytest.mark.lengthy("random walks beside a model")


class Stored(NamedTuple):
    base_offset: int
    values: list[bytes]
    timestamp_ms: int
    producer_id: int
    epoch: int
    sequence: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.values)


class LogHistory(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([300, 700, 100_000]), interval_bytes=st.sampled_from([0, 150, 4096]))
    def begin(self, segment_bytes: int, interval_bytes: int) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.lives = 0
        self.config = {"segment_bytes": segment_bytes, "index_interval_bytes": interval_bytes}
        self.batches: list[Stored] = []
        self.log_start_offset = 0
        self.recovery_point = 0
        self.epochs: dict[int, int] = {}
        self.directory = self.home / "0" / "orders-0"
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.producers = Producers()
        self.log = open_log(
            self.directory,
            observer=self.producers,
            clean=clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            **self.config,
        )

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    # What happens to a log

    @rule(producer_id=st.integers(-1, 3), count=st.integers(1, 4), size=st.integers(0, 150), time=st.integers(0, 50))
    def append(self, producer_id: int, count: int, size: int, time: int) -> None:
        epoch = self.epochs.get(producer_id, 0) if producer_id >= 0 else -1
        last = self.last_of(producer_id, epoch)
        sequence = -1 if producer_id < 0 else 0 if last is None else last.sequence + len(last.values)
        values = [b"%d" % (self.end_offset + step) + b"." * size for step in range(count)]
        batch = batch_of(
            values,
            timestamps=[NOON_MS + time] * count,
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence=sequence,
        )
        if producer_id >= 0:
            assert self.producers.check(producer_id, epoch, sequence, sequence + count - 1) is None
        assert append(self.log, batch) == self.end_offset
        self.batches.append(Stored(self.end_offset, values, NOON_MS + time, producer_id, epoch, sequence))

    def last_of(self, producer_id: int, epoch: int) -> Stored | None:
        own = [each for each in self.batches if each.producer_id == producer_id]
        return own[-1] if own and own[-1].epoch == epoch else None

    @rule(producer_id=st.integers(0, 3))
    def bump_epoch(self, producer_id: int) -> None:
        self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1

    @precondition(lambda self: self.log.active.size_bytes > 0)
    @rule()
    def roll(self) -> None:
        self.log.roll(NOON_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush_now()
        self.recovery_point = self.log.flushed_offset

    @precondition(lambda self: self.batches)
    @rule(place=st.floats(0, 1))
    def truncate(self, place: float) -> None:
        at = int(place * (len(self.batches) - 1))
        offset = max(self.batches[at].base_offset, self.log_start_offset)
        if any(each.base_offset < offset < each.end_offset for each in self.batches):
            return  # The log's start may lie within a batch, but it is never cut there.
        truncate_to(self.log, offset)
        self.batches = [each for each in self.batches if each.base_offset < offset]
        # Whoever truncates writes the checkpoint down before anything else happens.
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs = {each: max(self.epochs.get(each, 0), self.known_epoch(each)) for each in range(4)}

    def known_epoch(self, producer_id: int) -> int:
        return max([each.epoch for each in self.batches if each.producer_id == producer_id], default=0)

    @rule(place=st.floats(0, 1))
    def trim(self, place: float) -> None:
        start = self.log_start_offset + int(place * (self.end_offset - self.log_start_offset))
        trim_now(self.log, start)
        self.log_start_offset = start

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.open(clean=True)

    @rule(torn=st.floats(0, 1))
    def crash(self, torn: float) -> None:
        """Kill the process: what was not flushed may be torn at the end, what was is there."""
        self.lives += 1
        copy = self.home / str(self.lives) / "orders-0"
        shutil.copytree(self.directory, copy)
        active, base_offset = copy / self.log.active.path.name, self.log.active.base_offset
        abandon(self.log)
        shutil.rmtree(self.directory)
        self.directory = copy
        last = self.batches[-1] if self.batches else None
        if last is not None and last.base_offset >= max(self.recovery_point, self.log_start_offset, base_offset):
            size = active.stat().st_size
            batch_size = parse_header(read_last(active.read_bytes())).size_bytes
            lost = int(torn * batch_size)
            if lost:
                with active.open("r+b") as file:
                    file.truncate(size - lost)
                self.batches.pop()
        self.open(clean=False)
        self.log.flush_now()

    # What must hold

    @invariant()
    def the_log_holds_what_it_should(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.log_start_offset, self.end_offset)
        expected = [
            (each.base_offset + step, value)
            for each in self.batches
            for step, value in enumerate(each.values)
            if each.base_offset + step >= self.log_start_offset
        ]
        assert [(record.offset, record.value) for record in records_in(self.log)] == expected
        for offset, _ in expected[:: max(1, len(expected) // 7)]:
            header = parse_header(read_bytes(self.log, offset, size_bytes_max=1))
            assert header.base_offset <= offset <= header.last_offset

    @invariant()
    def producers_remember_what_the_batches_say(self) -> None:
        if not hasattr(self, "log"):
            return
        by_producer: dict[int, list[Stored]] = {}
        for each in self.batches:
            if each.producer_id >= 0:
                by_producer.setdefault(each.producer_id, []).append(each)
        assert set(self.producers.entries) == set(by_producer)
        for producer_id, own in by_producer.items():
            entry = self.producers.entries[producer_id]
            current = [each for each in own if each.epoch == own[-1].epoch][-BATCHES_KEPT:]
            assert entry.epoch == own[-1].epoch
            assert entry.last_timestamp_ms == own[-1].timestamp_ms
            window = [
                (each.sequence, each.sequence + len(each.values) - 1, each.end_offset - 1, len(each.values) - 1)
                for each in current
            ]
            kept = [batch[:4] for batch in entry.batches]
            # A snapshot keeps the newest batch of each producer; older ones are known again as new ones come.
            assert kept
            assert kept == window[-len(kept) :]
            assert len(kept) == len(window) or entry.restored
            for first, last, last_offset, delta in kept:
                assert self.producers.check(producer_id, entry.epoch, first, last) == last_offset - delta

    @invariant()
    def no_file_is_left_over(self) -> None:
        if not hasattr(self, "log"):
            return
        names = {path.name for path in self.directory.iterdir()}
        assert not [name for name in names if name.endswith((".deleted", ".tmp"))]
        bases = {f"{base:020d}" for base in self.log.base_offsets}
        assert {name[:20] for name in names if name.endswith((".log", ".index", ".timeindex"))} == bases

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.home)


def read_last(data: bytes) -> bytes:
    """The last batch of a segment's bytes."""
    at = last = 0
    while at < len(data):
        last = at
        at += parse_header(data, at).size_bytes
    return data[last:]


TestLogHistory = LogHistory.TestCase
# Without shrinking: each try writes files, and a failure would be cut short by the time limit before it is told.
TestLogHistory.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
