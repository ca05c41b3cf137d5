"""Compiles the decoder of one message class in one version.

The function reads `buffer` from `p` on. Neighbouring fields of fixed width are read by one `struct.Struct`, together
with the length (or, in flexible versions, the first byte of the length) of the string or array that follows them.
Reading beyond the end raises `struct.error` or `IndexError`, which the caller translates; slices never raise, so every
slice is checked against `size` first.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from strandline.codec.primitives import (
    ARRAY_FORMATS_CACHED_MAX,
    ZERO_UUID,
    integers_unpack,
    read_uvarint,
    read_uvarint_tail,
    skip_tagged_fields,
    uuid_of,
)
from strandline.codec.schema import layout
from strandline.codec.schema.source import SourceText
from strandline.errors import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.codec.message import Field, Message


def compile_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """`(buffer, position, size, budget) -> (message, position)` for `cls` in `version`."""
    writer = _DecoderSource(cls, version)
    writer.function()
    return writer.compile("decode", f"<decoder of {cls.__name__} version {version}>")


def decoder_source(cls: type[Message], version: int) -> str:
    """Return the text of that function, for curious readers and for debugging."""
    writer = _DecoderSource(cls, version)
    writer.function()
    return writer.text()


class _DecoderSource(SourceText):
    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__()
        self.cls = cls
        self.version = version
        self.run: list[tuple[str, str]] = []
        self.constants |= {
            "MalformedMessage": MalformedMessage,
            "ZERO_UUID": ZERO_UUID,
            "read_uvarint": read_uvarint,
            "read_uvarint_tail": read_uvarint_tail,
            "skip_tagged_fields": skip_tagged_fields,
            "unpack_from": struct.unpack_from,
            "uuid_of": uuid_of,
        }

    def function(self) -> None:
        with self.block("def decode(buffer, p, size, budget):"):
            message = self.struct(self.cls)
            self.line(f"return {message}, p")

    # Runs of fixed width.

    def later(self, code: str, name: str) -> None:
        """`name` gets its value with the next `flush`."""
        self.run.append((code, name))

    def flush(self) -> None:
        if not self.run:
            return
        run, self.run = self.run, []
        if [code for code, _ in run] == ["B"]:
            self.line(f"{run[0][1]} = buffer[p]")
            self.line("p += 1")
            return
        layout_of_run = self.struct_for("".join(code for code, _ in run))
        unpack = self.constant(layout_of_run.unpack_from, "unpack")
        self.line(f"{', '.join(name for _, name in run)}{',' if len(run) == 1 else ''} = {unpack}(buffer, p)")
        self.line(f"p += {layout_of_run.size}")
        for code, name in run:
            if code == "16s":
                self.line(f"{name} = uuid_of({name})")

    # Fields.

    def struct(self, cls: type[Message]) -> str:
        """Reads one struct; the name of the object."""
        values = {field.name: self.value(cls, field) for field in layout.plain_fields(cls, self.version)}
        for field in cls.FIELDS:
            if field.name not in values and (not field.present(self.version) or field.tag is None):
                values[field.name] = self.default(field)
        if layout.is_flexible(cls, self.version):
            self.tagged_section(cls, values)
        self.flush()
        name = self.constant(cls, cls.__name__)
        made = self.fresh("made")
        self.line(f"{made} = {self.constant(cls.__new__, 'new')}({name})")
        for field in cls.FIELDS:
            self.line(f"{made}.{field.name} = {values[field.name]}")
        return made

    def value(self, cls: type[Message], field: Field) -> str:
        """Reads one field; the name of its value, which is set after the next `flush`."""
        nullable = field.nullable(self.version)
        compact = layout.is_compact(cls, field, self.version)
        where = f"{cls.__name__}.{field.name}"
        if layout.is_array(field):
            return self.array(cls, field, where, compact=compact, nullable=nullable)
        if field.kafka_type == "struct":
            return self.inner_struct(field, where, nullable=nullable)
        if field.kafka_type in layout.FIXED_CODES:
            name = self.fresh(field.name)
            self.later(layout.FIXED_CODES[field.kafka_type], name)
            return name
        return self.sized(field.kafka_type, field.name, where, compact=compact, nullable=nullable)

    def length(self, kind: str, where: str, *, compact: bool, nullable: bool) -> str:
        """Reads a length or count; -1 stands for null and is left only where null is allowed."""
        name = self.fresh("n")
        self.later("B" if compact else "h" if kind == "string" else "i", name)
        self.flush()
        if compact:
            with self.block(f"if {name} > 127:"):
                self.line(f"{name}, p = read_uvarint_tail({name}, buffer, p)")
            self.line(f"{name} -= 1")
        if not (compact and nullable):
            with self.block(f"if {name} < {-1 if nullable else 0}:"):
                self.fault(f"{where} has length {{{name}}}")
        return name

    def sized(self, kind: str, hint: str, where: str, *, compact: bool, nullable: bool) -> str:
        """Reads a string, bytes or records."""
        length = self.length(kind, where, compact=compact, nullable=nullable)
        name = self.fresh(hint)
        if nullable:
            with self.block(f"if {length} < 0:"):
                self.line(f"{name} = None")
            with self.block("else:"):
                self.slice(kind, name, length, where)
        else:
            self.slice(kind, name, length, where)
        return name

    def slice(self, kind: str, name: str, length: str, where: str) -> None:
        self.line(f"end = p + {length}")
        limit = f" or {length} > {layout.STRING_BYTES_MAX}" if kind == "string" else ""
        with self.block(f"if end > size{limit}:"):
            self.fault(f"{where} has length {{{length}}}")
        self.line(f'{name} = str(buffer[p:end], "utf-8")' if kind == "string" else f"{name} = bytes(buffer[p:end])")
        self.line("p = end")

    def inner_struct(self, field: Field, where: str, *, nullable: bool) -> str:
        if not nullable:
            return self.struct(layout.struct_of(field))
        marker = self.fresh("marker")
        self.later("b", marker)
        self.flush()
        name = self.fresh(field.name)
        with self.block(f"if {marker} == 1:"):
            self.line(f"{name} = {self.struct(layout.struct_of(field))}")
        with self.block(f"elif {marker} == {layout.null_marker(field)}:"):
            self.line(f"{name} = None")
        with self.block("else:"):
            self.fault(f"{where} has the marker {{{marker}}}")
        return name

    def array(self, cls: type[Message], field: Field, where: str, *, compact: bool, nullable: bool) -> str:
        count = self.length("array", where, compact=compact, nullable=nullable)
        name = self.fresh(field.name)
        if nullable:
            with self.block(f"if {count} < 0:"):
                self.line(f"{name} = None")
            with self.block("else:"):
                self.elements(cls, field, name, count, where)
        else:
            self.elements(cls, field, name, count, where)
        return name

    def elements(self, cls: type[Message], field: Field, name: str, count: str, where: str) -> None:
        weight = layout.element_weight(field)
        self.line(f"budget -= {count} * {weight}" if weight > 1 else f"budget -= {count}")
        room = f"{count} * {layout.element_bytes_min(cls, field, self.version)} > size - p"
        with self.block(f"if {room} or budget < 0:"):
            self.fault(f"{where} has {{{count}}} elements, more than the message or the limit has room for")
        element = layout.element_type(field)
        code = layout.FIXED_CODES.get(element)
        if code is not None and element != "uuid":
            self.integers(name, code, layout.FIXED_SIZES[element], count)
            return
        self.line(f"{name} = []")
        with self.block(f"for _ in range({count}):"):
            if element == "struct":
                item = self.struct(layout.struct_of(field))
            elif code is not None:
                item = self.fresh("item")
                self.later(code, item)
                self.flush()
            else:
                compact = layout.is_compact(cls, field, self.version)
                item = self.sized(element, "item", where, compact=compact, nullable=False)
            self.line(f"{name}.append({item})")

    def integers(self, name: str, code: str, size: int, count: str) -> None:
        readers = self.constant(integers_unpack(code), "integers")
        with self.block(f"if {count} < {ARRAY_FORMATS_CACHED_MAX}:"):
            self.line(f"{name} = list({readers}[{count}](buffer, p))")
        with self.block("else:"):
            self.line(f'{name} = list(unpack_from(f">{{{count}}}{code}", buffer, p))')
        self.line(f"p += {count} * {size}" if size > 1 else f"p += {count}")

    # Tagged fields.

    def tagged_section(self, cls: type[Message], values: dict[str, str]) -> None:
        """Reads the tagged section; known fields go into `values`, unknown ones are skipped and not kept."""
        known = layout.tagged_fields(cls, self.version)
        count = self.fresh("tags")
        self.later("B", count)
        self.flush()
        for field in known:
            values[field.name] = self.fresh(field.name)
            self.line(f"{values[field.name]} = {self.default(field)}")
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.line(f"{count}, p = read_uvarint_tail({count}, buffer, p)")
            # Unknown fields are not kept, but to pass over each takes time.
            self.line(f"budget -= {count}")
            with self.block("if budget < 0:"):
                self.fault(f"{cls.__name__} has {{{count}}} tagged fields, more than the limit has room for")
            if not known:
                self.line(f"p = skip_tagged_fields(buffer, p, size, {count})")
                return
            with self.block(f"for _ in range({count}):"):
                self.tagged_field(cls, known, values)

    def tagged_field(self, cls: type[Message], known: list[Field], values: dict[str, str]) -> None:
        tag, stop = self.fresh("tag"), self.fresh("stop")
        self.line(f"{tag}, p = read_uvarint(buffer, p)")
        self.line(f"{stop}, p = read_uvarint(buffer, p)")
        self.line(f"{stop} += p")
        with self.block(f"if {stop} > size:"):
            self.fault(f"tagged field {{{tag}}} of {cls.__name__} runs beyond the message")
        word = "if"
        for field in known:
            with self.block(f"{word} {tag} == {field.tag}:"):
                value = self.value(cls, field)
                self.flush()
                self.line(f"{values[field.name]} = {value}")
                with self.block(f"if p != {stop}:"):
                    self.fault(f"tagged field {cls.__name__}.{field.name} does not fill its size")
            word = "elif"
        with self.block("else:"):
            self.line(f"p = {stop}")

    # Words for both.

    def default(self, field: Field) -> str:
        """Return an expression for the value of a field that is not on the wire."""
        if field.default is None:
            return "None"
        if layout.is_array(field):
            return "[]"
        if field.kafka_type == "struct":
            return f"{self.constant(layout.struct_of(field), layout.struct_of(field).__name__)}()"
        return "ZERO_UUID" if field.kafka_type == "uuid" else repr(field.default)

    def fault(self, text: str) -> None:
        prefix = f"{self.cls.__name__} version {self.version}: "
        self.line(f'raise MalformedMessage(f"{prefix}{text}")')
