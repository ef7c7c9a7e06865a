"""Comparison of two traces: where they diverge, what that costs, and which tokens end up different."""
