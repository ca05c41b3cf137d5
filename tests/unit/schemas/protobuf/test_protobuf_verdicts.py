"""Verdicts over pairs of Protobuf schemas."""

from __future__ import annotations

import pytest

from strandline.schemas.protobuf.engine import ParsedProtobufSchema, ProtobufEngine
from strandline.schemas.types import Incompatibility

KINDS = {
    "varint": ("int32", "int64", "uint32", "uint64", "bool", "E"),
    "zigzag": ("sint32", "sint64"),
    "bytes": ("string", "bytes"),
    "fixed32": ("fixed32", "sfixed32"),
    "fixed64": ("fixed64", "sfixed64"),
    "float": ("float",),
    "double": ("double",),
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}


def parse(text: str, references: dict[str, str] | None = None) -> ParsedProtobufSchema:
    return ProtobufEngine().parse(text, references or {})


def file3(body: str, package: str = "p") -> str:
    return f'syntax = "proto3"; package {package}; {body}'


def message3(body: str) -> str:
    return file3(f"message M {{ {body} }} enum E {{ ZERO = 0; ONE = 1; }} message N {{ int32 x = 1; }} message O {{}}")


def message2(body: str) -> str:
    return f"message M {{ {body} }}"


def found(old: str, new: str) -> list[Incompatibility]:
    return parse(new).differences(parse(old))


