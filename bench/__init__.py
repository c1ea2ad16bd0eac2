"""What headway is measured by: `python -m bench.pacing` and `python -m bench.cost`."""
