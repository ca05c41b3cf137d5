"""Custom options: extensions of Protobuf's own option messages.

A text names them, a descriptor has them as encoded extensions. They are brought into the second form, and printed from
it, where their definitions are known. Others stay as they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import message_factory, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, UninterpretedOption
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from strandline.schemas.protobuf.linking import Linked, types_of

DESCRIPTOR_FILE: Final = "google/protobuf/descriptor.proto"


def option_messages(file: FileDescriptorProto) -> Iterator[tuple[str, Any]]:
    """Yield the options that a file has anywhere, each with the scope in which its names are looked up."""
    yield file.package, file
    for name, each in types_of(file):
        yield name, each
        if isinstance(each, DescriptorProto):
            yield from ((name, inner) for inner in each.field)
            yield from ((name, inner) for inner in each.extension)
            yield from ((name, inner) for inner in each.oneof_decl)
            yield from ((name, inner) for inner in each.extension_range)
        else:
            yield from ((name, inner) for inner in each.value)
    yield from ((file.package, each) for each in file.extension)
    for service in file.service:
        yield file.package, service
        yield from ((file.package, each) for each in service.method)


class OptionPool:
    """The option messages of one schema, with the extensions that its files declare."""

    def __init__(self, linked: Linked) -> None:
        self._linked = linked
        self._pool: DescriptorPool | None = None

    def interpret(self) -> None:
        """Encode the custom options of the file whose definitions are known."""
        for scope, holder in option_messages(self._linked.file):
            if not holder.HasField("options") or not holder.options.uninterpreted_option:
                continue
            options = holder.options
            written = list(options.uninterpreted_option)
            del options.uninterpreted_option[:]
            decoded = self.decoded(options, is_custom=True)
            left = [each for each in written if not self._set(decoded, each, scope)]
            options.ParseFromString(decoded.SerializeToString())
            options.uninterpreted_option.extend(left)

    def decoded(self, options: Message, *, is_custom: bool = False) -> Message:
        """Return options with their extensions as fields."""
        if not is_custom and not len(UnknownFieldSet(options)):
            return options
        if self._pool is None:
            self._pool = self._linked.pool(DESCRIPTOR_FILE)
        described = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        return message_factory.GetMessageClass(described).FromString(options.SerializeToString())

    def _set(self, options: Message, option: UninterpretedOption, scope: str) -> bool:
        try:
            return self._try_set(options, option, scope)
        except (ValueError, TypeError, KeyError, AttributeError, text_format.ParseError, DecodeError):
            return False

    def _try_set(self, message: Any, option: UninterpretedOption, scope: str) -> bool:
        *path, last = option.name
        for part in path:
            field = self._field(message, part, scope)
            if field is None or field.message_type is None or field.is_repeated:
                return False
            message = message.Extensions[field] if part.is_extension else getattr(message, field.name)
        field = self._field(message, last, scope)
        if field is None:
            return False
        # The text form of Protobuf knows every kind of value and checks it.
        name = f"[{field.full_name}]" if last.is_extension else field.name
        text_format.Merge(f"{name}: {_value_text(option)}", message, descriptor_pool=self._pool)
        return True

    def _field(self, message: Any, part: UninterpretedOption.NamePart, scope: str) -> FieldDescriptor | None:
        if not part.is_extension:
            return message.DESCRIPTOR.fields_by_name.get(part.name_part)
        assert self._pool is not None
        name = part.name_part
        scope = "" if name.startswith(".") else scope
        name = name.removeprefix(".")
        while True:
            try:
                return self._pool.FindExtensionByName(f"{scope}.{name}" if scope else name)
            except KeyError:
                if not scope:
                    return None
                scope = scope.rpartition(".")[0]


def _value_text(option: UninterpretedOption) -> str:
    match _kind(option):
        case "aggregate_value":
            return f"{{ {option.aggregate_value} }}"
        case "string_value":
            return '"' + "".join(f"\\{byte:03o}" for byte in option.string_value) + '"'
        case "identifier_value":
            return str(option.identifier_value)
        case "double_value":
            return repr(option.double_value)
        case "negative_int_value":
            return str(option.negative_int_value)
    return str(option.positive_int_value)


def _kind(option: UninterpretedOption) -> str:
    kinds = ("aggregate_value", "string_value", "identifier_value", "double_value", "negative_int_value")
    return next((kind for kind in kinds if option.HasField(kind)), "positive_int_value")
