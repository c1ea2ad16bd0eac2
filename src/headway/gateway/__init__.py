"""A local endpoint that paces any unmodified agent: route, admit, forward, settle."""