CASES = [
    ("the same", message3("int32 a = 1;"), message3("int32 a = 1;"), set()),
    ("field added", message3(""), message3("int32 a = 1;"), set()),
    ("field removed", message3("int32 a = 1;"), message3(""), set()),
    ("field renamed", message3("int32 a = 1;"), message3("int32 b = 1;"), set()),
    ("field reserved", message3("int32 a = 1;"), message3("reserved 1;"), set()),
    ("package changed", file3("message M {}"), file3("message M {}", "q"), {"PACKAGE_CHANGED"}),
    ("message removed", file3("message M {} message N {}"), file3("message M {}"), {"MESSAGE_REMOVED"}),
    ("message added", file3("message M {}"), file3("message M {} message N {}"), set()),
    ("message moved", file3("message M {} message N {}"), file3("message N {} message M {}"), set()),
    ("nested removed", message3("message I {}"), message3(""), {"MESSAGE_REMOVED"}),
    ("nested added", message3(""), message3("message I {}"), set()),
    ("enum removed", message3("enum F { A = 0; }"), message3(""), set()),
    ("enum value added", message3("enum F { A = 0; }"), message3("enum F { A = 0; B = 1; }"), set()),
    ("enum value removed", message3("enum F { A = 0; B = 1; }"), message3("enum F { A = 0; }"), set()),
    ("enum value renamed", message3("enum F { A = 0; }"), message3("enum F { B = 0; }"), set()),
    ("scalar to message", message3("int32 a = 1;"), message3("N a = 1;"), {"FIELD_KIND_CHANGED"}),
    ("message to map", message3("repeated N a = 1;"), message3("map<int32, N> a = 1;"), {"FIELD_KIND_CHANGED"}),
    ("map to scalar", message3("map<int32, N> a = 1;"), message3("int32 a = 1;"), {"FIELD_KIND_CHANGED"}),
    ("other message", message3("N a = 1;"), message3("O a = 1;"), {"FIELD_NAMED_TYPE_CHANGED"}),
    ("message repeated", message3("N a = 1;"), message3("repeated N a = 1;"), set()),
    ("map key", message3("map<int32, N> a = 1;"), message3("map<string, N> a = 1;"), {"FIELD_SCALAR_KIND_CHANGED"}),
    ("map key kept", message3("map<int32, N> a = 1;"), message3("map<int64, N> a = 1;"), set()),
    ("map value", message3("map<int32, N> a = 1;"), message3("map<int32, O> a = 1;"), {"FIELD_NAMED_TYPE_CHANGED"}),
    ("map value kind", message3("map<int32, N> a = 1;"), message3("map<int32, int32> a = 1;"), {"FIELD_KIND_CHANGED"}),
    ("map renamed", message3("map<int32, N> a = 1;"), message3("map<int32, N> b = 1;"), set()),
    ("map removed", message3("map<int32, N> a = 1;"), message3(""), set()),
    ("numeric repeated", message3("int32 a = 1;"), message3("repeated int32 a = 1;"), {"FIELD_NUMERIC_LABEL_CHANGED"}),
    ("numeric singular", message3("repeated int32 a = 1;"), message3("int32 a = 1;"), {"FIELD_NUMERIC_LABEL_CHANGED"}),
    ("string repeated", message3("string a = 1;"), message3("repeated string a = 1;"), set()),
    ("explicit presence", message3("int32 a = 1;"), message3("optional int32 a = 1;"), set()),
    ("required added", message2(""), message2("required int32 a = 1;"), {"REQUIRED_FIELD_ADDED"}),
    ("required removed", message2("required int32 a = 1;"), message2(""), {"REQUIRED_FIELD_REMOVED"}),
    (
        "became required",
        message2("optional string a = 1;"),
        message2("required string a = 1;"),
        {"REQUIRED_FIELD_ADDED"},
    ),
    ("became optional", message2("required string a = 1;"), message2("optional string a = 1;"), set()),
    (
        "group to message",
        message2("repeated group G = 1 {}"),
        message2("message G {} repeated G g = 1;"),
        {"FIELD_KIND_CHANGED"},
    ),
    ("oneof added", message3(""), message3("oneof o { int32 a = 1; }"), set()),
    ("oneof removed", message3("oneof o { int32 a = 1; }"), message3(""), set()),
    ("oneof renamed", message3("oneof o { int32 a = 1; }"), message3("oneof p { int32 a = 1; }"), set()),
    ("field into new oneof", message3("int32 a = 1;"), message3("oneof o { int32 a = 1; }"), set()),
    ("field out of oneof", message3("oneof o { int32 a = 1; }"), message3("int32 a = 1;"), set()),
    (
        "oneof field added",
        message3("oneof o { int32 a = 1; }"),
        message3("oneof o { int32 a = 1; int32 b = 2; }"),
        set(),
    ),
    (
        "oneof field removed",
        message3("oneof o { int32 a = 1; int32 b = 2; }"),
        message3("oneof o { int32 a = 1; }"),
        {"ONEOF_FIELD_REMOVED"},
    ),
    (
        "fields into oneof",
        message3("int32 a = 1; int32 b = 2;"),
        message3("oneof o { int32 a = 1; int32 b = 2; }"),
        {"MULTIPLE_FIELDS_MOVED_TO_ONEOF"},
    ),
    (
        "field into existing oneof",
        message3("oneof o { int32 a = 1; } int32 b = 2;"),
        message3("oneof o { int32 a = 1; int32 b = 2; }"),
        {"FIELD_MOVED_TO_EXISTING_ONEOF"},
    ),
    (
        "oneofs merged",
        message3("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"),
        message3("oneof o { int32 a = 1; int32 b = 2; }"),
        {"FIELD_MOVED_TO_EXISTING_ONEOF"},
    ),
    (
        "kind changed in a oneof that was renamed",
        message3("oneof o { int32 a = 1; }"),
        message3("oneof p { string a = 1; }"),
        {"FIELD_SCALAR_KIND_CHANGED"},
    ),
    (
        "recursive message",
        message3("M m = 1; int32 a = 2;"),
        message3("M m = 1; string a = 2;"),
        {"FIELD_SCALAR_KIND_CHANGED"},
    ),
    ("proto2 to proto3", "package p; message M { optional int32 a = 1; }", file3("message M { int32 a = 1; }"), set()),
]


