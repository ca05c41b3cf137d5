"""The decisions of the active controller, pure: commands in, metadata records out. `controller.py` is the way in."""
