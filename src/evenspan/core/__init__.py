"""The paper's method on transformers models: what to redistribute, where, and putting it into a model."""
