"""Secrets: patterns that find them, redaction, and environments without them."""
