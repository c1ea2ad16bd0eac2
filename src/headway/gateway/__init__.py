"""How are unmodified agents paced? A local endpoint.

Reading order: `values`, `settings`, `guard`, `server`, `call`, `reply`, `counters`, `daemon`;
`tasks`; `recording`, `replay`, `request_match`; `environment`.
"""
