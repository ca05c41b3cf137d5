"""What a changed file means for each dataset: compares the old plan with the new one."""
