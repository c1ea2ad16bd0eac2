"""How is it shown: text for a terminal, JSON for a program, pictures?

Reading order: `words`, then one module a view.
"""
