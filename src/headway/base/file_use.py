"""How a task uses a file that other tasks may use at the same time: bits of one number."""

READ, WRITE, APPEND, REMOVE = 1, 2, 4, 8
MADE = 16
"""It was not there when it was first written."""
DRAFT = 32
"""It was made, and is gone at the end."""
