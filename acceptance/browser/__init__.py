"""The exported page in a real browser: `make browser-test`."""
