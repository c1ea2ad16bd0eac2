"""Who performs tasks: one file for each kind of agent."""
