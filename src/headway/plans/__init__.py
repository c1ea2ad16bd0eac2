"""What is to be done? Pure but for `load` and `document`, which read files.

Reading order: `document`, `grammar`, `section`, `spec`, `schema` (a file becomes a plan);
`links`, `template`, `sharing`, `resources`, `rows`, `expand`, `rounds`, `graph`, `ready`;
`accesses`, `hazards`, `command_files`, `remarks`, `check`, `fan_in`, `untrusted` (what is wrong);
`references`, `load`; `shell`, `code_words`, `each` (the `each` verb).
"""
