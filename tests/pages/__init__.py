"""Scripts that write pages and pictures of `docs/`, run by `make docs`.

    cli_reference       `docs/cli.md`
    terminal_page       `docs/terminal.md`
    canvas_picture      `docs/canvas.svg`
    chat_screens        the screens of `docs/chat.md`, by hand: `python -m tests.pages.chat_screens`

Tests check that the first three files are up to date.
"""
