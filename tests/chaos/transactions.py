"""Transactions under chaos: workers of a group that consume, transform, produce and commit positions as one.

Each seat has a transactional id and a process that sits on it for a while. Then it leaves, is killed, or is stopped
while another process takes its id over, and goes on as a zombie. The checker judges what they said: no transaction
seen in part, before its commit or after its abort, and each input consumed once. An onlooker asks how far readers of
what is committed may go, and how long that stood still.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Position
from tests.chaos.groups import PROTOCOLS, PositionWatcher
from tests.chaos.transformer import END_S_MAX

from strandline.ids import TopicPartition
from strandline.testing.client_threads import QUICK_RETRIES, ClientThread, ConsumerThread
from strandline.testing.history import Committed, Consumed, Mop, Op, Send
from strandline.testing.recorder import Recorder

SEATS = 3
OUTPUT_PARTITIONS = 3
TRANSACTION_TIMEOUT_MS = 10_000
STALL_S_MAX = TRANSACTION_TIMEOUT_MS / 1000 + 10.0
"""How long readers of what is committed may be held up by a transaction, faults not counted, on a machine that answers
quickly."""
WAKE_UPS_OF_AN_END = 40
"""A transaction whose time is over is ended in about ten steps of different brokers, with some wake-ups each. On a busy
machine each comes as late as the onlooker's own, which asks no broker: readers may be held up for so many of these."""
LOOK_EVERY_S = 0.5
ASK_TIMEOUT_S = 5.0
LIFE_S = 40.0
"""How long a process has its seat, about: each change costs the group a rebalance, and it has to come to work."""
PAUSE_S = 8.0
"""Longer than the session of a group's member."""
LEAVE_S_MAX = 2 * END_S_MAX + 60.0
"""A worker that is told to leave first ends its transaction, and may have to ask for that, and then for its abort."""

TRANSACTION_SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class WorkerProcess:
    """One process of `transformer`; what it says becomes operations of the history."""

    def __init__(self, recorder: Recorder, wanted: Mapping[str, Any]) -> None:
        self._recorder = recorder
        self._process_number = recorder.new_process()
        self._group = wanted["group"]
        self._asked: dict[str, Any] | None = None
        self._last_line: dict[str, Any] = {}
        self.ready = threading.Event()
        self.ended = threading.Event()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        argument = json.dumps({**wanted, "process": self._process_number})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.transformer", argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def ask_to_leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()
        self._join()

    def leave(self) -> str:
        """Leave in the ordinary way; says what was wrong with that, if something was."""
        self.ask_to_leave()
        try:
            code = self._process.wait(LEAVE_S_MAX)
            words = f"ended with {code}" if code else ""
        except subprocess.TimeoutExpired:
            self._process.kill()
            words = f"did not leave within {LEAVE_S_MAX:g} s"
        if words:
            words = f"worker {self._process_number} {words}; it last said {self._last_line}; {self._last_words()}"
        self._join()
        return words

    def _join(self) -> None:
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _last_words(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-2000:]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            # A process that is killed may leave half a line, of something that it therefore never did.
            if text.endswith(b"\n"):
                self._hear(json.loads(text))
        if self._asked is not None:
            self._record("info", self._recorder.now_ns(), "the process died")
        self.ended.set()

    def _hear(self, line: dict[str, Any]) -> None:
        self._last_line = {name: line[name] for name in line.keys() & {"did", "at", "outcome", "error"}}
        match line["did"]:
            case "ready":
                self.ready.set()
            case "asks":
                self._asked = line
            case "ended":
                self._record(line["outcome"], line["at"], line["error"])

    def _record(self, outcome: Any, at_ns: int, error: str) -> None:
        assert self._asked is not None
        sends: list[Mop] = [Send(*send) for send in self._asked["sends"]]
        taken = [
            (Consumed(self._group, *each), Committed(self._group, each[0], each[2])) for each in self._asked["taken"]
        ]
        mops = (*sends, *(mop for pair in taken for mop in pair))
        self._recorder.add(Op(self._process_number, outcome, "txn", mops, self._asked["at"], at_ns, error=error))
        self._asked = None


