"""Inputs of the recording: what Kafka's converters and transforms, and ours, are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Case = dict[str, Any]

JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
STRING_CONVERTER: Final = "org.apache.kafka.connect.storage.StringConverter"
TRANSFORMS: Final = "org.apache.kafka.connect.transforms"
PREDICATES: Final = f"{TRANSFORMS}.predicates"
DATA: Final = "org.apache.kafka.connect.data"

DECIMAL: Final = {"name": f"{DATA}.Decimal", "version": 1, "parameters": {"scale": "2"}}
DATE: Final = {"name": f"{DATA}.Date", "version": 1}
TIME: Final = {"name": f"{DATA}.Time", "version": 1}
TIMESTAMP: Final = {"name": f"{DATA}.Timestamp", "version": 1}
MOMENT_MS: Final = 1_483_401_845_678  # 2017-01-03T00:04:05.678Z


def typed(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": False, **more}


def struct(*fields: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return typed("struct", fields=[{**schema, "field": name} for name, schema in fields], **more)


def envelope(schema: Any, payload: Any) -> dict[str, Any]:
    return {"schema": schema, "payload": payload}


ALL_KINDS: Final = struct(
    ("i8", typed("int8")),
    ("i16", typed("int16")),
    ("i32", typed("int32")),
    ("i64", typed("int64")),
    ("f32", typed("float")),
    ("f64", typed("double")),
    ("flag", typed("boolean")),
    ("text", typed("string")),
    ("raw", typed("bytes")),
    ("list", typed("array", items=typed("int32"))),
    ("words", typed("map", keys=typed("string"), values=typed("int32"))),
    ("numbers", typed("map", keys=typed("int32"), values=typed("string"))),
    ("inner", struct(("a", typed("string", optional=True)), name="inner")),
    ("price", typed("bytes", **DECIMAL)),
    ("day", typed("int32", **DATE)),
    ("hour", typed("int32", **TIME)),
    ("at", typed("int64", **TIMESTAMP)),
    name="all.kinds",
    version=3,
    doc="every kind",
    parameters={"a": "b", "c": "d"},
)
ALL_VALUES: Final = {
    "i8": -128,
    "i16": 32767,
    "i32": -2147483648,
    "i64": 9223372036854775807,
    "f32": 1.5,
    "f64": 2.25,
    "flag": True,
    "text": 'a "quoted" \\ text',
    "raw": "AAEC/w==",
    "list": [1, 2, 3],
    "words": {"one": 1},
    "numbers": [[1, "one"]],
    "inner": {"a": None},
    "price": "MDk=",
    "day": 17000,
    "hour": 45_296_789,
    "at": MOMENT_MS,
}
DEFAULTS: Final = struct(
    ("kept", typed("string")),
    ("null", typed("string", optional=True)),
    ("text", typed("string", optional=True, default="fallback")),
    ("number", typed("int32", optional=True, default=7)),
    ("price", typed("bytes", optional=True, default="AQ==", **DECIMAL)),
    name="defaults",
)
PERSON: Final = struct(
    ("name", typed("string")),
    ("age", typed("int32")),
    ("height", typed("double")),
    ("married", typed("boolean")),
    ("address", struct(("city", typed("string")), ("zip.code", typed("string")), name="address", optional=True)),
    ("born", typed("int64", optional=True, **TIMESTAMP)),
    ("tags", typed("array", items=typed("string"))),
    name="person",
    version=1,
    doc="a person",
    parameters={"p": "q"},
)
PERSON_VALUE: Final = {
    "name": "Ann",
    "age": 41,
    "height": 1.75,
    "married": False,
    "address": {"city": "Zürich", "zip.code": "8001"},
    "born": MOMENT_MS,
    "tags": ["x", "y"],
}
PLAIN: Final = {"name": "Ann", "age": 41, "height": 1.75, "address": {"city": "Bern", "zip.code": "3000"}, "tags": [1]}


def cases() -> list[Case]:
    """Return all cases; each has a name."""
    found = [
        *_writing(),
        *_reading(),
        *_headers(),
        *_plain(),
        *_formats(),
        *_transforms(),
        *_config_errors(),
        *_options(),
    ]
    counts: dict[str, int] = {}
    for each in found:
        label = each.get("label", each["kind"])
        counts[label] = counts.get(label, 0) + 1
        each["label"] = f"{label} {counts[label]}"
    return found


def _writing() -> Iterator[Case]:
    values = [
        envelope(ALL_KINDS, ALL_VALUES),
        envelope(None, PLAIN),
        envelope(None, "text"),
        envelope(None, [1, 2.5, None, {"a": True}]),
        envelope(None, None),
        envelope(typed("string", optional=True), None),
        envelope(DEFAULTS, {"kept": "k"}),
        envelope(typed("array", items=typed("string", optional=True)), ["a", None]),
        envelope(typed("string"), "\u0001\u001f\t\n\r\b\f\u007f é \U0001f600 / </script>"),
        *(
            envelope(typed("double"), each)
            for each in (0.0, 1.0, 100.0, 1e7, 12345678.9, 1e-3, 1.5e-4, 1e21, 1e100, 0.1, 123456.789)
        ),
        *(envelope(typed("float"), each) for each in (0.1, 1e7, 3.4028235e38, 16777216.0, 1e-3, 0.3)),
        *(
            envelope(typed("bytes", **{**DECIMAL, "parameters": {"scale": str(scale)}}), data)
            for scale, data in ((0, "AA=="), (2, "/w=="), (2, "AIA="), (10, "AQ=="), (-3, "BQ=="), (2, "AAAA"))
        ),
        envelope(typed("int64", **TIMESTAMP), -1),
        envelope(typed("int32", **DATE), -719162),
        envelope(typed("map", keys=typed("string"), values=typed("array", items=typed("int64"))), {"a": [1], "b": []}),
        envelope(struct(("a", typed("int32", default=0)), ("b", typed("struct", fields=[]))), {"a": 5, "b": {}}),
    ]
    for value in values:
        for config in (
            {"schemas.enable": "true"},
            {"schemas.enable": "false"},
            {"schemas.enable": "true", "decimal.format": "numeric", "replace.null.with.default": "false"},
        ):
            yield {"kind": "write", "converter": JSON, "config": config, "value": value}


def _reading() -> Iterator[Case]:
    with_schemas: dict[str, str] = {}
    without = {"schemas.enable": "false"}
    for config, data in [
        (without, '{"a":1,"b":[1.5,null,"x"],"c":{"d":false}}'),
        (without, "17"),
        (without, "null"),
        (without, '"text"'),
        (without, "{"),
        (without, "NaN"),
        (without, ""),
        (without, "  [1, 2]  "),
        (with_schemas, '{"schema":null,"payload":{"a":1}}'),
        (with_schemas, '{"payload":"x","schema":{"type":"string"}}'),
        (with_schemas, '{"a":1}'),
        (with_schemas, '{"schema":{"type":"string"},"payload":"x","more":1}'),
        (with_schemas, '{"schema":{"type":"string","optional":true},"payload":null}'),
        (with_schemas, '{"schema":{"type":"string"},"payload":null}'),
        (with_schemas, '{"schema":{"type":"strange"},"payload":null}'),
        (with_schemas, '{"schema":{"optional":true},"payload":null}'),
        (with_schemas, '{"schema":{"type":"array"},"payload":[]}'),
        (with_schemas, '{"schema":{"type":"map","keys":{"type":"string"}},"payload":{}}'),
        (with_schemas, '{"schema":{"type":"struct"},"payload":{}}'),
        (with_schemas, '{"schema":{"type":"struct","fields":[{"type":"int32"}]},"payload":{}}'),
        (with_schemas, '{"schema":{"type":"struct","fields":[{"type":"int32","field":"a"}]},"payload":{"a":1,"b":2}}'),
        (with_schemas, '{"schema":{"type":"struct","fields":[{"type":"int32","field":"a"}]},"payload":{}}'),
        (with_schemas, '{"schema":{"type":"struct","fields":[{"type":"int32","field":"a","default":9}]},"payload":{}}'),
        (with_schemas, '{"schema":{"type":"struct","fields":[]},"payload":[]}'),
        (with_schemas, '{"schema":{"type":"map","keys":{"type":"int32"},"values":{"type":"int32"}},"payload":[[1,2]]}'),
        (with_schemas, '{"schema":{"type":"map","keys":{"type":"int32"},"values":{"type":"int32"}},"payload":[[1]]}'),
        (with_schemas, '{"schema":{"type":"map","keys":{"type":"int32"},"values":{"type":"int32"}},"payload":{"1":2}}'),
        (with_schemas, '{"schema":{"type":"bytes"},"payload":"not base64!"}'),
        (with_schemas, '{"schema":{"type":"float"},"payload":0.1}'),
        (with_schemas, '{"schema":{"type":"double"},"payload":1e400}'),
        (with_schemas, '{"schema":{"type":"int64","version":2,"doc":"d","parameters":{"k":"v"}},"payload":-5}'),
        (with_schemas, '{"schema":{"type":"int64","parameters":{"k":1}},"payload":-5}'),
        (with_schemas, f'{{"schema":{{"type":"int32","name":"{DATA}.Time"}},"payload":86400001}}'),
        (with_schemas, f'{{"schema":{{"type":"int32","name":"{DATA}.Date"}},"payload":"x"}}'),
        (with_schemas, f'{{"schema":{{"type":"int64","name":"{DATA}.Timestamp"}},"payload":1.5}}'),
        (
            with_schemas,
            f'{{"schema":{{"type":"bytes","name":"{DATA}.Decimal","parameters":{{"scale":"2"}}}},"payload":12.34}}',
        ),
        (
            with_schemas,
            f'{{"schema":{{"type":"bytes","name":"{DATA}.Decimal","parameters":{{"scale":"2"}}}},"payload":"BNI="}}',
        ),
        ({"schema.content": '{"type":"struct","fields":[{"type":"int32","field":"a"}]}'}, '{"a":5}'),
        ({"schema.content": '{"type":"int32"}'}, '{"schema":{"type":"int32"},"payload":5}'),
    ]:
        yield {"kind": "read", "converter": JSON, "config": config, "data": data}
    yield {"kind": "read", "converter": STRING_CONVERTER, "config": {}, "data": "text é"}


def _headers() -> Iterator[Case]:
    for data in (
        *("", " ", "null", "true", "false", "TRUE", "truex", "true}", " true ", "42", "-42", "+7", "128", "-32769"),
        *("2147483648", "9223372036854775807", "9223372036854775808", "1.0", "1.5", "3.14159", "1e3", "1.5e300"),
        *("1e400", "0x10", "1_000", "1f", "-", "+", "12abc", "2024-01-31", "2024-13-45", "12:34:56.789Z"),
        *("2024-01-31T12:34:56.789Z", "12:34", "2024-1-1xx", "abc", "a:b", 'say "hi"', "[]", "[1]", "[1, 2, 3]"),
        *("[1, 300]", "[1, 1.5]", '["a", "b"]', '[1, "a"]', "[1, null]", "[null]", "[1,]", "[1", "[,]", "[true,false]"),
        *(
            "[a]",
            '{"a": 1}',
            '{"a": 1, "b": 300}',
            '{"a": 1, "b": "x"}',
            "{1: 2}",
            "{}",
            '{"a"}',
            '{"a":}',
            '{"a": null}',
        ),
        *('{"a": [1, 2]}', "[[1], [2]]", '["2024-01-31"]', "[2024-01-31]", '{"at": 12:34:56.789Z}', '["a\\"b"]', "\\"),
        *("[1] ", "[1]x", "{a: 1}", "0", "00", "007", "-0", "0.0", "-0.5", "1.", ".5", "99999999999999999999"),
    ):
        yield {"kind": "read_header", "data": data}
    for value in (
        envelope(ALL_KINDS, ALL_VALUES),
        envelope(typed("string"), 'a "b"'),
        envelope(typed("array", items=typed("string")), ['a "b" \\', "c"]),
        envelope(typed("bytes"), "AAEC"),
        envelope(typed("float"), 0.1),
        envelope(typed("double"), 1e10),
        envelope(typed("bytes", **DECIMAL), "MDk="),
        envelope(typed("int32", **DATE), 17000),
        envelope(typed("int32", **TIME), 5),
        envelope(typed("int64", **TIMESTAMP), MOMENT_MS),
        envelope(typed("int64", **TIMESTAMP), 86_400_000 * 20),
        envelope(None, {"a": [1, "b", None, True]}),
    ):
        yield {"kind": "write_header", "value": value}


def _plain() -> Iterator[Case]:
    package = "org.apache.kafka.connect.converters"
    for name, kind, payload in (
        ("Boolean", "boolean", True),
        ("Boolean", "boolean", False),
        ("Double", "double", 1.5),
        ("Float", "float", 0.1),
        ("Integer", "int32", -5),
        ("Long", "int64", 2**40),
        ("Short", "int16", -300),
        ("ByteArray", "bytes", "AAEC"),
        ("ByteArray", "string", "text"),
        ("Boolean", "string", "text"),
    ):
        converter = f"{package}.{name}Converter"
        yield {"kind": "write", "converter": converter, "config": {}, "value": envelope(typed(kind), payload)}
    for name, data in (
        *(("Boolean", "00"), ("Boolean", "01"), ("Boolean", "02"), ("Boolean", "0000"), ("Double", "3ff8000000000000")),
        *(("Float", "3dcccccd"), ("Integer", "fffffffb"), ("Integer", "00"), ("Long", "0000010000000000")),
        *(("Short", "fed4"), ("Short", "00"), ("ByteArray", "000102")),
    ):
        yield {"kind": "read_hex", "converter": f"{package}.{name}Converter", "config": {}, "data": data}
    for value in (
        envelope(typed("string"), "text é"),
        envelope(typed("int32"), 5),
        envelope(typed("boolean"), True),
        envelope(typed("float"), 0.1),
        envelope(typed("double"), 1e7),
        envelope(typed("bytes", **DECIMAL), "MDk="),
        envelope(typed("array", items=typed("string")), ["a", "b"]),
        envelope(
            struct(("a", typed("int32")), ("b", typed("string", optional=True)), ("c", typed("double"))),
            {"a": 1, "c": 2},
        ),
        envelope(None, {"a": 1}),
        envelope(None, [1, None, "x", 1.5]),
        envelope(None, None),
    ):
        yield {"kind": "write", "converter": STRING_CONVERTER, "config": {}, "value": value}


def _formats() -> Iterator[Case]:
    moments = (0, MOMENT_MS, 951_782_399_999, -1, 1_735_603_200_000, 253_402_300_799_999)
    patterns = (
        *("yyyyMMdd", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "yy/M/d", "EEE, d MMM yyyy HH:mm:ss Z", "EEEE MMMM d", "hh:mm a"),
        *("h:mm", "KK kk", "D", "w W F u", "YYYY", "''yyyy''", "G y", "S SS SSSS", "X", "z", "yyyy 'o''clock'", "LLL"),
    )
    for pattern in patterns:
        for moment in moments:
            yield {"kind": "format", "pattern": pattern, "ms": moment}
    for pattern, data in (
        ("yyyy-MM-dd", "2024-02-29"),
        ("yyyy-MM-dd", "2024-02-30"),
        ("yyyy-MM-dd", "2024-2-3"),
        ("yyyy-MM-dd", "2024-14-03 and more"),
        ("yyyy-MM-dd", "24-02-03"),
        ("yyyy-MM-dd", "x"),
        ("yyyy-MM-dd", ""),
        ("yyyyMMdd", "20240229"),
        ("yyyyMMddHHmmss", "20240229123456"),
        ("yy-MM-dd", "24-02-29"),
        ("yy-MM-dd", "2024-02-29"),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-02-29 12:34:56.7"),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-02-29 12:34:56.123456"),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-02-29  25:61:61.000"),
        ("yyyy-MM-dd'T'HH:mm:ssX", "2024-02-29T12:34:56Z"),
        ("yyyy-MM-dd'T'HH:mm:ssX", "2024-02-29T12:34:56+02"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-02-29T12:34:56-05:30"),
        ("yyyy-MM-dd'T'HH:mm:ssZ", "2024-02-29T12:34:56+0100"),
        ("yyyy-MM-dd HH:mm:ss z", "2024-02-29 12:34:56 UTC"),
        ("yyyy-MM-dd HH:mm:ss z", "2024-02-29 12:34:56 GMT+03:00"),
        ("d MMM yyyy", "3 Mar 2024"),
        ("d MMM yyyy", "3 march 2024"),
        ("d MMMM yyyy", "3 sep 2024"),
        ("EEE, d MMM yyyy", "Thu, 29 Feb 2024"),
        ("hh:mm a", "12:30 AM"),
        ("hh:mm a", "12:30 pm"),
        ("hh:mm a", "01:05 PM"),
        ("HH:mm", "24:00"),
        ("kk:mm", "24:00"),
        ("KK:mm a", "11:00 PM"),
        ("yyyy-DDD", "2024-060"),
        ("yyyy", "2024"),
        ("HH:mm:ss", "  7:08:09"),
        ("''yyyy", "'2024"),
    ):
        yield {"kind": "parse", "pattern": pattern, "data": data}


def one(name: str, config: dict[str, str], **record: Any) -> Case:
    """Return a case of a transform."""
    full = {"topic": "orders", "partition": 3, "offset": 42, "timestamp": MOMENT_MS, **record}
    return {
        "label": name,
        "kind": "transform",
        "type": f"{TRANSFORMS}.{name}",
        "config": config,
        "record": {key: each for key, each in full.items() if each != "absent"},
    }


def _transforms() -> Iterator[Case]:
    person, plain, nothing = envelope(PERSON, PERSON_VALUE), envelope(None, PLAIN), None
    defaults = envelope(DEFAULTS, {"kept": "k"})
    yield from _casts(person, plain)
    for value in (person, plain, nothing, envelope(typed("string"), "x"), envelope(None, "x")):
        yield one("ExtractField$Value", {"field": "name"}, value=value)
        yield one("HoistField$Value", {"field": "wrapped"}, value=value)
        yield one("Flatten$Value", {}, value=value)
        yield one("Flatten$Value", {"delimiter": "_"}, value=value)
        yield one("ReplaceField$Value", {"exclude": "age,tags", "renames": "name:first"}, value=value)
        yield one("ReplaceField$Value", {"include": "name,age"}, value=value)
        yield one("MaskField$Value", {"fields": "name,age,height"}, value=value)
        yield one("ValueToKey", {"fields": "name,age"}, value=value)
        yield one("HeaderFrom$Value", {"fields": "name,age", "headers": "n,a", "operation": "move"}, value=value)
        yield one("HeaderFrom$Value", {"fields": "name", "headers": "n", "operation": "copy"}, value=value)
        yield one("InsertField$Value", {"topic.field": "t", "partition.field": "p!", "offset.field": "o?"}, value=value)
        yield one("InsertField$Value", {"static.field": "s", "static.value": "fixed"}, value=value)
        yield one("InsertField$Value", {"timestamp.field": "ts"}, value=value)
        yield one("SetSchemaMetadata$Value", {"schema.name": "other", "schema.version": "9"}, value=value)
        yield one("Filter", {}, value=value)
    for name, config in (
        ("ExtractField", {"field": "text"}),
        ("ExtractField", {"field": "text", "replace.null.with.default": "false"}),
        ("ReplaceField", {"exclude": "kept"}),
        ("ReplaceField", {"exclude": "kept", "replace.null.with.default": "false"}),
        ("MaskField", {"fields": "number"}),
        ("MaskField", {"fields": "number", "replace.null.with.default": "false"}),
        ("Cast", {"spec": "number:string"}),
        ("Cast", {"spec": "number:string", "replace.null.with.default": "false"}),
        ("InsertField", {"topic.field": "t"}),
        ("InsertField", {"topic.field": "t", "replace.null.with.default": "false"}),
        ("HeaderFrom", {"fields": "text", "headers": "h", "operation": "move"}),
        ("HeaderFrom", {"fields": "text", "headers": "h", "operation": "move", "replace.null.with.default": "false"}),
        ("SetSchemaMetadata", {"schema.name": "n"}),
        ("SetSchemaMetadata", {"schema.version": "2", "replace.null.with.default": "false"}),
        ("Flatten", {}),
    ):
        yield one(f"{name}$Value", config, value=defaults)
        yield one(f"{name}$Key", config, key=defaults)
    yield from _nested(person, plain)
    yield from _timestamps()
    yield from _routes()
    yield from _more_headers(person)


def _casts(person: Any, plain: Any) -> Iterator[Case]:
    yield one("Cast$Value", {"spec": "name:string,age:int8,height:int32,married:string"}, value=person)
    yield one("Cast$Value", {"spec": "age:float64,height:string,gone:int32"}, value=plain)
    yield one("Cast$Value", {"spec": "born:int64"}, value=person)
    yield one("Cast$Value", {"spec": "born:string"}, value=person)
    yield one("Cast$Value", {"spec": "tags:string"}, value=person)
    yield one("Cast$Value", {"spec": "int32"}, value=None)
    yield one("Cast$Key", {"spec": "string"}, key=envelope(typed("int64"), 5))
    numbers = (
        ("int32", 300),
        ("int64", 2**40 + 5),
        ("double", 1e20),
        ("double", -2.9),
        ("float", 0.1),
        ("boolean", True),
    )
    texts = (
        ("string", "12"),
        ("string", "-129"),
        ("string", "1.5"),
        ("string", "x"),
        ("string", "True"),
        ("string", " 1 "),
    )
    for target in ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"):
        for kind, value in (*numbers, *texts):
            yield one("Cast$Value", {"spec": target}, value=envelope(typed(kind, optional=True), value))
            yield one("Cast$Value", {"spec": f"a:{target}"}, value=envelope(None, {"a": value}))
    yield one("Cast$Value", {"spec": "string"}, value=envelope(typed("bytes"), "AAEC"))
    yield one("Cast$Value", {"spec": "int8"}, value=envelope(typed("bytes"), "AAEC"))
    yield one(
        "Cast$Value", {"spec": "a:string"}, value=envelope(struct(("a", typed("bytes", **DECIMAL))), {"a": "MDk="})
    )
    yield one(
        "Cast$Value", {"spec": "a:int32"}, value=envelope(struct(("a", typed("bytes", **DECIMAL))), {"a": "MDk="})
    )
    yield one("Cast$Value", {"spec": "a:int32"}, value=envelope(struct(("a", typed("int32", **DATE))), {"a": 17000}))
    yield one("Cast$Value", {"spec": "a:string"}, value=envelope(struct(("a", typed("int32", **DATE))), {"a": 17000}))
    yield one("Cast$Value", {"spec": "a:string"}, value=envelope(struct(("a", typed("int32", **TIME))), {"a": 17000}))
    yield one(
        "Cast$Value",
        {"spec": "a:int64"},
        value=envelope(struct(("a", typed("int32", optional=True, default=5)), optional=True), {}),
    )


def _nested(person: Any, plain: Any) -> Iterator[Case]:
    v2 = {"field.syntax.version": "v2"}
    for field in ("address.city", "address.`zip.code`", "address.gone", "gone.city", "name.city", "address"):
        yield one("ExtractField$Value", {"field": field, **v2}, value=person)
        yield one("ExtractField$Value", {"field": field, **v2}, value=plain)
    for field, value in (
        ("`a`", {"a": 1}),
        ("`a.b`", {"a.b": 1}),
        ("`a`b`", {"a`b": 1}),
        (r"`a\`.b`", {"a`.b": 1}),
        ("a.", {"a": {"": 1}}),
        (".a", {"": {"a": 1}}),
        ("a..b", {"a": {"": {"b": 1}}}),
    ):
        yield one("ExtractField$Value", {"field": field, **v2}, value=envelope(None, value))
    inner = struct(("x", typed("int32", default=3)), ("y", typed("string", optional=True)))
    deep = struct(("top", {**inner, "optional": True}), ("other", typed("int64")), name="deep", optional=True)
    yield one("Flatten$Value", {}, value=envelope(deep, {"top": None, "other": 1}))
    yield one("Flatten$Value", {}, value=envelope(deep, {"top": {"x": 1, "y": "z"}, "other": 1}))
    yield one("Flatten$Value", {}, value=envelope(deep, None))
    words = struct(("m", typed("map", keys=typed("string"), values=typed("int32"))))
    yield one("Flatten$Value", {}, value=envelope(words, {"m": {"a": 1}}))
    yield one("Flatten$Value", {}, value=envelope(None, {"a": {"b": {"c": 1}, "d": None}, "e": [{"f": 1}]}))
    for replacement in ("123", "4.7", "-1", "300"):
        fields = struct(
            *((kind, typed(kind)) for kind in ("int8", "int16", "int32", "int64", "float", "double", "string"))
        )
        values = {"int8": 1, "int16": 1, "int32": 1, "int64": 1, "float": 1.5, "double": 1.5, "string": "x"}
        config = {"fields": ",".join(values), "replacement": replacement}
        yield one("MaskField$Value", config, value=envelope(fields, values))
    for field in ALL_VALUES:
        if field != "price":
            yield one("MaskField$Value", {"fields": field}, value=envelope(ALL_KINDS, ALL_VALUES))
        yield one("MaskField$Value", {"fields": field, "replacement": "5"}, value=envelope(ALL_KINDS, ALL_VALUES))
    yield one("MaskField$Value", {"fields": "age", "replacement": "x"}, value=plain)
    yield one("MaskField$Value", {"fields": "gone,address,tags"}, value=plain)
    yield one("ValueToKey", {"fields": "gone"}, value=person)
    yield one("ValueToKey", {"fields": "gone"}, value=plain)
    yield one("HeaderFrom$Value", {"fields": "gone", "headers": "h", "operation": "copy"}, value=plain)
    yield one("ReplaceField$Value", {"include": "age", "exclude": "age,name"}, value=plain)
    yield one("InsertField$Value", {"offset.field": "o"}, value=plain, offset="absent")
    yield one(
        "InsertField$Value",
        {"partition.field": "p", "timestamp.field": "t"},
        value=plain,
        partition="absent",
        timestamp="absent",
        offset="absent",
    )
    yield one("InsertField$Key", {"topic.field": "t"}, key=plain, value=person)
    yield one("HoistField$Key", {"field": "k"}, key=envelope(typed("int32"), 5), value=person)


def _timestamps() -> Iterator[Case]:
    text = "yyyy-MM-dd HH:mm:ss.SSS"
    inputs = (
        envelope(typed("int64"), MOMENT_MS),
        envelope(typed("int64", optional=True), None),
        envelope(typed("string"), "2017-01-03 00:04:05.678"),
        envelope(typed("string"), "not a time"),
        envelope(typed("int64", **TIMESTAMP), MOMENT_MS),
        envelope(typed("int64", **TIMESTAMP), -1),
        envelope(typed("int32", **DATE), 17000),
        envelope(typed("int32", **TIME), 45_296_789),
        envelope(typed("int32"), 5),
        envelope(typed("boolean"), True),
    )
    for target in ("string", "unix", "Date", "Time", "Timestamp"):
        for value in inputs:
            yield one("TimestampConverter$Value", {"target.type": target, "format": text}, value=value)
        fields = {"target.type": target, "format": text, "field": "at"}
        yield one(
            "TimestampConverter$Value",
            fields,
            value=envelope(struct(("at", typed("int64")), ("x", typed("int32"))), {"at": 5, "x": 1}),
        )
        yield one(
            "TimestampConverter$Key", fields, key=envelope(struct(("at", typed("string", optional=True))), {"at": None})
        )
    for target in ("string", "unix"):
        for payload in (MOMENT_MS, "2017-01-03 00:04:05.678", 1.5, True, None):
            yield one(
                "TimestampConverter$Value", {"target.type": target, "format": text}, value=envelope(None, payload)
            )
        yield one(
            "TimestampConverter$Value",
            {"target.type": target, "format": text, "field": "a"},
            value=envelope(None, {"a": 5}),
        )
        yield one(
            "TimestampConverter$Value",
            {"target.type": target, "format": text, "field": "b"},
            value=envelope(None, {"a": 5}),
        )
    for precision in ("seconds", "milliseconds", "microseconds", "nanoseconds"):
        for number in (1_483_401_845, 1_483_401_845_678, -1_500_001, 1_483_401_845_678_901_234):
            config = {"target.type": "string", "format": text, "unix.precision": precision}
            if precision != "seconds" or number < 10**12:
                yield one("TimestampConverter$Value", config, value=envelope(None, number))
        config = {"target.type": "unix", "unix.precision": precision}
        yield one("TimestampConverter$Value", config, value=envelope(typed("int64", **TIMESTAMP), -1501))


def _routes() -> Iterator[Case]:
    for regex, replacement in (
        ("(.*)", "prefix-$1"),
        ("(ord)(ers)", "$2-$1"),
        ("orders", "x"),
        ("order", "x"),
        ("(?<head>o)(.*)", "${head}_$2"),
        ("(o)(r)?(x)?.*", "<$1$2$3>"),
        ("o|orders", "y"),
        (".*", r"\$1\\"),
        ("(o).*", "$12"),
        ("[a-z]+", "é"),
    ):
        yield one("RegexRouter", {"regex": regex, "replacement": replacement})
    for config in ({}, {"topic.format": "${timestamp}_${topic}_${topic}", "timestamp.format": "yyyy.MM.dd HH"}):
        yield one("TimestampRouter", config)
    yield one("TimestampRouter", {}, timestamp="absent")
    for predicate, config in (
        ("TopicNameMatches", {"pattern": "ord.*"}),
        ("TopicNameMatches", {"pattern": "ord"}),
        ("HasHeaderKey", {"name": "h"}),
        ("HasHeaderKey", {"name": "gone"}),
        ("RecordIsTombstone", {}),
    ):
        for value in (None, envelope(None, 1)):
            case = one("Filter", {}, value=value, headers=[["h", envelope(typed("string"), "x")]])
            yield {**case, "label": predicate, "predicate": f"{PREDICATES}.{predicate}", "predicate_config": config}


def _more_headers(person: Any) -> Iterator[Case]:
    headers = [["a", envelope(typed("string"), "x")], ["b", envelope(typed("int32"), 5)], ["a", envelope(None, None)]]
    yield one("DropHeaders", {"headers": "a,gone"}, value=person, headers=headers)
    for literal in ("text", "5", "1.5", "true", "null", "[1,2]", "2024-01-31", ""):
        yield one("InsertHeader", {"header": "a", "value.literal": literal}, headers=headers)
    config = {"fields": "name,address", "headers": "a,b", "operation": "copy"}
    yield one("HeaderFrom$Value", config, value=person, headers=headers)


def _config_errors() -> Iterator[Case]:
    for name, config in (
        ("Cast$Value", {}),
        ("Cast$Value", {"spec": ""}),
        ("Cast$Value", {"spec": "a:strange"}),
        ("Cast$Value", {"spec": "a:bytes"}),
        ("Cast$Value", {"spec": "int32,a:int8"}),
        ("DropHeaders", {}),
        ("DropHeaders", {"headers": ""}),
        ("ExtractField$Key", {}),
        ("ExtractField$Key", {"field": "a", "field.syntax.version": "V3"}),
        ("ExtractField$Key", {"field": "`a", "field.syntax.version": "V2"}),
        ("HeaderFrom$Key", {"fields": "a", "headers": "b", "operation": "steal"}),
        ("HeaderFrom$Key", {"fields": "a", "headers": "b,c", "operation": "move"}),
        ("HeaderFrom$Key", {"fields": "", "headers": "b", "operation": "move"}),
        ("HoistField$Key", {}),
        ("InsertField$Key", {}),
        ("InsertHeader", {"header": "a"}),
        ("MaskField$Key", {}),
        ("MaskField$Key", {"fields": ""}),
        ("MaskField$Key", {"fields": "a", "replacement": ""}),
        ("RegexRouter", {"regex": "a"}),
        ("ReplaceField$Key", {"renames": "a"}),
        ("ReplaceField$Key", {"renames": "a:b:c"}),
        ("ReplaceField$Key", {"replace.null.with.default": "maybe"}),
        ("SetSchemaMetadata$Key", {}),
        ("SetSchemaMetadata$Key", {"schema.version": "x"}),
        ("TimestampConverter$Key", {}),
        ("TimestampConverter$Key", {"target.type": "date"}),
        ("TimestampConverter$Key", {"target.type": "string"}),
        ("TimestampConverter$Key", {"target.type": "string", "format": "jjj"}),
        ("TimestampConverter$Key", {"target.type": "unix", "unix.precision": "hours"}),
        ("ValueToKey", {"fields": ""}),
    ):
        yield {**one(name, config), "label": f"config of {name}"}


def _options() -> Iterator[Case]:
    sided = (
        *("Cast", "ExtractField", "Flatten", "HeaderFrom", "HoistField", "InsertField", "MaskField", "ReplaceField"),
        *("SetSchemaMetadata", "TimestampConverter"),
    )
    for name in (
        *(f"{TRANSFORMS}.{each}$Key" for each in sided),
        *(
            f"{TRANSFORMS}.{each}"
            for each in ("DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter")
        ),
        f"{TRANSFORMS}.ValueToKey",
        *(f"{PREDICATES}.{each}" for each in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")),
        *(JSON, STRING_CONVERTER, "org.apache.kafka.connect.converters.LongConverter"),
    ):
        yield {"label": "options", "kind": "options", "type": name}
