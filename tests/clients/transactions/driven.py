"""Transactions by a program in another language: one JSON object a line in, one out.

    {"do": "producer", "id": "a", "timeout_ms": 60000}                           -> {"value": 0}, the actor's number
    {"do": "transformer", "id": "a", "timeout_ms": 60000, "group": "g", "topic": "t"}
    {"do": "begin", "actor": 0}     also commit, abort, poll, positions, leave
    {"do": "send", "actor": 0, "topic": "t", "partition": 1, "values": ["x"]}
    {"do": "read", "topic": "t", "partitions": 2, "isolation": "read_committed"}  -> {"value": [["x"], []]}

A refusal is {"refused": "PRODUCER_FENCED: ...", "final": true}. After "abort" a transformer polls the same again.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

from tests.clients.transactions.client import TIMEOUT_MS, WAIT_S_MAX, Record, Refused, Values


class Program:
    def __init__(self, command: Sequence[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True
        )

    def ask(self, do: str, **fields: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        patience = threading.Timer(2 * WAIT_S_MAX, self._process.kill)
        patience.start()
        line = self._process.stdout.readline()
        patience.cancel()
        if not line:
            self._stderr.seek(0)
            words = self._stderr.read().decode(errors="replace")[-4000:]
            raise AssertionError(f"the program is gone, asked for {do}: {words}")
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"], is_final=answer["final"])
        return answer["value"]

    def close(self) -> None:
        try:
            self._process.communicate(timeout=WAIT_S_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            self._stderr.close()


class DrivenActor:
    """A producer, and with a group also a transformer."""

    def __init__(self, program: Program, number: int, *, gives_positions: bool = False) -> None:
        self._program = program
        self._number = number
        self._gives_positions = gives_positions

    def begin(self) -> None:
        self._ask("begin")

    def send(self, topic: str, partition: int, values: Sequence[str]) -> None:
        self._ask("send", topic=topic, partition=partition, values=list(values))

    def commit(self) -> None:
        self.give_positions()
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def give_positions(self) -> None:
        if self._gives_positions:
            self._ask("positions")

    def poll(self) -> list[Record]:
        deadline = time.monotonic() + WAIT_S_MAX
        while not (found := self._ask("poll")):
            assert time.monotonic() < deadline, "there was nothing to read"
        return [Record(*each) for each in found]

    def leave(self) -> None:
        self._ask("leave")

    def _ask(self, do: str, **fields: Any) -> Any:
        return self._program.ask(do, actor=self._number, **fields)


class DrivenTransactions:
    """`gives_positions`: the library has a call for it, instead of doing it when the transaction ends."""

    def __init__(self, name: str, command: Sequence[str], bootstrap: str, *, gives_positions: bool) -> None:
        self.name = name
        self._program = Program([*command, bootstrap])
        self._gives_positions = gives_positions

    def producer(self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> DrivenActor:
        number = self._program.ask("producer", id=transactional_id, timeout_ms=timeout_ms)
        return DrivenActor(self._program, number)

    def transformer(self, transactional_id: str, group: str, topic: str) -> DrivenActor:
        number = self._program.ask("transformer", id=transactional_id, timeout_ms=TIMEOUT_MS, group=group, topic=topic)
        return DrivenActor(self._program, number, gives_positions=self._gives_positions)

    def read(self, topic: str, partitions: int, isolation: str) -> Values:
        values: Values = self._program.ask("read", topic=topic, partitions=partitions, isolation=isolation)
        return values

    def close(self) -> None:
        self._program.close()
