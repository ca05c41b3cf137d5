"""`strandline queue dead purge`: dead letters that are no longer needed, away. A plan first."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect, kafka_api
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    Partitions,
    Timeout,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.queue.dead.handling import LETTERS_PER_TRANSACTION, LetterHandling
from strandline.cli.queue.dead.letters import DeadLetter, LetterFilter
from strandline.cli.queue.dead.options import By, DeadTopic, FromTopic, Reason, Where, wanted_letters
from strandline.cli.queue.dead.reading import DeadLetterTopic


def purge(
    topic: DeadTopic,
    handled: Annotated[bool, typer.Option("--handled", help="Those that were redriven or purged before.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter, handled or not.")] = False,
    by: By = None,
    from_topic: FromTopic = None,
    reason: Reason = None,
    where: Where = None,
    partitions: Partitions = None,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Mark dead letters as purged, so that no redrive touches them, and delete those at the beginning of the topic.

    A log can only be cut at its beginning: each partition is cut before its first dead letter that stays. Others are
    marked, and go with retention. Shows the plan, and asks.
    """
    conditions = any((by, from_topic, reason, where))
    if handled + everything + conditions != 1:
        raise UsageFailed("say which: --handled, --all, or conditions (--by, --from-topic, --reason, --where)")
    is_wanted = wanted_letters(by=by, from_topic=from_topic, reason=reason, where=where)
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    dead = DeadLetterTopic(cluster, admin, topic, partitions)
    work = _Purge(cluster, admin, dead, (lambda letter: False) if handled else is_wanted)
    work.look()
    plan = work.lines()
    if dry_run or not plan:
        _tell(output, work, plan or [f"nothing of {topic} is to be purged"])
        return
    confirm(output, plan, yes=yes, question="Purge?", undone="nothing was purged")
    work.run()
    _tell(output, work, [], is_done=True)


class _Purge:
    """One purge of a topic."""

    def __init__(self, cluster: Cluster, admin: Any, dead: DeadLetterTopic, is_wanted: LetterFilter) -> None:
        self._cluster = cluster
        self._admin = admin
        self.dead = dead
        self._is_wanted = is_wanted
        self.chosen = 0
        """Dead letters that are to be marked."""
        self.cuts: dict[int, int] = {}
        """By partition: its first offset that stays."""

    def look(self) -> None:
        """Find what is meant, and where each partition may be cut."""
        self.dead.read_marks()
        self.chosen = 0
        stays: dict[int, int] = {}

        def take(letter: DeadLetter) -> bool:
            record = letter.record
            if not self.dead.is_handled(letter):
                if self._is_wanted(letter):
                    self.chosen += 1
                else:
                    stays.setdefault(record.partition, record.offset)
            return True

        self.dead.read(take)
        for partition, offset in self.dead.first_others.items():
            stays[partition] = min(offset, stays.get(partition, offset))
        ends = {
            partition: (start, stays.get(partition, end)) for partition, (start, _, end) in self.dead.ranges.items()
        }
        self.cuts = {partition: cut for partition, (start, cut) in ends.items() if cut > start}

    def lines(self) -> list[str]:
        lines = []
        if self.chosen:
            lines.append(f"mark {count(self.chosen, 'dead letter')} of {self.dead.name} as purged")
        for partition, cut in sorted(self.cuts.items()):
            start = self.dead.ranges[partition][0]
            lines.append(f"delete offsets {start} to {cut - 1} of {self.dead.name}-{partition}, for good")
        return lines

    def run(self) -> None:
        handling = LetterHandling(self._cluster, self.dead.name, "purged")
        handling.begin()
        # Another command may have handled some since.
        self.dead.settle()
        self.dead.read_marks()
        batch: list[DeadLetter] = []

        def take(letter: DeadLetter) -> bool:
            if self._is_wanted(letter) and not self.dead.is_handled(letter):
                batch.append(letter)
                if len(batch) >= LETTERS_PER_TRANSACTION:
                    handling.handle(batch, ())
                    batch.clear()
            return True

        self.dead.read(take)
        if batch:
            handling.handle(batch, ())
        if self.cuts:
            self._cut()

    def _cut(self) -> None:
        kafka = kafka_api()
        places = [kafka.TopicPartition(self.dead.name, partition, cut) for partition, cut in self.cuts.items()]
        with self._cluster.errors(f"cannot delete dead letters of {self.dead.name!r}"):
            answers = self._admin.delete_records(places, request_timeout=self._cluster.timeout_s)
            for future in answers.values():
                future.result()


def _tell(output: Output, work: _Purge, lines: list[str], *, is_done: bool = False) -> None:
    if output.as_json:
        cuts = [{"partition": partition, "before": cut} for partition, cut in sorted(work.cuts.items())]
        output.json_line({"topic": work.dead.name, "purged": work.chosen, "deleted": cuts, "done": is_done})
        return
    for line in lines:
        output.line(line)
    if is_done:
        output.line(f"purged {count(work.chosen, 'dead letter')} of {work.dead.name}")
