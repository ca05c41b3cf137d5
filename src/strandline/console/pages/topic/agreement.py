"""What is agreed on about a topic: the schemas of its keys and values, and the contract that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.common.failures import CommandFailed, NotFound
from strandline.cli.common.plain_words import count
from strandline.cli.contract.contract_files import document_of
from strandline.cli.contract.planning import access_to
from strandline.cli.contract.topics_kind import TopicKind
from strandline.cli.schema.sources import SchemaSources, sources_at
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule
from strandline.console.pages.topic.frame import frame, topic_of
from strandline.console.reading.record_decoding import REGISTRY_S
from strandline.console.reading.web_services import shown_url

SCHEMA_S: Final = 10.0
CONTRACT_S: Final = 5.0
_PARTS: Final = ("value", "key")


async def schema(context: PageContext) -> Mapping[str, Any]:
    """Answer which schemas records of the topic have."""
    topic = await topic_of(context)
    registry = context.cluster.registry
    subjects: list[dict[str, Any]] = []
    if not registry:
        answer = f"This console knows no registry of the cluster: set cluster.{context.cluster.name}.registry."
    else:
        reading = context.reading

        async def ask() -> list[dict[str, Any]]:
            return await reading.shared.in_thread(lambda: _subjects(sources_at(registry, REGISTRY_S), topic.name))

        subjects = await reading.know(("topic.schema", topic.name), ask, SCHEMA_S)
        named = [each["subject"] for each in subjects]
        answer = (
            f"The registry has {' and '.join(named)}." if named else f"The registry has no subject {topic.name}-value."
        )
    return {
        **frame(topic.name, "schema"),
        "answer": answer,
        "subjects": subjects,
        "command": [
            "strandline",
            "schema",
            "show",
            f"{topic.name}-value",
            *(["--registry", shown_url(registry)] if registry else []),
        ],
    }


def _subjects(sources: SchemaSources, topic: str) -> list[dict[str, Any]]:
    found = []
    for part in _PARTS:
        subject = f"{topic}-{part}"
        try:
            latest = sources.api.ask("GET", "subjects", subject, "versions", "latest")
            versions = sources.api.ask("GET", "subjects", subject, "versions")
        except NotFound:
            continue
        found.append(
            {
                "part": part,
                "subject": subject,
                "id": latest.get("id"),
                "version": latest.get("version"),
                "versions": count(len(versions), "version"),
                "type": latest.get("schemaType") or "AVRO",
                "text": str(latest.get("schema", "")),
            }
        )
    return found


async def contract(context: PageContext) -> Mapping[str, Any]:
    """Answer which contract describes the topic as it is."""
    topic = await topic_of(context)
    reading = context.reading

    def read() -> str:
        access = access_to(reading.cluster, None)
        items = TopicKind().export(access, [topic.name]).get(topic.name, [])
        try:
            return document_of({"topics": items})
        except ModuleNotFoundError:
            raise CommandFailed("contracts need PyYAML", hint="pip install 'strandline[contracts]'") from None

    async def ask() -> str:
        return await reading.shared.in_thread(read)

    return {
        **frame(topic.name, "contract"),
        "answer": "This contract describes the topic as it is: a plan of it has no steps.",
        "text": await reading.know(("topic.contract", topic.name), ask, CONTRACT_S),
        "command": [
            *("strandline", "contract", "export", "--topic", topic.name),
            *("--bootstrap-server", context.cluster.bootstrap),
        ],
    }


SCHEMA: Final = ConsolePage(
    name="topic-schema",
    path="/topics/{topic}/schema",
    title="{topic}",
    question="Which schemas do its records have?",
    model=schema,
    template="topic/schema.html",
    under="topics",
)
CONTRACT: Final = ConsolePage(
    name="topic-contract",
    path="/topics/{topic}/contract",
    title="{topic}",
    question="What was agreed on about it?",
    model=contract,
    template="topic/contract.html",
    under="topics",
)
MODULE: Final = PageModule(pages=(SCHEMA, CONTRACT))
