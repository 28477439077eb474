"""Storage of sessions and blobs as bytes; `contract` has the protocols. Nothing here knows lines."""
