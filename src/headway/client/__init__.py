"""How is one client's call paced?

Reading order: `exchange`, `accounts`, `admission`, `transport`, `overview`, `http_server`.
"""
