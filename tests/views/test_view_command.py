"""`strandline view` as a user has it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine
from tests.views.ground import SCHEMA, Feed

from strandline.local.embedded_broker import EmbeddedBroker


@pytest.fixture
def cli(broker: EmbeddedBroker, tmp_path: Path) -> CommandLine:
    cli = CommandLine(broker.bootstrap)
    cli.environ["STRANDLINE_VIEWS"] = str(tmp_path / "views")
    return cli


@pytest.fixture(scope="module")
def totals(broker: EmbeddedBroker) -> str:
    """A view of four customers, one of whom left; each test keeps snapshots of its own."""
    name = f"totals_{uuid.uuid4().hex[:8]}"
    feed = Feed(broker, name, partitions=2)
    for number, customer in enumerate(("ada", "bob", "cid", "dan")):
        feed.put(customer, number + 0.5, partition=number % 2)
    feed.put("bob", None, partition=1)
    feed.flush()
    CommandLine(broker.bootstrap).ok("view", "create", name, "--key", "customer", "--schema", SCHEMA)
    return name


def test_query(cli: CommandLine, totals: str) -> None:
    asked = cli.ok("view", "query", f"select * from {totals} order by total desc")
    assert asked.lines == ["CUSTOMER  TOTAL  VISITS", "dan       3.5    3", "cid       2.5    2", "ada       0.5    0"]
    (line,) = asked.stderr.splitlines()
    assert line.startswith("as of ")
    assert line.endswith(" ago, 0 records behind; as-of reaches back to the beginning of the log")
    # The sum of whole numbers is one, though Arrow calls it a decimal.
    told = cli.ok("view", "query", f"select sum(visits) v, count(*) n from {totals}", "--json")
    assert told.objects == [{"v": 5, "n": 3}]
    assert cli.ok("view", "query", f"select customer from {totals} where total > 9", "--json").objects == []
    assert cli.ok("view", "query", f"select customer from {totals} where total > 9").lines == ["CUSTOMER"]
    assert cli.ok("view", "query", "select 1 + 1 as two", "--json").objects == [{"two": 2}]
    values = "'nan'::double n, 0.1::decimal(10,2) d, '\\xFF'::blob b, date '2026-01-31' t, [1] l, {'a': null} s"
    told = cli.ok("view", "query", f"select {values}", "--json").objects
    assert told == [{"n": "NaN", "d": 0.1, "b": "/w==", "t": "2026-01-31", "l": [1], "s": {"a": None}}]


def test_query_as_of(cli: CommandLine, totals: str) -> None:
    query = f"select customer from {totals} order by 1"
    then = cli.ok("view", "query", query, "--as-of-offset", "0:1,1:2", "--json")
    assert [row["customer"] for row in then.objects] == ["ada", "bob", "dan"]
    assert then.stderr.startswith("as of offsets 0:1,1:2, 2 records before the end; as-of reaches back to ")
    assert cli.ok("view", "query", query, "--as-of-time", "1h-ago", "--json").objects == []
    assert len(cli.ok("view", "query", query, "--as-of-time", "2100-01-01T00:00:00Z", "--json").objects) == 3


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["query", "select * from {view}s"], 3, "there is no view {view}s (did you mean {view}?)"),
        (["query", "selec 1"], 1, 'this is no SQL: syntax error at or near "selec"'),
        (["query", "select nothing from {view}"], 1, 'the query fails: Referenced column "nothing" not found'),
        (["query", "delete from {view}"], 1, "a view is only read: say one SELECT"),
        (["query", "select 1; select 2"], 1, "there are 2 statements: say one SELECT"),
        (["query", "select 1 from {view}", "--as-of-offset", "0:9,1:9"], 1, "is not there yet: what is committed ends"),
        (["query", "select 1 from {view}", "--as-of-offset", "5"], 1, "say one for each, such as 0:2,1:3"),
        (["query", "select 1 from {view}", "--as-of-offset", "x"], 1, "say PARTITION:OFFSET for each"),
        (["query", "select 1 from {view}", "--as-of-time", "noon"], 2, "is no time: say 2026-03-01T12:00:00Z"),
        (["query", "select 1", "--as-of-time", "1h", "--as-of-offset", "0:1"], 2, "say one of them"),
        (["get", "{view}", "bob"], 1, "{view} has no row with the key 'bob' (as of "),
        (["get", "{view}s", "bob"], 3, "there is no view {view}s"),
        (["create", "{view}"], 1, "there is a view {view} of the topic {view}: use --replace"),
        (["create", "other", "--topic", "{view}s"], 3, "there is no topic '{view}s'"),
        (["create", "no-name", "--topic", "{view}"], 2, "'no-name' cannot be a name in SQL"),
        (["create", "other", "--topic", "{view}", "--schema", "a STRIN", "--key", "a"], 2, "cannot be read at 'strin'"),
        (["create", "other", "--topic", "{view}", "--schema", "a STRING"], 2, "has no key: say which of a it is"),
        (["create", "other", "--topic", "{view}", "--schema", "a INT, _key INT", "--key", "a"], 2, "called _key"),
    ],
)
def test_sentences(cli: CommandLine, totals: str, words: list[str], status: int, sentence: str) -> None:
    ended = cli.run("view", *(word.format(view=totals) for word in words))
    assert ended.status == status
    assert sentence.format(view=totals) in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) <= 2, "one sentence, and perhaps what to do next"


def test_get(cli: CommandLine, totals: str) -> None:
    got = cli.ok("view", "get", totals, "cid")
    assert got.lines == ["COLUMN    VALUE", "customer  cid", "total     2.5", "visits    2"]
    assert " 0 records behind; as-of reaches back to " in got.stderr
    assert cli.ok("view", "get", totals, "cid", "--json").objects == [{"customer": "cid", "total": 2.5, "visits": 2}]
    then = cli.ok("view", "get", totals, "bob", "--as-of-offset", "0:1,1:2", "--json")
    assert then.objects == [{"customer": "bob", "total": 1.5, "visits": 1}]


def test_list(cli: CommandLine, totals: str) -> None:
    def told() -> dict[str, object]:
        (found,) = [each for each in cli.ok("view", "list", "--json").objects if each["view"] == totals]
        return dict(found)

    assert (told()["snapshots"], told()["rows_kept"]) == (0, None)
    cli.ok("view", "query", f"select 1 from {totals}")
    assert told() == {
        "view": totals,
        "kind": "view",
        "pipeline": None,
        "version": None,
        "topic": totals,
        "key": ["customer"],
        "columns": ["customer string", "total double", "visits bigint"],
        "snapshots": 1,
        "rows_kept": 3,
        "records_since": 0,
        "as_of": "the beginning of the log",
    }
    assert any(line.split()[0] == totals for line in cli.ok("view", "list").lines)


def test_on_a_terminal(cli: CommandLine, totals: str) -> None:
    shown = cli.on_terminal(["view", "query", f"select customer, total from {totals} order by 1"])
    assert shown.status == 0
    text = shown.stdout.decode()
    assert "────" in text, "a table that is drawn"
    assert text.index("ada") < text.index("cid") < text.index("0 records behind")


def test_a_view_without_a_schema(cli: CommandLine, totals: str) -> None:
    cli.ok("view", "create", f"raw_{totals}", "--topic", totals)
    (row,) = cli.ok("view", "query", f"select * from raw_{totals} where key = 'ada'", "--json").objects
    assert json.loads(row["value"]) == {"total": 0.5, "visits": 0}
    cli.ok("view", "create", f"raw_{totals}", "--topic", totals, "--replace", "--key", "who", "--schema", "visits INT")
    assert cli.ok("view", "get", f"raw_{totals}", "ada", "--json").objects == [{"who": "ada", "visits": 0}]


def test_without_a_cluster(tmp_path: Path) -> None:
    ended = CommandLine("localhost:1").run("view", "query", "select 1", "--views", str(tmp_path))
    assert ended.status == 4
    assert "cannot reach localhost:1" in ended.stderr
