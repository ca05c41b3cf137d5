"""The engine for Protobuf: texts in proto2, proto3 and editions, or descriptors in base64.

`engine` parses and compares. `tokens` and `parser` make a descriptor from a text, `linking` resolves the types that its
fields name, `options` the custom options. `printing` prints a descriptor as Confluent's registry does, so that a text
and its descriptor are the same schema. `diff` compares two descriptors by field number.

The parser is our own: `docs/decisions/0001-dependencies.md` says why.
"""
