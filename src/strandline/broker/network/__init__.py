"""Sockets, connections and the dispatch of requests: from bytes to handlers and back."""
