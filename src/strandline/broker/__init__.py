"""Bytes enter and leave here: the only package with sockets.

`node` wires every part and reads like a table of contents. `listener` accepts, `socket_transport` moves bytes,
`connection` splits them into requests and keeps answers in order, `dispatch` finds the handler. `metadata_quorum` and
`group_driver` perform what the pure machines of `quorum` and `coordinators` decide. `main` is the process.
"""
