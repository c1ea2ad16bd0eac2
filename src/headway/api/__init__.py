"""The Python front door.

Reading order: `clients`, `functions`, `sharing`, `maps`, `plans`, `plan_files`, `summaries`.
"""
