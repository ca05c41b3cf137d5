"""What handlers see of the node and of the connection that a request came by.

Protocols, because imports go inward: the broker knows the handlers, they do not know the broker.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from strandline.codec.message import Message
from strandline.config.node_config import BrokerConfig
from strandline.errors import StrandlineError
from strandline.log.log_directory import LogDirectory
from strandline.log.segment.log_slice import LogSlice
from strandline.partition.fetch_session import FetchSessions
from strandline.partition.partition import Partition
from strandline.partition.reencoding import Reencoder
from strandline.quorum.controller.controller import Controller
from strandline.quorum.controller.producer_ids import ProducerIds
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.runtime.runtime import Runtime
from strandline.security.principal import Session

if TYPE_CHECKING:
    from strandline.handlers.access.client_guard import ClientGuard
    from strandline.handlers.support.services import (
        AuditAppends,
        AuditedEvents,
        Cleaner,
        GroupCoordinator,
        LagObserver,
        LogScrubbing,
        MetricsRecord,
        ShareCoordinator,
        ShareDeliverer,
        ShareOffsetReader,
        TelemetryReceiver,
        TierReport,
        TransactionCoordinator,
    )
    from strandline.observability.request_meter import RequestMeter
    from strandline.security.acl.authorizer import Authorizer

Done = Callable[[BaseException | None], object]


class EncodedResponse(NamedTuple):
    """An answer whose body is encoded already, from a cache perhaps."""

    body: bytes


class ApiRange(Protocol):
    """A line of the table that dispatches requests."""

    api_key: int
    name: str
    is_advertised: bool
    is_forwarded: bool
    advertised_min: int
    version_min: int
    version_max: int
    requests: int
    """All that were begun."""
    meter: RequestMeter | None
    """What counts its requests; None if metrics are off."""


class Metadata(Protocol):
    """The metadata log, as far as handlers ask about it."""

    @property
    def epoch(self) -> int: ...

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""

    @property
    def is_confirmed(self) -> bool:
        """Whether it is, and no other node can be by now."""

    @property
    def leader_id(self) -> int | None:
        """Which node is, as far as this one knows."""

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """The nodes of the quorum."""

    @property
    def next_offset(self) -> int:
        """Where the next record goes."""


class ControllerChannel(Protocol):
    def ask(
        self,
        request: Message,
        version: int,
        on_answer: Callable[[Any, BaseException | None], object],
        *,
        timeout_s: float,
    ) -> None:
        """Ask the active controller, wherever it is; `on_answer(response, error)` once, and not before this returns."""


class PendingProduce(Protocol):
    """A Produce that waits for its records to be committed."""

    done: bool
    deadline: float

    def expire(self) -> None:
        """Answer that the time of the request is over."""


class BrokerServices(Protocol):
    """What handlers may use of the broker that serves a request."""

    node_id: int
    cluster_id: str
    config: BrokerConfig
    authorizer: Authorizer | None
    """What decides which client may do what; None where every client may do everything."""
    runtime: Runtime
    started_ms: int
    controller: Controller
    producer_ids: ProducerIds
    sessions: FetchSessions
    directory: LogDirectory
    directory_id: uuid.UUID
    topics: dict[str | bytes, list[Partition | None]]
    """Partitions led here, by topic name and by topic id (16 bytes); None where a log is offline."""
    produce_waits: deque[PendingProduce]
    reencoder: Reencoder

    @property
    def image(self) -> ClusterImage: ...

    @property
    def metadata(self) -> Metadata: ...

    @property
    def controller_channel(self) -> ControllerChannel: ...

    @property
    def routes(self) -> Mapping[int, ApiRange]: ...

    @property
    def groups(self) -> GroupCoordinator: ...

    @property
    def transactions(self) -> TransactionCoordinator: ...

    @property
    def share_coordinator(self) -> ShareCoordinator: ...

    @property
    def share_offsets(self) -> ShareOffsetReader: ...

    @property
    def share_delivery(self) -> ShareDeliverer: ...

    @property
    def lag(self) -> LagObserver: ...

    @property
    def cleaner(self) -> Cleaner: ...

    @property
    def scrubber(self) -> LogScrubbing: ...

    @property
    def telemetry(self) -> TelemetryReceiver: ...

    @property
    def metrics_history(self) -> MetricsRecord: ...

    @property
    def events(self) -> AuditedEvents | None:
        """What records the events of clients; None if this node has no audit."""

    @property
    def audit_topic(self) -> AuditAppends: ...

    @property
    def may_be_replaced(self) -> bool:
        """Whether others may lead in this broker's place by now, and it not know it."""

    def mutation_quota(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota:
        """What a client may change; with a strict quota a change is refused, else its client is only delayed."""

    def partition(self, topic: str, index: int) -> Partition | None: ...

    def is_peer(self, listener_name: str, session: Session) -> bool:
        """Return whether another node may use such a connection, as far as authentication tells."""

    def log_failure(self, topic: str, index: int) -> StrandlineError | None:
        """Why a log that is to be here could not be opened; None if none is, or if it is open."""

    def recovery_of(self, topic: str, index: int) -> str | None:
        """How far the node's recovery is, in words, if it has not come to the end of this log yet."""

    def hurry_recovery(self, topic: str, index: int) -> None:
        """Have a log recovered before others that wait for it, because a client asks for it."""

    def tier_report(self) -> TierReport | None:
        """Return what this node knows of its object store; None if it has none."""

    def write_start_offsets(self, on_done: Done) -> None:
        """Write down where each log starts, then call `on_done(error)`: from then on no restart forgets it."""

    def advertised(self, listener_name: str) -> tuple[str, int] | None:
        """Return where clients of this listener reach this broker; None if it has no such listener."""

    def count_error(self, api_key: int, code: int) -> None:
        """A part of a request is answered with this error code."""


class ClientQuota(Protocol):
    """What the client of a connection may use. A charge above it mutes the connection, and returns for how long."""

    fetch_bytes_max: int
    """The most that one fetch may return."""

    def charge_produce(self, connection: Connection, size_bytes: int, acks: int) -> int:
        """Count a Produce; return the throttle time in milliseconds."""

    def charge_fetch(self, connection: Connection, size_bytes: int) -> tuple[int, bool]:
        """Count the records of a fetch; return the throttle time in milliseconds, and whether they may be sent."""


class MutationQuota(Protocol):
    """What a client may change of topics and partitions."""

    def pay(self, partitions: int) -> None:
        """Count a change; raise RequestError (THROTTLING_QUOTA_EXCEEDED) if it must not be made."""

    def throttle_ms(self) -> int:
        """Return for how many milliseconds the client is to wait, as of now."""


class Exchange(Protocol):
    on_abandoned: Callable[[], object] | None
    is_produce: bool
    """Whether later Produces of the connection may be started before this request is answered."""

    @property
    def connection(self) -> Connection: ...

    def reply(self, body: bytes) -> None: ...
    def reply_pieces(self, pieces: list[bytes | memoryview | LogSlice], size: int) -> None: ...
    def reply_nothing(self) -> None: ...
    def count_error(self, code: int) -> None: ...


class Gate(Protocol):
    """What stands before the requests of a connection whose client is not authenticated, or not for good."""

    def on_handshake(self, context: RequestContext, request: Any) -> Any:
        """Return the answer to a SaslHandshake; None if it is sent later."""

    def on_authenticate(self, context: RequestContext, request: Any) -> Any:
        """Return the answer to a SaslAuthenticate; None if it is sent later."""


class Connection(Protocol):
    closed: bool
    session: Session

    @property
    def gate(self) -> Gate | None: ...

    number: int
    """Greater than that of every connection that was accepted before."""
    quota: ClientQuota | None
    """What the client may use; None if nothing is counted."""

    @property
    def peer_host(self) -> str: ...

    @property
    def listener_name(self) -> str:
        """The listener that the connection was accepted on."""

    def begin(self, correlation_id: int, *, flexible_header: bool, is_produce: bool = False) -> Exchange: ...
    def reply_now(self, correlation_id: int, flexible_header: bool, body: bytes) -> None: ...
    def leave_unanswered(self) -> None: ...
    def when_closed(self, callback: Callable[[], object]) -> None:
        """Call back once when the connection is closed."""

    def go_on(self) -> None: ...
    def close(self) -> None: ...


class RequestContext(Protocol):
    """What a handler of the compiled messages is given."""

    node: BrokerServices
    api_version: int
    client_id: str | None
    client_host: str
    guard: ClientGuard | None
    """The rights of the client; None if everything is allowed."""
    amend: Callable[[Any], Any] | None
    """Changes the response before it is sent, by the rights of the client."""

    @property
    def routes(self) -> Mapping[int, ApiRange]:
        """What is served where the request came in."""

    @property
    def is_at_controller(self) -> bool:
        """Whether it was sent to a controller: then no broker in particular is meant."""

    @property
    def listener_name(self) -> str:
        """The listener that the request came in on."""

    @property
    def session(self) -> Session:
        """The client, as its connection was authenticated."""

    @property
    def pays_quotas(self) -> bool:
        """Whether a client asks, at a broker: then its quotas are charged. Nodes and controllers are exempt."""

    @property
    def client_port(self) -> int: ...

    @property
    def connection(self) -> Connection: ...

    @property
    def client_software(self) -> tuple[str, str] | None:
        """Name and version of the client's library, if it told them."""

    def remember_software(self, name: str, version: str) -> None:
        """The client of this connection has told the name and version of its library."""

    def reply(self, response: Any) -> None: ...
