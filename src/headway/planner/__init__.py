"""How does a model write a plan? `planning` has it judged by every check."""
