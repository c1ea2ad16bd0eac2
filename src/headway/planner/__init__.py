"""Goal -> plan through a model: asked with our grammar, judged by our checks, repaired."""

from headway.planner.draft import Draft
from headway.planner.planning import Goal, drafted, goal_of, plan, plan_async

__all__ = ["Draft", "Goal", "drafted", "goal_of", "plan", "plan_async"]
