"""The Python front door: a client that is paced, functions over many items, plans.

Public names are imported from `headway`; the modules here are their homes.
"""
