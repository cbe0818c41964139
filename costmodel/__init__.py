"""Cost models: features of loop trees, and the models that learn from them."""
