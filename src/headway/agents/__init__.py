"""What performs a task? A model, a function, a command, a program that is an agent.

Reading order: `prompt`, `gate`; `function`, `worker`; `shell`, `shim`, `metering`;
`programs`, `kinds`; `toolloop`, `tools`, `tools_models`, `tools_mcp`.
"""
