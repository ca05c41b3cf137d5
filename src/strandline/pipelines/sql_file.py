"""A pipeline in SQL: statements that declare, around queries that are Spark's.

    PIPELINE name;
    CREATE SOURCE name [(columns)] [FROM TOPIC 'x'] [KEY (a, b)] [WATERMARK column DELAY '10 minutes']
                  [DEAD LETTERS TO 'y'] [OPTIONS (name = 'value', ...)];
    CREATE STREAM | STREAMING TABLE            name [TO TOPIC 'x'] [KEY (a, b)] [...] AS SELECT ...;
    CREATE TABLE | VIEW | MATERIALIZED VIEW    name [TO TOPIC 'x'] KEY (a, b) [...] AS SELECT ...;
    CREATE TEMPORARY VIEW                      name AS SELECT ...;

where [...] is any of PARTITIONS 4, MODE append, TRIGGER '10 seconds', COMMENT 'text', OPTIONS (...). A query reads what
stands after its FROM and JOIN; STREAM(name) are the changes of a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from strandline.pipelines import declaring
from strandline.pipelines.failures import PipelineRefused, guess, refused
from strandline.pipelines.model import Dataset, Kind, Place, Source
from strandline.pipelines.sql_tokens import NotSql, Relation, Token, TokenKind, relations, statements
from strandline.spark.explain import explain_failure

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
_SOURCE_CLAUSES: Final = ("FROM", "KEY", "WATERMARK", "DEAD", "OPTIONS")
_DATASET_CLAUSES: Final = ("TO", "KEY", "PARTITIONS", "MODE", "TRIGGER", "COMMENT", "OPTIONS", "AS")


def declare(text: str, file: str) -> None:
    """Note what the statements of a file declare; PipelineRefused for what is no statement of a pipeline."""
    try:
        found = list(statements(text))
    except NotSql as error:
        raise refused(str(error), _place(text, file, error.at)) from None
    sources: list[Source] = []
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


class _Statement:
    """Reads one statement from its first token to its last."""

    def __init__(self, text: str, file: str, tokens: list[Token]) -> None:
        self._text = text
        self._file = file
        self._tokens = tokens
        self._next = 0
        self.at = _place(text, file, tokens[0].start)

    def declare(self, sources: list[Source], datasets: list[tuple[Dataset, list[Relation]]]) -> None:
        if self._maybe("PIPELINE"):
            declaring.name_pipeline(self._name("the pipeline's name"), self.at)
            self._end()
            return
        self._word("CREATE")
        if self._maybe("OR"):
            self._word("REPLACE")
        if self._maybe("SOURCE"):
            sources.append(self._source())
            return
        datasets.append(self._dataset(self._kind()))

    def _kind(self) -> Kind:
        for words, kind in _KINDS.items():
            ahead = self._tokens[self._next : self._next + len(words)]
            if len(ahead) == len(words) and all(token.says(word) for token, word in zip(ahead, words, strict=True)):
                self._next += len(words)
                return kind
        what = self._what()
        near = guess(what.upper(), ["SOURCE", *(words[0] for words in _KINDS)])
        raise self._refused(
            f"CREATE {what} is no statement of a pipeline{near}: create a SOURCE, STREAM, TABLE, VIEW or TEMPORARY VIEW"
        )

    # CREATE SOURCE

    def _source(self) -> Source:
        name = self._name("the source's name")
        schema = self._parenthesised_text() if self._is_sign("(") else None
        key: tuple[str, ...] = ()
        topic, watermark, letters, options = name, None, None, {}
        while not self._is_done():
            match self._clause(_SOURCE_CLAUSES):
                case "FROM":
                    self._word("TOPIC")
                    topic = self._quoted()
                case "KEY":
                    key = self._names()
                case "WATERMARK":
                    column = self._name("a column")
                    self._word("DELAY")
                    watermark = declaring.watermark_of(name, column, self._quoted(), self.at)
                case "DEAD":
                    self._word("LETTERS")
                    self._word("TO")
                    letters = self._quoted()
                case "OPTIONS":
                    options = self._options()
        return Source(name, topic, schema, key, bool(key), watermark, letters, options, self.at)

    # CREATE STREAM, TABLE, VIEW

    def _dataset(self, kind: Kind) -> tuple[Dataset, list[Relation]]:
        name = self._name(f"the {kind.value}'s name")
        said: dict[str, Any] = {"topic": "" if kind is Kind.TEMPORARY else name}
        while (clause := self._clause(_DATASET_CLAUSES)) != "AS":
            match clause:
                case "TO":
                    self._word("TOPIC")
                    said["topic"] = self._quoted()
                case "KEY":
                    said["key"] = self._names()
                case "PARTITIONS":
                    said["partitions"] = self._number()
                case "MODE":
                    said["mode"] = self._name("a mode").lower()
                case "TRIGGER":
                    said["trigger"] = self._quoted()
                case "COMMENT":
                    said["comment"] = self._quoted()
                case "OPTIONS":
                    said["options"] = self._options()
        query = self._tokens[self._next :]
        if not query:
            raise self._refused(f"{name} has nothing after AS: write its query there")
        read = relations(query)
        inputs = tuple(dict.fromkeys(each.name for each in read))
        function = _function(name, self._query_text(query, read), self.at)
        return Dataset(name, kind, function, inputs, at=self.at, **said), read

    def _query_text(self, query: list[Token], read: list[Relation]) -> str:
        """As it stands, each word on the line it has in the file, so that Spark's messages name that line."""
        start, end = query[0].start, query[-1].end
        text = self._text[start:end]
        for each in reversed(read):
            if each.is_stream:
                name = "`" + each.name.replace("`", "``") + "`"
                text = text[: each.start - start] + name + text[each.end - start :]
        return "\n" * self._text.count("\n", 0, start) + text

    # Words of a statement

    def _clause(self, words: tuple[str, ...]) -> str:
        token = self._peek()
        if token is None or not token.says(*words):
            what = self._what()
            raise self._refused(f"here is {what}{guess(what.upper(), words)}: it can be {', '.join(words)}")
        self._next += 1
        return token.text.upper()

    def _word(self, word: str) -> None:
        if not self._maybe(word):
            raise self._refused(f"here is {self._what()} and {word} is missing: write {word}")

    def _maybe(self, word: str) -> bool:
        token = self._peek()
        if token is None or not token.says(word):
            return False
        self._next += 1
        return True

    def _name(self, what: str) -> str:
        token = self._peek()
        if token is None or not token.is_name:
            raise self._refused(f"here is {self._what()} and {what} is missing: write a name")
        self._next += 1
        return token.name

    def _names(self) -> tuple[str, ...]:
        self._sign("(")
        found = [self._name("a column")]
        while self._is_sign(","):
            self._next += 1
            found.append(self._name("a column"))
        self._sign(")")
        return tuple(found)

    def _options(self) -> dict[str, str]:
        self._sign("(")
        found: dict[str, str] = {}
        while True:
            token = self._peek()
            is_quoted = token is not None and token.kind is TokenKind.TEXT
            name = self._quoted() if is_quoted else self._dotted()
            self._sign("=")
            found[name] = self._quoted()
            if not self._is_sign(","):
                break
            self._next += 1
        self._sign(")")
        return found

    def _dotted(self) -> str:
        name = self._name("an option")
        while self._is_sign("."):
            self._next += 1
            name += "." + self._name("an option")
        return name

    def _quoted(self) -> str:
        token = self._peek()
        if token is None or token.kind is not TokenKind.TEXT:
            raise self._refused(f"here is {self._what()} and a text in quotes is missing: write it like 'this'")
        self._next += 1
        return token.unquoted

    def _number(self) -> int:
        token = self._peek()
        if token is None or not token.text.isdigit():
            raise self._refused(f"here is {self._what()} and a number is missing: write one")
        self._next += 1
        return int(token.text)

    def _parenthesised_text(self) -> str:
        """What stands between these parentheses, without comments."""
        depth, words = 0, []
        for index in range(self._next, len(self._tokens)):
            token = self._tokens[index]
            depth += token.is_sign("(") - token.is_sign(")")
            words.append(token)
            if depth == 0:
                self._next = index + 1
                break
        else:
            raise self._refused("the parenthesis ( is not closed: close it")
        inner = words[1:-1]
        if not inner:
            raise self._refused("there are no columns between the parentheses: name some, or leave out the parentheses")
        return " ".join(token.text for token in inner)

    def _sign(self, sign: str) -> None:
        if not self._is_sign(sign):
            raise self._refused(f"here is {self._what()} and {sign} is missing: write {sign}")
        self._next += 1

    def _is_sign(self, sign: str) -> bool:
        token = self._peek()
        return token is not None and token.is_sign(sign)

    def _peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _is_done(self) -> bool:
        return self._peek() is None

    def _end(self) -> None:
        if not self._is_done():
            raise self._refused(f"here is {self._what()} and the statement should end: write ;")

    def _what(self) -> str:
        token = self._peek()
        return "the end of the statement" if token is None else token.text

    def _refused(self, sentence: str) -> PipelineRefused:
        token = self._peek() or self._tokens[-1]
        return refused(sentence, _place(self._text, self._file, token.start))


def _place(text: str, file: str, at: int) -> Place:
    return Place(file, text.count("\n", 0, at) + 1)


def _function(name: str, query: str, at: Place) -> Callable[..., Any]:
    """A function like those of a Python file: the frames are there under their names while the query is looked at."""

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
