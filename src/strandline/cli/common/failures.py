"""How a command fails: exit codes, and errors that say what to do next.

0    done; also when the reader of a pipe has seen enough, and when Ctrl-C ends `serve`, `dev` or `consume -f`
1    an error, explained on stderr
2    the command was called wrongly
3    a topic, partition, file or other thing that was named does not exist
4    the cluster cannot be reached, or did not answer in time
5    `doctor`, `cluster health`, `txn why`, `queue why`, `topic scrub`, `topic verify`, `storage check`, `advise`,
     `contract check`, `contract diff`, or `group lag` with a limit found something wrong, `acl explain` something
     denied, `schema check`, `schema compat` or `schema evolve` something incompatible, or a record that does not
     decode; `connect status`, `connect validate` and `connect verify` a connector that failed, a wrong setting, a row
     that differs
130  Ctrl-C before the work was done
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import Any, NoReturn


class ExitCode(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    UNHEALTHY = 5
    INTERRUPTED = 130


class CommandFailed(Exception):
    """An error message, what to do next, and the exit code."""

    def __init__(self, message: str, *, hint: str = "", code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


class UsageFailed(CommandFailed):
    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, code=ExitCode.USAGE)


class NotFound(CommandFailed):
    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, code=ExitCode.NOT_FOUND)


class Unreachable(CommandFailed):
    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, code=ExitCode.UNREACHABLE)


# These two are no Exceptions: they pass through typer, which would otherwise print "Aborted!" or exit with 1.
class Interrupted(BaseException):
    """Ctrl-C, raised by the handler that `tree.run` installs."""


class PipeClosed(BaseException):
    """The reader of our output went away (`| head`): it has what it wanted."""


SECURITY_HINT = "for TLS or a login say --command-config FILE, with the settings of a Kafka client"


def cannot_reach(bootstrap: str, reason: str = "") -> Unreachable:
    because = f" ({reason})" if reason else ""
    return Unreachable(
        f"cannot reach {bootstrap}{because}: is a node running?",
        hint="start one with `strandline dev`, name the cluster with --bootstrap-server or STRANDLINE_BOOTSTRAP, "
        "or let `strandline doctor` look",
    )


def no_answer(bootstrap: str, reason: str) -> Unreachable:
    """Explain a timeout after the port was open: usually clients are sent on to an address that does not answer."""
    return Unreachable(
        f"cannot reach {bootstrap} ({reason}): it takes connections, but the work was not done in time",
        hint="`strandline doctor` says whether it answers, and whether the addresses it tells clients work from here; "
        "a listener with TLS or a login needs --command-config FILE",
    )


def topic_not_found(topic: str, existing: Iterable[str] = ()) -> NotFound:
    meant = did_you_mean(topic, existing)
    look = f"{meant}?" if meant else "see `strandline topic list`,"
    return NotFound(f"there is no topic {topic!r}", hint=f"{look} or create it: `strandline topic create {topic}`")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'orders'?` without its question mark, so that a sentence can go on; empty when nothing is near."""
    from difflib import get_close_matches

    nearest = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {nearest[0]!r}" if nearest else ""


# librdkafka's and Kafka's error names, because the numbers of librdkafka's own errors mean nothing to a reader.
_UNREACHABLE = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_RESOLVE", "REQUEST_TIMED_OUT"}
_MISSING = {"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "GROUP_ID_NOT_FOUND"}
HINTS = {
    "TOPIC_ALREADY_EXISTS": "look at it with `strandline topic describe`, or choose another name",
    "INVALID_PARTITIONS": "partitions can be added, never taken away",
    "INVALID_CONFIG": "`strandline config explain NAME` says what a setting may be",
    "INVALID_REPLICATION_FACTOR": "a replication factor cannot exceed the number of brokers",
    "TOPIC_EXCEPTION": "a name has 1 to 249 of the characters a-z A-Z 0-9 . _ -",
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic, and message.max.bytes of the client with -X",
    "INVALID_MSG": "what is stored there is damaged, and not served: `strandline topic scrub NAME` says where; read on "
    "behind it with --from, and the records before it with --to",
    "INVALID_RECORD": "a compacted topic takes no record without a key: give one with --key, --key-separator or JSON",
    "_MSG_TIMED_OUT": "the cluster took the connection but did not acknowledge in time: look at the node's log",
    "POLICY_VIOLATION": "the cluster does not allow it: see the words of the broker above",
    "OFFSET_OUT_OF_RANGE": "see the offsets with `strandline topic describe`",
    "_UNSUPPORTED_FEATURE": "this cluster does not offer the API that the command needs",
}


def from_kafka_error(error: Any, *, bootstrap: str, doing: str) -> CommandFailed:
    """Return a librdkafka `KafkaError` as a failure that a person can act on."""
    name = error.name()
    if name in _UNREACHABLE:
        return no_answer(bootstrap, error.str())
    message = f"{doing}: {error.str()} ({name})"
    if name in _MISSING:
        return NotFound(message, hint=f"see `strandline {'group' if name.startswith('GROUP') else 'topic'} list`")
    return CommandFailed(message, hint=HINTS.get(name, ""))


@contextmanager
def kafka_errors(*, bootstrap: str, doing: str) -> Iterator[None]:
    """Turn every `KafkaException` of the block into a `CommandFailed`."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as exception:
        raise from_kafka_error(exception.args[0], bootstrap=bootstrap, doing=doing) from exception


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does: with everything put away."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted
