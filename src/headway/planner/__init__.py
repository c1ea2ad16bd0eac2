"""Plans written by a model, judged by every check."""
