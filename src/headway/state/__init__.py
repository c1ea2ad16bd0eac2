"""What do the tasks of a run share? `shared` and `coherence` are pure.

Reading order: `shared`, `coherence`, `context`, `folder`, `outbox`, `learned_edges`.
"""
