"""Avro values to Arrow columns, and rows to Avro values.

`columns` makes a tree of columns of the schema that a reader wants. `program` turns a writer's schema and that tree
into a program: Avro's schema resolution, done once. `_decode`, which is compiled, runs the program over each value and
makes no object per value. `decoding` builds Arrow arrays of what it found, `framing` finds the schema ids in values,
and `encoding` writes rows as values.
"""
