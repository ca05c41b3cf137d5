"""Checks of connector configs before they are stored: the settings that every connector has, and those of its parts."""
