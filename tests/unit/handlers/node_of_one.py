"""A node of one for tests of handlers: a real controller, image and producer ids, and a metadata log in memory.

Writes wait in `writes` until `flush`, as they would for a disk, so that a test can look at what happens in between.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.kraft.controller_channel import ControllerChannel, LocalController
from strandline.broker.kraft.producer_id_blocks import producer_id_blocks
from strandline.broker.network.routes import CONTROLLER
from strandline.broker.network.routes import routes as controller_routes
from strandline.codec.message import Message
from strandline.codec.message_codec import decode_exact, encode
from strandline.config.node_config import BrokerConfig
from strandline.errors import CorruptLog, ErrorCode, RequestError, StrandlineError
from strandline.handlers.support.context import EncodedResponse, MutationQuota
from strandline.handlers.support.mutation_quota import FREE
from strandline.handlers.support.services import AuditedEvents
from strandline.log.segment.time_lookup import FoundTime
from strandline.partition.look_up import FoundCallback
from strandline.quorum.controller.brokers.broker_liveness import OWN_LINK, OwnLink
from strandline.quorum.controller.controller import Controller
from strandline.quorum.controller.producer_ids import ProducerIds
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.security.acl.authorizer import Authorizer
from strandline.security.principal import ANONYMOUS_SESSION, Session

Done = Callable[[BaseException | None], object]


@dataclass
class Route:
    api_key: int
    name: str
    advertised_min: int
    version_max: int
    is_advertised: bool = True


@dataclass
class Records:
    """A partition as a list of (timestamp, leader epoch); the offset is the place in the list."""

    records: list[tuple[int, int]]
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int
    log_start_offset: int = 0
    is_leader: bool = True
    epoch_start_offset: int = 0
    held: list[Callable[[], object]] | None = None
    """Look-ups that wait, where a test wants them to; else they are answered at once."""

    tier: None = None

    @property
    def log(self) -> Records:
        return self

    def check_leader_epoch(self, epoch: int) -> None:
        if epoch not in (-1, self.leader_epoch):
            older = epoch < self.leader_epoch
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH, "epoch")

    def epoch_of(self, offset: int) -> int:
        return self.records[offset][1] if offset < len(self.records) else -1

    def offset_for_timestamp(self, timestamp: int, callback: FoundCallback, *, committed_only: bool) -> None:
        places = range(self.log_start_offset, len(self.records))
        self._find(next((at for at in places if self.records[at][0] >= timestamp), None), callback)

    def max_timestamp_offset(self, callback: FoundCallback, *, committed_only: bool) -> None:
        places = range(self.log_start_offset, len(self.records))
        self._find(max(places, key=lambda at: self.records[at][0], default=None), callback)

    def _find(self, at: int | None, callback: FoundCallback) -> None:
        found = None if at is None else FoundTime(at, *self.records[at])
        if self.held is None:
            callback(found, None)
        else:
            self.held.append(lambda: callback(found, None))


class SlowRuntime(ManualRuntime):
    """Every look at the clock takes 2 ms, so that long work is spread over turns as on a slow machine."""

    def monotonic(self) -> float:
        self.now += 0.002
        return self.now


class NoNetwork:
    def listen(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("this node does not listen")

    def connect(self, *_: Any) -> Any:
        raise AssertionError("this node does not connect")


class Coordinators:
    """Coordinators that serve, or do not yet."""

    def __init__(self) -> None:
        self.is_loading = False

    def is_beginning(self, index: int) -> bool:
        return self.is_loading


class NodeOfOne:
    node_id = 1
    cluster_id = "a-cluster"
    authorizer: Authorizer | None = None
    events: AuditedEvents | None = None

    def __init__(
        self, *, seed: int = 5, start: bool = True, runtime: ManualRuntime | None = None, **settings: str
    ) -> None:
        self.runtime = runtime or ManualRuntime()
        self.errors: Counter[tuple[int, int]] = Counter()
        self.config = BrokerConfig.load("", {name.replace("_", "."): value for name, value in settings.items()})
        self.image = ClusterImage()
        self.controller = Controller(self.image, config=self.config, rng=random.Random(seed))
        self.controller.connect(self.runtime, self.controller_write)
        self.partitions: dict[tuple[str, int], Records] = {}
        self.routes = {
            18: Route(18, "ApiVersions", 0, 4),
            0: Route(0, "Produce", 0, 13),
            3: Route(3, "Metadata", 0, 13),
        }
        self.metadata = SimpleNamespace(is_leader=True, is_confirmed=True, epoch=1, voter_ids=(1,))
        routes: Any = controller_routes(CONTROLLER)
        me: Any = self
        self.controller_channel = ControllerChannel(
            self.runtime,
            NoNetwork(),
            local=LocalController(me, routes, client_id="test"),
            where=lambda: None,
            client_id="test",
        )
        self.quota: Callable[[str, str, bool], MutationQuota] = lambda user, client_id, is_strict: FREE
        self.groups = self.transactions = Coordinators()
        self.log: list[Any] = []
        self.writes: list[tuple[list[Any], Done]] = []
        self.producer_ids = ProducerIds(
            producer_id_blocks(self.controller_channel, broker_id=1, broker_epoch=lambda: self.image.brokers[1].epoch)
        )
        if start:
            self.controller_write(self.controller.bootstrap(), lambda error: None)
            self.start_broker(1)
            self.flush()

    @property
    def topics(self) -> dict[str, list[Records | None]]:
        return {
            topic.name: [self.partitions.get((topic.name, index)) for index in range(len(topic.partitions))]
            for topic in self.image.topics.values()
        }

    def start_broker(
        self, broker_id: int, rack: str | None = None, listeners: tuple[str, ...] = ("PLAINTEXT",)
    ) -> None:
        records = self.controller.register_broker(
            broker_id,
            epoch=len(self.log) + 1,
            incarnation_id=uuid.UUID(int=broker_id),
            endpoints=[
                (name, f"host-{broker_id}", 9000 + 100 * number + broker_id, 0) for number, name in enumerate(listeners)
            ],
            log_dirs=[uuid.UUID(int=1000 + broker_id)],
            rack=rack,
        )
        self.controller_write(records, lambda error: None)

    def mutation_quota(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota:
        return self.quota(user, client_id, is_strict)

    def count_error(self, api_key: int, code: int) -> None:
        self.errors[api_key, code] += 1

    def advertised(self, listener_name: str) -> tuple[str, int]:
        return "127.0.0.1", 19092

    def partition(self, topic: str, index: int) -> Records | None:
        return self.partitions.get((topic, index))

    def log_failure(self, topic: str, index: int) -> StrandlineError | None:
        return None if (topic, index) in self.partitions else CorruptLog(f"{topic}-{index} is damaged")

    def recovery_of(self, topic: str, index: int) -> str | None:
        """Nothing is recovered here."""

    def hurry_recovery(self, topic: str, index: int) -> None:
        """Nothing waits here."""

    def controller_write(self, records: list[Any], on_done: Done) -> None:
        self.writes.append((records, on_done))

    def flush(self) -> None:
        """Write what waits, until nothing does."""
        self.runtime.settle()
        while self.writes:
            records, on_done = self.writes.pop(0)
            for record in records:
                self.image.apply(record, len(self.log))
                self.log.append(record)
            on_done(None)
            self.runtime.settle()

    def fail(self, error: BaseException) -> None:
        """The disk refuses everything that waits."""
        self.runtime.settle()
        writes, self.writes = self.writes, []
        self.controller.revert(self.image)
        for _, on_done in writes:
            on_done(error)
        self.runtime.settle()


@dataclass
class Context:
    node: NodeOfOne
    api_version: int
    client_id: str | None = "test"
    client_host: str = "127.0.0.1"
    replies: list[Any] = field(default_factory=list)
    client_software: tuple[str, str] | None = None
    is_at_controller: bool = False
    guard: Any = None
    amend: Any = None
    session: Session = ANONYMOUS_SESSION
    listener_name: str = "PLAINTEXT"
    pays_quotas: bool = True
    connection: OwnLink = OWN_LINK
    """What heartbeats come by: it lives as long as the node."""

    @property
    def routes(self) -> dict[int, Any]:
        return self.node.routes

    def remember_software(self, name: str, version: str) -> None:
        self.client_software = (name, version)

    def reply(self, response: Any) -> None:
        self.replies.append(response)

    def answer(self, response_class: type[Message]) -> Any:
        """The only reply, over the wire format."""
        (response,) = self.replies
        body = response.body if isinstance(response, EncodedResponse) else encode(response, self.api_version)
        return decode_exact(response_class, self.api_version, body)


def ask(
    handler: Any,
    node: NodeOfOne,
    request: Message,
    version: int,
    response_class: type[Message],
    session: Session = ANONYMOUS_SESSION,
) -> Any:
    """One request through a handler, both ways over the wire format, with the disk flushed if the handler waits."""
    context = Context(node, version, session=session)
    over_the_wire = decode_exact(type(request), version, encode(request, version))
    response = handler.handle(context, over_the_wire)
    if response is not None:
        assert not context.replies, "answered exactly once"
        context.reply(response)
    elif not context.replies:
        node.flush()
    return context.answer(response_class)
