"""Payloads of records: bytes to JSON values and back, by the schema that a record names.

`wire_format` is Confluent's: where a record names its schema. `codecs` has a codec for each schema type. A value that
does not fit raises `PayloadFailed`, with its place. Clients use this; the registry itself never sees a payload.
"""
