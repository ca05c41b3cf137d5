"""What several handlers share: their context, fetches under way, time slicing, refused requests."""
