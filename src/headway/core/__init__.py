"""What headway computes: no clock, no I/O, no chance; each folder answers one question."""
