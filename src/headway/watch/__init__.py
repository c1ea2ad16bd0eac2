"""What people look at: readers of reports, for the terminal."""
