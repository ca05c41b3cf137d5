"""The mechanisms of SASL, both sides, without a socket.

A mechanism takes the messages of its peer and returns its own. What it needs (credentials, a nonce, a check of tokens)
is given to it. Work that takes milliseconds is returned as `OffLoop`, and the caller runs it in a thread.
`broker/network/authentication` puts the server side on the wire; channels between nodes and `client` use the other one.
"""
