"""A trace as one self-contained HTML file."""
