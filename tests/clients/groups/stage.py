"""Members of a group as processes on one stage: started, killed, paused, watched; and the judgement at the end."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from bench.asking import Question
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.clients.groups.telling import Line, Place, Wanted
from tests.clients.groups.verdict import Life, complaints, reads

from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

WAIT_S_MAX = 90.0
"""How long anything may take on a busy machine; a JVM needs seconds for its first word."""
LEAVE_S_MAX = 30.0
PATIENT_SESSION_MS = 45_000
SHORT_SESSION_MS = 6_000
GROUP_RESOURCE = 32
STDERR_SHOWN_MAX = 4_000


class MemberProcess:
    """One member. What it says goes into its life, under the stage's lock."""

    def __init__(
        self, wanted: Wanted, command: Sequence[str], changed: threading.Condition, on_line: Callable[[Line], None]
    ) -> None:
        self.wanted = wanted
        self.life = Life(wanted.name)
        self._changed = changed
        self._on_line = on_line
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [*command, wanted.as_json()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
        )
        self._is_expected_to_end = False
        self._listener = threading.Thread(target=self._listen, name=f"ear for {wanted.name}", daemon=True)
        self._listener.start()

    @property
    def owned(self) -> set[Place]:
        with self._changed:
            return set(self.life.owned)

    @property
    def numbers(self) -> set[int]:
        """The partitions it owns, where one topic is enough to tell them apart."""
        return {number for _, number in self.owned}

    def said(self, did: str) -> list[Line]:
        with self._changed:
            return [line for line in self.life.lines if line.did == did]

    def taken_away(self, since: int = 0) -> set[Place]:
        """What was revoked or lost, in the lines after the first `since`."""
        with self._changed:
            lines = self.life.lines[since:]
        return {place for line in lines if line.did in ("revoked", "lost") for place in line.places}

    def kill(self) -> None:
        self._is_expected_to_end = True
        self._process.kill()
        self._ended()

    def pause(self) -> None:
        with self._changed:
            self.life.stopped_ns.append(time.monotonic_ns())
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        """Close the client in the ordinary way, and wait until it has."""
        self.ask_to_leave()
        try:
            self._process.wait(LEAVE_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.life.name} did not leave: {self.last_words()}") from None
        self._ended()
        assert self._process.returncode == 0, f"{self.life.name}: {self.last_words()}"

    def ask_to_leave(self) -> None:
        self._is_expected_to_end = True
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def died_by_itself(self) -> bool:
        return not self._is_expected_to_end and self._process.poll() is not None

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def last_words(self) -> str:
        if self._stderr.closed:
            return ""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-STDERR_SHOWN_MAX:]

    def discard(self) -> None:
        """Whatever it is doing, also when it is paused."""
        self._is_expected_to_end = True
        self._process.kill()
        self._ended()
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            assert pipe is not None
            pipe.close()

    def _ended(self) -> None:
        self._process.wait()
        self._listener.join()
        with self._changed:
            self.life.end(time.monotonic_ns())
            self._changed.notify_all()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            # A process that is killed may leave half a line, of something that it therefore never did.
            if text.endswith(b"\n"):
                line = Line.of(text)
                with self._changed:
                    self.life.hear(line)
                    self._on_line(line)
                    self._changed.notify_all()
        # Whoever waits for its next word shall see that there is none.
        self._process.wait()
        with self._changed:
            self._changed.notify_all()


