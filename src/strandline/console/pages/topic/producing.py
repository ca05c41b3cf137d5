"""Writing one record to a topic, as `strandline produce` does: acknowledged by every replica in sync."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed, Unreachable
from strandline.cli.common.plain_words import size
from strandline.cli.records.record import NewRecord, from_json
from strandline.cli.records.sending import Sending
from strandline.cli.schema.sources import not_installed, sources_at
from strandline.cli.topic.topics import chosen_partitions, described
from strandline.console.context import PageContext
from strandline.console.declarations import ActionDone, ActionField, ConsoleAction, PageModule, Values
from strandline.console.failures import PageFailed
from strandline.console.pages.topic.frame import topic_named
from strandline.console.reading.record_decoding import REGISTRY_S
from strandline.schemas.payloads.codecs import codec_of
from strandline.schemas.payloads.wire_format import with_prefix
from strandline.schemas.types import InvalidSchema

VALUE_KINDS: Final = ("text", "JSON", "base64", "null")


def record_of(values: Values) -> NewRecord:
    """Return the record that was filled in. Raise PageFailed."""
    line: dict[str, Any] = {"key": values["key"] or None, "headers": _headers(values["headers"])}
    kind, text = values["kind"], values["value"]
    if kind == "base64":
        line["value_base64"] = text
    elif kind == "null":
        if text:
            raise PageFailed(400, "A null value has no text", "choose another kind, or leave the value empty")
        line["value"] = None
    else:
        line["value"] = text
    if kind == "JSON":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PageFailed(400, f"The value is no JSON: {error}") from None
    if values["partition"]:
        line["partition"] = int(values["partition"])
    try:
        return from_json(json.dumps(line).encode())
    except ValueError as error:
        raise PageFailed(400, f"The record cannot be written: {error}") from None


def _headers(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if line.strip():
            if not name.strip():
                raise PageFailed(400, f"{line} is no header", "write NAME=VALUE, each on a line of its own")
            found.append({"key": name.strip(), "value": value if equals else None})
    return found


async def plan(context: PageContext, values: Values) -> Sequence[str]:
    record = record_of(values)
    topic = await topic_named(context, values["topic"])
    if record.partition is not None and record.partition >= len(topic.partitions):
        raise PageFailed(400, f"{topic.name} has no partition {record.partition}; it has {len(topic.partitions):,}")
    where = "a partition by its key" if record.key is not None else "any partition"
    return [
        f"one record of {size(len(record.key or b'') + len(record.value or b''))} to "
        + (f"partition {record.partition}" if record.partition is not None else where),
        *([f"its value is encoded by the last schema of {values['schema']}"] if values["schema"] else []),
        *([f"with {len(record.headers)} headers"] if record.headers else []),
    ]


async def produce(context: PageContext, values: Values) -> ActionDone:
    record, topic = record_of(values), values["topic"]
    registry = context.cluster.registry
    if values["schema"] and not registry:
        raise PageFailed(
            400, "This console knows no registry of the cluster, so that nothing can be encoded by a schema"
        )
    cluster = context.reading.cluster
    partition, offset = await context.reading.shared.in_thread(
        lambda: _send(cluster, topic, record, registry if values["schema"] else "", values["schema"])
    )
    words = f"Written to {topic}, partition {partition}, offset {offset:,}."
    return ActionDone(words, context.path("topics", topic, str(partition), str(offset)))


def _send(cluster: Cluster, topic: str, record: NewRecord, registry: str, subject: str) -> tuple[int, int]:
    # Nothing must be created by a typing mistake.
    chosen_partitions(
        described(cluster, cluster.admin(), topic), None if record.partition is None else [record.partition]
    )
    if registry and record.value is not None:
        record.value = _encoded(registry, subject, record.value)
    sending = Sending(cluster, topic, acks="all", compression="none")
    # Without the right to write, an idempotent producer fails as a whole.
    with cluster.errors(f"cannot write to {topic!r}"):
        sending.send(record)
        sending.finish()
    if sending.gave_up:
        raise Unreachable(f"{sending.first_failure}; whether the record was written is not known")
    if sending.failed or not sending.offsets:
        raise CommandFailed(f"the record was not written: {sending.first_failure}", hint=sending.advice)
    ((partition, (offset, _, _)),) = sending.offsets.items()
    return partition, offset


def _encoded(registry: str, subject: str, text: bytes) -> bytes:
    """Return JSON in the form of the last schema of a subject. A file is never read: its name would be a stranger's."""
    sources = sources_at(registry, REGISTRY_S)
    latest = sources.api.ask("GET", "subjects", subject, "versions", "latest")
    try:
        return with_prefix(latest["id"], codec_of(sources.of(latest, subject)).encode(json.loads(text)))
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    except (InvalidSchema, ValueError) as error:
        raise PageFailed(400, f"The value does not fit the schema of {subject}: {error}") from None


def command(values: Values) -> Sequence[str]:
    words = ["produce", values["topic"]]
    words += ["--key", values["key"]] if values["key"] else []
    words += ["--partition", values["partition"]] if values["partition"] else []
    for line in values["headers"].splitlines():
        words += ["--header", line] if line.strip() else []
    words += ["--null"] if values["kind"] == "null" else []
    return words + (["--schema", values["schema"]] if values["schema"] else [])


ACTION: Final = ConsoleAction(
    name="topic-produce",
    title="Write a record to {topic}",
    button="Write",
    run=produce,
    command=command,
    plan=plan,
    consequence="Every reader of {topic} gets the record, for good. The command reads the value from its input.",
    fields=(
        ActionField("topic", "Topic", is_fixed=True),
        ActionField("key", "Key", hint="Empty: none", is_required=False),
        ActionField("value", "Value", "area", is_required=False),
        ActionField("kind", "The value is", "choice", default="text", choices=VALUE_KINDS),
        ActionField("headers", "Headers", "area", hint="NAME=VALUE, one a line", is_required=False),
        ActionField("partition", "Partition", "number", hint="Empty: by the key", is_required=False),
        ActionField("schema", "Schema", hint="A subject of the registry, to encode JSON by", is_required=False),
    ),
    under="topics",
)
MODULE: Final = PageModule(actions=(ACTION,))
