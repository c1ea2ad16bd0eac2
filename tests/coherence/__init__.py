"""The result of a run never depends on who finished first: each schedule against the serial run."""
