"""Everything that reads bytes of strangers, as a table: a new API, codec or file format is covered by its line."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.fuzz.avro_targets import avro_targets
from tests.fuzz.engine import Target
from tests.hostile.batches import RECORDS_AT, with_fields
from tests.hostile.odd_requests import every_route_and_version, odd_message
from tests.hostile.peer import request_class
from tests.unit.codec.message_values import every_class_and_version, random_message
from tests.unit.twins import load_plain

from strandline.broker.metrics.http_server import _parsed, _Refused
from strandline.broker.network.admission import parse_overrides
from strandline.broker.network.answer_stream import AnswerStream, Asked
from strandline.broker.network.routes import CONTROLLER, Route, routes
from strandline.codec import columns, compression, internal_records, record_batch
from strandline.codec.columns import Record, _check, _validate
from strandline.codec.columns.decode import payload_of
from strandline.codec.fetch import parse_fetch
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.produce import parse_produce
from strandline.codec.shares import parse_share_acknowledge, parse_share_fetch
from strandline.codec.wire import uvarint
from strandline.config.listeners import parse_listeners
from strandline.config.node_config import BrokerConfig
from strandline.config.properties import parse_properties
from strandline.config.resource_settings import parse_match
from strandline.config.topic_config import TopicConfig
from strandline.errors import (
    BatchTooLarge,
    CorruptBatch,
    CorruptLog,
    InvalidBatch,
    InvalidConfig,
    InvalidRecords,
    MalformedMessage,
    PeerError,
    RequestError,
    StrandlineError,
    UnsupportedCompression,
    UnsupportedVersion,
)
from strandline.handlers.k58_envelope import unwrap
from strandline.log.checkpoints import parse_offsets
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.observability.otlp import OtlpReader
from strandline.partition.producers import Producers
from strandline.partition.reencoding import OpensLater, opened_now
from strandline.quorum.image.kept_records import KeptRecords
from strandline.quorum.raft.state_files import MetaProperties, QuorumState
from strandline.security.principal import ANONYMOUS_SESSION, decode_session, encode_session
from strandline.security.sasl.credential_store import CredentialStore
from strandline.security.sasl.exchange import AuthenticationFailed
from strandline.security.sasl.jaas import parse_jaas
from strandline.security.sasl.oauthbearer import parse_bearer
from strandline.security.sasl.plain import parse_plain
from strandline.security.sasl.scram import SCRAM_SHA_256, ScramLogin, ScramServer

BATCH_ERRORS = (CorruptBatch, InvalidBatch, BatchTooLarge, UnsupportedCompression)
PLAIN_CHECK = load_plain(Path(columns.__file__).with_name("_check.py"))
PLAIN_VALIDATE = load_plain(Path(columns.__file__).with_name("_validate.py"))
MESSAGE_ERRORS = (MalformedMessage, UnsupportedVersion)


def some_batch(rng: random.Random) -> bytes:
    records = [
        Record(
            timestamp_ms=rng.randrange(1 << 41),
            key=rng.choice((None, b"", b"key")),
            value=rng.choice((None, b"", rng.randbytes(rng.randrange(200)))),
            headers=tuple(("h", rng.choice((None, b"x"))) for _ in range(rng.randrange(3))),
        )
        for _ in range(rng.randrange(1, 20))
    ]
    return columns.encode_batch(records, compression=rng.randrange(5))


def some_batches(rng: random.Random) -> bytes:
    return b"".join(some_batch(rng) for _ in range(rng.randrange(1, 4)))


def walk(data: bytes) -> int:
    """Decode whatever batches are there, and touch every record."""
    return sum(1 for each in columns.columns_of(data) for _ in each)


def mended(data: bytes) -> bytes:
    """With length and CRC made right, so that what is spoilt behind them is reached."""
    return with_fields(data, length=len(data) - 12) if len(data) >= RECORDS_AT else data


def reencode(config: TopicConfig) -> Callable[[bytes], Any]:
    def read(data: bytes) -> None:
        batch = mended(data)
        header = record_batch.check_batch(batch)
        try:
            opened_now(memoryview(batch), header, config)
        except OpensLater:
            return

    return read


class WalkCheck:
    """The walk of topics that validate schemas, without any, as a checker of records."""

    def __init__(self, twin: ModuleType) -> None:
        self._walk = twin.RecordWalk(None, None, False, True, 1_000)

    def check_records(self, *arguments: Any) -> int:
        found: int = self._walk.check(*arguments[:-1], [])
        return found


def check_like_the_decoder(twin: ModuleType | WalkCheck) -> Callable[[bytes], Any]:
    """Check a batch's records with one twin, and see that the decoder thinks of it as the checker does."""

    def read(data: bytes) -> None:
        batch = mended(data)
        record_batch.check_batch(batch)
        header = record_batch.parse_header(batch)
        # The leader writes its own base offset, so the client's counts for nothing.
        batch = with_fields(batch, base_offset=0)
        error: StrandlineError | None = None
        try:
            payload = payload_of(batch, check_crc=False, size_bytes_max=1 << 20)[1]
        except CorruptBatch:
            return
        base_timestamp = 0 if header.attributes & record_batch.LOG_APPEND_TIME else header.base_timestamp
        try:
            end = twin.check_records(payload, 0, len(payload), 0, header.record_count, base_timestamp, None)
            if end != len(payload):
                error = InvalidBatch("bytes follow the records")
        except InvalidRecords as refusal:
            error = refusal
        try:
            rows = len(columns.decode_batch(batch, check_crc=False, size_bytes_max=1 << 20))
        except CorruptBatch:
            if error is None:
                raise AssertionError("the checker takes what the decoder refuses") from None
            raise
        assert error is None, f"the checker refuses what the decoder reads: {error}"
        assert rows == header.record_count

    return read


