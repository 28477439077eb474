"""Secrets: how to recognize them (`names`, `patterns`), and how to keep them out of sessions and exports.

`environment` masks values that are known, those of the user's variables. `redact` finds secrets in text by patterns.
"""
