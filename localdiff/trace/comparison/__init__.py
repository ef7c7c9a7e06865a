"""Comparison of two traces: where they diverge, what that costs, and which tokens end up different.

compare    the differences, as values
timing     how long the two runs took
report     all of it as text
page       all of it as an HTML file
"""