class Seat(ClientThread):
    """A transactional id, and one process after the other that has it."""

    def __init__(self, recorder: Recorder, wanted: Mapping[str, Any], rng: random.Random) -> None:
        super().__init__(recorder, wanted["transactional_id"])
        self._wanted = dict(wanted)
        self._rng = rng
        self.ends: Counter[str] = Counter()
        self.complaints: list[str] = []
        """Of processes that did not leave as they should."""

    def work(self) -> None:
        worker = self._sit_down()
        while not self.stopping.is_set():
            end = self._rng.choice(("leaves", "is killed", "becomes a zombie"))
            is_gone = self._wait(worker.ended, self._rng.uniform(0.3, 1.5) * LIFE_S)
            if self.stopping.is_set():
                break
            # It gives up by itself when a fault lasts longer than its patience, or the coordinator fenced it.
            self.ends["gave up" if is_gone else end] += 1
            match end:
                case "is killed" if not is_gone:
                    worker.kill()
                    worker = self._sit_down()
                case "becomes a zombie" if not is_gone:
                    worker = self._be_haunted(worker)
                case _:
                    self._let_go(worker)
                    worker = self._sit_down()
        self._let_go(worker)

    def _let_go(self, worker: WorkerProcess) -> None:
        if complaint := worker.leave():
            self.complaints.append(complaint)

    def _be_haunted(self, zombie: WorkerProcess) -> WorkerProcess:
        """Another one takes the id while this one sleeps, and is at work when it wakes up."""
        zombie.pause()
        try:
            heir = self._sit_down()
            self.stopping.wait(self._rng.uniform(0.2, 1.0) * PAUSE_S)
        finally:
            zombie.resume()
        self._wait(zombie.ended, PAUSE_S)
        self._let_go(zombie)
        return heir

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        """Whether it came before the time was over; the end of the work ends this, too."""
        until = time.monotonic() + seconds
        while not self.stopping.is_set() and time.monotonic() < until:
            if event.wait(0.1):
                return True
        return False

    def _sit_down(self) -> WorkerProcess:
        return WorkerProcess(self.recorder, self._wanted | {"seed": self._rng.getrandbits(32)})


