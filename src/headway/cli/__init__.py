"""What does each verb do? `main` is the one boundary, then one module a verb, without logic."""
