"""The schema registry: subjects with versions of schemas, compatibility, and Confluent's REST API over them.

`types` says what an engine for a schema type offers (`avro`, `json_schema`, `protobuf`). `records` are those of the
compacted topic `_schemas`, in Confluent's form; `state` is the fold of them.

Reads and writes go through the Kafka protocol, so it runs beside any cluster. It needs the extra
`pip install 'strandline[registry]'`.
"""
