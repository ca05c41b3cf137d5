"""Runs the coordinators of groups and transactions on this node, and samples the lag of groups."""
