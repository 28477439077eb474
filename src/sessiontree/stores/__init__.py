"""Places that keep bytes: one module per place; `base` is the contract. Nothing here knows what a line is."""
