"""How do processes of one user share an account?

Reading order: `protocol`, `service` (both ends of a message), `calls`, `connection` (a client),
`server`, `store`, `election`, `process` (the broker).
"""
