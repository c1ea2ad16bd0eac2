"""How is it shown: text for a terminal, JSON for a program?

Reading order: `words`, `run_view` (a run as its journal says), then one module a view.
"""
