"""How a change of the weights changes answers: two models, the same prompts, the same noise.

    questions    what is asked, and how an answer is judged
    answers      whole generations: ids, steps of every block, right or wrong
    canvases     single steps: both models read exactly the same canvases
    comparison   all of it for two models, one loaded at a time
    report       a table, or a JSON object

Knows engines and text; knows nothing about codecs or how the two models came to differ.
"""
