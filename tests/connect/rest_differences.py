"""Where our REST API answers something else than Apache Kafka Connect, and why.

`python -m tests.connect.rest_differences` prints the page. A difference that is not listed fails the replay, and so
does a listed one that is none any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from bench.kafka_jars import KAFKA_VERSION
from tests.connect.rest_calls import calls
from tests.connect.rest_table import Answer

from strandline.connect.plugins import Plugins

MISSING: Final = "MISSING"


class Leaf(NamedTuple):
    """One value that differs, by its path in the answer."""

    path: str
    ours: Any
    theirs: Any


@dataclass(frozen=True)
class RestDifference:
    """A difference: in these answers, at these places. `statuses` are ours and theirs, if they differ."""

    calls: tuple[str, ...]
    paths: tuple[str, ...]
    ours: str
    theirs: str
    reason: str
    statuses: tuple[int, int] | None = None
    may_vanish: bool = False
    """Whether it depends on timing, or on words that are not a promise."""

    def explains(self, name: str, leaf: Leaf, statuses: tuple[int, int]) -> bool:
        if self.statuses is not None and self.statuses != statuses:
            return False
        return any(fnmatchcase(name, each) for each in self.calls) and any(
            fnmatchcase(leaf.path, each) for each in self.paths
        )


def _own() -> list[str]:
    """Return the settings that the file connectors declare, ours and Kafka's."""
    known = Plugins()
    ours = [each.name for name in ("FileSource", "FileSink") for each in known.find(name).load().Config.options]
    return sorted({*ours, "file", "topic", "batch.size"})


_FIELDS: Final = ("type", "required", "default_value", "importance", "group", "order_in_group", "width", "display_name")
_PLACES: Final = (
    ("body", ""),
    *(("body", f".{each}") for each in _FIELDS),
    ("body.configs", ""),
    ("body.configs", ".definition*"),
    ("body.configs", ".value*"),
)
"""Where an answer has a setting: before and behind its name."""

DIFFERENCES: Final = (
    RestDifference(
        ("*",),
        ("*",),
        "400, with what is wrong and where",
        "500, with an exception of Java",
        "The request is wrong: no JSON, no body, no config, an unknown field, no class to validate, a bad position.",
        (400, 500),
    ),
    RestDifference(
        ("*",),
        ("content_type",),
        "`application/json`",
        "no content type",
        "An error that no resource answers has a JSON body on both sides, so we say that it is JSON.",
    ),
    RestDifference(
        ("get a/b", "stop a/b", "delete a/b", "get per%cent", "stop per%cent", "delete per%cent"),
        ("*",),
        "the connector, as any other",
        "400, as HTML",
        "A name with `/` or `%` can be created there, and then neither read nor stopped nor deleted.",
    ),
    RestDifference(
        ("list with *", "list at the end", "accept all"),
        ("body",),
        "without them",
        "names with `/` and `%`, for ever",
        "They could be deleted here.",
    ),
    RestDifference(
        ("create a/b", "create per%cent"),
        ("location",),
        "`/connectors/a%2Fb`",
        "`/connectors/a/b`",
        "The location leads to the connector.",
    ),
    RestDifference(("double slash",), ("*",), "404", "400, as HTML", "The path names nothing.", (404, 400)),
    RestDifference(
        ("patch name",),
        ("*",),
        "400",
        "200, and the config has another name than its connector",
        "PUT refuses it, too.",
        (400, 200),
    ),
    RestDifference(
        ("alter offsets running", "reset offsets running", "alter sink offsets *"),
        ("body.message",),
        "400, in our words",
        "400, in Kafka's",
        "The message names the field that is wrong, or what was to be done.",
        may_vanish=True,
    ),
    RestDifference(
        ("created is paused", "list expand *"),
        ("body.tasks", "body.paused.*.tasks"),
        "tasks, paused",
        "no tasks until it is resumed",
        "A connector that was created paused shows what it would run.",
        may_vanish=True,
    ),
    RestDifference(
        ("tasks", "sink tasks", "sink", "sink runs"),
        ("body", "body.tasks"),
        "settings of our tasks; one task of the file sink",
        "settings of Kafka's tasks; as many tasks as tasks.max",
        "`task.class` is a Python class, and two tasks would mix their lines in one file.",
    ),
    RestDifference(
        ("source offsets", "altered offsets"),
        ("body.offsets",),
        "position, inode and fingerprint of the file",
        "the position",
        "The file source finds its place again in a file that was rotated.",
        may_vanish=True,
    ),
    RestDifference(
        ("plugins*",),
        ("body",),
        "our plugins by their names",
        "classes of Java",
        "Configs may name the file connectors by Kafka's class names as well.",
    ),
    RestDifference(
        ("plugin config source", "plugin config sink", "validate *"),
        tuple(f"{place}.{name}{end}" for name in _own() for place, end in _PLACES),
        "settings of our file connectors",
        "settings of Kafka's",
        "Ours read directories, patterns, JSON, CSV and Parquet, too.",
    ),
    RestDifference(
        (
            "validate only the class",
            "validate bad regex",
            "validate dead letters in regex",
            "create sink without topics",
        ),
        ("body.error_count", "body.message"),
        "one error more",
        "`file` may be left out",
        "Without a file Kafka's file connectors read and write the standard streams of the worker.",
    ),
    RestDifference(
        ("delete logger", "wrong method*", "put on root", "patch on status"),
        ("allow",),
        "405 with Allow",
        "405 without Allow",
        "HTTP asks for it.",
    ),
    RestDifference(
        ("loggers", "logger root"),
        ("body.level", "body.root.level"),
        "the level that the worker was started with",
        "INFO",
        "Python's root logger is at WARN unless the program sets it.",
        may_vanish=True,
    ),
    RestDifference(
        ("plugin config *", "validate *"),
        ("body.rate.limit.*", "body.configs.rate.limit.*", "body.groups"),
        "`rate.limit.records`, `rate.limit.bytes`",
        "no such settings",
        "A connector can be slowed down.",
    ),
    RestDifference(
        ("validate topic creation*",),
        ("body.configs.topic.creation.*",),
        "checked and listed",
        "not listed; the connector fails when it starts",
        "A wrong value is found when the config is given.",
    ),
    RestDifference(
        ("plugin config converter", "validate converter*"),
        ("*converter.type*",),
        "not listed",
        "`converter.type`",
        "The worker sets it; a user never does.",
    ),
    RestDifference(
        ("plugin config *", "validate *"),
        (
            "body.configs.*.definition.order_in_group",
            "body.configs.*.definition.width",
            "body.*.order_in_group",
            "body.*.width",
        ),
        "the order and width of fields in a form",
        "other ones",
        "Only those of converters and connectors of our own differ.",
        may_vanish=True,
    ),
    RestDifference(
        ("validate converter setting bad",),
        ("body.configs.value.converter.schemas.enable.value.errors",),
        "names `value.converter.schemas.enable`",
        "names `schemas.enable`",
        "The error names the setting as the config does.",
    ),
    RestDifference(
        ("validate bad regex",),
        ("body.configs.topics.regex.value.errors",),
        "the words of RE2",
        "the words of java.util.regex",
        "Patterns are RE2's, so that none takes for ever.",
    ),
    RestDifference(
        ("validate client overrides",),
        ("body.configs.producer.override.*",),
        "not listed",
        "listed",
        "They are settings of another client than Java's; they are let through.",
    ),
)


