"""The bound against the true optimum: a thousand small instances, each searched a second time.

The best schedule that the second search finds is played to the real `Provider`, which must accept
it call by call, and its log is audited.
"""
from tests.property.second_search import *
