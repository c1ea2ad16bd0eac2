"""How is one client's call paced?

Reading order: `exchange`, `accounts`, `admission`, `transport`, `httpx_transport`,
`overview`, `http_server`.
"""
