"""One module per API key: check the request, ask the owner of the state, answer.

A handler is `handle(context, request)` and returns the answer, or None if `context.reply` will be called later. The
two hot ones, Produce and Fetch, are `start(node, connection, view, at, version, correlation_id)` instead: they parse
by hand and work on views of the receive buffer. `context` says what a handler may ask of the node.
"""
