"""What is durable? A run's folder and the SQLite file in it.

Reading order: `folder`, `file`, `journal`, `reader`, `salvage`, `memory`, `shim_log`.
"""
