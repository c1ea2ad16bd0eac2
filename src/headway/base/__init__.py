"""What every folder uses: values, numbers, digest, codec, the clock, folders, locks.

Reading order: `values`, `fields`, `numbers`, `digest`, `codec`, `clock`, `folders`, `locks`,
`process_tree`, `file_use`, `crash`.
"""
