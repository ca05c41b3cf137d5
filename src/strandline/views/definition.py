"""What a view is: a compacted topic, the columns of its rows, and which of them are the key (pure).

A definition comes from a pipeline, as the registry knows it, or was made by hand (`view create`). It says what a name
means at one moment: while a rebuild switches the public topic, `until` is where the old version ends, and nothing
behind it is read before the registry says that the whole of the new version is there. Meanwhile the rows may lie in a
copy, which has no history: `past` is the public topic then, up to where the old version ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from strandline.views.failures import DefinitionRefused, guess
from strandline.views.schema import Column, checked, parse_schema

PLAIN_COLUMNS: Final = (Column("key", "string"), Column("value", "string"))
"""Of a view without a schema: the record as text."""
RESERVED: Final = frozenset({"_partition", "_key", "_offset", "_timestamp", "_value"})
"""Columns of the records themselves."""
REGISTRY: Final = "registry"
"""In the place of a schema: that of the topic's subject in the registry."""
SWITCHING: Final = "switching"
"""The phase of a rebuild during which the public topics hold a part of the difference, or all of it."""


@dataclass(frozen=True)
class ViewDefinition:
    name: str
    topic: str
    columns: tuple[Column, ...] = PLAIN_COLUMNS
    """Those of the key among them."""
    key: tuple[str, ...] = ("key",)
    pipeline: str = ""
    version: int = 0
    kind: str = "view"
    until: tuple[tuple[int, int], ...] = ()
    """(partition, offset): read no further."""
    is_plain: bool = True
    """No schema is known, and key and value are the record's as text: columns of JSON may have the same names."""
    past: ViewDefinition | None = None
    """What "as of" reads; None: the same."""
    reader_schema: str = ""
    """By what values are read that have ids of a registry's schemas; empty: they are JSON."""
    is_of_registry: bool = False
    """Its columns are those of the newest version of its topic's subject, which is yet to be looked up."""

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)

    @property
    def value_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.name not in self.key)

    @property
    def has_plain_key(self) -> bool:
        """Whether a record's key is the text of the one key column, and not JSON."""
        return len(self.key) == 1 and self.key_columns[0].spark_type == "string"


def define(name: str, topic: str, *, schema: str | None, key: tuple[str, ...], **more: Any) -> ViewDefinition:
    """A definition by the words of a person or of the registry: a schema as JSON or DDL, or the word `registry`."""
    if not schema:
        if key not in ((), ("key",)):
            raise DefinitionRefused(f"the key ({', '.join(key)}) needs a schema: say the columns of the value, too")
        return ViewDefinition(name, topic, **more)
    if schema.strip().lower() == REGISTRY:
        if not key:
            raise DefinitionRefused(f"the view {name} has no key: say which columns are in the key of its records")
        unknown = tuple(Column(each, "string") for each in key)
        return ViewDefinition(name, topic, unknown, key, is_plain=False, is_of_registry=True, **more)
    columns = parse_schema(schema)
    names = {column.name.lower(): column.name for column in columns}
    if reserved := RESERVED & names.keys():
        raise DefinitionRefused(f"no column of a view can be called {min(reserved)}: call it something else")
    if not key:
        raise DefinitionRefused(f"the view {name} has no key: say which of {', '.join(names.values())} it is")
    # A key that the schema does not name is what it is in most topics: text.
    missing = tuple(Column(each, "string") for each in key if each.lower() not in names)
    exact = tuple(names.get(each.lower(), each) for each in key)
    if len(set(exact)) < len(exact):
        raise DefinitionRefused(f"the key ({', '.join(key)}) names a column twice")
    return ViewDefinition(name, topic, checked(missing + columns), exact, is_plain=False, **more)


def definitions(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, ViewDefinition]:
    """What names mean by the records of the registry (`pipeline/...`, `view/...`), by `name` and `pipeline.name`.

    A record that cannot be understood takes away its own views and no others.
    """
    found: dict[str, ViewDefinition] = {}
    for entry, told in sorted(entries.items()):
        kind, _, name = entry.partition("/")
        if kind == "pipeline":
            for dataset in _of_pipeline(name, told):
                found.setdefault(dataset.name, dataset)
                found[f"{name}.{dataset.name}"] = dataset
    for entry, told in sorted(entries.items()):
        kind, _, name = entry.partition("/")
        if kind == "view" and name not in found:
            try:
                found[name] = define(name, told["topic"], schema=told.get("schema"), key=tuple(told.get("key", ())))
            except (DefinitionRefused, KeyError, TypeError):
                continue
    return found


def _of_pipeline(name: str, told: Mapping[str, Any]) -> list[ViewDefinition]:
    active = told.get("active", 1)
    version = told.get("versions", {}).get(str(active), {})
    rebuild = told.get("rebuild") or {}
    ends = rebuild.get("public_ends", {}) if str(rebuild.get("phase", "")).startswith(SWITCHING) else {}
    found = []
    for dataset in version.get("datasets", {}).values():
        if dataset.get("kind") not in ("table", "view"):
            continue
        topic, public = dataset["topic"], dataset.get("public_topic")
        try:
            defined = define(
                dataset["name"],
                topic,
                schema=dataset.get("schema"),
                # A version that never ran has no schema yet: its records can be shown as they are.
                key=tuple(dataset.get("key", ())) if dataset.get("schema") else (),
                pipeline=name,
                version=active,
                kind=dataset["kind"],
                until=_until(ends, topic),
                reader_schema=dataset.get("reader_schema", ""),
            )
        except DefinitionRefused:
            continue
        if public != topic and public in ends:
            defined = replace(defined, past=replace(defined, topic=public, until=_until(ends, public)))
        found.append(defined)
    return found


def _until(ends: Mapping[str, Mapping[str, int]], topic: str) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((int(partition), offset) for partition, offset in ends.get(topic, {}).items()))


def streams(entries: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The names of datasets that have no keys, for the sentence that says so."""
    return {
        dataset["name"]
        for entry, told in entries.items()
        if entry.startswith("pipeline/")
        for dataset in told.get("versions", {}).get(str(told.get("active", 1)), {}).get("datasets", {}).values()
        if dataset.get("kind") == "stream"
    }


def unknown_words(name: str, entries: Mapping[str, Mapping[str, Any]], known: Mapping[str, Any]) -> str:
    if name in streams(entries):
        return (
            f"{name} is a stream, which has no keys: declare a table or a view in its pipeline, or read its topic with "
            "`strandline consume`"
        )
    more = guess(name, known) or ": `strandline view list` shows them"
    return (
        f"there is no view {name}{more}"
        if known
        else f"there is no view {name}: a table or view of a pipeline is one once that has run, and any compacted "
        "topic with `strandline view create`"
    )
