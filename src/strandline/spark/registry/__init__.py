"""Values with schemas of a registry: decoded by the writer's id, encoded by a subject's newest version.

`catalog` reads the topic `_schemas` itself, so neither the driver nor a worker asks a registry over HTTP.
`reader_schema` is what a query reads by, and `choosing` chooses it once. `values` turns a column of values into
columns, `row_encoding` rows into values, and `functions` are those that a user calls on a data frame.
"""
