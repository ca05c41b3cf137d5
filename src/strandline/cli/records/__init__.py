"""`strandline produce` and `strandline consume`: records from and to the terminal."""
