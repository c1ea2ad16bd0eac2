"""What is to be done: tasks, who needs whom, and in which order they were declared."""
