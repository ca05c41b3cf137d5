"""One module per API key: check the request, ask the owner of the state, answer.

A handler is `handle(context, request)`. It returns the response, or None if `context.reply` is called later. The two
hot ones, Produce and Fetch, are `start(node, connection, view, at, version, correlation_id)` instead: they parse by
hand and work on views of the receive buffer. `support/context` says what a handler may use of the node.
"""
