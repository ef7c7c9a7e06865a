"""A trace as one self-contained HTML file.

page      template, styles, scripts, markup and data in one file
markup    its static parts: question, answer, figures, text
data      what its scripts read
assets    the files of styles and scripts, and their hashes
"""
