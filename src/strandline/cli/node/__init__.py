"""The commands that run nodes: `serve`, `dev` and `format`."""
