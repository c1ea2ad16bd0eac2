"""What do providers' bytes mean? Pure.

Reading order: `values`, `request`, `stream`, `anthropic`, `openai_chat`, `openai_responses`,
`gemini`, `read`, `answer`, `prices`.
"""
