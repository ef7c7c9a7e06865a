"""What the demo model can say about text diffusion, as plain data."""

from __future__ import annotations

from localdiff.demo.skills.fact import Fact

DIFFUSION_FACTS: tuple[Fact, ...] = (
    Fact(
        name="text diffusion",
        answer=(
            "Text diffusion starts from a canvas of random tokens and improves all positions together, step "
            "by step, until the text has settled."
        ),
        concepts=(
            ("text diffusion", "text diffusion"),
            ("diffusion", "diffusion"),
            ("a text diffusion model", "a text diffusion model"),
        ),
        patterns=("How does (text diffusion|diffusion|a diffusion model|a text diffusion model|it) work?",),
    ),
    Fact(
        name="difference",
        answer=(
            "A common language model writes one token after the other. A diffusion model writes a whole "
            "block of tokens in a few steps."
        ),
        patterns=(
            (
                "How (is diffusion|is text diffusion|are you|is this) different from (a common language "
                "model|other models|a normal model|one token at a time)?"
            ),
            (
                "What is the difference (to|from) (a common language model|other models|a normal model|other "
                "language models)?"
            ),
            "What makes (diffusion|you|text diffusion|this model) (different|special)?",
            "Do you write one (token|word) (at a time|after the other)?",
        ),
    ),
    Fact(
        name="canvas",
        answer=(
            "A canvas is a row of token positions that the model fills together. It starts as noise and becomes text."
        ),
        concepts=(("a canvas", "canvas"), ("the canvas", "the canvas")),
        patterns=("What (happens on|do I see on|is on) the canvas?",),
    ),
    Fact(
        name="canvas size",
        answer="My canvas has 96 positions. The canvas of the full model has 256.",
        patterns=(
            "How (big|large|long|wide) is (the canvas|a canvas|your canvas|one canvas)?",
            (
                "How many (tokens|positions|pieces) (does the canvas have|are on the canvas|fit on a "
                "canvas|does a canvas hold)?"
            ),
            "What is the (size|length) of (the|a|your) canvas?",
        ),
    ),
    Fact(
        name="block",
        answer=(
            "A block is one canvas of text. When a block is done it is committed, and the next block starts "
            "as fresh noise."
        ),
        concepts=(("a block", "block"), ("the block", "a block")),
        patterns=("What (happens after|comes after|follows) a block?",),
    ),
    Fact(
        name="denoise step",
        answer=(
            "A denoise step is one pass of the model over the canvas: it predicts every position, keeps the "
            "sure ones and draws new noise for the rest."
        ),
        concepts=(("a denoise step", "denoise step"), ("a step", "step"), ("denoising", "denoising")),
        patterns=("What happens (in|during) (a|one|each|every) (step|denoise step)?",),
    ),
    Fact(
        name="steps count",
        answer=(
            "Easy blocks take two to four steps and hard ones take more. The full model stops after 48 steps at most."
        ),
        patterns=(
            (
                "How many (steps|denoise steps) (does it take|do you take|do you need|are there|does a block "
                "take|are needed)?"
            ),
            "How many (steps|denoise steps) (per|for a|for one|in a) (block|canvas)?",
            "What is the (maximum|highest|largest) number of (steps|denoise steps)?",
            "Why do (some|hard) (blocks|prompts) (take|need) more steps?",
        ),
    ),
    Fact(
        name="uniform",
        answer=(
            "In uniform-state diffusion the noise is a random token from the whole vocabulary, so every "
            "position always shows a real token."
        ),
        concepts=(
            ("uniform-state diffusion", "uniform-state"),
            ("uniform diffusion", "uniform diffusion"),
            ("uniform noise", "uniform noise"),
        ),
        patterns=("What (kind|sort|type) of (noise|diffusion) (do you use|is this|is used|does the model use)?",),
    ),
    Fact(
        name="mask",
        answer=(
            "No mask token is used. The model is uniform-state: noise is made of random tokens, and any "
            "position may still change."
        ),
        patterns=(
            "Is there a mask( token|)?",
            ("(Do you use|Does the model use|Does it use|Does localdiff use) (a mask|masks|a mask token|mask tokens)?"),
            "Is (this|it|the model) a (masked|mask) (model|diffusion model)?",
            "(Are you|Is this|Is it) (masked|masked diffusion)?",
            "(Where|What) is the mask( token|)?",
            "(Explain|What about) the mask token.",
        ),
    ),
    Fact(
        name="noise",
        answer=(
            "Noise is a random token. A new canvas is all noise, and positions that are not accepted get "
            "fresh noise after each step."
        ),
        concepts=(("noise", "noise"), ("the noise", "the noise")),
        patterns=(
            ("(Where does the noise come from|What is the noise made of|Why is there noise|How is noise made)?"),
        ),
    ),
    Fact(
        name="renoise",
        answer=(
            "To renoise is to put a fresh random token at each position that was not accepted, before the next step."
        ),
        concepts=(("renoise", "renoise"), ("renoising", "renoising"), ("a renoised position", "renoised")),
        patterns=("What happens to (positions|tokens) that are not accepted?",),
    ),
    Fact(
        name="accept",
        answer=(
            "To accept a position is to keep its sampled token for the next step. Acceptance is decided "
            "again in every step."
        ),
        concepts=(("acceptance", "acceptance"), ("accept", "accept"), ("an accepted position", "accepted")),
        patterns=("(When|How) is a (position|token) (accepted|kept)?",),
    ),
    Fact(
        name="entropy bound",
        answer=(
            "The entropy bound accepts: positions are taken from the surest on, as long as their summed "
            "entropy stays within the bound. It does not stop a block."
        ),
        concepts=(("the entropy bound", "entropy bound"), ("an entropy bound", "the entropy bound")),
        patterns=("What (does the entropy bound do|is the entropy bound for|is the bound|does the bound do)?",),
    ),
    Fact(
        name="entropy",
        answer=(
            "Entropy measures doubt. It is low when the model is sure of a token and high when many tokens "
            "seem possible. It is given in nats."
        ),
        concepts=(("entropy", "entropy"), ("the entropy", "the entropy")),
        patterns=(
            (
                "(What is entropy good for|Why do you measure entropy|What unit does entropy have|How is "
                "doubt measured)?"
            ),
        ),
    ),
    Fact(
        name="stop",
        answer=(
            "A block stops when it is stable and confident, or when the last step is reached. The entropy "
            "bound does not stop it."
        ),
        patterns=(
            "What (stops|ends|finishes) (a block|the block|a canvas|denoising|the steps)?",
            "When (does|will) (a block|the block|a canvas|denoising) (stop|end|finish)?",
            "(When|Why|How) do you stop?",
            "How do you know when (to stop|a block is done|you are done|a block is finished)?",
            "What are the stop rules?",
            "Explain (the stop rules|stopping).",
        ),
    ),
    Fact(
        name="commit",
        answer=(
            "A block is committed once it has settled: its best tokens become text, go into the cache, and "
            "do not change any more."
        ),
        concepts=(("a commit", "commit"), ("a committed block", "committed")),
        patterns=(
            "(Why|When|How) is a block committed?",
            "(Why do you|When do you) commit a block?",
            "What happens when a block is committed?",
        ),
    ),
    Fact(
        name="settled",
        answer=(
            "Settled means that the best token of each position stays the same from step to step and that "
            "the model is sure of it."
        ),
        concepts=(("a settled block", "settled"), ("a settled position", "a settled position")),
        patterns=("When (is a block|is the text|is a canvas|is a position) settled?",),
    ),
    Fact(
        name="stability",
        answer="A canvas is stable when its best tokens are the same as in the step before.",
        concepts=(("stability", "stable"), ("a stable canvas", "stability")),
        patterns=("When is (a|the) (canvas|block) stable?",),
    ),
    Fact(
        name="confidence",
        answer="A canvas is confident when the mean entropy of its positions is below the confidence threshold.",
        concepts=(("confidence", "confident"), ("the confidence threshold", "confidence")),
        patterns=("When is (a|the|the model) (canvas|block) confident?",),
    ),
    Fact(
        name="self-conditioning",
        answer=(
            "With self-conditioning each step also sees the guess of the step before, as a soft mix of "
            "tokens, so that good ideas are not lost."
        ),
        concepts=(("self-conditioning", "self-conditioning"), ("self conditioning", "self conditioning")),
        patterns=(
            ("(What does self-conditioning do|Why do you use self-conditioning|What is self-conditioning for)?"),
        ),
    ),
    Fact(
        name="temperature",
        answer=(
            "The temperature says how freely tokens are drawn. It falls from step to step; zero means always "
            "the best token."
        ),
        concepts=(("the temperature", "temperature"), ("the temperature schedule", "temperature schedule")),
        patterns=("What does (the temperature|temperature) do?",),
    ),
    Fact(
        name="seed",
        answer="The seed starts the noise. The same prompt, seed and device give the same text again.",
        concepts=(("the seed", "seed"), ("a seed", "the seed")),
        patterns=("How do I (get the same text|get the same answer|repeat a run|repeat an answer)( again|)?",),
    ),
    Fact(
        name="token",
        answer="A token is a piece of text: a word, a part of a word, a digit or a mark.",
        concepts=(("a token", "token"), ("tokens", "tokens"), ("a piece", "piece")),
    ),
    Fact(
        name="experts",
        answer=(
            "In a mixture of experts a router picks a few small networks for each token, so that only a part "
            "of the weights is used."
        ),
        concepts=(
            ("a mixture of experts", "mixture of experts"),
            ("an expert", "expert"),
            ("the router", "router"),
        ),
    ),
    Fact(
        name="cache",
        answer=(
            "The cache keeps keys and values of the prompt and of all committed blocks, so that a step only "
            "computes the canvas."
        ),
        concepts=(("the cache", "cache"), ("a cache", "the cache")),
        patterns=("What (does the cache do|is the cache for|is in the cache)?",),
    ),
)
