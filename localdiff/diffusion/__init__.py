"""The sampler: pure functions of tensors that turn logits into the next canvas. Knows no network, no text, no files."""
