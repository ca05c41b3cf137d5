"""What a cluster knows of its pipelines: a compacted topic of one partition, read whole.

    pipeline/<name>             PipelineState
    run/<name>/<version>        RunState, by the process that runs it
    command/<name>              Command, for that process
    view/<name>                 a view that was defined by hand

What several may change at once (`pipeline/`) is changed in a transaction by one transactional id: who comes later
fences who came before, so a change that was made upon an old state fails to commit and is made again upon the new one.
A run's own record has one writer, which sends it as an idempotent producer.

Known gaps: heartbeats are compared with the clock of their reader; a broker that does not compact keeps them all,
some 20 MB a day for each pipeline that runs, until `pipeline/` records are the few among many.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

from strandline.client.failures import ClientFailed
from strandline.client.security import librdkafka_of
from strandline.errors import WorldError
from strandline.pipelines.language.model import KnownDataset
from strandline.pipelines.versions.state import Command, PipelineState, RunState, known_datasets, text_of
from strandline.pipelines.versions.version_log import TOPIC, RegistryLog

TRANSACTIONAL_ID: Final = "strandline-pipelines"
TIMEOUT_S: Final = 30.0
TRANSACTION_TIMEOUT_MS: Final = 5000
"""How long one who dies in the middle of a change hides what is written after it."""
ATTEMPTS_MAX: Final = 20
"""Of a change that others fence again and again."""

_FENCED: Final = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "_STATE", "CONCURRENT_TRANSACTIONS")

logger = logging.getLogger("strandline.pipelines.registry")
_quiet = logging.getLogger("strandline.pipelines.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class RegistryFailed(WorldError):
    """The cluster did not tell or take what is known of pipelines; one sentence."""


class Registry:
    """A reader and writer of the topic; for several threads. `refresh` reads what was added, all else is memory."""

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._lock = threading.RLock()
        self._entries: dict[str, dict[str, Any]] = {}
        self._next_offset = 0
        self._log = RegistryLog(bootstrap, timeout_s)
        self._producer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._log.close()
            self._producer = None

    # Reading

    def refresh(self) -> Self:
        """Everything that was committed when this was called is known when it returns."""
        with self._lock, self._reading():
            self._read_on()
        return self

    def entries(self, prefix: str) -> dict[str, dict[str, Any]]:
        """The records as they are, by what follows the prefix (`view/`) in their key, in order of these names."""
        with self._lock:
            found = {key[len(prefix) :]: each for key, each in self._entries.items() if key.startswith(prefix)}
        return dict(sorted(found.items()))

    @property
    def pipelines(self) -> dict[str, PipelineState]:
        return {name: PipelineState.from_json(each) for name, each in self.entries("pipeline/").items()}

    def pipeline(self, name: str) -> PipelineState | None:
        told = self._entries.get(f"pipeline/{name}")
        return None if told is None else PipelineState.from_json(told)

    def run(self, name: str, version: int) -> RunState | None:
        told = self._entries.get(f"run/{name}/{version}")
        return None if told is None else RunState.from_json(told)

    def runs(self, name: str) -> dict[int, RunState]:
        """By version."""
        return {int(version): RunState.from_json(each) for version, each in self.entries(f"run/{name}/").items()}

    def command(self, name: str) -> Command | None:
        told = self._entries.get(f"command/{name}")
        return None if told is None else Command.from_json(told)

    def known_datasets(self) -> dict[str, KnownDataset]:
        return known_datasets(self.pipelines)

    # Writing

    def change(self, name: str, change: Callable[[PipelineState | None], PipelineState | None]) -> PipelineState | None:
        """Change what is known of a pipeline, upon the newest state; `change` may be called more than once.

        None takes the pipeline away, with its runs and commands.
        """

        def on_entries(entries: Mapping[str, dict[str, Any]]) -> dict[str, str | None]:
            told = entries.get(f"pipeline/{name}")
            new = change(None if told is None else PipelineState.from_json(told))
            if new is not None:
                return {f"pipeline/{name}": text_of(new)}
            gone = [key for key in entries if key == f"command/{name}" or key.startswith(f"run/{name}/")]
            return dict.fromkeys([f"pipeline/{name}", *gone])

        self.change_entries(on_entries)
        return self.pipeline(name)

    def change_entries(self, change: Callable[[Mapping[str, dict[str, Any]]], Mapping[str, str | None]]) -> None:
        """All changes that `change` returns upon the newest state, or none: texts by key, None takes one away."""
        from confluent_kafka import KafkaException

        with self._lock:
            for _ in range(ATTEMPTS_MAX):
                try:
                    self._make_topic()
                    self._change_once(change)
                    return
                except KafkaException as error:
                    if error.args[0].name() not in _FENCED:
                        raise self._failure("write", error.args[0].str()) from error
                # Two that fence one another must not go on in step.
                time.sleep(random.uniform(0.05, 0.5))
        raise RegistryFailed(
            f"what {self.bootstrap} knows of pipelines is being changed by many at once: try again in a moment"
        )

    def put(self, key: str, text: str | None) -> None:
        """One record, whatever was there before; for keys that have one writer."""
        from confluent_kafka import KafkaException

        with self._lock:
            try:
                self._make_topic()
                if self._producer is None:
                    self._producer = self._new_producer({"enable.idempotence": True})
                self._send(key, text)
            except KafkaException as error:
                # A producer that has failed once for good fails for ever.
                self._producer = None
                raise self._failure("write", error.args[0].str()) from error

    def put_run(self, run: RunState) -> None:
        self.put(f"run/{run.pipeline}/{run.version}", text_of(run))

    def put_command(self, command: Command) -> None:
        self.put(f"command/{command.pipeline}", text_of(command))

    def _change_once(self, change: Callable[[Mapping[str, dict[str, Any]]], Mapping[str, str | None]]) -> None:
        producer = self._new_producer(
            {"transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        )
        # From here on no process that read before can commit, so the change is made upon what is read now.
        producer.init_transactions(self._timeout_s)
        with self._reading():
            self._read_on()
        changes = change(dict(self._entries))
        if not changes:
            return
        producer.begin_transaction()
        for key, text in changes.items():
            producer.produce(TOPIC, key=key.encode(), value=None if text is None else text.encode(), partition=0)
        producer.commit_transaction(self._timeout_s)
        # The answer comes with the decision, its marker a moment later.
        with self._reading():
            self._read_up_to(self._log.end(committed=False))

    def _send(self, key: str, text: str | None) -> None:
        failed: list[Any] = []
        value = None if text is None else text.encode()
        self._producer.produce(
            TOPIC, key=key.encode(), value=value, partition=0, on_delivery=lambda error, _: failed.append(error)
        )
        self._producer.flush(self._timeout_s)
        if failed != [None]:
            if not failed:
                raise RegistryFailed(f"{self.bootstrap} did not take what is known of pipelines in time")
            raise import_module("confluent_kafka").KafkaException(failed[0])
        # Not read back, because an open transaction may hide it for a while, and it has one writer.
        self._take(key.encode(), value)

    # The topic

    def _make_topic(self) -> None:
        with self._reading():
            self._log.make()

    def _read_on(self) -> None:
        """Read what is committed now."""
        self._read_up_to(self._log.end(committed=True))

    def _read_up_to(self, end: int) -> None:
        if self._next_offset < end:
            # All or nothing, so that a reader meanwhile, or after a failure, sees no state that never was.
            for key, value in list(self._log.read(self._next_offset, end)):
                self._take(key, value)
            self._next_offset = end

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode(errors="replace")
        if value is None:
            self._entries.pop(name, None)
            return
        try:
            told = json.loads(value)
        except ValueError:
            told = None
        if isinstance(told, dict):
            self._entries[name] = told
        else:
            # Written by another program. One such record must not be the end of all pipelines.
            logger.warning("a record of %s with the key %r is not ours and is passed over", TOPIC, name)

    # Clients

    def _new_producer(self, more: Mapping[str, Any]) -> Any:
        from confluent_kafka import Producer

        settings = librdkafka_of(self.bootstrap) | {"client.id": "strandline-pipelines", "log_level": 0}
        return Producer({**settings, "acks": "all", "linger.ms": 0, **more}, logger=_quiet)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except ClientFailed as error:
            raise self._failure("read", str(error)) from error

    def _failure(self, verb: str, heard: str) -> RegistryFailed:
        return RegistryFailed(
            f"cannot {verb} what {self.bootstrap} knows of pipelines ({heard}): is the cluster well? "
            "`strandline doctor` says more"
        )
