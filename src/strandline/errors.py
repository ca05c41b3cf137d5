"""Every error of Strandline, and the one table that maps errors to Kafka's codes.

    StrandlineError
    ├── PeerError                   the peer is wrong: answered with a Kafka error code, or a closed connection
    │   ├── MalformedMessage            bytes that are no message: lying lengths or counts, bad varints, bad UTF-8
    │   ├── UnsupportedVersion          an API key or version that is not ours
    │   ├── CorruptBatch                a record batch with a wrong CRC, length, magic or structure
    │   ├── InvalidBatch                a sound batch that the topic must refuse (count, timestamp, null key, ...)
    │   │   └── InvalidRecords              records that are named, in a batch that is sound around them
    │   ├── UnsupportedCompression      a codec that is unknown
    │   ├── BatchTooLarge               beyond max.message.bytes
    │   ├── OffsetOutOfRange            a fetch below the log start offset or beyond the end
    │   ├── OutOfOrderSequence, InvalidProducerEpoch, UnknownProducerId
    │   └── InvalidTopic, InvalidConfig, ...    RequestError with a code of its own
    └── WorldError                  the world is wrong: expected and handled
        ├── DiskFailed                  EIO, ENOSPC, a log directory that is offline
        │   └── DiskFull                    a log that found no room when it was opened; it is opened again
        ├── CorruptLog                  damage in the middle of a log: the partition goes offline, nothing is cut
        │   └── DamagedRecords              some batches of a log that is open; the others are served
        ├── DirectoryLocked             another process owns the data directory
        ├── NotLeader                   this node no longer leads the partition
        ├── ValidationBehind            schemas that a topic validates with could not be read in time
        ├── Disconnected                another node cannot be reached, or was lost before it answered
        ├── TimedOut                    another node did not answer in time
        └── Closed                      the log or node was closed under the caller

The third kind, *we* are wrong, is `assert`: the process stops. Never run with `-O`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

MESSAGE_LENGTH_MAX: Final = 1000
"""Length of the message beside an error code. It may repeat what the peer sent; old versions hold 32 KiB."""


class ErrorCode(IntEnum):
    """Kafka's error codes, with Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133


COMES_AGAIN: Final = frozenset(
    {
        # librdkafka and the Java client send the same batch again; the Java client splits one that is too large.
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which a producer sends the same sequence again."""


class StrandlineError(Exception):
    """The root of all errors. `code` is sent to Kafka clients."""

    code: int = ErrorCode.UNKNOWN_SERVER_ERROR


class PeerError(StrandlineError):
    """The peer sent something wrong."""

    code = ErrorCode.INVALID_REQUEST


class MalformedMessage(PeerError):
    """Bytes that cannot be the message they claim to be; the connection is closed."""


class UnsupportedVersion(PeerError):
    code = ErrorCode.UNSUPPORTED_VERSION


class CorruptBatch(PeerError):
    code = ErrorCode.CORRUPT_MESSAGE


class InvalidBatch(PeerError):
    code = ErrorCode.INVALID_RECORD


class InvalidRecords(InvalidBatch):
    """Records that a leader rejects, with their batch. `record_errors` has the index in the batch and the reason."""

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...]) -> None:
        super().__init__(message)
        self.record_errors = record_errors

    @classmethod
    def at(cls, row: int, fault: str) -> InvalidRecords:
        """Return the error for one record."""
        return cls(f"record {row} of the batch: {fault}", ((row, fault),))


class InvalidTimestamp(PeerError):
    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedCompression(PeerError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class BatchTooLarge(PeerError):
    code = ErrorCode.MESSAGE_TOO_LARGE


class OffsetOutOfRange(PeerError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class OutOfOrderSequence(PeerError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(PeerError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class UnknownProducerId(PeerError):
    code = ErrorCode.UNKNOWN_PRODUCER_ID


class RequestError(PeerError):
    """A request that is rejected with its own code and a message for the user."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class InvalidConfig(PeerError):
    code = ErrorCode.INVALID_CONFIG


class WorldError(StrandlineError):
    """A failure of the surroundings that is expected and handled."""


class BehindRefused(WorldError):
    """A batch whose predecessor the leader rejected, and which the producer may send again after it.

    Not OUT_OF_ORDER_SEQUENCE_NUMBER, because librdkafka then begins a new epoch for all its partitions. Batches that
    another partition has stored and not acknowledged yet would be stored twice.
    """

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class ValidationBehind(WorldError):
    """A batch whose schema ids cannot be judged, because this broker could not read all that is registered.

    Every client retries this code, and the batch is not stored.
    """

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class TooManyProducers(WorldError):
    """The limit of remembered producers is reached, and each of them appended recently.

    Every client retries this code, while librdkafka treats THROTTLING_QUOTA_EXCEEDED as final.
    """

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class DiskFailed(WorldError):
    code = ErrorCode.KAFKA_STORAGE_ERROR


class DiskFull(DiskFailed):
    """A disk without room to open a log. The log is sound, and is opened when there is room again."""


class CorruptLog(WorldError):
    """Damage that is not a torn tail. The partition stays offline until a person or a replica repairs it."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class DamagedRecords(CorruptLog):
    """A batch on disk that differs from what was written. It is not served; the batches around it are."""

    def __init__(self, message: str, *, base_offset: int = -1, position: int = -1) -> None:
        super().__init__(message)
        self.base_offset = base_offset
        """Base offset of the segment."""
        self.position = position


class DirectoryLocked(WorldError):
    code = ErrorCode.KAFKA_STORAGE_ERROR


class NotLeader(WorldError):
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Disconnected(WorldError):
    code = ErrorCode.NETWORK_EXCEPTION


class TimedOut(WorldError):
    code = ErrorCode.REQUEST_TIMED_OUT


class Closed(WorldError):
    code = ErrorCode.KAFKA_STORAGE_ERROR


def error_code(error: BaseException) -> int:
    """Return the code that a client gets for `error`: its own, or KAFKA_STORAGE_ERROR for an OSError."""
    if isinstance(error, StrandlineError):
        return int(error.code)
    if isinstance(error, OSError):
        return int(ErrorCode.KAFKA_STORAGE_ERROR)
    return int(ErrorCode.UNKNOWN_SERVER_ERROR)


def named(code: int) -> ErrorCode:
    """Return the code that a peer sent, or UNKNOWN_SERVER_ERROR for one of a newer Kafka."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_message(error: BaseException) -> str:
    """Return the message beside the code, truncated to its limit."""
    text = str(error)
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[:MESSAGE_LENGTH_MAX] + "..."
