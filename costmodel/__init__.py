"""What a program will cost, predicted: features of loop trees, and the models that learn from them."""
