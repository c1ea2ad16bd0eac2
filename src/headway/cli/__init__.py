"""What does each verb do? No logic of runs, plans or accounts is here.

Reading order: `main` is the one boundary; `runs` shows one run; `run`, `each` and `plan` perform,
with what they share in `running`; `check`, `advise` and `explore` look at plans; then `limits`,
`gateway`, `sim` and `setup`, `ui`.
"""
