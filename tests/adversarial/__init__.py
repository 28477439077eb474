"""Hostile repositories, session files, folders and terminals' escape sequences; SECURITY.md names these tests."""
