"""Workloads against simulated providers: presets, files, and comparisons of strategies."""
