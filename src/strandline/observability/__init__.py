"""Metrics and log lines of a node, without a socket.

Counters are plain ints on the objects that do the work (`RequestMeter` for requests), so hot paths look up no label.
`exposition` formats them as Prometheus text for each scrape. `client_telemetry` manages the metrics that clients push
(KIP-714), and `otlp` decodes them with a limit on everything.
"""
