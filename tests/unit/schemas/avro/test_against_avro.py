"""Our verdicts beside those of Apache Avro's own Python library, on pairs of schemas that Hypothesis draws."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.schemas.avro.engine import AvroType

ENGINE = AvroType()

avro_schema = pytest.importorskip("avro.schema")
compatibility = pytest.importorskip("avro.compatibility")

PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])

KINDS = ["primitive", "array", "map", "union", "record", "enum", "fixed"]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> Any:
    """Draw a schema. Named types get numbers, so that none is defined twice, and often the same in both of a pair."""
    counter = [0]

    def build(level: int) -> Any:
        kind = draw(
            st.sampled_from(["primitive", "array", "map", "union", "record", "enum", "fixed"][: 7 if level else 1])
        )
        if kind == "primitive":
            return draw(PRIMITIVES)
        if kind == "array":
            return {"type": "array", "items": build(level - 1)}
        if kind == "map":
            return {"type": "map", "values": build(level - 1)}
        if kind == "union":
            return draw(st.lists(PRIMITIVES, min_size=1, max_size=4, unique=True))
        counter[0] += 1
        name = f"N{counter[0]}"
        if kind == "enum":
            symbols = draw(st.lists(st.sampled_from("ABCD"), min_size=1, max_size=4, unique=True))
            return {"type": "enum", "name": name, "symbols": symbols}
        if kind == "fixed":
            return {"type": "fixed", "name": name, "size": draw(st.integers(1, 2))}
        names = draw(st.lists(st.sampled_from("abcd"), max_size=3, unique=True))
        fields = []
        for each in names:
            inner = build(level - 1)
            default = {"default": 1} if inner in ("int", "long") and draw(st.booleans()) else {}
            fields.append({"name": each, "type": inner, **default})
        return {"type": "record", "name": name, "fields": fields}

    return build(depth)


@settings(max_examples=200, deadline=None)
@given(schemas(), schemas())
def test_the_verdict_is_that_of_apache_avro(one: Any, other: Any) -> None:
    for reader, writer in ((one, other), (other, one), (one, one)):
        texts = json.dumps(reader), json.dumps(writer)
        ours = not ENGINE.parse(texts[0], {}).differences(ENGINE.parse(texts[1], {}))
        parsed = [avro_schema.parse(text) for text in texts]
        checker = compatibility.ReaderWriterCompatibilityChecker()
        theirs = checker.get_compatibility(*parsed).compatibility is compatibility.SchemaCompatibilityType.compatible
        assert ours == theirs, f"reader {texts[0]}, writer {texts[1]}"


@settings(max_examples=100, deadline=None)
@given(schemas())
def test_the_canonical_text_means_the_same(schema: Any) -> None:
    parsed = ENGINE.parse(json.dumps(schema), {})
    again = ENGINE.parse(parsed.canonical(), {})
    assert again.canonical() == parsed.canonical()
    assert again.normalized() == parsed.normalized() == ENGINE.parse(parsed.normalized(), {}).normalized()
    assert again.differences(parsed) == parsed.differences(again) == []
    assert avro_schema.parse(parsed.canonical()) == avro_schema.parse(json.dumps(schema))