class StableOffsetWatcher(ClientThread):
    """Asks where the outputs end for both kinds of readers, and notes how long the one was held up behind the other."""

    def __init__(self, recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(recorder, f"stable-offsets-of-{partitions[0].topic}")
        self.partitions = tuple(partitions)
        self.spans: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        """For partitions with an open transaction, when readers were first and last seen to be held up at an offset."""
        self.late_s = 0.0
        """How much later than it wanted to be this thread was woken, at most."""
        self._settings = {"bootstrap.servers": bootstrap, "group.id": self.partitions[0].topic, **QUICK_RETRIES}

    def work(self) -> None:
        with self._consumers() as (stable, high):
            while True:
                slept_ns = self.recorder.now_ns()
                if self.stopping.wait(LOOK_EVERY_S):
                    return
                self.late_s = max(self.late_s, (self.recorder.now_ns() - slept_ns) / 1e9 - LOOK_EVERY_S)
                for partition in self.partitions:
                    self._look(partition, stable, high)

    @contextlib.contextmanager
    def _consumers(self) -> Iterator[tuple[Consumer, Consumer]]:
        levels = ("read_committed", "read_uncommitted")
        stable, high = (Consumer({**self._settings, "isolation.level": level}) for level in levels)
        try:
            yield stable, high
        finally:
            stable.close()
            high.close()

    def _look(self, partition: TopicPartition, stable: Consumer, high: Consumer) -> bool:
        """Whether everything that is written may be read."""
        try:
            # In this order: what is written in between is not held up by anything.
            written = high.get_watermark_offsets(Position(*partition), timeout=ASK_TIMEOUT_S)[1]
            readable = stable.get_watermark_offsets(Position(*partition), timeout=ASK_TIMEOUT_S)[1]
        except KafkaException:
            return False
        now_ns = self.recorder.now_ns()
        if readable >= written:
            return True
        since_ns, _ = self.spans.get((partition, readable), (now_ns, now_ns))
        self.spans[partition, readable] = since_ns, now_ns
        return False

    def wait_stable(self, *, timeout_s: float) -> str:
        """Waits until no transaction is open any more; else says where one is. The workers have left."""
        deadline = time.monotonic() + timeout_s
        with self._consumers() as (stable, high):
            while True:
                held = [str(each) for each in self.partitions if not self._look(each, stable, high)]
                if not held:
                    return ""
                if time.monotonic() > deadline:
                    return f"a transaction is open in {', '.join(held)}, {timeout_s:g} s after the last worker left"
                self.stopping.wait(LOOK_EVERY_S / 5)


@dataclass
class TransactionalWorkload:
    """All who take part, and what is asked of them at the end of a round."""

    group: str
    outputs: Sequence[TopicPartition]
    seats: list[Seat]
    onlookers: list[ClientThread]
    positions: PositionWatcher
    """Asked at the end; another one looks on, since what one process is told comes in order."""
    stable: StableOffsetWatcher

    @property
    def complaints(self) -> list[str]:
        return [complaint for seat in self.seats for complaint in seat.complaints]

    @property
    def ends(self) -> Counter[str]:
        """How the workers' lives ended."""
        return sum((seat.ends for seat in self.seats), Counter())

    def record_final_positions(self, recorder: Recorder, *, timeout_s: float) -> None:
        """Where the group stands when all is done: the checker holds it against what transactions took."""
        deadline = time.monotonic() + timeout_s
        consumer = Consumer(dict(self.positions.settings))
        try:
            invoked_ns = recorder.now_ns()
            while len(found := self.positions.look(consumer)) < len(self.positions.partitions):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the positions of {self.group} are not told: {found}")
            mops = tuple(Committed(self.group, name, offset) for name, offset in found.items())
            now_ns = recorder.now_ns()
            recorder.add(
                Op(self.positions.process, "ok", "read_committed_offset", mops, invoked_ns, now_ns, final=True)
            )
        finally:
            consumer.close()


def outputs_of(topic: str) -> str:
    return f"{topic}-out"


def workload_over(
    recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition], *, seed: int, kind: str
) -> TransactionalWorkload:
    """Workers over all partitions, whose group speaks the protocol `kind`, and those who look on."""
    source = partitions[0].topic
    target = outputs_of(source)
    watcher, asked_at_the_end = (
        PositionWatcher(recorder, bootstrap, partitions, f"transactional-{kind}") for _ in range(2)
    )
    wanted = {
        "bootstrap": bootstrap,
        "group": watcher.group,
        "source": source,
        "target": target,
        "partitions": OUTPUT_PARTITIONS,
        "timeout_ms": TRANSACTION_TIMEOUT_MS,
        "protocol": PROTOCOLS[kind],
    }
    seats = [
        Seat(recorder, wanted | {"transactional_id": f"{target}-{seat}"}, random.Random(f"{seed} {source} seat {seat}"))
        for seat in range(SEATS)
    ]
    outputs = [TopicPartition(target, number) for number in range(OUTPUT_PARTITIONS)]
    reader = ConsumerThread(recorder, bootstrap, outputs, settings={"isolation.level": "read_committed"})
    stable = StableOffsetWatcher(recorder, bootstrap, outputs)
    return TransactionalWorkload(watcher.group, outputs, seats, [reader, watcher, stable], asked_at_the_end, stable)
