"""Interactive chat: sessions and their files, slash commands, input, and remarks around a reply.

    loop                                     reads a line, runs a command or answers a message
    desk                                     the state that commands act on: session, settings, attached files
    slash, actions, help                     which command a line is, what each does, the page of `/help`
    partner                                  interfaces of what answers, draws and reads keys
    talker, reply, page, markdown, remarks   a reply while it grows, as it is kept, printed and remarked on
    session, session_file, session_store     turns, their lines of JSON, the folder of such files
    settings, catalog                        what `/set` changes; tables of settings and sessions
    keyboard, pastes, typeahead, piped       lines from a terminal, folded pastes, keys typed early; lines from a pipe
    completing, history, editor              Tab, earlier input, the user's editor
    files, clipboard                         text files in, answers out

Knows turns, lines and words; knows nothing about models, which a partner stands for.
"""
