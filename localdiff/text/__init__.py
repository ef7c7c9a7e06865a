"""Text in and out: from messages to token ids, and from committed ids back to text.

tokenizer    ids of text and text of ids
template     the checkpoint's chat template
sandbox      runs it, as downloaded text
shield       keeps typed text from becoming control tokens
prompt       a prompt in each of its forms, as ids
channels     which part of a reply is thought, answer or tool call
detok        text of a reply while it grows
"""
