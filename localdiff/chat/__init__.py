"""Interactive chat: sessions and their files, slash commands, input, and remarks around a reply.

    loop                                          reads a line, runs a command or answers a message
    state                                         what commands act on: session, settings, attached files
    slash, actions, help                          which command a line is, what each does, the page of `/help`
    interfaces                                    of the model that answers, of what draws and of what reads keys
    reply_runner, reply_printer                   a reply while it grows, and its text on the screen
    markdown, markdown_blocks, verbatim           how the text is rendered
    highlighting, remarks                         colours of code in it; remarks below it
    session, session_file, session_store          turns, their lines of JSON, the folder of such files
    settings, session_text                        what `/set` changes; what is shown of sessions
    keyboard, pastes, typeahead                   terminal input, folded pastes, keys typed early
    line_display, line_reader                     how a line looks while it is typed; input without single keys
    interrupts                                    Ctrl-C, from the first line to the last
    completing, offering                          what Tab completes, and how it is offered
    history, editor                               earlier input, the user's editor
    files, clipboard                              text files in, answers out

Knows turns, lines and words; knows a model only as `interfaces.ChatModel`.
"""
