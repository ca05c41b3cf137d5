"""Brokers as the controller knows them: registrations, heartbeats, fences, and those that may be dead."""
