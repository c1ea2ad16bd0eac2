"""What agents with a shell are told of headway: a SKILL.md, and where each agent looks for one."""
