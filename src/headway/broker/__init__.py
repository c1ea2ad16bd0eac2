"""How do processes of one user share an account?

Reading order: `protocol`, `service`, `server`, `store`, `election`, `process`. The other end of the
socket is `client/connection.py`.
"""
