"""What went wrong, as one sentence for the visitor, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.cli.common.failures import CommandFailed, ExitCode, NotFound, UsageFailed
from strandline.client.failures import ClientFailed, DeadlinePassed, TopicMissing
from strandline.client.security import LoginRefused, NotAdmitted
from strandline.errors import Disconnected, InvalidConfig, RequestError, TimedOut, UnsupportedVersion

EXPECTED: Final = (
    ClientFailed,
    CommandFailed,
    Disconnected,
    InvalidConfig,
    RequestError,
    TimedOut,
    TimeoutError,
    UnsupportedVersion,
)
"""What may happen to any question; anything else is a bug of the console."""


@dataclass(frozen=True)
class FailureWords:
    """A status of HTTP, one sentence, what to do, and whether another attempt may succeed."""

    status: int
    sentence: str
    advice: str = ""
    may_pass: bool = False


class PageFailed(Exception):
    """A page that cannot be shown, or an action that cannot be done: the visitor reads the sentence."""

    def __init__(self, status: int, sentence: str, advice: str = "") -> None:
        super().__init__(sentence)
        self.words = FailureWords(status, sentence, advice)


class LoginNeeded(PageFailed):
    """A visitor that has to log in first."""

    def __init__(self, sentence: str) -> None:
        super().__init__(401, sentence, "log in as a user of the cluster")


def denied(what: str, right: str) -> PageFailed:
    """Return the failure of something that the ACLs of the visitor do not allow."""
    advice = "ask an administrator for an ACL, or log in as another user"
    return PageFailed(403, f"You may not {what}: it needs {right}", advice)


def words_of(error: BaseException) -> FailureWords:
    """Return what an expected exception means to the visitor."""
    if isinstance(error, PageFailed):
        return error.words
    if isinstance(error, LoginRefused):
        return FailureWords(401, _sentence(f"the cluster no longer accepts this login: {error}"), "log in again")
    if isinstance(error, NotAdmitted):
        return FailureWords(502, _sentence(str(error)))
    if isinstance(error, TopicMissing | NotFound):
        return FailureWords(404, _sentence(str(error)), getattr(error, "hint", ""))
    if isinstance(error, RequestError):
        return _request_words(error)
    if isinstance(error, CommandFailed):
        return _command_words(error)
    if isinstance(error, TimedOut | TimeoutError | DeadlinePassed):
        words = str(error) or "the cluster did not answer in time"
        return FailureWords(504, _sentence(words), "it is asked again", may_pass=True)
    if isinstance(error, ClientFailed) and "AUTHORIZATION_FAILED" in str(error):
        return denied_words(str(error))
    if isinstance(error, Disconnected | ClientFailed):
        return FailureWords(503, _sentence(str(error)), "it is tried again; look at the nodes' logs", may_pass=True)
    if isinstance(error, UnsupportedVersion):
        return FailureWords(501, "This cluster does not offer what this page shows", str(error))
    if isinstance(error, InvalidConfig):
        return FailureWords(400, _sentence(str(error)))
    return FailureWords(500, "The console failed; its log says why")


def denied_words(reason: str, advice: str = "`strandline acl explain` says why") -> FailureWords:
    return FailureWords(403, _sentence(f"your ACLs do not allow it: {reason}"), advice)


def _request_words(error: RequestError) -> FailureWords:
    if error.code.name.endswith("_AUTHORIZATION_FAILED"):
        return denied_words(str(error))
    return FailureWords(409, _sentence(str(error)))


def _command_words(error: CommandFailed) -> FailureWords:
    if "AUTHORIZATION_FAILED" in error.message:
        return denied_words(error.message, error.hint)
    if isinstance(error, UsageFailed):
        return FailureWords(400, _sentence(error.message), error.hint)
    is_away = error.code is ExitCode.UNREACHABLE
    return FailureWords(503 if is_away else 409, _sentence(error.message), error.hint, may_pass=is_away)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