def some_metadata_record(rng: random.Random) -> bytes:
    cls = rng.choice(_METADATA_CLASSES)
    return internal_records.encode_metadata_record(random_message(cls, cls.VERSION_MAX, rng))


def _metadata_classes() -> list[type[Message]]:
    known = internal_records.INDEX["metadata"]
    return [
        cls
        for cls in dict.fromkeys(cls for cls, _ in every_class_and_version())
        if known.get(cls.API_KEY, ("", ""))[1] == cls.__name__
    ]


_METADATA_CLASSES = _metadata_classes()


def some_snapshot(rng: random.Random) -> bytes:
    producers = Producers()
    for number in range(rng.randrange(5)):
        for sequence in range(rng.randrange(4)):
            producers.note(number, 0, sequence, 10 + sequence, 0, 1000, 1000)
    return producers.snapshot()


def restore(data: bytes) -> None:
    Producers().restore(data, 1000)


def text_of(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: read(data.decode(errors="replace"))


def constant(sound: bytes) -> Callable[[random.Random], bytes]:
    return lambda rng: sound


def numeric_overrides(text: str) -> None:
    """Only those that are addresses: a name would be looked up in the world."""
    entries = [entry for entry in text.split(",") if not any(character.isalpha() for character in entry)]
    parse_overrides(entries)


def read_otlp(data: bytes) -> int:
    return sum(point is not None for point in OtlpReader(data).points())


def some_metrics(rng: random.Random) -> bytes:
    """OpenTelemetry's MetricsData: every message is a length and its fields, so that it is made from the inside."""

    def field(number: int, content: bytes) -> bytes:
        return uvarint(number << 3 | 2) + uvarint(len(content)) + content

    attribute = field(1, b"key") + field(2, field(1, b"value"))
    point = field(7, attribute) + bytes((4 << 3 | 1,)) + struct.pack("<d", rng.random())
    gauge = field(1, b"a.gauge") + field(5, field(1, point) * rng.randrange(4))
    total = field(1, b"a.sum") + field(7, field(1, point) + bytes((2 << 3, 1, 3 << 3, 1)))
    scope = b"".join(field(2, metric) for metric in rng.choices((gauge, total), k=rng.randrange(4)))
    return field(1, field(1, field(1, attribute)) + field(2, scope))


def http_request(data: bytes) -> None:
    try:
        _parsed(data)
    except _Refused:
        return


HTTP_REQUEST = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
GROUP_METADATA = b"\x00\x03\x00\x08consumer\x00\x00\x00\x01\xff\xff\xff\xff" + bytes(12)
PROPERTIES = b"a.b = c\\\n  d\n# e\n!f\ng:h\nnode.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.flush.interval.ms=1000\n"
META_PROPERTIES = b"version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAg\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAg\n"


def _batches() -> list[Target]:
    zstd_topic = TopicConfig().with_overrides({"compression.type": "zstd"})
    compacted_topic = TopicConfig().with_overrides({"cleanup.policy": "compact"})
    return [
        Target("check_batch", record_batch.check_batch, BATCH_ERRORS, some_batch),
        Target("columns", walk, BATCH_ERRORS, some_batches),
        Target("columns behind a right CRC", lambda data: walk(mended(data)), BATCH_ERRORS, some_batch),
        Target("records that come in", check_like_the_decoder(_check), BATCH_ERRORS, some_batch),
        Target("records that come in, plain twin", check_like_the_decoder(PLAIN_CHECK), BATCH_ERRORS, some_batch),
        Target("records that are validated", check_like_the_decoder(WalkCheck(_validate)), BATCH_ERRORS, some_batch),
        Target(
            "records that are validated, plain twin",
            check_like_the_decoder(WalkCheck(PLAIN_VALIDATE)),
            BATCH_ERRORS,
            some_batch,
        ),
        Target("re-encoding", reencode(zstd_topic), (*BATCH_ERRORS, RequestError), some_batch),
        Target("keys of a compacted topic", reencode(compacted_topic), (*BATCH_ERRORS, RequestError), some_batch),
        *(
            Target(
                f"decompress {codec.name.lower()}",
                lambda data, codec=codec: compression.decompress(codec, data, size_bytes_max=1 << 20),
                BATCH_ERRORS,
                lambda rng, codec=codec: compression.compress(codec, rng.randbytes(50) * rng.choice((1, 20, 300))),
            )
            for codec in compression.Compression
        ),
    ]


def _records_and_files() -> list[Target]:
    return [
        Target("metadata record", internal_records.decode_metadata_record, MESSAGE_ERRORS, some_metadata_record),
        Target(
            "coordinator key",
            lambda data: internal_records.decode_coordinator_record(data, None),
            MESSAGE_ERRORS,
            constant(b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"),
        ),
        Target(
            "coordinator value",
            lambda data: internal_records.decode_coordinator_record(b"\x00\x02\x00\x01g", data),
            MESSAGE_ERRORS,
            constant(GROUP_METADATA),
        ),
        Target("producer snapshot", restore, (CorruptLog,), some_snapshot),
        Target("offset index", OffsetIndex.parse, (), lambda rng: rng.randbytes(64)),
        Target("time index", TimeIndex.parse, (), lambda rng: rng.randbytes(60)),
        Target("offset checkpoint", parse_offsets, (CorruptLog,), constant(b"0\n1\norders 0 17\n")),
        Target("leader epochs", text_of(LeaderEpochs.parse), (CorruptLog,), constant(b"0\n2\n0 0\n1 17\n")),
        Target("meta.properties", text_of(MetaProperties.parse), (CorruptLog,), constant(META_PROPERTIES)),
        Target(
            "quorum-state",
            text_of(QuorumState.parse),
            (CorruptLog,),
            lambda rng: QuorumState(leader_epoch=3, leader_id=1, voted_id=1).text().encode(),
        ),
        Target("properties", text_of(parse_properties), (PeerError,), constant(PROPERTIES)),
        Target("server.properties", text_of(BrokerConfig.load), (InvalidConfig,), constant(PROPERTIES)),
        Target(
            "client match",
            text_of(lambda text: parse_match([text])),
            (InvalidConfig,),
            constant(b"client_id=kafka-(a|b)[0-9]+.*"),
        ),
        Target("connection overrides", text_of(numeric_overrides), (InvalidConfig,), constant(b"127.0.0.1:5,[::1]:7")),
        Target("OTLP metrics", read_otlp, (MalformedMessage,), some_metrics),
        Target("HTTP request", http_request, (), constant(HTTP_REQUEST)),
        Target("listeners", text_of(parse_listeners), (InvalidConfig,), constant(b"A://h:1, B://[::1]:2")),
    ]


def request_target(route: Route, version: int) -> Target:
    """The compiled decoder of one request, as the dispatcher calls it."""
    cls = request_class(route)
    return Target(
        f"{route.name} {version}",
        lambda data: decode(cls, version, memoryview(data), elements_max=route.elements_max),
        (MalformedMessage,),
        lambda rng: encode(odd_message(route, version, rng), version),
    )


BY_HAND: dict[str, Callable[[memoryview, int, int], Any]] = {
    "Produce": parse_produce,
    "Fetch": parse_fetch,
    "ShareFetch": parse_share_fetch,
    "ShareAcknowledge": parse_share_acknowledge,
}


def by_hand_target(route: Route, version: int) -> Target:
    """One of the requests that are parsed by hand."""
    parse = BY_HAND[route.name]
    return Target(
        f"{route.name} {version} by hand",
        lambda data: parse(memoryview(data), 0, version),
        (MalformedMessage,),
        lambda rng: encode(odd_message(route, version, rng), version),
    )


CONTROLLER_ROUTES = routes(CONTROLLER)


def some_envelope_content(rng: random.Random) -> bytes:
    route = rng.choice([route for route in CONTROLLER_ROUTES.values() if route.is_forwarded])
    version = rng.randint(route.version_min, route.version_max)
    head = struct.pack(">hhih", route.api_key, version, 7, 1) + b"c"
    return head + b"\0" * (version >= route.flexible_from) + encode(odd_message(route, version, rng), version)


class NobodyAnswered:
    """Whoever asked is told of an answer or of the end, and nothing else happens."""

    def on_connected(self, stream: AnswerStream) -> None: ...

    def on_answered(self, stream: AnswerStream) -> None: ...

    def on_over(self, stream: AnswerStream, reason: str) -> None: ...


def read_answers(data: bytes) -> None:
    stream = AnswerStream(NobodyAnswered(), 1 << 20)
    for number in range(4):
        stream.asked[number] = Asked(number, b"", number % 2 == 0, 0.0, lambda body, error: None)
    cut = len(data) // 3
    for part in (data[:cut], data[cut:]):
        if not stream.is_over:
            stream.receive(memoryview(part))


def some_answers(rng: random.Random) -> bytes:
    bodies = [b"\0" + rng.randbytes(rng.randrange(50)) for _ in range(4)]
    return b"".join(struct.pack(">ii", len(body) + 4, number) + body for number, body in enumerate(bodies))


def _between_nodes() -> list[Target]:
    return [
        Target("what is in an Envelope", partial(unwrap, CONTROLLER_ROUTES), (PeerError,), some_envelope_content),
        Target("a principal", decode_session, (RequestError,), constant(encode_session(ANONYMOUS_SESSION))),
        Target("answers of another node", read_answers, (), some_answers),
        *(
            request_target(route, version)
            for route in CONTROLLER_ROUTES.values()
            if route.listeners == (CONTROLLER,) and route.name != "Fetch"
            for version in range(route.version_min, route.version_max + 1)
        ),
    ]


def scram_login(data: bytes) -> None:
    """Read a client's first message and its proof, by one server."""
    server = ScramServer(SCRAM_SHA_256, CredentialStore(KeptRecords, b"secret", {}), "nonce")
    first, _, final = data.partition(b"|")
    server.step(first)
    server.step(final)


def scram_answers(data: bytes) -> None:
    """Read a server's challenge."""
    ScramLogin(SCRAM_SHA_256, "alice", "secret", "abc").step(data)


def _logins() -> list[Target]:
    failed = (AuthenticationFailed,)
    return [
        Target("SCRAM of a client", scram_login, failed, constant(b"n,,n=alice,r=abc|c=biws,r=abcnonce,p=AAAA")),
        Target("SCRAM of a server", scram_answers, failed, constant(b"r=abcdef,s=AAAA,i=4096")),
        Target("PLAIN", parse_plain, failed, constant(b"\0alice\0secret")),
        Target("OAUTHBEARER", parse_bearer, (ValueError,), constant(b"n,,\x01auth=Bearer a.b.c\x01x=y\x01\x01")),
        Target("JAAS", text_of(parse_jaas), (InvalidConfig,), constant(b"a.B required user_a=\"b\" c='d';")),
    ]


def _all() -> dict[str, Target]:
    targets = [*_batches(), *_records_and_files(), *_between_nodes(), *_logins(), *avro_targets()]
    for route, version in every_route_and_version():
        targets.append(request_target(route, version))
        if route.hot is not None:
            targets.append(by_hand_target(route, version))
    return {target.name: target for target in targets}


TARGETS = _all()
