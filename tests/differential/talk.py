"""Talks to a broker of any make as one or more clients, and writes down what each was told.

Behind every request goes a second one that every broker answers. Requests of a connection are answered in order, so if
its answer comes first, the broker had nothing to say to the first; nobody waits for a silence to last.
"""

from __future__ import annotations

import struct
import time
import uuid
from typing import Any

from tests.differential.words import Words, message_class, message_of, request_class
from tests.hostile.peer import Closed, Peer, framed, header

from strandline.codec.message import Message
from strandline.codec.message_codec import decode_exact, encode
from strandline.errors import ErrorCode, MalformedMessage

API_VERSIONS, METADATA, LIST_OFFSETS, FIND_COORDINATOR = 18, 3, 2, 10
PROBE_ID = 0x5EED
HANG_S = 6.0
"""After this time without the probe's answer the connection is taken to hang. No broker under test waits so long."""
PATIENCE_S = 60.0
CLOSED, SILENT, HANGS = "closed", "silent", "hangs"
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
"""A broker that has just made a topic asks for patience; that is no answer yet."""


class Talk:
    """One case: its connections, and the answers in their order."""

    def __init__(self, port: int, ids: dict[str, uuid.UUID]) -> None:
        self.port = port
        self.ids = dict(ids)
        self.words = Words(self.ids)
        self.answers: list[Any] = []
        self._peers: dict[str, Peer] = {}

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    def peer(self, client: str) -> Peer:
        if client not in self._peers:
            self._peers[client] = Peer(self.port, timeout_s=HANG_S)
        return self._peers[client]

    # ---- asking

    def ask(self, api_key: int, version: int, client: str = "client", **fields: Any) -> Any:
        """The answer, or None if there was none; its words are written down."""
        response, said = self._patiently(api_key, version, client, fields)
        self.answers.append(said)
        return response

    def look(self, api_key: int, version: int, client: str = "look", **fields: Any) -> Any:
        """As `ask`, but nobody is told."""
        response, said = self._patiently(api_key, version, client, fields)
        assert response is not None, f"request {api_key} version {version} was answered with {said}"
        return response

    def ask_raw(self, content: bytes, api_key: int = API_VERSIONS, version: int = 0) -> None:
        """Send bytes that should make one request of the given key and version, and write down what comes back."""
        answer = self.exchange(content, "raw")
        said: Any = answer
        if isinstance(answer, bytes):
            try:
                said = self.words.plain(response_of(api_key, version, answer))
            except MalformedMessage:
                said = "an answer in another form"
        self.answers.append(said)

    def note(self, what: Any) -> None:
        self.answers.append(what)

    def _patiently(self, api_key: int, version: int, client: str, fields: dict[str, Any]) -> tuple[Any, Any]:
        content = request(api_key, version, message_of(request_class(api_key), fields, self.ids))
        deadline = time.monotonic() + PATIENCE_S
        # The topics of all coordinators are there since the stage was set, where there are such coordinators at all.
        patient = api_key != FIND_COORDINATOR or client == "look"
        while True:
            answer = self.exchange(content, client)
            if not isinstance(answer, bytes):
                return None, answer
            response = response_of(api_key, version, answer)
            if not NOT_YET & set(codes(response)) or not patient or time.monotonic() > deadline:
                return response, self.words.plain(response, ordered=api_key == 75)

    def exchange(self, content: bytes, client: str) -> bytes | str:
        peer = self.peer(client)
        try:
            peer.send(content + probe())
            answer = peer.receive_answer()
            if answer[:4] == struct.pack(">i", PROBE_ID):
                return SILENT
            probed = peer.receive_answer()
            assert probed[:4] == struct.pack(">i", PROBE_ID), "an answer that nobody asked for"
        except TimeoutError:
            self._peers.pop(client).close()
            return HANGS
        except Closed:
            self._peers.pop(client).close()
            return CLOSED
        return answer

    def send(self, api_key: int, version: int, client: str, **fields: Any) -> None:
        """A request whose answer will come later: see `receive`."""
        self.peer(client).send(request(api_key, version, message_of(request_class(api_key), fields, self.ids)))

    def receive(self, api_key: int, version: int, client: str) -> Any:
        response = response_of(api_key, version, self.peer(client).receive_answer())
        self.answers.append(self.words.plain(response))
        return response

    # ---- setting the stage

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """A topic that can be used when this returns; underscores in the names of its settings stand for dots."""
        settings = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        asked = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        made = self.look(19, 7, topics=[asked], timeout_ms=10_000)
        assert not made.topics[0].error_code, f"{topic}: {ErrorCode(made.topics[0].error_code).name}"
        self.wait_for(topic, partitions)

    def wait_for(self, topic: str, partitions: int = 1) -> None:
        """Until the broker serves the topic: a controller answers before its brokers have heard."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.look(METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False).topics[0]
            if not found.error_code and len(found.partitions) >= partitions:
                everywhere = [{"partition_index": at, "timestamp": -1} for at in range(partitions)]
                ends = self.look(LIST_OFFSETS, 5, topics=[{"name": topic, "partitions": everywhere}])
                if not any(each.error_code for each in ends.topics[0].partitions):
                    break
            assert time.monotonic() < deadline, f"{topic} is not served"
        self.ids[topic] = found.topic_id
        self.words.topics[found.topic_id] = topic

    def wait_until_gone(self, topic: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (
            not self.look(METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False).topics[0].error_code
        ):
            assert time.monotonic() < deadline, f"{topic} is still there"

    def end_offset(self, topic: str, partition: int = 0) -> int:
        asked = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        offset: int = self.look(LIST_OFFSETS, 5, topics=asked).topics[0].partitions[0].offset
        return offset


def request(api_key: int, version: int, message: Message) -> bytes:
    flexible = version >= type(message).FLEXIBLE_FROM
    return framed(header(api_key, version, flexible=flexible) + encode(message, version))


def probe() -> bytes:
    return framed(header(API_VERSIONS, 0, flexible=False, correlation_id=PROBE_ID))


def response_of(api_key: int, version: int, content: bytes) -> Message:
    cls = message_class("response", api_key)
    at = 4
    if version >= cls.FLEXIBLE_FROM and api_key != API_VERSIONS:
        assert content[4] == 0, "an answer with tagged header fields"
        at = 5
    return decode_exact(cls, version, content, at)


def codes(message: Any) -> list[int]:
    found = []
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name == "error_code":
            found.append(value)
        elif field.kafka_type == "[]struct":
            for each in value or ():
                found += codes(each)
    return found
