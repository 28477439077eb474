"""Lossless housekeeping: archive, clean, prune, shrink, truncate, move, back up and tag sessions.

Content is stored in the archive, read back and compared before it leaves a session file or its folder.
"""
