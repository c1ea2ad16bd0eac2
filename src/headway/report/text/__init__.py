"""How do reports read on a terminal?

Reading order: `words`, then one module a view.
"""
