"""Code that several handlers share: their context, pending fetches, time slicing, error responses."""
