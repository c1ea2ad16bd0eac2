"""What other frameworks make of the catalogue: an adapter each, written as their guides advise."""

SEED = 6
"""Which interleavings are taken where not all of them are."""
