"""A pipeline in SQL: statements that declare, around queries that are Spark's.

    PIPELINE name;
    CREATE SOURCE name [(columns) | SCHEMA REGISTRY] [FROM TOPIC 'x'] [KEY (a, b)] [WATERMARK column DELAY '10 minutes']
                  [DEAD LETTERS TO 'y'] [OPTIONS (name = 'value', ...)];
    CREATE STREAM | STREAMING TABLE            name [TO TOPIC 'x'] [KEY (a, b)] [...] AS SELECT ...;
    CREATE TABLE | VIEW | MATERIALIZED VIEW    name [TO TOPIC 'x'] KEY (a, b) [NULL KEY 'x'] [...] AS
                                                    SELECT ...;
    CREATE TEMPORARY VIEW                      name AS SELECT ...;

where [...] is any of SCHEMA REGISTRY, PARTITIONS 4, MODE append, TRIGGER '10 seconds', COMMENT 'text', OPTIONS (...). A
query reads what stands after its FROM and JOIN; STREAM(name) are the changes of a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from strandline.pipelines.failures import guess, refused
from strandline.pipelines.language import declaring
from strandline.pipelines.language.checks import watermark_of
from strandline.pipelines.language.model import REGISTRY, Dataset, Kind, Place, SourceTopic
from strandline.pipelines.language.sql_reading import StatementReader, place_of
from strandline.pipelines.language.sql_tokens import NotSql, Relation, Token, relations, statements
from strandline.spark.error_translation import explain_failure

_KINDS: Final = {
    ("STREAM",): Kind.STREAM,
    ("STREAMING", "TABLE"): Kind.STREAM,
    ("TABLE",): Kind.TABLE,
    ("VIEW",): Kind.VIEW,
    ("MATERIALIZED", "VIEW"): Kind.VIEW,
    ("TEMPORARY", "VIEW"): Kind.TEMPORARY,
    ("TEMP", "VIEW"): Kind.TEMPORARY,
}
_LINE: Final = re.compile(r";? ?\(?\bline (\d+),? pos \d+\b\)?")
"""Where Spark sees a mistake."""
_SOURCE_CLAUSES: Final = ("FROM", "KEY", "WATERMARK", "DEAD", "SCHEMA", "OPTIONS")
_DATASET_CLAUSES: Final = ("TO", "KEY", "NULL", "SCHEMA", "PARTITIONS", "MODE", "TRIGGER", "COMMENT", "OPTIONS", "AS")


def declare(text: str, file: str) -> None:
    """Note what the statements of a file declare; PipelineRefused for what is no statement of a pipeline."""
    try:
        found = list(statements(text))
    except NotSql as error:
        raise refused(str(error), place_of(text, file, error.at)) from None
    sources: list[SourceTopic] = []
    datasets: list[tuple[Dataset, list[Relation]]] = []
    for tokens in found:
        _Statement(text, file, tokens).declare(sources, datasets)
    for source in sources:
        declaring.declare_source(source)
    # STREAM() around what is a stream says nothing more. What other pipelines write is not known yet.
    streams = {each.name for each in sources if not each.is_table}
    streams |= {each.name for each, _ in datasets if not each.kind.has_keys}
    for dataset, read in datasets:
        declaring.declare_dataset(replace(dataset, changes=_changes(dataset, read) - streams))


def _changes(dataset: Dataset, read: list[Relation]) -> frozenset[str]:
    changes = frozenset(each.name for each in read if each.is_stream)
    both = [each.name for each in read if not each.is_stream and each.name in changes]
    if both:
        raise refused(
            f"{dataset.name} reads {both[0]} and STREAM({both[0]}): put one of them into a temporary view", dataset.at
        )
    return changes


class _Statement(StatementReader):
    """What one statement declares."""

    def declare(self, sources: list[SourceTopic], datasets: list[tuple[Dataset, list[Relation]]]) -> None:
        if self.maybe("PIPELINE"):
            declaring.name_pipeline(self.name("the pipeline's name"), self.at)
            self.end()
            return
        self.word("CREATE")
        if self.maybe("OR"):
            self.word("REPLACE")
        if self.maybe("SOURCE"):
            sources.append(self._source())
            return
        datasets.append(self._dataset(self._kind()))

    def _kind(self) -> Kind:
        for words, kind in _KINDS.items():
            ahead = self.rest()[: len(words)]
            if len(ahead) == len(words) and all(token.says(word) for token, word in zip(ahead, words, strict=True)):
                self.skip(len(words))
                return kind
        what = self.what()
        near = guess(what.upper(), ["SOURCE", *(words[0] for words in _KINDS)])
        raise self.refused(
            f"CREATE {what} is no statement of a pipeline{near}: create a SOURCE, STREAM, TABLE, VIEW or TEMPORARY VIEW"
        )

    # CREATE SOURCE

    def _source(self) -> SourceTopic:
        name = self.name("the source's name")
        schema = self.parenthesised_text() if self.is_sign("(") else None
        key: tuple[str, ...] = ()
        topic, watermark, letters, options = name, None, None, {}
        while not self.is_done():
            match self.clause(_SOURCE_CLAUSES):
                case "SCHEMA":
                    self.word("REGISTRY")
                    if schema is not None:
                        raise self.refused(f"{name} has columns and SCHEMA REGISTRY: keep one of them")
                    schema = REGISTRY
                case "FROM":
                    self.word("TOPIC")
                    topic = self.quoted()
                case "KEY":
                    key = self.names()
                case "WATERMARK":
                    column = self.name("a column")
                    self.word("DELAY")
                    watermark = watermark_of(name, column, self.quoted(), self.at)
                case "DEAD":
                    self.word("LETTERS")
                    self.word("TO")
                    letters = self.quoted()
                case "OPTIONS":
                    options = self.options()
        return SourceTopic(name, topic, schema, key, bool(key), watermark, letters, options, self.at)

    # CREATE STREAM, TABLE, VIEW

    def _dataset(self, kind: Kind) -> tuple[Dataset, list[Relation]]:
        name = self.name(f"the {kind.value}'s name")
        said: dict[str, Any] = {"topic": "" if kind is Kind.TEMPORARY else name}
        while (clause := self.clause(_DATASET_CLAUSES)) != "AS":
            match clause:
                case "SCHEMA":
                    self.word("REGISTRY")
                    said["schema"] = REGISTRY
                case "TO":
                    self.word("TOPIC")
                    said["topic"] = self.quoted()
                case "KEY":
                    said["key"] = self.names()
                case "NULL":
                    self.word("KEY")
                    said["null_key"] = self.quoted()
                case "PARTITIONS":
                    said["partitions"] = self.number()
                case "MODE":
                    said["mode"] = self.name("a mode").lower()
                case "TRIGGER":
                    said["trigger"] = self.quoted()
                case "COMMENT":
                    said["comment"] = self.quoted()
                case "OPTIONS":
                    said["options"] = self.options()
        query = self.rest()
        if not query:
            raise self.refused(f"{name} has nothing after AS: write its query there")
        read = relations(query)
        inputs = tuple(dict.fromkeys(each.name for each in read))
        function = _function(name, self._query_text(query, read), self.at)
        return Dataset(name, kind, function, inputs, at=self.at, **said), read

    def _query_text(self, query: list[Token], read: list[Relation]) -> str:
        """As it stands, each word on the line it has in the file, so that Spark's messages name that line."""
        start, end = query[0].start, query[-1].end
        text = self.text[start:end]
        for each in reversed(read):
            if each.is_stream:
                name = "`" + each.name.replace("`", "``") + "`"
                text = text[: each.start - start] + name + text[each.end - start :]
        return "\n" * self.text.count("\n", 0, start) + text


def _function(name: str, query: str, at: Place) -> Callable[..., Any]:
    """Return a function like those of a Python file: the frames have their names while the query is analysed."""

    def select(**frames: Any) -> Any:
        spark = declaring.spark()
        for each, frame in frames.items():
            frame.createOrReplaceTempView("`" + each.replace("`", "``") + "`")
        try:
            return spark.sql(query)
        except Exception as error:
            said = _LINE.search(str(error))
            sentence = _LINE.sub("", explain_failure(error)).rstrip(" ;.")
            raise refused(f"{name} failed: {sentence}", Place(at.file, int(said[1])) if said else at) from error
        finally:
            for each in frames:
                spark.catalog.dropTempView(each)

    return select
