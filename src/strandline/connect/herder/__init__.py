"""The herder: what connectors there are, which worker runs which task, and what an administrator asks for."""
