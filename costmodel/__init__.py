"""What a program will cost: features of loop trees, and the models that learn from them."""
