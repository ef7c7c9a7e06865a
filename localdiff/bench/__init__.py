"""Measurements that a user can repeat: through the same model, sampler and engine as `localdiff run`."""
