"""Comparison of two traces: where they diverge, what that costs, and which tokens end up different.

compare  the differences, as values
rows     sentences and tables that both forms have
report   all of it as text
page     all of it as an HTML file
"""