def explanation(name: str, leaf: Leaf, statuses: tuple[int, int]) -> RestDifference | None:
    """Return the difference that explains a leaf."""
    return next((each for each in DIFFERENCES if each.explains(name, leaf, statuses)), None)


def leaves(ours: Answer, theirs: Answer) -> Iterator[Leaf]:
    """Yield what differs between two answers."""
    yield from _leaves(ours, theirs, "")


def _leaves(ours: Any, theirs: Any, path: str) -> Iterator[Leaf]:
    ours, theirs = _by_name(ours), _by_name(theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**theirs, **ours}:
            yield from _leaves(ours.get(key, MISSING), theirs.get(key, MISSING), f"{path}.{key}" if path else key)
    elif ours != theirs:
        yield Leaf(path, ours, theirs)


def _by_name(value: Any) -> Any:
    """Return a list of settings by their names; anything else as it is."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        if "definition" in value[0]:
            return {(each["definition"] or each["value"])["name"]: each for each in value}
        if "importance" in value[0]:
            return {each["name"]: each for each in value}
    return value


def page() -> str:
    """Return the page as Markdown."""
    rows = "".join(
        f"| {_cell(', '.join(f'`{name}`' for name in each.calls))} | {_cell(each.ours)} | {_cell(each.theirs)} "
        f"| {each.reason} |\n"
        for each in DIFFERENCES
    )
    return _HEAD + rows


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`*`", "any")


_HEAD: Final = f"""\
# Where Apache Kafka Connect answers something else

`tests/connect` puts {len(list(calls())):,} requests to a worker and compares status, content type and body with those
of Apache Kafka Connect {KAFKA_VERSION}, which are kept in `tests/connect/golden/rest.json`. Ids, addresses, versions,
times and documentation are not compared. A difference that is not listed here fails the test. Everything else is alike.

| request | we say | Kafka Connect says | why |
|---|---|---|---|
"""


if __name__ == "__main__":
    print(page(), end="")
