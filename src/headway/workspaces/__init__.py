"""How do tasks work on files of their own?

Reading order: `snapshot`, `repository` (what is frozen); `store`, `collection`, `difference` (a
view, and what became of it); `apply` (for the user); `enter`, `syscalls` (the process in front of a
command), `supervisor`, `command_kind` (what it reads and writes), `observation` (its record).
"""
