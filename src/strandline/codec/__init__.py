"""Bytes to messages and back, pure.

`message` compiles Kafka's message schemas into encoders and decoders; `record_batch` knows the batch header;
`produce` and `fetch` are the hand-written hot paths that touch whole batches only; `columns` is the one decoder
from batch bytes to records; `compression` holds the five codecs. Nothing here opens a file or a socket.
"""
