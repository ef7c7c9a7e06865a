"""What the demo model can say about running localdiff, as plain data."""

from __future__ import annotations

from localdiff.demo.skills.fact import Fact

USAGE_FACTS: tuple[Fact, ...] = (
    Fact(
        name="full model",
        answer=(
            "The full model is DiffusionGemma with 26 billion weights, of which about 4 billion are used for "
            "each token."
        ),
        concepts=(
            ("DiffusionGemma", "DiffusionGemma"),
            ("the full model", "the full model"),
            ("the big model", "big model"),
        ),
        patterns=("How (big|large) is (the full model|the big model|DiffusionGemma|the real model)?",),
    ),
    Fact(
        name="gpu",
        answer="No, localdiff also runs on a CPU, only slower. The demo model needs no GPU at all.",
        patterns=(
            "(Does|Will) (localdiff|it|this) need a (GPU|graphics card|card)?",
            "Do I need a (GPU|graphics card|card)( for localdiff| to run it|)?",
            "(Can|Does) (localdiff|it|this) run (without a GPU|on a CPU|without a card)?",
            "Is a (GPU|graphics card) (required|needed)?",
            "Can I (run|use) (it|localdiff) (on a CPU|without a GPU|on my laptop)?",
        ),
    ),
    Fact(
        name="cards",
        answer="The 4bit recipe aims at cards with 18 GB, 4bit-small at 16 GB, mixed at 24 GB and int8 at 32 GB.",
        patterns=(
            (
                "(Which|What) (cards|graphics cards|GPUs) (can I use|does it run on|does localdiff "
                "support|are supported|do I need|work)?"
            ),
            "(Which|What) (card|graphics card|GPU) (do I need|should I buy|should I use|is enough)?",
            ("How much (memory|GPU memory) (do I need|does it need|does localdiff need|is needed|must my card have)?"),
            "(Will it|Does it|Does the full model) fit (on|into) (my card|my GPU|18 GB)?",
        ),
    ),
    Fact(
        name="recipes",
        answer="There are five recipes: 4bit, 4bit-small, mixed, int8 and bf16. The default is 4bit.",
        concepts=(("a recipe", "recipe"), ("the recipes", "recipes")),
        patterns=(
            "(Which|What) recipes (are there|exist|can I use|do you have|does localdiff have)?",
            "(List|Name|Show me) the recipes.",
            "What is the default recipe?",
        ),
    ),
    Fact(
        name="nf4",
        answer=(
            "nf4 is a 4-bit format: each weight is one of 16 levels, and each group of 64 weights shares one scale."
        ),
        concepts=(("nf4", "nf4"), ("the nf4 format", "the nf4 format")),
        patterns=("How does nf4 (work|store weights)?", "How many bits (does nf4 have|are in nf4)?"),
    ),
    Fact(
        name="int8",
        answer=(
            "int8 is an 8-bit format: each weight is a whole number, and each group of 64 weights shares one scale."
        ),
        concepts=(("int8", "int8"), ("the int8 format", "the int8 format")),
        patterns=("How does int8 (work|store weights)?", "How many bits (does int8 have|are in int8)?"),
    ),
    Fact(
        name="bf16",
        answer="bf16 is a 16-bit number format. The bf16 recipe keeps the weights as they were published.",
        concepts=(("bf16", "bf16"), ("the bf16 format", "the bf16 format")),
        patterns=("How does bf16 (work|store weights)?", "How many bits (does bf16 have|are in bf16)?"),
    ),
    Fact(
        name="quantization",
        answer="Quantization stores weights with fewer bits, so that the model needs less memory.",
        concepts=(("quantization", "quantization"), ("a quantized model", "quantized")),
        patterns=("(Why should I|Why do you|Why would I) quantize (a model|the model|weights)?",),
    ),
    Fact(
        name="quantize",
        answer="Run localdiff quantize with a model and a recipe. It writes the small weights and checks them.",
        patterns=(
            "How (do|can) I (quantize|shrink|compress) (a model|the model|it|weights)?",
            "(Which|What) command (quantizes|shrinks) (a model|the model|weights)?",
            "(Show|Tell) me how to quantize (a model|the model).",
            "How (is a model quantized|does quantize work|do I make a 4bit model|do I get a 4bit model)?",
        ),
    ),
    Fact(
        name="run",
        answer="Type localdiff run and your prompt in quotes. Add --model demo to use me.",
        patterns=(
            "How (do|can) I (run|start|use|try) (localdiff|it|you|the demo|the demo model)?",
            "(Which|What) command (runs|starts) (localdiff|the model|the demo|you)?",
            "(Show|Tell) me how to (run|start|use) (localdiff|it|the demo).",
        ),
    ),
    Fact(
        name="chat",
        answer="Type localdiff chat. You can stop, undo and edit turns; /help lists the commands.",
        patterns=(
            "How (do|can) I (chat|talk) (with you|with the model|with localdiff)?",
            "(Is there|Do you have) a chat( mode|)?",
            "(Which|What) command (starts|opens) (a chat|the chat)?",
            "How does (chat|the chat) work?",
        ),
    ),
    Fact(
        name="trace",
        answer="A trace is a recorded run. localdiff replay plays it again, step by step, without the model.",
        concepts=(("a trace", "trace"), ("the trace", "traces"), ("a replay", "replay")),
        patterns=("How (do|can) I (record|replay|save) a run?",),
    ),
    Fact(
        name="doctor",
        answer="localdiff doctor checks your machine: devices, memory, weights and terminal, and says what to do.",
        concepts=(("localdiff doctor", "doctor"), ("the doctor command", "the doctor command")),
        patterns=("How (do|can) I check (my machine|my setup|if it works|my memory)?",),
    ),
    Fact(
        name="sudoku how",
        answer="I see all cells at once, so each clue helps every cell. Sure cells settle first and hard ones later.",
        patterns=(
            "How (do|can) you solve (a Sudoku|Sudokus|a puzzle)?",
            "Why (is|are) (diffusion|you|diffusion models) good at (Sudoku|puzzles)?",
            "Why does (Sudoku|a Sudoku) suit diffusion?",
            "(Explain|Tell me) how you solve a Sudoku.",
        ),
    ),
    Fact(
        name="speed",
        answer=(
            "Diffusion is fast because one step improves many tokens at once, so a block needs far fewer "
            "passes than it has tokens."
        ),
        patterns=(
            "Why (is|are) (diffusion|you|text diffusion|this) (fast|so fast|quick)?",
            "(Is|Are) (diffusion|you|text diffusion|localdiff) (fast|faster|quick)?",
            "How (fast|quick) (are you|is it|is diffusion|is localdiff)?",
            "What makes diffusion fast?",
        ),
    ),
    Fact(
        name="private",
        answer="localdiff works on your machine. Your prompts and answers stay there.",
        patterns=(
            "(Is|Are) (localdiff|my data|my prompts|it) (private|safe|secret)?",
            "(Where do|Do) my (prompts|answers|data) go (anywhere|to a server|to the cloud)?",
            "(Does localdiff|Do you) (send|share|upload) (my data|my prompts|anything)?",
            "Do (you|I) need the (internet|cloud|network)?",
        ),
    ),
    Fact(
        name="training",
        answer="I was trained by the code in localdiff, on examples that it makes from a seed.",
        patterns=(
            "(How|Where) were you (trained|made|built)?",
            "Who (trained|made|built) you?",
            "What (were you trained on|data were you trained on|is your training data)?",
            "What did you learn from?",
            "Where (do you come from|does your data come from)?",
        ),
    ),
    Fact(
        name="change mind",
        answer="Yes. Until a block is committed nothing is fixed: any position may change in any step.",
        patterns=(
            "Can (you|a position|a token|an accepted token) (change|still change|be changed)( later|)?",
            "Can you (change your mind|fix a mistake|correct yourself|correct a mistake)?",
            "(Is|Are) accepted (tokens|positions) (fixed|final|frozen)?",
            "Do (tokens|positions) freeze?",
        ),
    ),
)
