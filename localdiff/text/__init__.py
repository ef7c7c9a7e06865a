"""Text in and out: from messages to token ids, and from committed ids back to text.

    prompt       a prompt in each of its forms, as ids
    template     the checkpoint's chat template
    sandbox      runs the template, which is downloaded code
    shield       keeps typed text from becoming control tokens
    tokenizer    ids of text and text of ids
    channels     which part of a reply is thought, answer or tool call
    detok        text of a reply while it grows

Knows text, ids and the files that say how they belong together; knows nothing about weights or blocks.
"""
