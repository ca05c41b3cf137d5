"""The driver for kcat, a program: each call is a process, its records JSON lines. Topics are made by confluent-kafka.

kcat passes bytes through its JSON as they are, so the lines are read as Latin-1, in which every byte is a character.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from confluent_kafka import KafkaError
from tests.clients.client import NO_LIMITS, WAIT_S_MAX, ClientFailed, Got, Limits, New, until
from tests.clients.confluent_client import ConfluentClient, fetch_settings

from strandline.errors import ErrorCode

# Neither occurs in what the scenarios write.
_KEY_DELIMITER, _RECORD_DELIMITER = "#~\\x01~#", "@~\\x02~@"
_KEY_END, _RECORD_END = b"#~\x01~#", b"@~\x02~@"
_POLL_S = 0.1
_DELIVERED = re.compile(r"Message delivered to partition (-?\d+) \(offset (-?\d+)\)")
# kcat reports an error by librdkafka's text, which names the code.
_CODES = {KafkaError(code).str(): int(code) for code in ErrorCode if code != ErrorCode.NONE}


def kcat_missing() -> str | None:
    """Why these tests cannot run, if they cannot."""
    return None if shutil.which("kcat") else "kcat is not on PATH"


class KcatClient:
    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stage = ConfluentClient(bootstrap)
        self.create_topic = self._stage.create_topic

    def told(self, code: int) -> int:
        return code

    def produce(
        self,
        topic: str,
        records: list[New],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> list[tuple[int, int]]:
        settings = {
            "acks": acks,
            "compression.type": codec,
            "enable.idempotence": str(idempotent).lower(),
            "linger.ms": str(linger_ms),
            "message.max.bytes": "10000000",
            "message.timeout.ms": str(int(WAIT_S_MAX * 1000)),
        }
        places = [(-1, -1)] * len(records)
        for run in _runs(records):
            for index, place in zip(
                run, self._produce(topic, [records[index] for index in run], settings), strict=True
            ):
                places[index] = place
        return places

    def _produce(self, topic: str, records: list[New], settings: dict[str, str]) -> list[tuple[int, int]]:
        first = records[0]
        options: list[str] = [] if first.partition is None else ["-p", str(first.partition)]
        options += [] if first.key is None else ["-K", _KEY_DELIMITER]
        options += ["-Z"] if first.value is None else []
        for name, value in first.headers:
            options += ["-H", name if value is None else f"{name}={value.decode()}"]
        lines = (b"" if each.key is None else each.key + _KEY_END for each in records)
        written = b"".join(line + (each.value or b"") + _RECORD_END for line, each in zip(lines, records, strict=True))
        # Three times -v has it tell where each record went, in the order of a partition.
        done = self._run("-P", "-t", topic, "-D", _RECORD_DELIMITER, "-vvv", *options, settings=settings, stdin=written)
        return [(int(partition), int(offset)) for partition, offset in _DELIVERED.findall(done.stderr.decode())]

    def read(
        self,
        topic: str,
        starts: Mapping[int, int],
        count: int,
        *,
        reset: str = "earliest",
        limits: Limits = NO_LIMITS,
        while_waiting: Callable[[], None] | None = None,
    ) -> list[Got]:
        settings = fetch_settings(reset, limits) | {"fetch.wait.max.ms": "100"}
        # One partition by its number, or all of the topic from one offset.
        (start,) = set(starts.values())
        place = ["-p", str(next(iter(starts)))] if len(starts) == 1 else []
        command = ["-C", "-t", topic, *place, "-o", str(start), "-c", str(count), "-J"]
        with tempfile.TemporaryFile() as output, self._started(*command, settings=settings, stdout=output) as process:
            said = []
            for line in process.stderr:
                said.append(line.decode())
                if b"Reached end of topic" in line and while_waiting is not None:
                    while_waiting()
            _check(process.wait(WAIT_S_MAX), "".join(said))
            output.seek(0)
            return [_got(line) for line in output]

    def member(self, topic: str, group: str) -> KcatMember:
        settings = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": "100", "heartbeat.interval.ms": "500"}
        return KcatMember(self._command("-G", group, topic, "-u", "-J", settings=settings))

    def earliest(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, -2)

    def latest(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, -1)

    def at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset = self._offset(topic, partition, timestamp_ms)
        return None if offset < 0 else offset

    def _offset(self, topic: str, partition: int, timestamp_ms: int) -> int:
        done = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}")
        return int(done.stdout.split()[-1])

    def topics(self) -> dict[str, int]:
        listed = json.loads(self._run("-L", "-J").stdout)
        return {topic["topic"]: len(topic["partitions"]) for topic in listed["topics"]}

    def close(self) -> None:
        self._stage.close()

    def _command(self, *options: str, settings: Mapping[str, str]) -> list[str]:
        return ["kcat", "-b", self._bootstrap, *options, *(f"-X{name}={value}" for name, value in settings.items())]

    def _run(
        self, *options: str, settings: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        command = self._command(*options, settings=settings or {})
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=2 * WAIT_S_MAX, check=False)
        _check(done.returncode, done.stderr.decode())
        return done

    @contextmanager
    def _started(self, *options: str, settings: Mapping[str, str], stdout: IO[bytes]) -> Iterator[Any]:
        """A process that is killed when it takes for ever, so that reading what it says always ends."""
        command = self._command(*options, settings=settings)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE)
        patience = threading.Timer(WAIT_S_MAX, process.kill)
        patience.start()
        try:
            yield process
        finally:
            patience.cancel()
            process.kill()
            process.wait()
            process.stderr.close()  # type: ignore[union-attr]


class KcatMember:
    """A balanced consumer; it commits what it has printed when it leaves."""

    def __init__(self, command: Sequence[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  Closed in `close`, as the process is.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._said)
        self._partial = b""

    def poll(self) -> list[Got]:
        assert self._process.stdout is not None
        stdout = self._process.stdout.fileno()
        readable, _, _ = select.select([stdout], [], [], _POLL_S)
        if not readable:
            return []
        *lines, self._partial = (self._partial + os.read(stdout, 1 << 20)).split(b"\n")
        return [_got(line) for line in lines]

    def assignment(self) -> set[int]:
        said = os.pread(self._said.fileno(), 1 << 20, 0).decode()
        assigned = re.findall(r"rebalanced .*(assigned|revoked): (.*)", said)
        if not assigned or assigned[-1][0] == "revoked":
            return set()
        return {int(partition) for partition in re.findall(r"\[(\d+)\]", assigned[-1][1])}

    def commit(self) -> None:
        until("a partition to commit", lambda: bool(self.assignment()))

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.communicate(timeout=WAIT_S_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            self._said.close()


def _runs(records: list[New]) -> list[list[int]]:
    """Which records one process can write: headers, nulls and the partition are options that hold for all of them.

    Where the client chooses the partition, the records of one key go together, for only then is it known whose place
    each report tells.
    """
    is_one_partition = len({record.partition for record in records}) == 1 and records[0].partition is not None
    runs: list[list[int]] = []
    latest: dict[Hashable, list[int]] = {}
    for index, each in enumerate(records):
        shape = (
            each.partition,
            each.headers,
            each.key is None,
            each.value is None,
            each.partition is None and each.key,
        )
        if shape not in latest:
            if is_one_partition:
                # Order is promised within a partition, so that a run ends where another begins.
                latest.clear()
            runs.append([])
            latest[shape] = runs[-1]
        latest[shape].append(index)
    return runs


def _got(line: bytes) -> Got:
    record = json.loads(line.decode("latin-1"))
    names = [name.encode("latin-1").decode() for name in record.get("headers", [])[::2]]
    values = [_bytes(value) for value in record.get("headers", [])[1::2]]
    return Got(
        record["partition"],
        record["offset"],
        _bytes(record["key"]),
        _bytes(record["payload"]),
        tuple(zip(names, values, strict=True)),
        record["ts"],
        record["tstype"] == "logappend",
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def _check(status: int, said: str) -> None:
    if status != 0:
        code = next((code for text, code in _CODES.items() if text in said), None)
        assert code is not None, f"kcat left with status {status}: {said}"
        raise ClientFailed(code, said)
