"""The web console of `strandline.console` as a process behind the guard."""
