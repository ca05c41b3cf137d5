"""The nearest change that passes, for a change that the registry rejects.

`evolution` tries repairs one after the other and keeps those after which fewer reasons are left. Every schema that it
returns was parsed and compared by the engine of its type. `json_repairs`, `avro_repairs` and `protobuf_repairs` know
what helps against each kind of incompatibility.
"""
