"""What would happen: providers, clients and whole runs in virtual time."""
