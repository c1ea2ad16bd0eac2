"""What happened, what would happen? Pure; `text` draws it for terminals.

Reading order: `history`, `time_use`, `progress`, `tables`, `health` (what happened); `bound`,
`sizes`, `outline`, `forecast`, `options`, `advise` (what would); `stage`, `trial`, `schedules`,
`explore`, `detect`.
"""
