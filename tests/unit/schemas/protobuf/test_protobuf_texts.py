"""Texts and descriptors of Protobuf schemas: one canonical form, normalization, imports and limits."""

from __future__ import annotations

import base64
import re
from random import Random

import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from strandline.schemas.protobuf import known_files
from strandline.schemas.protobuf.engine import ParsedProtobufSchema, ProtobufEngine
from strandline.schemas.protobuf.linking import default_json_name, types_of
from strandline.schemas.types import DEPTH_MAX, REFERENCES_MAX, TEXT_BYTES_MAX, InvalidSchema

OTHER = {"other.proto": 'syntax = "proto3"; package acme.common; message Address { string street = 1; }'}
ORDER = """
/* A comment. */ syntax = 'proto3';
package acme.orders;
import "google/protobuf/timestamp.proto";  // Another.
import "confluent/meta.proto";
import public "other.proto";
option java_package = "com." "acme";
message Order {
  reserved "old"; reserved 8, 20 to 30, 1000 to max;
  string id = 1 [(confluent.field_meta).doc = "it's", deprecated = true, (confluent.field_meta).tags = "PII"];
  repeated acme.orders.Line lines = 2; map<string, Line> by_name = 3 [json_name = "named"];
  optional int32 n = 4;;
  google.protobuf.Timestamp at = 5;
  oneof pay { string card = 6; Order.Cash cash = 7; }
  common.Address address = 9 [json_name = "address"];
  enum Kind { A = 0; B = 0x1 [deprecated = true]; }
  message Cash { int64 amount = 1; }
}
message Line { string sku = 1; Order.Kind kind = 2; }
message Empty {}
service Orders { rpc Get (Order) returns (stream Line) {} rpc Put (stream Order) returns (Line) {
  option deprecated = true; } }
"""
PRINTED = """syntax = "proto3";
package acme.orders;

import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
import public "other.proto";

option java_package = "com.acme";

message Order {
  reserved 8, 20 to 30, 1000 to max;
  reserved "old";

  string id = 1 [
    deprecated = true,
    (confluent.field_meta) = {
      doc: "it\\'s",
      tags: [
        "PII"
      ]
    }
  ];
  repeated Line lines = 2;
  map<string, Line> by_name = 3 [json_name = "named"];
  optional int32 n = 4;
  google.protobuf.Timestamp at = 5;
  acme.common.Address address = 9;

  oneof pay {
    string card = 6;
    Cash cash = 7;
  }

  message Cash {
    int64 amount = 1;
  }
  enum Kind {
    A = 0;
    B = 1 [deprecated = true];
  }
}
message Line {
  string sku = 1;
  Order.Kind kind = 2;
}
message Empty {}

service Orders {
  rpc Get (Order) returns (stream Line);
  rpc Put (stream Order) returns (Line) {
    option deprecated = true;
  };
}
"""
PROTO2 = """
package x;
message A {
  required string s = 1 [default = "a\\"b\\001"];
  optional bytes b = 2 [default = "\\001\\x02z"];
  repeated group G = 3 { optional int32 z = 1 [default = -0x10]; }
  extensions 100 to 199, 500 to max;
  optional float f = 7 [default = 1.50];
  optional E e = 8 [default = Y];
  repeated int32 packed = 9 [packed = true];
  optional double least = 10 [default = -inf];
  optional bool message = 11 [default = true];
  extend B { optional int32 q = 150; }
}
message B { extensions 100 to 199; }
enum E { X = -1; Y = 0x7fffffff; reserved -5 to -3, 100 to max; reserved "Q"; }
extend A { optional string ext = 101; repeated B bs = 102 [(unknown) = { a: 1 b: "c" "d" }]; }
option (foo.bar).baz = -12;
option (z) = "a\\tb";
option (w) = 1.5;
option optimize_for = SPEED;
"""
EDITION = """
edition = "2023";
option features.field_presence = IMPLICIT;
message M {
  reserved foo, bar;
  int32 a = 1 [features.field_presence = EXPLICIT];
  repeated int32 b = 2 [features = { repeated_field_encoding: EXPANDED }];
}
"""


def parse(text: str, references: dict[str, str] | None = None) -> ParsedProtobufSchema:
    return ProtobufEngine().parse(text, references or {})


def plain(serialized: str | bytes) -> FileDescriptorProto:
    """Return a descriptor without what a text does not say: its name, names in JSON that follow from others, order."""
    file = FileDescriptorProto.FromString(base64.b64decode(serialized))
    file.name = ""
    for _, message in types_of(file):
        if isinstance(message, DescriptorProto):
            for field in message.field:
                if field.json_name == default_json_name(field.name):
                    field.ClearField("json_name")
            message.field.sort(key=lambda field: field.number)
    return file


