"""Files that a schema may import without a reference: Google's well-known types, and those of Confluent."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from strandline.schemas.protobuf.parser import parse_text

_GOOGLE: Final = frozenset(
    {"any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type"}
    | {"wrappers"}
)
_TEXTS: Final = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        option java_package = "io.confluent.protobuf";
        option java_outer_classname = "MetaProto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3;
            repeated Rule rules = 4; }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        option java_package = "io.confluent.protobuf.type";
        option java_multiple_files = true;
        option java_outer_classname = "DecimalProto";
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
    "google/type/date.proto": """
        syntax = "proto3";
        package google.type;
        message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
    """,
    "google/type/timeofday.proto": """
        syntax = "proto3";
        package google.type;
        message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
    """,
    "google/type/money.proto": """
        syntax = "proto3";
        package google.type;
        message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }
    """,
    "google/type/latlng.proto": """
        syntax = "proto3";
        package google.type;
        message LatLng { double latitude = 1; double longitude = 2; }
    """,
}


@cache
def known_file(name: str) -> FileDescriptorProto | None:
    """Return the descriptor of a file that every schema may import, or None. It is not linked."""
    if name in _TEXTS:
        file = parse_text(_TEXTS[name])
        file.name = name
        return file
    folder, _, last = name.rpartition("/")
    if folder != "google/protobuf" or last.removesuffix(".proto") not in _GOOGLE or not last.endswith(".proto"):
        return None
    module = import_module(f"google.protobuf.{last.removesuffix('.proto')}_pb2")
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
