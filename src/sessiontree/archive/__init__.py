"""Tidying without loss: the archive, cleaning, pruning, shrinking, moving, copies, and marks on sessions.

Whatever leaves a session file or its place is in the archive first, compressed, read back and compared. Everything here
takes plain paths and folders; which sessions there are is asked of a function (see `candidates`).
"""
