"""TLS on sockets: handshakes, transports, and the certificates of each listener."""
