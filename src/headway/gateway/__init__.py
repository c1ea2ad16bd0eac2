"""How are unmodified agents paced? A local endpoint.

Reading order: `values`, `settings`, `guard`, `server`, `call`, `reply`, `counters`, `background`;
`tasks`; `recording`, `replay`, `request_match`; `environment`.
"""
