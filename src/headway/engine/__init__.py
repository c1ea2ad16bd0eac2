"""What happens next in a run? Pure: inputs in, events and effects out.

Reading order: `events`, `state`, `engine`, `strategy`, `effects`, `reduction`, `record`, `explain`.
"""
