"""How are unmodified agents paced? A local endpoint.

Reading order: `settings`, `guard`, `relay`, `call`, `reply`, `parked_calls`, `upstream`, `server`,
`daemon`; `tasks`, `spending`; `recording`, `replay`, `request_match`; `callers`, `agents`.
"""
