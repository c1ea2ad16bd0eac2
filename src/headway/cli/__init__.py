"""The command line: one short function a verb, no logic. `main` is the one boundary."""
