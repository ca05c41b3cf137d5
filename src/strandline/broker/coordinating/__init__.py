"""Runs the coordinators of groups and transactions on this node, and measures the lag of groups."""
