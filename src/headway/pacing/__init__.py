"""When may a call be sent? Pure: the time is an argument.

Reading order: `call` (the records), `meters`, `streams`, `periods`, `presence`, `limits` (one
limit); `width`, `hidden_limits`, `windows`, `account` (what is known of one account); `queue`,
`prompt_cache`, `calls` (its calls); `budget` (also of runs), `admission`, `view` (all accounts);
`headers`, `refusal`, `estimate`, `memory`.
"""
