"""Migrations of the app, in the order of their numbers."""
