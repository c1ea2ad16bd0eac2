"""How do processes of one user share an account?

Reading order: `protocol`, `client`, `connection`, `desk`, `peers`, `server`, `store`, `election`,
`process`.
"""
