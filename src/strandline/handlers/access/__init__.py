"""Which right every API needs, and what a client gets that lacks it.

`rights_table` is the one table: a row for every API that is served. `authorization` applies it between the decoded
request and its handler: it refuses the request, or takes out of it what the client may not ask for and puts the
refusals into the handler's response. Produce and Fetch are checked in their hot path, by `client_guard`.
"""
