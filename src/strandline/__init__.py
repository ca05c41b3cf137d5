"""Strandline: a distributed log that you pip install."""
