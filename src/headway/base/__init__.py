"""What every folder uses: values, numbers, records, the clock, folders, locks.

Reading order: `values`, `numbers`, `records`, `codec`, `clock`, `folders`, `locks`,
`process_tree`, `crash`.
"""