class Stage:
    """One group of one kind of client, its topics, and what was written into them."""

    def __init__(
        self,
        bootstrap: str,
        command: Sequence[str],
        name: str,
        *,
        protocol: str,
        assignor: str,
        replication: int = 1,
    ) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.group = f"{name}-group"
        self.command = command
        self.protocol = protocol
        self.assignor = assignor
        self.session_ms = PATIENT_SESSION_MS
        self.replication = replication
        self.members: list[MemberProcess] = []
        self.written: dict[Place, list[str]] = {}
        self.reached: dict[Place, int] = {}
        """How far members have committed, by what they said."""
        self._changed = threading.Condition()
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._producer = self._new_producer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for member in self.members:
            if error is not None and (words := member.last_words()):
                error.add_note(f"{member.life.name} said on standard error:\n{words}")
            member.discard()

    def notice_deaths_soon(self) -> None:
        """Short sessions, for members that join from now on and, in the consumer protocol, for the whole group.

        Only where somebody dies: on a busy machine a process may take longer than that to start again.
        """
        self.session_ms = SHORT_SESSION_MS
        setting = AlterableConfig(name="consumer.session.timeout.ms", value=str(SHORT_SESSION_MS))
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=[setting])
        host, _, port = self.bootstrap.split(",")[0].rpartition(":")
        with Question(host, int(port), timeout_s=WAIT_S_MAX) as question:
            answer = question.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert [each.error_code for each in answer.responses] == [0], answer.responses[0].error_message

    def reap(self) -> None:
        """Let go of the files of members that have ended, as they should: a long story has hundreds."""
        for member in self.members:
            if member.has_ended and not member.died_by_itself:
                member.discard()

    def topic(self, partitions: int, suffix: str = "") -> str:
        """Create a topic of this stage."""
        name = f"{self.name}{suffix}"
        self._admin.create_topics([NewTopic(name, partitions, self.replication)])[name].result(WAIT_S_MAX)
        for number in range(partitions):
            self.written[name, number] = []
        return name

    def add_partitions(self, topic: str, count: int) -> None:
        """Grow the topic to `count` partitions."""
        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(WAIT_S_MAX)
        for number in range(count):
            self.written.setdefault((topic, number), [])
        # The one before looks for new partitions only now and then.
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        settings = {"linger.ms": 0, "enable.idempotence": True, "log_level": 0}
        return Producer({"bootstrap.servers": self.bootstrap, **settings})

    def join(
        self,
        name: str,
        *topics: str,
        pattern: str | None = None,
        instance: str | None = None,
        speaks: tuple[str, str] | None = None,
    ) -> MemberProcess:
        """Start a member; it is not in the group yet when this returns. `speaks` is another protocol and assignor."""
        protocol, assignor = speaks or (self.protocol, self.assignor)
        wanted = Wanted(
            name,
            self.bootstrap,
            self.group,
            topics or (self.name,),
            pattern,
            instance,
            protocol,
            assignor,
            self.session_ms,
        )
        member = MemberProcess(wanted, self.command, self._changed, self._on_line)
        self.members.append(member)
        return member

    def write(self, per_partition: int = 10, topics: Iterable[str] | None = None) -> None:
        """Some records into every partition, acknowledged."""
        failures: list[Any] = []
        for place, values in self.written.items():
            if topics is not None and place[0] not in topics:
                continue
            for _ in range(per_partition):
                value = f"{place[0]}-{place[1]}:{len(values)}"
                values.append(value)
                self._send(place, value, failures)
        assert self._producer.flush(WAIT_S_MAX) == 0
        assert not failures, failures[0]

    def _send(self, place: Place, value: str, failures: list[Any]) -> None:
        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error)

        self._producer.produce(place[0], value, partition=place[1], on_delivery=on_delivery)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until what the members say makes it true; fail when it takes for ever or one of them is gone."""
        deadline = time.monotonic() + WAIT_S_MAX
        with self._changed:
            while not holds():
                for member in self.members:
                    assert not member.died_by_itself, f"{member.life.name} is gone: {member.last_words()}"
                assert self._changed.wait(deadline - time.monotonic()), f"waited in vain: {what}; {self.state()}"

    def state(self) -> str:
        return "; ".join(
            f"{member.life.name} owns {sorted(member.owned)}, last said {[line.did for line in member.life.lines[-5:]]}"
            for member in self.members
        )

    def until_shared(self, *shares: tuple[MemberProcess, int]) -> None:
        """Until these members have so many partitions, all partitions together, none twice."""

        def is_shared() -> bool:
            have = [member.owned for member, _ in shares]
            sizes = [size for _, size in shares]
            places = set(self.written)
            return [len(each) for each in have] == sizes and set().union(*have) == places and sum(sizes) == len(places)

        self.until(f"shares of {[size for _, size in shares]}", is_shared)

    def until_read(self) -> None:
        """Until every record that was written has been read, and its position committed by who read it."""
        wanted = {place: len(values) for place, values in self.written.items() if values}
        self.until(
            "everything read and committed",
            lambda: all(self.reached.get(place, 0) >= end for place, end in wanted.items()),
        )

    def _on_line(self, line: Line) -> None:
        if line.did == "committed":
            for topic, number, position in line.positions:
                self.reached[topic, number] = max(position, self.reached.get((topic, number), 0))

    def repeated(self, places: Iterable[Place]) -> list[tuple[Place, int]]:
        """The records of these partitions that were read more than once."""
        with self._changed:
            counts = Counter((place, offset) for _, _, place, offset, _ in reads([each.life for each in self.members]))
        chosen = set(places)
        return sorted(record for record, count in counts.items() if count > 1 and record[0] in chosen)

    def positions(self) -> dict[Place, int]:
        """What the broker has for the group."""
        places = sorted(self.written)
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0})
        try:
            found = consumer.committed([TopicPartition(*place) for place in places], timeout=WAIT_S_MAX)
        finally:
            consumer.close()
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {(each.topic, each.partition): max(0, each.offset) for each in found}

    def judge(self) -> None:
        """Everything was read and committed, and nothing that a group is promised was broken."""
        self.until_read()
        positions = self.positions()
        assert positions == {place: len(values) for place, values in self.written.items()}
        with self._changed:
            found = complaints([member.life for member in self.members], self.written, positions)
        assert not found, found[:20]
