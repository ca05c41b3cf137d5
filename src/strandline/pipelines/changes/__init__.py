"""What a change of the file means for each dataset: the old plan compared with the new one."""
