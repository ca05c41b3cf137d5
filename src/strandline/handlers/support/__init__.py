"""Code that several handlers share: their context, pending fetches, parts of responses, rejected requests."""