def test_a_text_is_printed_as_confluent_prints() -> None:
    # A line between sections of an inner block has the spaces of its level.
    assert re.sub(r"(?m)^ +$", "", parse(ORDER, OTHER).canonical()) == PRINTED


@pytest.mark.parametrize("text", [ORDER, PROTO2, EDITION], ids=["proto3", "proto2", "edition"])
def test_a_text_its_print_and_its_descriptor_are_one_schema(text: str) -> None:
    schema = parse(text, OTHER)
    for same in (schema.canonical(), schema.serialized(), schema.normalized()):
        again = parse(same, OTHER)
        assert again.normalized() == schema.normalized()
        assert again.differences(schema) == schema.differences(again) == []
        if same != schema.normalized():
            assert again.canonical() == schema.canonical()
            assert plain(again.serialized()) == plain(schema.serialized())


@pytest.mark.parametrize(
    "module", [descriptor_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2], ids=lambda module: module.__name__
)
def test_descriptors_made_by_protoc_come_back_from_their_print(module: object) -> None:
    file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)  # type: ignore[attr-defined]
    schema = parse(base64.b64encode(file.SerializeToString()).decode())
    assert plain(parse(schema.canonical()).serialized()) == plain(base64.b64encode(file.SerializeToString()))


def test_the_order_has_no_meaning_when_normalized() -> None:
    start, end = 'syntax = "proto3"; message B {} message A { ', " }"
    one = parse(start + "reserved 9, 7; int32 b = 2; int32 a = 1; oneof y { B d = 4; int32 c = 3; }" + end)
    other = parse(start + "reserved 7; reserved 9; int32 a = 1; int32 b = 2; oneof y { int32 c = 3; .B d = 4; }" + end)
    assert one.canonical() != other.canonical()
    assert one.normalized() == other.normalized()
    assert ".B d = 4;" in one.normalized()


def test_a_type_has_the_name_that_means_it() -> None:
    text = """
    package a.b;
    message Outer { optional Inner i = 1; optional .a.b.Inner o = 2; message Inner { optional a.b.Inner x = 1; } }
    message Inner {}
    """
    printed = parse(text).canonical()
    assert "optional Inner i = 1;" in printed
    assert "optional b.Inner o = 2;" in printed
    assert "optional b.Inner x = 1;" in printed


def test_a_file_without_syntax_is_proto2() -> None:
    assert parse("message A {}").canonical() == parse('syntax = "proto2"; message A {}').canonical()


def test_imports_of_imports_resolve_through_references() -> None:
    references = {
        "c.proto": 'syntax = "proto3"; message C {}',
        "b.proto": 'syntax = "proto3"; import public "c.proto"; message B { C c = 1; }',
    }
    assert parse('syntax = "proto3"; import "b.proto"; message A { B b = 1; C c = 2; }', references)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("AAAA", "neither a text nor a FileDescriptorProto"),
        ("////", "neither a text nor a FileDescriptorProto"),
        ('{"type": "string"}', "line 1 has '{'"),
        ("message A {", "line 1 has the end where '}' must be"),
        ("message {}", "where a name must be"),
        ("message 1A {}", "where a name must be"),
        ('syntax = "proto4";', "neither proto2 nor proto3"),
        ('edition = "1999";', "edition '1999' is unknown"),
        ("message A { int32 a = 1; }", "optional, required or repeated"),
        ('syntax = "proto3"; message A { required int32 a = 1; }', "only proto2 has"),
        ('syntax = "proto3"; message A { int32 a = 0; }', "only 1 to 536870911"),
        ('syntax = "proto3"; message A { int32 a = 536870912; }', "only 1 to 536870911"),
        ('syntax = "proto3"; message A { int32 a = 19500; }', "reserves for itself"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "number 1 twice"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 a = 2; }', "Protobuf rejects the schema"),
        ('syntax = "proto3"; message A { reserved 1; int32 a = 1; }', "is reserved"),
        ('syntax = "proto3"; message A { reserved "a"; int32 a = 1; }', "is reserved"),
        ('syntax = "proto3"; message A { B b = 1; }', "'b' has the type 'B'"),
        ('syntax = "proto3"; message A { map<double, int32> m = 1; }', "keys of type 'double'"),
        ('syntax = "proto3"; message A { oneof o { repeated int32 m = 1; } }', "label in a oneof"),
        ('syntax = "proto3"; enum E { A = 1; }', "Protobuf rejects the schema"),
        ('syntax = "proto3"; enum E {}', "has no values"),
        ("message A {} message A {}", "Protobuf rejects the schema"),
        ('import "none.proto";', "neither among the references nor a well-known file"),
        ('import "schema.proto";', "imports itself"),
        ("package a; package b;", "second package"),
        ("option java_package = 5;", "must be a string"),
        ("option optimize_for = FAST;", "value that its option can not have"),
        ('message A { optional string s = 1 [default = "\\q"]; }', "escape"),
        ("message A { optional int32 i = 1 [default = x]; }", "not a number"),
        ("option (a) = { b: [ };", "in the value of an option"),
        ("option (a) = { b: 1", "ends inside the value"),
        ("message A {" * (DEPTH_MAX + 1) + "}" * (DEPTH_MAX + 1), "levels deep"),
        ("option (a) = " + "{ b: " * (DEPTH_MAX + 1) + "1" + "}" * (DEPTH_MAX + 1) + ";", "levels deep"),
        ("message A {" * 100_000, "levels deep|more than"),
        ("// " + "x" * TEXT_BYTES_MAX, "more than 1,000,000 bytes"),
        ("message A { optional \x00 a = 1; }", "does not belong there"),
        ("/* never closed", "does not belong there|declaration"),
        ('"open', "does not belong there|declaration"),
    ],
)
def test_a_bad_schema_is_rejected_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidSchema, match=sentence) as rejected:
        parse(text)
    assert len(str(rejected.value)) < 500


