"""What a cluster knows of its pipelines: a compacted topic of one partition, read whole.

    pipeline/<name>             PipelineState
    run/<name>/<version>        RunState, by the process that runs it
    command/<name>              Command, for that process
    view/<name>                 a view that was defined by hand

What several may change at once (`pipeline/`) is changed in a transaction by one transactional id: who comes later
fences who came before, so a change that was made upon an old state fails to commit and is made again upon the new one.
A run's own record has one writer, which sends it as an idempotent producer.

Known gaps: heartbeats are compared with the clock of whoever reads them; a broker that does not compact keeps them all,
some 20 MB a day for each pipeline that runs, until `pipeline/` records are the few among many.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

from strandline.errors import WorldError
from strandline.pipelines.model import KnownDataset
from strandline.pipelines.state import Command, PipelineState, RunState, known_datasets, text_of

TOPIC: Final = "__strandline_pipelines"
TRANSACTIONAL_ID: Final = "strandline-pipelines"
REPLICAS: Final = 3
TIMEOUT_S: Final = 30.0
ANSWER_S_MAX: Final = 5.0
"""How long one broker is waited for. A client that waits for a leader which has died may wait for ever; a new one finds
out who leads now."""
TRANSACTION_TIMEOUT_MS: Final = 5000
"""How long one who dies in the middle of a change hides what is written after it."""
ATTEMPTS_MAX: Final = 20
"""Of a change that others fence again and again."""

_POLL_S: Final = 0.2
_SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024), "segment.ms": "3600000"}
_LEADERLESS: Final = ("_NOENT", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "UNKNOWN_TOPIC_OR_PART")
_SILENT: Final = ("_TIMED_OUT", "_TRANSPORT", "REQUEST_TIMED_OUT", "_ALL_BROKERS_DOWN", "BROKER_NOT_AVAILABLE")
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
        self._consumer: Any = None
        self._producer: Any = None
        self._kept_admin: Any = None
        self._topic_is_there = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
            self._producer = None

    # Reading

    def refresh(self) -> Self:
        """Everything that was committed when this was called is known when it returns."""
        from confluent_kafka import KafkaException

        with self._lock:
            try:
                self._read_on()
            except KafkaException as error:
                raise self._failure("read", error) from error
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
                    if self._change_once(change):
                        return
                except KafkaException as error:
                    if error.args[0].name() not in _FENCED:
                        raise self._failure("write", error) from error
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
                raise self._failure("write", error) from error

    def put_run(self, run: RunState) -> None:
        self.put(f"run/{run.pipeline}/{run.version}", text_of(run))

    def put_command(self, command: Command) -> None:
        self.put(f"command/{command.pipeline}", text_of(command))

    def _change_once(self, change: Callable[[Mapping[str, dict[str, Any]]], Mapping[str, str | None]]) -> bool:
        producer = self._new_producer(
            {"transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        )
        # From here on nobody who read before can commit, so what is read now is what the change is made upon.
        producer.init_transactions(self._timeout_s)
        self._read_on()
        changes = change(dict(self._entries))
        if not changes:
            return True
        producer.begin_transaction()
        for key, text in changes.items():
            producer.produce(TOPIC, key=key.encode(), value=None if text is None else text.encode(), partition=0)
        producer.commit_transaction(self._timeout_s)
        # The answer comes with the decision, its marker a moment later.
        self._read_up_to(self._end(committed=False))
        return True

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
        # Not read back: somebody's open transaction may hide it for a while, and it has one writer.
        self._take(key.encode(), value)

    # The topic

    def _read_on(self) -> None:
        """Read what is committed now."""
        self._read_up_to(self._end(committed=True))

    def _read_up_to(self, end: int | None) -> None:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        if end is None:
            return
        if self._consumer is None:
            self._consumer = self._new_consumer()
            self._consumer.assign([TopicPartition(TOPIC, 0, self._next_offset)])
        until = time.monotonic() + self._timeout_s
        while self._next_offset < end:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() > until:
                    raise RegistryFailed(f"{self.bootstrap} does not tell what it knows of pipelines: is it well?")
            elif message.error() is None:
                self._take(message.key(), message.value())
                self._next_offset = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                # The end may be a marker of a transaction, which is no message.
                self._next_offset = max(self._next_offset, message.offset())
            elif not message.error().retriable():
                raise KafkaException(message.error())

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
            # Somebody else wrote here. One strange record must not be the end of all pipelines.
            logger.warning("a record of %s with the key %r is not ours and is passed over", TOPIC, name)

    def _end(self, *, committed: bool) -> int | None:
        """The last stable offset, or where the log ends; None if there is no such topic yet."""
        kafka, admin_api = import_module("confluent_kafka"), import_module("confluent_kafka.admin")
        level = kafka.IsolationLevel.READ_COMMITTED if committed else kafka.IsolationLevel.READ_UNCOMMITTED
        place, until = kafka.TopicPartition(TOPIC, 0), time.monotonic() + self._timeout_s
        while True:
            try:
                if not (self._topic_is_there or self._topic_exists()):
                    return None
                asked = self._admin().list_offsets(
                    {place: admin_api.OffsetSpec.latest()}, isolation_level=level, request_timeout=self._answer_s
                )
                return int(_answer(asked[place], self._answer_s).offset)
            except kafka.KafkaException as error:
                name = error.args[0].name()
                if name not in _LEADERLESS + _SILENT or time.monotonic() > until:
                    raise
                if name in _SILENT:
                    self._kept_admin = None
            # It was made a moment ago, or its leader has just gone.
            self._topic_is_there = False
            time.sleep(_POLL_S)

    @property
    def _answer_s(self) -> float:
        return min(ANSWER_S_MAX, self._timeout_s)

    def _topic_exists(self) -> bool:
        kafka = import_module("confluent_kafka")
        asked = self._admin().describe_topics(kafka.TopicCollection([TOPIC]), request_timeout=self._answer_s)
        try:
            _answer(asked[TOPIC], self._answer_s)
        except kafka.KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                return False
            raise
        self._topic_is_there = True
        return True

    def _make_topic(self) -> None:
        if self._topic_is_there or self._topic_exists():
            return
        kafka, admin_api = import_module("confluent_kafka"), import_module("confluent_kafka.admin")
        brokers = len(self._admin().list_topics(timeout=self._timeout_s).brokers)
        replicas = min(REPLICAS, max(1, brokers))
        new = admin_api.NewTopic(TOPIC, num_partitions=1, replication_factor=replicas, config=_SETTINGS)
        try:
            self._admin().create_topics([new], operation_timeout=self._timeout_s)[TOPIC].result()
        except kafka.KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
        until = time.monotonic() + self._timeout_s
        while self._end(committed=True) is None:
            if time.monotonic() > until:
                raise RegistryFailed(f"the topic {TOPIC} was made on {self.bootstrap} but cannot be used")
            time.sleep(_POLL_S)

    # Clients

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._kept_admin is None:
            self._kept_admin = AdminClient(self._settings({}), logger=_quiet)
        return self._kept_admin

    def _new_producer(self, more: Mapping[str, Any]) -> Any:
        from confluent_kafka import Producer

        return Producer(self._settings({"acks": "all", "linger.ms": 0, **more}), logger=_quiet)

    def _new_consumer(self) -> Any:
        from confluent_kafka import Consumer

        settings = {
            "group.id": "strandline-pipelines-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
        return Consumer(self._settings(settings), logger=_quiet)

    def _settings(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "client.id": "strandline-pipelines", "log_level": 0, **more}

    def _failure(self, verb: str, error: Any) -> RegistryFailed:
        return RegistryFailed(
            f"cannot {verb} what {self.bootstrap} knows of pipelines ({error.args[0].str()}): is the cluster well? "
            "`strandline doctor` says more"
        )


def _answer(asked: Any, answer_s: float) -> Any:
    """What a request of librdkafka brought; a client that has lost its broker may forget even its own time limit."""
    kafka = import_module("confluent_kafka")
    try:
        return asked.result(timeout=2 * answer_s)
    except TimeoutError:
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT)) from None
