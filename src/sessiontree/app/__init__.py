"""Code shared by all front ends: building a session controller from options, model lookup, the system prompt."""
