"""`strandline config`: settings in force, changed and explained."""
