"""One module per format; `base` is the contract they fulfil."""
