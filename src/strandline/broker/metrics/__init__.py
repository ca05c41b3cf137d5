"""What a node serves over HTTP: metric families, probes, client telemetry and the watchdog."""
