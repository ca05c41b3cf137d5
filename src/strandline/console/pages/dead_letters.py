"""Dead letters of a topic by reason, and the action that redrives them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.cli.common.plain_words import count
from strandline.cli.queue.dead.handling import RatePacing
from strandline.cli.queue.dead.letters import (
    CONNECT_BEGIN,
    PIPELINE_BEGIN,
    PIPELINE_REASON,
    SHARE_BEGIN,
    DeadLetter,
    letter_filter,
)
from strandline.cli.queue.dead.reading import DeadLetterTopic
from strandline.cli.queue.dead.redriving import ROUNDS_DEFAULT, Redrive, RedrivePlan
from strandline.console.context import PageContext
from strandline.console.declarations import (
    ActionDone,
    ActionField,
    ConsoleAction,
    ConsolePage,
    PageModule,
    PageTable,
    Values,
)
from strandline.console.failures import PageFailed
from strandline.console.masking import TopicMasks
from strandline.console.tables import TableHead

LETTERS_S: Final = 5.0
LETTERS_MAX: Final = 20_000
"""Dead letters that one look reads."""
READ_S_MAX: Final = 8.0
REDRIVEN_MAX: Final = 10_000
"""Dead letters of one action; more is for the command."""
_TOLD_IN: Final = {
    "share group": {"reason": f"{SHARE_BEGIN}message", "by": f"{SHARE_BEGIN}group", "topic": f"{SHARE_BEGIN}topic"},
    "connector": {
        "reason": f"{CONNECT_BEGIN}exception.message",
        "by": f"{CONNECT_BEGIN}connector.name",
        "topic": f"{CONNECT_BEGIN}topic",
    },
    "pipeline": {"reason": PIPELINE_REASON, "topic": f"{PIPELINE_BEGIN}topic"},
}
"""The headers that say so, which masks may hide, by the kind of a dead letter."""

REASONS: Final = (
    TableHead("reason", "Why", "name"),
    TableHead("number", "Dead letters", "number"),
    TableHead("by", "Given up by", "list"),
    TableHead("topics", "From", "list", is_wide=True),
    TableHead("newest_ms", "Newest", "time"),
)
LETTERS: Final = (
    TableHead("at", "At", "name", "Partition and offset in this topic"),
    TableHead("source", "From"),
    TableHead("by", "Given up by"),
    TableHead("deliveries", "Deliveries", "number"),
    TableHead("rounds", "Redriven", "number", "How often before"),
    TableHead("timestamp", "When", "time"),
    TableHead("reason", "Why"),
)


async def dead_letters(context: PageContext) -> Mapping[str, Any]:
    """Answer why records of a topic were given up."""
    topic = context.params["topic"]
    shared = context.reading.shared
    masks = context.masks(topic)
    letters, handled, is_whole = await context.reading.know(
        ("dead", topic), lambda: shared.in_thread(lambda: _read(context, topic)), LETTERS_S
    )
    if not is_whole:
        context.reading.note(f"The topic is long: these are the first {count(len(letters), 'dead letter')} of it")
    rows = [_row(each, masks) for each in letters]
    reasons = _by_reason(rows)
    waiting = count(len(rows), "dead letter")
    return {
        "topic": topic,
        "handled": handled,
        "verdict": {"level": "warning", "text": f"{waiting} for {count(len(reasons), 'reason')}."}
        if rows
        else {"level": "ok", "text": "No dead letter waits here."},
        "reasons": context.table(
            REASONS, reasons, caption="Reasons", name="reasons", sort="-number", empty="There is no dead letter."
        ),
        "letters": context.table(
            LETTERS,
            rows,
            caption="Dead letters",
            name="letters",
            searched=("reason", "source", "by"),
            sort="-timestamp",
            empty="There is no dead letter.",
        ),
    }


def _read(context: PageContext, topic: str) -> tuple[list[DeadLetter], int, bool]:
    """Return the dead letters that wait, how many are handled, and whether these are all."""
    cluster = context.reading.cluster
    dead = DeadLetterTopic(cluster, cluster.admin(), topic)
    dead.read_marks()
    found: list[DeadLetter] = []
    handled, seen = 0, 0
    until = time.monotonic() + READ_S_MAX
    is_whole = True

    def take(letter: DeadLetter) -> bool:
        nonlocal handled, seen, is_whole
        seen += 1
        if dead.is_handled(letter):
            handled += 1
        else:
            found.append(letter)
        is_whole = seen < LETTERS_MAX and time.monotonic() < until
        return is_whole

    dead.read(take)
    return found, handled, is_whole


def _row(letter: DeadLetter, masks: TopicMasks) -> dict[str, Any]:
    return {
        "at": letter.place,
        "source": shown(letter, "topic", letter.source, masks),
        "topic": shown(letter, "topic", letter.topic, masks),
        "kind": letter.kind,
        "by": shown(letter, "by", letter.by, masks) or letter.kind,
        "deliveries": letter.deliveries,
        "rounds": letter.rounds,
        "timestamp": letter.record.timestamp_ms,
        "reason": shown_reason(letter, masks),
        "has_copy": letter.has_copy,
    }


def shown(letter: DeadLetter, part: str, text: str, masks: TopicMasks) -> str:
    """Return what a header of a dead letter says, as far as the masks of its topic let visitors see it."""
    header = _TOLD_IN[letter.kind].get(part)
    return text if header is None else str(masks.header(header, text))


def shown_reason(letter: DeadLetter, masks: TopicMasks) -> str:
    """Return why a dead letter was given up, as `shown`."""
    return shown(letter, "reason", letter.reason, masks) or "no reason was given"


def _by_reason(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    numbers = Counter(each["reason"] for each in rows)
    return [
        {
            "reason": reason,
            "number": number,
            "by": sorted({each["by"] for each in rows if each["reason"] == reason}),
            "topics": sorted({each["topic"] for each in rows if each["reason"] == reason}),
            "newest_ms": max(each["timestamp"] for each in rows if each["reason"] == reason),
        }
        for reason, number in numbers.most_common(1000)
    ]


# Redrive


def _redrive(context: PageContext, values: Values) -> tuple[Redrive, RedrivePlan, int]:
    cluster, topic, to = context.reading.cluster, values["topic"], values["to"] or None
    if to == topic:
        raise PageFailed(400, f"{topic} is the dead-letter topic itself")
    _refuse_masked(context.masks(topic), values)
    limit = int(values["limit"] or REDRIVEN_MAX)
    if not 1 <= limit <= REDRIVEN_MAX:
        raise PageFailed(400, f"At most: expected a number from 1 to {REDRIVEN_MAX:,}", "the command takes more")
    is_wanted = letter_filter(
        by=values["by"] or None, topic=values["from_topic"] or None, reason=values["reason"] or None, where=None
    )
    admin = cluster.admin()
    dead = DeadLetterTopic(cluster, admin, topic)
    work = Redrive(cluster, admin, dead, is_wanted, to=to, rounds=ROUNDS_DEFAULT, limit=limit)
    plan = work.plan()
    if not plan.total:
        lines = plan.lines(topic, ROUNDS_DEFAULT)
        raise PageFailed(409, f"No dead letter of {topic} is like that", "; ".join(lines))
    return work, plan, limit


def _refuse_masked(masks: TopicMasks, values: Values) -> None:
    """Raise PageFailed for a redrive that tells what a mask hides, or takes it where no mask is."""
    topic = values["topic"]
    hidden = {part for told in _TOLD_IN.values() for part, header in told.items() if masks.header(header, "")}
    if "topic" in hidden:
        sentence = f"Dead letters of {topic} cannot be redriven here: a mask hides where they came from"
        raise PageFailed(403, sentence, "the command redrives them")
    for part, words, label in (("reason", "their reason", "Why"), ("by", "who gave them up", "Given up by")):
        if values[part] and part in hidden:
            sentence = f"Dead letters of {topic} cannot be chosen by {words}: a mask hides it"
            raise PageFailed(403, sentence, f"leave {label} empty")
    if values["to"] and not masks.is_empty:
        sentence = f"Dead letters of {topic} cannot be redriven to another topic: masks hide parts of them here alone"
        raise PageFailed(403, sentence, "leave To topic empty: each goes where it came from")


async def plan_redrive(context: PageContext, values: Values) -> Sequence[str]:
    _, plan, _ = await context.reading.shared.in_thread(lambda: _redrive(context, values))
    return plan.lines(values["topic"], ROUNDS_DEFAULT)


async def redrive(context: PageContext, values: Values) -> ActionDone:
    def work() -> int:
        found, _, _ = _redrive(context, values)
        return found.run(RatePacing(None), lambda done: None)

    number = await context.reading.shared.in_thread(work)
    return ActionDone(f"{count(number, 'dead letter')} redriven.", context.path("dead-letters", values["topic"]))


def redrive_command(values: Values) -> Sequence[str]:
    words = ["queue", "dead", "redrive", values["topic"]]
    for name, option in (("by", "--by"), ("from_topic", "--from-topic"), ("reason", "--reason"), ("to", "--to")):
        words += [option, values[name]] if values[name] else []
    return [*words, "--limit", values["limit"] or str(REDRIVEN_MAX), "--yes"]


REDRIVE: Final = ConsoleAction(
    name="dead-letters-redrive",
    title="Redrive dead letters of {topic}",
    button="Redrive them",
    run=redrive,
    command=redrive_command,
    plan=plan_redrive,
    consequence="Their records are written again, each once, and the dead letters are marked as handled.",
    fields=(
        ActionField("topic", "Topic", is_fixed=True),
        ActionField("by", "Given up by", hint="Only of this share group or connector", is_required=False),
        ActionField("from_topic", "From topic", hint="Only records of this topic", is_required=False),
        ActionField("reason", "Why", hint="Only those whose reason contains this", is_required=False),
        ActionField("to", "To topic", hint="Empty: where each came from", is_required=False),
        ActionField("limit", "At most", "number", default="1000", is_required=False),
    ),
    under="queues",
)
PAGE: Final = ConsolePage(
    name="dead-letters",
    path="/dead-letters/{topic:path}",
    title="Dead letters in {topic}",
    question="Why were records given up, and which can be redriven?",
    model=dead_letters,
    template="dead_letters.html",
    tables=(
        PageTable("reasons", REASONS),
        PageTable("letters", LETTERS),
    ),
    under="queues",
)
MODULE: Final = PageModule(pages=(PAGE,), actions=(REDRIVE,))
