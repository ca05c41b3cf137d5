"""Files and objects that are read: their formats, their bytes, and how files are followed.

A reader has no state that matters: `read` takes an offset and returns values with the offset behind them, so a source
goes on after a crash where its stored offset says.
"""
