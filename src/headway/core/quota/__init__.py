"""What may be called when: limits, what is believed of them, and whose turn it is."""
