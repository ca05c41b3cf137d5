"""The broker process: sockets, the event loop, and the drivers of the pure state machines.

`node` wires every part in start-up order, and `main` runs it as a process. `network/` moves bytes and dispatches
requests. `kraft/` runs the metadata quorum, `replicas/` the partitions, `coordinating/` groups and transactions,
`maintenance/` the background work on logs, and `metrics/` the HTTP endpoint.
"""
