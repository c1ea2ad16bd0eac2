"""Performs what the core decides: clocks, sockets, files, transports."""
