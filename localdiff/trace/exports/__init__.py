"""Traces in other forms, each a pure function to a string.

plain         text: the rows of one moment
unpacked      JSON with every array written out
animation     SVG: an animation, or one moment as a still
asciicast     a terminal recording
frames        what both of these show, and for how long
"""
