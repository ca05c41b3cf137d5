"""Rebuild and switch: a new version is built beside the old one, compared, and takes its place."""
