"""Session interfaces of agent frameworks, implemented with sessions of this package; one module for each framework."""
