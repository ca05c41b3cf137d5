"""What a node tells about itself, without a socket: the figures of requests, their text, the log's lines.

Counters are plain ints on the objects that do the work (`RequestMeter` for requests); nothing is looked up by a label
where work is done. `exposition` turns figures into Prometheus' text when somebody asks for it. `client_telemetry` keeps
what clients push about themselves (KIP-714), which `otlp` reads with a bound on everything.
"""
