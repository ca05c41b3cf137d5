"""Parts of the console that need no cluster: masks, tables, kept answers, events, changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from strandline.cli.cluster.state import BrokerState, ClusterState, PartitionState
from strandline.console.events import StreamEvent, event_stream, failure_event
from strandline.console.masking import MASK, TopicMasks, parse_mask
from strandline.console.reading.changes import changes_between
from strandline.console.reading.kept_value import WAIT_S, KeptValue
from strandline.console.rendering import visible
from strandline.console.tables import TableHead, TableView
from strandline.errors import Disconnected, InvalidConfig

# Masks

CARD = {"id": 7, "card": {"number": "4111", "name": "A"}, "lines": [{"email": "a@b"}, {"email": "c@d", "n": 1}]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", MASK),
        ("$.card", CARD | {"card": MASK}),
        ("$.card.number", CARD | {"card": {"number": MASK, "name": "A"}}),
        ("$['card']['name']", CARD | {"card": {"number": "4111", "name": MASK}}),
        ("$.lines[*].email", CARD | {"lines": [{"email": MASK}, {"email": MASK, "n": 1}]}),
        ("$.lines.email", CARD | {"lines": [{"email": MASK}, {"email": MASK, "n": 1}]}),
        ("$.lines[1].email", CARD | {"lines": [{"email": "a@b"}, {"email": MASK, "n": 1}]}),
        ("$..email", CARD | {"lines": [{"email": MASK}, {"email": MASK, "n": 1}]}),
        ("$.card.*", CARD | {"card": {"number": MASK, "name": MASK}}),
        ("$.nothing.here", CARD),
    ],
)
def test_a_mask_hides_what_its_path_leads_to(path: str, expected: object) -> None:
    masks = TopicMasks([parse_mask(f"pay-* value {path}")], "pay-1")
    assert masks.json("value", CARD) == expected
    assert masks.concerns("value")
    assert masks.json("key", CARD) == CARD
    assert TopicMasks([parse_mask(f"pay-* value {path}")], "orders").json("value", CARD) == CARD


def test_json_inside_a_string_is_not_a_way_around_a_mask() -> None:
    masks = TopicMasks([parse_mask("t value $.body.card")], "t")
    assert masks.json("value", {"body": '{"card": "4111"}', "n": 1}) == {"body": MASK, "n": 1}


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("$.lines[*].email", '[{"email": "a@b"}]'),
        ("$.lines.*.email", '{"x": {"email": "a@b"}}'),
        ("$.lines.*", '{"email": "a@b"}'),
        ("$..email", '[{"email": "a@b"}]'),
        ("$.lines[0].email", ' \n[{"email": "a@b"}]'),
        ("$.lines.email", '\ufeff {"email": "a@b"}'),
        ("$.lines.email", '"{\\"email\\": \\"a@b\\"}"'),
    ],
)
def test_no_step_of_a_path_passes_by_json_inside_a_string(path: str, lines: str) -> None:
    masks = TopicMasks([parse_mask(f"t value {path}")], "t")
    assert masks.json("value", {"lines": lines, "n": "text"}) == {"lines": MASK, "n": "text"}
    assert masks.json("value", {"lines": "no JSON"}) == {"lines": "no JSON"}


def test_headers_are_masked_by_name() -> None:
    masks = TopicMasks([parse_mask("* header auth*")], "t")
    assert masks.header("Authorization", "x") == MASK
    assert masks.header("other", "x") == "x"


@pytest.mark.parametrize(
    "text", ["", "orders", "orders value", "orders body $.x", "orders value x", "orders value $.["]
)
def test_a_mask_that_cannot_be_read_stops_the_start(text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_mask(text)


# Tables


def table(rows: list[dict[str, object]], **query: str) -> TableView:
    heads = (TableHead("name", "Name"), TableHead("size", "Size", "bytes"))
    return TableView(heads, rows, query, caption="Things", searched=("name",), sort="name")


def test_rows_without_a_value_come_last_whichever_way() -> None:
    rows: list[dict[str, object]] = [{"name": "a", "size": None}, {"name": "b", "size": 2}, {"name": "c", "size": 1}]
    assert [each["name"] for each in table(rows, sort="size").rows] == ["c", "b", "a"]
    assert [each["name"] for each in table(rows, sort="-size").rows] == ["b", "c", "a"]


def test_the_urls_of_a_table_keep_the_rest_of_the_state() -> None:
    found = table([{"name": str(number), "size": number} for number in range(120)], q="1", other="x", page="2")
    assert found.url(page=3) == "?q=1&other=x&page=3"
    size, name = found.heads[1], found.heads[0]
    # Figures begin with the largest, names with the first.
    assert found.sort_url(size) == "?q=1&other=x&sort=-size"
    assert found.sort_url(name) == "?q=1&other=x&sort=-name"
    assert found.order(name) == "ascending"
    assert found.order(size) == "none"


def test_a_search_has_every_word() -> None:
    rows: list[dict[str, object]] = [{"name": "shop.orders.v1"}, {"name": "shop.visits"}, {"name": "Orders"}]
    assert [each["name"] for each in table(rows, q="orders SHOP").rows] == ["shop.orders.v1"]


def test_no_cell_of_a_file_is_a_formula() -> None:
    found = TableView([TableHead("=1+1", "One"), TableHead("name", "Name")], [{"name": "@x"}], {}, caption="Things")
    assert found.csv() == "'=1+1,name\r\n,'@x\r\n"


# Kept answers


class Question:
    """Something that is asked, which the test answers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self.error: Exception | None = None
        self.is_out = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.kept = KeptValue(self.ask, lambda: self.now)

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        self.is_out.set()
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return number


