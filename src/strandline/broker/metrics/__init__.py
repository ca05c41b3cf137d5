"""What a node tells about itself over HTTP: metric families, probes, client telemetry and the watchdog."""