def test_imports_that_go_in_a_circle_are_rejected() -> None:
    references = {"a.proto": 'import "b.proto"; message A {}', "b.proto": 'import "a.proto"; message B {}'}
    with pytest.raises(InvalidSchema, match="imports itself"):
        parse('import "a.proto";', references)


def test_deep_imports_have_a_limit_and_do_not_exhaust_the_stack() -> None:
    def chain(count: int) -> dict[str, str]:
        files = {f"f{n}.proto": f'import "f{n + 1}.proto"; message M{n} {{}}' for n in range(count)}
        return files | {f"f{count}.proto": "message Last {}"}

    assert parse('import "f0.proto";', chain(REFERENCES_MAX - 10))
    with pytest.raises(InvalidSchema, match=f"more than {REFERENCES_MAX} files"):
        parse('import "f0.proto";', chain(REFERENCES_MAX + 10))


def test_fields_may_have_the_names_of_keywords() -> None:
    text = """
    message A {
      optional int32 message = 1; optional int32 enum = 2; optional int32 oneof = 3; optional int32 reserved = 4;
      optional int32 option = 5; optional int32 optional = 6; optional map map = 7; optional int32 to = 8;
    }
    message map {}
    """
    printed = parse(text).canonical()
    assert "optional int32 optional = 6;" in printed
    assert "optional map map = 7;" in printed


def test_a_random_cut_or_change_of_a_text_gives_a_schema_or_a_sentence() -> None:
    random = Random(7)
    for _ in range(400):
        text = random.choice((ORDER, PROTO2, EDITION))
        position = random.randrange(len(text))
        if random.random() < 0.5:
            text = text[:position]
        else:
            text = text[:position] + random.choice("{}[]();=.,<>\"'0-ax\\ \n") + text[position + random.randint(0, 3) :]
        try:
            schema = parse(text, OTHER)
        except InvalidSchema:
            continue
        assert parse(schema.canonical(), OTHER).canonical() == schema.canonical(), text


@pytest.mark.slow
def test_a_changed_descriptor_gives_a_schema_or_a_sentence() -> None:
    random = Random(11)
    whole = [base64.b64decode(parse(text, OTHER).serialized()) for text in (ORDER, PROTO2, EDITION)]
    for _ in range(2_000):
        changed = bytearray(random.choice(whole))
        for _ in range(random.randint(1, 4)):
            changed[random.randrange(len(changed))] = random.randrange(256)
        try:
            schema = parse(base64.b64encode(changed).decode(), OTHER)
        except InvalidSchema:
            continue
        schema.normalized()
        assert schema.differences(schema) == []
        assert parse(schema.canonical(), OTHER).canonical() == schema.canonical()


KNOWN = [f"google/protobuf/{name}.proto" for name in known_files._GOOGLE]
KNOWN += [f"google/type/{name}.proto" for name in known_files._GOOGLE_TYPES] + list(known_files._TEXTS)


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_file_is_imported_without_a_reference(name: str) -> None:
    assert parse(f'syntax = "proto3"; import "{name}"; message M {{}}')


def test_a_reference_goes_before_a_known_file() -> None:
    own = {"google/type/date.proto": 'syntax = "proto3"; package google.type; message Date { string day = 1; }'}
    text = 'syntax = "proto3"; import "google/type/date.proto"; message M { google.type.Date d = 1; }'
    assert parse(text, own).differences(parse(text))


def test_a_file_that_is_near_a_known_one_is_unknown() -> None:
    for name in (
        "google/protobuf/none.proto",
        "google/protobuf/any",
        "protobuf/any.proto",
        "any.proto",
        "../any.proto",
    ):
        with pytest.raises(InvalidSchema, match="nor a well-known file"):
            parse(f'import "{name}";')
