"""Committed offsets of groups: plain, within transactions, and their expiry."""
