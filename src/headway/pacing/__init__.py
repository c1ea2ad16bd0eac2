"""When may a call be sent? Pure: the time is an argument.

Reading order: `limits`, `streams`, `balance` (one limit); `account`, `windows`, `hidden_limits`,
`width`, `latency` (one account); `headers`, `refusal`, `estimate`, `length` (what is learned);
`queue`, `quota`, `lane`, `admission` (who may call now); `budget`, `memory`.
"""
