"""The formats of model providers: bytes <-> values, without I/O.

The client's transport, the gateway and the simulated provider read and write through the same
files, one for each format: `anthropic.py`, `openai_chat.py`, `openai_responses.py`, `gemini.py`.
"""
