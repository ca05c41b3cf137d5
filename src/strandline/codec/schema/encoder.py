"""Compiles the encoder of one message class in one version.

The function appends to the bytearray `out`. Neighbouring fields of fixed width are written by one `struct.Struct`,
together with the length of the string or array that follows them; in flexible versions that holds for lengths of one
byte, and longer ones take a second path. Values that the version cannot carry are refused before their struct is
written.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from strandline.codec.primitives import ARRAY_FORMATS_CACHED_MAX, ZERO_UUID, integers_pack, write_uvarint
from strandline.codec.schema import layout
from strandline.codec.schema.source import SourceText
from strandline.errors import UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.codec.message import Field, Message


def compile_encoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """`(out, message) -> None` for `cls` in `version`."""
    writer = _EncoderSource(cls, version)
    writer.function()
    return writer.compile("encode", f"<encoder of {cls.__name__} version {version}>")


def encoder_source(cls: type[Message], version: int) -> str:
    """Return the text of that function, for curious readers and for debugging."""
    writer = _EncoderSource(cls, version)
    writer.function()
    return writer.text()


class _EncoderSource(SourceText):
    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__()
        self.cls = cls
        self.version = version
        self.out = "out"
        self.run: list[tuple[str, str]] = []
        self.constants |= {
            "UnsupportedVersion": UnsupportedVersion,
            "ZERO_UUID": ZERO_UUID,
            "pack": struct.pack,
            "write_uvarint": write_uvarint,
        }

    def function(self) -> None:
        with self.block("def encode(out, message):"):
            self.struct(self.cls, "message")
            self.flush()
            self.line("return")

    # Runs of fixed width.

    def later(self, code: str, expression: str = "") -> None:
        """`expression` is written with the next `flush`; the code `x` is a zero byte without one."""
        self.run.append((code, expression))

    def flush(self) -> None:
        run, self.run = self.run, []
        self.write_run(run)

    def write_run(self, run: list[tuple[str, str]]) -> None:
        codes = "".join(code for code, _ in run)
        if not codes:
            return
        if codes == "B":
            self.line(f"{self.out}.append({run[0][1]})")
        elif codes == "x":
            self.line(f"{self.out}.append(0)")
        else:
            pack = self.constant(self.struct_for(codes).pack, "pack")
            self.line(f"{self.out} += {pack}({', '.join(expression for _, expression in run if expression)})")

    def flush_with_uvarint(self, name: str) -> None:
        """Write the run and then the variable `name` as an unsigned varint."""
        run, self.run = self.run, []
        with self.block(f"if {name} < 128:"):
            self.write_run([*run, ("B", name)])
        with self.block("else:"):
            self.write_run(run)
            self.line(f"write_uvarint({self.out}, {name})")

    # Fields.

    def struct(self, cls: type[Message], expression: str) -> None:
        for field in cls.FIELDS:
            if not field.present(self.version) and not field.ignorable:
                with self.block(f"if {self.differs(field, f'{expression}.{field.name}')}:"):
                    text = f"{cls.__name__}.{field.name} does not exist in version {self.version}"
                    self.line(f'raise UnsupportedVersion("{text}")')
        for field in layout.plain_fields(cls, self.version):
            self.value(cls, field, f"{expression}.{field.name}")
        if layout.is_flexible(cls, self.version):
            self.tagged_section(cls, expression)

    def value(self, cls: type[Message], field: Field, expression: str) -> None:
        nullable = field.nullable(self.version)
        compact = layout.is_compact(cls, field, self.version)
        if layout.is_array(field):
            self.array(cls, field, expression, compact=compact, nullable=nullable)
        elif field.kafka_type == "struct":
            self.inner_struct(field, expression, nullable=nullable)
        elif field.kafka_type == "uuid":
            self.later("16s", f"{expression}.bytes")
        elif field.kafka_type in layout.FIXED_CODES:
            self.later(layout.FIXED_CODES[field.kafka_type], expression)
        else:
            self.sized(field.kafka_type, expression, compact=compact, nullable=nullable)

    def sized(self, kind: str, expression: str, *, compact: bool, nullable: bool) -> None:
        """A string, bytes or records."""
        raw, length = self.fresh("raw"), self.fresh("n")
        self.line(f"{raw} = {expression}")
        if nullable:
            with self.block(f"if {raw} is None:"):
                self.line(f'{raw} = b""')
                self.line(f"{length} = {0 if compact else -1}")
            with self.block("else:"):
                self.measure(kind, raw, length, compact=compact)
        else:
            self.measure(kind, raw, length, compact=compact)
        if compact:
            self.flush_with_uvarint(length)
        else:
            self.later("h" if kind == "string" else "i", length)
            self.flush()
        self.line(f"{self.out} += {raw}")

    def measure(self, kind: str, raw: str, length: str, *, compact: bool) -> None:
        if kind == "string":
            self.line(f"{raw} = {raw}.encode()")
        self.line(f"{length} = len({raw}) + 1" if compact else f"{length} = len({raw})")
        if kind == "string" and compact:
            with self.block(f"if {length} > {layout.STRING_BYTES_MAX + 1}:"):
                self.line('raise ValueError("a string of more than 32767 bytes")')

    def inner_struct(self, field: Field, expression: str, *, nullable: bool) -> None:
        name = self.fresh(field.name)
        self.line(f"{name} = {expression}")
        if not nullable:
            self.struct(layout.struct_of(field), name)
            return
        self.flush()
        with self.block(f"if {name} is None:"):
            self.later("b", str(layout.null_marker(field)))
            self.flush()
        with self.block("else:"):
            self.later("b", "1")
            self.struct(layout.struct_of(field), name)
            self.flush()

    def array(self, cls: type[Message], field: Field, expression: str, *, compact: bool, nullable: bool) -> None:
        items = self.fresh(field.name)
        self.line(f"{items} = {expression}")
        if not nullable:
            self.elements(cls, field, items, compact=compact)
            return
        self.flush()
        with self.block(f"if {items} is None:"):
            self.later("B" if compact else "i", "0" if compact else "-1")
            self.flush()
        with self.block("else:"):
            self.elements(cls, field, items, compact=compact)

    def elements(self, cls: type[Message], field: Field, items: str, *, compact: bool) -> None:
        element = layout.element_type(field)
        code = layout.FIXED_CODES.get(element)
        if code is not None and element != "uuid":
            self.flush()
            self.integers(items, code, compact=compact)
            return
        count = self.fresh("n")
        self.line(f"{count} = len({items}) + 1" if compact else f"{count} = len({items})")
        if compact:
            self.flush_with_uvarint(count)
        else:
            self.later("i", count)
            self.flush()
        item = self.fresh("item")
        with self.block(f"for {item} in {items}:"):
            if element == "struct":
                self.struct(layout.struct_of(field), item)
                self.flush()
                # A struct may be empty in this version, and Python wants a statement.
                self.line("pass")
            elif element == "uuid":
                self.line(f"{self.out} += {item}.bytes")
            else:
                self.sized(element, item, compact=layout.is_compact(cls, field, self.version), nullable=False)

    def integers(self, items: str, code: str, *, compact: bool) -> None:
        count = self.fresh("n")
        writers = self.constant(integers_pack(code, compact=compact), "integers")
        head = f"{count} + 1" if compact else count
        self.line(f"{count} = len({items})")
        with self.block(f"if {count} < {ARRAY_FORMATS_CACHED_MAX}:"):
            self.line(f"{self.out} += {writers}[{count}]({head}, *{items})")
        with self.block("else:"):
            if compact:
                self.line(f"write_uvarint({self.out}, {head})")
                self.line(f'{self.out} += pack(f">{{{count}}}{code}", *{items})')
            else:
                self.line(f'{self.out} += pack(f">i{{{count}}}{code}", {count}, *{items})')

    # Tagged fields.

    def tagged_section(self, cls: type[Message], expression: str) -> None:
        fields = layout.tagged_fields(cls, self.version)
        if not fields:
            self.later("x")
            return
        count = self.fresh("tags")
        wanted = [self.differs(field, f"{expression}.{field.name}") for field in fields]
        self.line(f"{count} = {' + '.join(f'bool({test})' for test in wanted)}")
        self.later("B", count)
        self.flush()
        with self.block(f"if {count}:"):
            for field, test in zip(fields, wanted, strict=True):
                with self.block(f"if {test}:"):
                    self.tagged_field(cls, field, f"{expression}.{field.name}")

    def tagged_field(self, cls: type[Message], field: Field, expression: str) -> None:
        """Tag, size, value: the value is written aside first, because its size stands before it."""
        outer, self.out = self.out, self.fresh("aside")
        self.line(f"{self.out} = bytearray()")
        self.value(cls, field, expression)
        self.flush()
        aside, self.out = self.out, outer
        self.line(f"write_uvarint({outer}, {field.tag})")
        self.line(f"write_uvarint({outer}, len({aside}))")
        self.line(f"{outer} += {aside}")

    def differs(self, field: Field, expression: str) -> str:
        """Return an expression that is true if the value is not the default."""
        if field.default is None:
            return f"{expression} is not None"
        if layout.is_array(field):
            return f"({expression} is None or len({expression}) > 0)"
        if field.kafka_type == "struct":
            inner = " or ".join(
                self.differs(part, f"{expression}.{part.name}") for part in layout.struct_of(field).FIELDS
            )
            return f"({expression} is None or {inner})" if field.nullable_first <= field.last else f"({inner})"
        if field.kafka_type == "uuid":
            # Comparing UUIDs is a Python call; mostly it is the constant itself.
            return f"({expression} is not ZERO_UUID and {expression} != ZERO_UUID)"
        return f"{expression} != {field.default!r}"
