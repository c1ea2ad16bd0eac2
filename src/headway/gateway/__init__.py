"""How are unmodified agents paced? A local endpoint.

Reading order: `values`, `settings`, `guard`, `relay`, `call`, `reply`, `parked_calls`, `upstream`,
`counters`, `server`, `daemon`; `tasks`, `spending`; `recording`, `replay`, `request_match`;
`callers`, `agents`, `config_files`, `codex`, `gemini`, `opencode`.
"""
