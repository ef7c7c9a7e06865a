"""Tests, and what they need.

A package, so that no other one of this name, which some installed library brings along, is taken for it.
"""
