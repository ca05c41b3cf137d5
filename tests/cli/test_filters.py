"""Which records a reader wants to see."""

from __future__ import annotations

import pytest

from strandline.cli.records.filters import compile_filter, compile_filters
from strandline.cli.records.record import ReadRecord

DOCUMENT = (
    b'{"id": 7, "paid": true, "note": null, "name": "caf\xc3\xa9", "items": [{"sku": "x-1"}, {"sku": "x-2"}], "a.b": 1}'
)
RECORD = ReadRecord("orders", 0, 5, 0, b"o-17", DOCUMENT, [("source", b"web"), ("source", b"app"), ("none", None)])
BYTES = ReadRecord("orders", 0, 6, 0, b"\xff\x00", b"\xffpaid\x00", [])
TOMBSTONE = ReadRecord("orders", 0, 7, 0, b"o-17", None, [])
NUMBER = ReadRecord("orders", 0, 9, 15_000, None, b"120", [("tries", b"9"), ("tries", b"10")])
QUOTED = ReadRecord("orders", 0, 9, 0, None, b'"120"', [])
NO_KEY = ReadRecord("orders", 0, 8, 0, None, b"plain", [])


@pytest.mark.parametrize(
    ("condition", "record", "wanted"),
    [
        ("key=o-17", RECORD, True),
        ("key=o-1", RECORD, False),
        ("key!=o-1", RECORD, True),
        ("key*=-1", RECORD, True),
        ("key~=^o-[0-9]+$", RECORD, True),
        ("key~=^[0-9]+$", RECORD, False),
        ("key!~^x", RECORD, True),
        ("key!~^o", RECORD, False),
        ("key=", NO_KEY, False),
        ("key!=x", NO_KEY, True),
        ("key*=", NO_KEY, False),
        ("key!~x", NO_KEY, True),
        ("value*=paid", BYTES, True),
        ("value=", TOMBSTONE, False),
        ("value~=.", TOMBSTONE, False),
        ("value=a=b", NO_KEY, False),
        ("header.source=web", RECORD, True),
        ("header.source=app", RECORD, True),
        ("header.source=tv", RECORD, False),
        ("header.source!=web", RECORD, False),
        ("header.source!=tv", RECORD, True),
        ("header.missing!=tv", RECORD, True),
        ("header.missing=", RECORD, False),
        ("header.source*=ap", RECORD, True),
        ("header.source~=^w", RECORD, True),
        ("header.source!~^w", RECORD, False),
        ("header.none=", RECORD, False),
        ("value.id=7", RECORD, True),
        ("value.id=7.0", RECORD, True),
        ("value.id=8", RECORD, False),
        ("value.id!=8", RECORD, True),
        ("value.paid=true", RECORD, True),
        ("value.paid=1", RECORD, False),
        ("value.note=null", RECORD, True),
        ("value.note=", RECORD, False),
        ("value.name=café", RECORD, True),
        ('value.name="café"', RECORD, True),
        ("value.name*=af", RECORD, True),
        ("value.name~=^c", RECORD, True),
        ("value.items[1].sku=x-2", RECORD, True),
        ("value.items[-1].sku=x-2", RECORD, True),
        ("value.items[2].sku=x-2", RECORD, False),
        ("value.items[2].sku!=x-2", RECORD, True),
        ("value.items.sku=x-2", RECORD, False),
        ("value.items[0]*=x-1", RECORD, True),
        ('value["a.b"]=1', RECORD, True),
        ("value.missing=1", RECORD, False),
        ("value.missing~=.", RECORD, False),
        ("value.id=7", BYTES, False),
        ("value.id=7", TOMBSTONE, False),
        ("key.id!=7", TOMBSTONE, True),
        ("value.id>6", RECORD, True),
        ("value.id > 6.5", RECORD, True),
        ("value.id>=7", RECORD, True),
        ("value.id <= 6", RECORD, False),
        ("value.id<10", RECORD, True),
        ("value.id == 7", RECORD, True),
        ("value.id = 7 ", RECORD, True),
        ("value.id != 7", RECORD, False),
        ("value.paid>0", RECORD, False),
        ("value.name>0", RECORD, False),
        ("value.name>b", RECORD, True),
        ("value.name<'b'", RECORD, False),
        ("value.name = 'café'", RECORD, True),
        ("value.missing<1", RECORD, False),
        ("value.id>6", BYTES, False),
        ("value.id>6", TOMBSTONE, False),
        ("value.items[0].sku < x-2", RECORD, True),
        ('value["a.b"]>0', RECORD, True),
        ("value>100", NUMBER, True),
        ("value > 120", NUMBER, False),
        ("value>100", RECORD, False),
        ("value>100", TOMBSTONE, False),
        ("key>o-16", RECORD, True),
        ("key='o-17'", RECORD, True),
        ('value="120"', QUOTED, True),
        ("headers.source=web", RECORD, True),
        ("headers.source > v", RECORD, True),
        ("headers.tries>=10", NUMBER, True),
        ("headers.tries>10", NUMBER, False),
        ("headers.missing<9", NUMBER, False),
        ("partition=0", RECORD, True),
        ("partition != 0", RECORD, False),
        ("offset>5", RECORD, False),
        ("offset >= 5", RECORD, True),
        ("timestamp=0", RECORD, True),
        ("timestamp>1970-01-01T00:00:01Z", NUMBER, True),
        ("timestamp > 10s-ago", NUMBER, False),
        ("timestamp>1m-ago", NUMBER, True),
    ],
)
def test_condition(condition: str, record: ReadRecord, wanted: bool) -> None:
    assert compile_filter(condition, now_ms=30_000)(record) is wanted


def test_deep_json_is_no_document() -> None:
    deep = ReadRecord("t", 0, 0, 0, None, b"[" * 100_000, [])
    assert compile_filter("value.a=1")(deep) is False


def test_all_conditions_must_hold_and_grep_looks_at_both() -> None:
    assert compile_filters([]) is None
    both = compile_filters(["key=o-17", "value.id=7"])
    assert both is not None
    assert both(RECORD)
    assert not both(TOMBSTONE)
    found = compile_filters([], "17$|pai")
    assert found is not None
    assert [found(record) for record in (RECORD, BYTES, TOMBSTONE, NO_KEY)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("", "no condition"),
        ("topic=5", "no condition"),
        ("value.a 5", "no condition"),
        ("value.a=>5", "two operators"),
        ("value.a > = 5", "two operators"),
        ("value.a>", "compares with nothing"),
        ("value.a>1 and value.b<2", "two conditions: say --where for each of them"),
        ("offset=five", "'five' is no number"),
        ("offset~=5", "offset is a number"),
        ("partition.x=5", "partition is a number"),
        ("timestamp>soon", "no number .milliseconds., a time"),
        ("key", "no condition"),
        ("value~=[", "no regular expression"),
        ("header=x", "names no header"),
        ("header.=x", "names no header"),
        ("value.a[x]=1", "no place"),
        ("value..a=1", "no place"),
    ],
)
def test_what_is_no_condition_is_told(condition: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        compile_filter(condition)
