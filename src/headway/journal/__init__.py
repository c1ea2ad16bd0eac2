"""What is durable? A run's folder and the SQLite file in it.

Reading order: `folder`, `file`, `journal`, `reader`, `documents`, `salvage`, `shim_log`.
"""
