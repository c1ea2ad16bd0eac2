"""Headway for agents that speak the Model Context Protocol: a plan is handed over, the run goes on.

`server` is the only importer of the `mcp` package, which is an extra.
"""
