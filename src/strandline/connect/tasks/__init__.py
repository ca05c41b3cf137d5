"""Tasks: what runs a source or a sink, from the other side to the log or back."""
