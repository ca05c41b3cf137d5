"""The URL of records: where to begin, which partitions, which conditions, how to decode."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from strandline.cli.common.positions import Latest, Position, parse_position
from strandline.console.context import PageContext
from strandline.console.declarations import PageQuery
from strandline.console.events import LAST_ID_MAX
from strandline.console.failures import PageFailed
from strandline.console.reading.record_decoding import AUTO, FORMATS, RecordView, payload_decoder, record_filter
from strandline.console.reading.record_merge import PARTITIONS_READ_MAX, RecordsAsked
from strandline.console.reading.web_services import shown_url

DECODING: Final = (
    PageQuery("decode", f"How values are decoded: {', '.join(filter(None, FORMATS))}; as they look by default"),
    PageQuery("decode.key", "How keys are decoded"),
)
COUNTS: Final = ("50", "100", "250", "500")
EXPORTED_MAX: Final = 10_000
TEXT_MAX: Final = 2000
FIELDS: Final = ("from", "partition", "where", "grep", "decode", "decode.key", "see", "count")
_SEE: Final = ("", "committed")


def asked_of(context: PageContext, *, count_max: int = 0) -> RecordsAsked:
    """Return which records the URL asks for. Raise PageFailed in a sentence."""
    topic = context.params["topic"]
    count = count_max or int(context.choice("count", COUNTS))
    marks = parse_marks(context.query.get("at", ""))
    return RecordsAsked(
        topic,
        count,
        begin_of(context),
        partitions_of(context),
        marks,
        context.choice("see", _SEE) == "committed",
    )


def begin_of(context: PageContext) -> Position:
    text = context.query.get("from", "").strip() or "newest"
    if text in ("newest", "latest"):
        return Latest()
    if text == "oldest":
        text = "earliest"
    try:
        return parse_position(text[:100], now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise PageFailed(400, str(error)) from None


def partitions_of(context: PageContext) -> tuple[int, ...]:
    """Return the chosen partitions: `0,2,5-7`; none means all."""
    found: set[int] = set()
    for word in context.query.get("partition", "")[:TEXT_MAX].replace(" ", "").split(","):
        first, dash, last = word.partition("-")
        if not word:
            continue
        if not _is_number(first) or (dash and not _is_number(last)):
            raise PageFailed(400, f"partition={word} is not allowed; expected numbers such as 0,2,5-7")
        stop = int(last) if dash else int(first)
        if stop - int(first) >= PARTITIONS_READ_MAX:
            raise PageFailed(400, f"partition={word} is too much; at most {PARTITIONS_READ_MAX} are read together")
        found |= set(range(int(first), stop + 1))
    return tuple(sorted(found))


def view_of(context: PageContext) -> RecordView:
    """Return how records are shown, and which are wanted."""
    conditions = [line.strip() for line in context.query.get("where", "")[:TEXT_MAX].splitlines() if line.strip()]
    grep = context.query.get("grep", "")[:TEXT_MAX]
    registry = context.cluster.registry
    memory = context.reading.shared.memory
    if registry and "topic.decoder" not in memory:
        memory["topic.decoder"] = payload_decoder(registry)
    return RecordView(
        context.masks(context.params["topic"]),
        value_format=context.choice("decode", FORMATS),
        key_format=context.choice("decode.key", FORMATS),
        decoder=memory.get("topic.decoder"),
        wanted=record_filter(conditions, grep, time.time_ns() // 1_000_000),
    )


def parse_marks(text: str) -> dict[int, int]:
    """Return offsets by partition: `0:17,1:4`. Raise PageFailed for another form."""
    found: dict[int, int] = {}
    for word in text[:LAST_ID_MAX].split(","):
        partition, colon, offset = word.partition(":")
        if not word:
            continue
        if not colon or not _is_number(partition) or not _is_number(offset):
            raise PageFailed(400, f"{word} is no position; expected PARTITION:OFFSET")
        found[int(partition)] = int(offset)
    return found


def marks_text(marks: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(marks.items()))


def query_of(context: PageContext, **changes: Any) -> str:
    """Return the query of the URL with changes."""
    found = {name: context.query[name] for name in FIELDS if context.query.get(name)}
    found |= {name: str(value) for name, value in changes.items()}
    return "?" + urlencode({name: text for name, text in found.items() if text})


def command_of(context: PageContext, *, is_live: bool = False) -> list[str]:
    """Return the command that reads the same."""
    words = ["strandline", "consume", context.params["topic"]]
    begin = context.query.get("from", "").strip()
    if is_live:
        words += ["--follow"]
    elif begin in ("", "newest", "latest"):
        words += ["--last", context.choice("count", COUNTS)]
    else:
        words += ["--from", "earliest" if begin == "oldest" else begin, "--count", context.choice("count", COUNTS)]
    for each in partitions_of(context):
        words += ["--partition", str(each)]
    for line in context.query.get("where", "").splitlines():
        words += ["--where", line.strip()] if line.strip() else []
    if context.query.get("grep"):
        words += ["--grep", context.query["grep"]]
    if context.cluster.registry and context.query.get("decode", AUTO) in (AUTO, "schema"):
        words += ["--decode", "--registry", shown_url(context.cluster.registry)]
    words += ["--json", "--bootstrap-server", context.cluster.bootstrap]
    return words + (["--command-config", "FILE"] if context.cluster.has_login else [])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
