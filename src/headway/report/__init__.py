"""What happened, what would happen, what is advised? Pure; `text` shows it.

Reading order: `history`, `time_use`, `progress`, `tables`, `health` (what happened); `bound`,
`sizes`, `outline`, `forecast`, `options`, `advise` (what would); `explore`, `findings`, `credit`.
"""