async def test_many_readers_are_one_question() -> None:
    question = Question()
    found = await asyncio.gather(*(question.kept.get(2.0) for _ in range(50)))
    assert {each.value for each in found} == {1}
    assert question.asked == 1


async def test_an_old_answer_is_shown_while_a_newer_one_is_on_its_way() -> None:
    question = Question()
    await question.kept.get(2.0)
    question.now = 3.0
    question.may_answer.clear()
    known = await question.kept.get(2.0)
    assert (known.value, known.age_s, known.failure) == (1, 3.0, "")
    question.may_answer.set()
    question.now = 4.0
    assert (await question.kept.get(2.0)).value == 2


async def test_who_comes_while_a_slow_question_is_asked_again_does_not_wait() -> None:
    question = Question()
    question.may_answer.clear()
    first = asyncio.create_task(question.kept.get(2.0))
    await question.is_out.wait()
    question.now = 1.0
    assert question.kept.first_asked_s == 1.0
    question.may_answer.set()
    await first
    assert question.kept.first_asked_s == 0.0
    # It took a second, so that after nine it is asked again, and what is known is given out at once.
    question.now = 10.0
    question.may_answer.clear()
    known = await asyncio.wait_for(question.kept.get(2.0), timeout=WAIT_S / 2)
    assert known.value == 1
    question.kept.cancel()


async def test_a_silent_cluster_does_not_take_away_what_is_known() -> None:
    question = Question()
    await question.kept.get(2.0)
    question.now, question.error = 60.0, Disconnected("the cluster is gone")
    known = await question.kept.get(2.0)
    assert (known.value, known.age_s, known.failure) == (1, 60.0, "the cluster is gone")
    question.now = 10_000.0
    with pytest.raises(Disconnected):
        await question.kept.get(2.0)
    question.error = None
    assert (await question.kept.get(2.0)).failure == ""


async def test_after_a_change_no_older_answer_is_shown() -> None:
    question = Question()
    await question.kept.get(100.0)
    question.now = 900.0
    question.is_out.clear()
    question.may_answer.clear()
    waiting = asyncio.create_task(question.kept.get(100.0))
    await question.is_out.wait()
    # The change comes while the question is out: its answer may be from before.
    question.now = 901.0
    question.kept.forget()
    question.now = 902.0
    question.may_answer.set()
    assert (await waiting).value == 3


# Events


def test_an_event_is_not_ended_by_its_data() -> None:
    assert StreamEvent("a\nb\r\nevent: x\n\nc", "v\n", "1\n2").encoded() == (
        b"event: v \nid: 1 2\ndata: a\ndata: b\ndata: event: x\ndata: \ndata: c\n\n"
    )
    assert b"<" not in failure_event("<script>").encoded()


async def test_a_quiet_stream_has_a_heartbeat_and_ends_with_its_session() -> None:
    is_admitted = True

    async def quiet() -> AsyncIterator[StreamEvent]:
        yield StreamEvent("one")
        await asyncio.get_running_loop().create_future()

    stopping = asyncio.Event()
    response = event_stream(quiet(), stopping=stopping, may_go_on=lambda: is_admitted, heartbeat_s=0.01)
    pieces = []
    async for piece in response.body_iterator:
        pieces.append(piece)
        assert len(pieces) < 50, "the stream goes on after its session"
        if piece == b": heartbeat\n\n":
            is_admitted = False
    assert pieces[1] == b"event: message\ndata: one\n\n"
    assert pieces[-1] == b": heartbeat\n\n"


# Changes


def test_changes_are_told_in_sentences() -> None:
    one, two = BrokerState(1, "a", 1), BrokerState(2, "b", 1)
    orders = PartitionState("orders", 0, 1, (1, 2), (1, 2))
    before = ClusterState("c", (one, two), (orders,))
    after = ClusterState(
        "c",
        (one, replace(two, is_up=False)),
        (replace(orders, leader=2, in_sync=(2,)), PartitionState("new", 0, 1, (1,), (1,))),
    )
    assert list(changes_between(before, after)) == [
        "Broker 2 is gone",
        "1 topic created: new",
        "1 partition got another leader: orders-0",
        "1 partition lost a replica in sync",
    ]
    assert list(changes_between(before, before)) == []


def test_what_turns_a_line_around_is_seen() -> None:
    assert visible("a\u202eb\u0000c\u200bd") == "a\\u202eb\\u0000c\\u200bd"
    assert visible("two\nlines\t") == "two\nlines\t"
