"""Rendering of a condensing canvas: events and pieces in, rows out.

    scene, canvas_state                  what there is to draw, and what its numbers mean
    canvas_view                          the picture: a pure function of a scene, a size and a palette
    pieces                               texts of ids, for whatever draws a run
    cells, draft, flow                   what texts and positions show, and how that is laid out in rows
    margins, gauges                      the lines around it: figures, legend, gauges
    layout, palette, style               sizes of terminals; colours and glyphs; spans of a row
    word_wrap, line_breaks, line_marks   lines of final text, where they may be broken, and how they begin
    paragraphs, dialect                  which committed text may leave the canvas; Markdown
    widths, sanitize, columns            columns of a character; text that is safe; tables
    ansi, svg                            rows for a terminal, and as a picture

Knows no terminal, and needs no torch: the same rows are drawn live, replayed and exported.
"""
