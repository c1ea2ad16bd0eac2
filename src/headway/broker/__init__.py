"""How do processes of one user share an account?

Reading order: `protocol`, `client`, `desk`, `server`, `store`, `election`, `process`.
"""
