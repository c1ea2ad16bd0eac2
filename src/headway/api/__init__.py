"""The Python front door.

Reading order: `clients`, `maps`, `functions`, `plans`, `plan_files`, `sharing`, `summaries`.
"""
