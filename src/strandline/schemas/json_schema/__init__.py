"""The engine for JSON Schema: drafts 4, 6, 7, 2019-09 and 2020-12.

`engine` parses a text and compares two schemas. `documents` reads and prints JSON, `drafts` checks a document against
its metaschema, `translation` makes `nodes` from it and resolves every `$ref`. `diff/` finds the differences between two
nodes and names each as Confluent's registry does.

No regular expression of a schema runs against data here. Names of properties are matched by RE2, in linear time.
"""
