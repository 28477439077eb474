"""What every front end shares: building a session controller from options, model lookup, the system prompt."""
