"""Requests to the coordinator of a group or of a transactional id, which is found again when it moves or dies.

librdkafka is not up to it. If a coordinator dies with a request under way, its admin client never finds the next one,
ends the process by an assertion (`eonce->refcnt > 0`), or hangs when it is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from strandline.client.cluster_client import ClusterClient
from strandline.client.connection import BrokerConnection
from strandline.client.failures import ClusterFailed
from strandline.codec.message import Message
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.errors import Disconnected, ErrorCode, TimedOut, named

GROUP: Final = 0
TRANSACTION: Final = 1
"""Kinds of coordinators."""

MOVING: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Codes of a cluster whose coordinator moves or starts."""

_BUSY: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
_ONE_KEY_VERSION_MAX: Final = 3
"""The last version of FindCoordinator that names one key; every broker knows it."""

ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")


class CoordinatorMoving(Disconnected):
    """The answer of a broker that is not the coordinator, or not yet."""


def ask_coordinator(
    client: ClusterClient,
    what: str,
    key: str,
    request: Message,
    response_class: type[ResponseT],
    code_of: Callable[[ResponseT], int],
    *,
    key_type: int = TRANSACTION,
    version_max: int | None = None,
    on_sent: Callable[[], None] | None = None,
) -> ResponseT:
    """Return the first answer of the coordinator of `key` whose code does not ask to try again."""

    def attempt(connection: BrokerConnection, _: int) -> ResponseT | None:
        connection.send(request, connection.version_for(type(request), version_max=version_max))
        if on_sent is not None:
            on_sent()
        answer = connection.receive_message(response_class)
        code = named(code_of(answer))
        if code in MOVING:
            raise _moving(key, code)
        return None if code in _BUSY else answer

    return at_coordinator(client, what, key, attempt, key_type=key_type)


def at_coordinator(
    client: ClusterClient,
    what: str,
    key: str,
    attempt: Callable[[BrokerConnection, int], T | None],
    *,
    key_type: int = TRANSACTION,
) -> T:
    """Return what `attempt` makes of a connection to the coordinator of `key`, and of the coordinator's node id.

    It is called again until the deadline if it returns None. If it raises CoordinatorMoving, or loses the connection,
    the coordinator is looked up first.
    """

    def find_and_attempt() -> T | None:
        node_id, address = _find(client, key_type, key)
        try:
            return attempt(client.connection(address), node_id)
        except CoordinatorMoving:
            client.coordinators.pop((key_type, key), None)
            raise
        except (Disconnected, TimedOut):
            client.coordinators.pop((key_type, key), None)
            client.drop(address)
            raise

    return client.retried(what, find_and_attempt)


def _find(client: ClusterClient, key_type: int, key: str) -> tuple[int, tuple[str, int]]:
    known = client.coordinators.get((key_type, key))
    if known is not None:
        return known
    request = FindCoordinatorRequest(key_type=key_type, key=key)
    found = client.ask_any(request, FindCoordinatorResponse, version_max=_ONE_KEY_VERSION_MAX)
    code = named(found.error_code)
    if code in MOVING or code in _BUSY:
        raise _moving(key, code)
    if code != ErrorCode.NONE:
        raise ClusterFailed(f"The coordinator of {key} cannot be found: {code.name}.")
    client.coordinators[key_type, key] = found.node_id, (found.host, found.port)
    return client.coordinators[key_type, key]


def _moving(key: str, code: ErrorCode) -> CoordinatorMoving:
    return CoordinatorMoving(f"the coordinator of {key} is not there: {code.name}")
