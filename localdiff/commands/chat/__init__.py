"""The command `localdiff chat`, assembled from its parts.

    command     the command
    request     what the command line asks for: which session is continued, and with which model
    streams     where the chat takes place: streams, and the keyboard
    trace       traces of replies

They know files and streams; the conversation itself is in `localdiff.chat`.
"""
