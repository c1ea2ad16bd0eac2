"""How is a run performed and resumed, and checked, foreseen or tried beforehand?

Reading order: `plan_run`, `launch`, `driver`, `attempts`, `tasks`, `filling`,
`reduce`, `revise`, `each`, `agent_tasks`, `workspaces`, `landing`, `objective`, `run_context`;
`machine`, `limit_log`; `results`, `resume` (resume);
`forecasts`, `advise`, `scratch`, `explore`, `observe`, `file_watch`, `doctor`.
"""
