"""Byte storage for sessions and blobs. `contract` has the protocols; stores do not interpret the bytes."""
