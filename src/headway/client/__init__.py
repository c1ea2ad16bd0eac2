"""How is the call of one client paced, and how does it reach the account of the process?

Reading order: `exchange`, `accounts`, `admission`, `connection`, `transport`,
`httpx_transport`, `overview`, `http_server`.
"""
