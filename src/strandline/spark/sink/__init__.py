"""The sink: data frames into a log, exactly once.

`writers` is what Spark calls. A task (`task_writer`) turns Arrow columns into record batches (`record_bytes`,
`client/partitioner`, `open_batches`). It writes them in its own transaction (`producer`, from the worker's `pool`) and
leaves that open; its commit message names it. The driver (`driver`) then commits all of them with one request, and
waits until the batch can be read (`visibility`). `fallback` is the weaker way for brokers without that request.

Why nothing is lost or duplicated: docs/decisions/0021-one-record-commits-a-batch.md.
"""
