"""Sinks that come with Strandline."""