@pytest.mark.parametrize(("old", "new", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_pair_has_the_differences_of_its_row(old: str, new: str, wanted: set[str]) -> None:
    differences = found(old, new)
    assert {each.kind for each in differences} == wanted
    for each in differences:
        assert each.path.startswith("#/")
        assert each.message.endswith(".")
        assert "{" not in each.message
    assert found(old, old) == found(new, new) == []


WRAPPERS = {
    "a field": "{} a = 1;",
    "a repeated field": "repeated {} a = 1;",
    "a value of a map": "map<string, {}> a = 1;",
    "a field of a oneof": "oneof o {{ {} a = 1; }}",
    "an inner message": "message I {{ {} a = 1; }}",
    "an optional field": "optional {} a = 1;",
    "a field of a field": "N n = 2; message N {{ {} a = 1; }}",
}


def test_scalars_are_compatible_if_they_are_encoded_alike() -> None:
    schemas = {
        (where, name): parse(message3(form.format(name))) for where, form in WRAPPERS.items() for name in KIND_OF
    }
    count = 0
    for (where, old), writer in schemas.items():
        for new in KIND_OF:
            kinds = {each.kind for each in schemas[where, new].differences(writer)}
            wanted = set() if KIND_OF[old] == KIND_OF[new] else {"FIELD_SCALAR_KIND_CHANGED"}
            assert kinds == wanted, (where, old, new)
            count += 1
    assert count == len(WRAPPERS) * len(KIND_OF) ** 2


def test_a_map_may_be_written_as_its_entries() -> None:
    """Descriptors of some writers name the entry message themselves."""
    by_hand = message3("repeated AEntry a = 1; message AEntry { option map_entry = true; int32 key = 1; N value = 2; }")
    assert found(message3("map<int32, N> a = 1;"), by_hand) == found(by_hand, message3("map<int32, N> a = 1;")) == []


def test_the_path_and_the_sentence_say_where() -> None:
    (difference,) = found(message3("message I { int32 a = 7; }"), message3("message I { string a = 7; }"))
    assert difference.path == "#/M/I/7"
    assert difference.message == "The field 'a' at #/M/I/7 was int32 and is string now, which is encoded differently."


class TestImports:
    """Messages of other files, each side with its own references."""

    USER = 'syntax = "proto3"; package p; import "o.proto"; message M { o.A a = 1; }'
    OLD = 'syntax = "proto3"; package o; message A { int32 x = 1; }'

    def differences(self, old: dict[str, str], new: dict[str, str], user: str = USER) -> set[str]:
        return {each.kind for each in parse(user, new).differences(parse(user, old))}

    def test_the_same_file(self) -> None:
        assert self.differences({"o.proto": self.OLD}, {"o.proto": self.OLD}) == set()

    def test_a_compatible_change(self) -> None:
        new = self.OLD.replace("int32 x = 1;", "int64 x = 1; string y = 2;")
        assert self.differences({"o.proto": self.OLD}, {"o.proto": new}) == set()

    def test_an_incompatible_change(self) -> None:
        new = self.OLD.replace("int32 x", "string x")
        wanted = {"FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"}
        assert self.differences({"o.proto": self.OLD}, {"o.proto": new}) == wanted

    def test_an_incompatible_change_behind_another_file(self) -> None:
        middle = 'syntax = "proto3"; package o; import "q.proto"; message A { q.B b = 1; }'
        last = 'syntax = "proto3"; package q; message B { int32 x = 1; }'
        old = {"o.proto": middle, "q.proto": last}
        assert self.differences(old, old | {"q.proto": last.replace("int32", "double")})

    def test_a_message_of_an_unused_file(self) -> None:
        user = self.USER.replace("o.A a = 1;", "")
        assert self.differences({"o.proto": self.OLD}, {"o.proto": self.OLD.replace("int32", "string")}, user) == set()

    def test_another_package_with_the_same_name_inside(self) -> None:
        new_user = self.USER.replace("o.A", "n.A")
        new = {"o.proto": self.OLD.replace("package o", "package n")}
        assert parse(new_user, new).differences(parse(self.USER, {"o.proto": self.OLD})) == []

    def test_a_type_that_moves_into_the_file(self) -> None:
        own = 'syntax = "proto3"; package p; message M { A a = 1; } message A { int32 x = 1; }'
        assert parse(own).differences(parse(self.USER, {"o.proto": self.OLD})) == []
        broken = own.replace("int32", "double")
        assert parse(broken).differences(parse(self.USER, {"o.proto": self.OLD}))

    def test_recursive_messages_of_other_files_end(self) -> None:
        text = 'syntax = "proto3"; package o; message A { A a = 1; B b = 2; } message B { A a = 1; }'
        assert self.differences({"o.proto": text}, {"o.proto": text}) == set()
