"""Networks on two devices: which steps go to the GPU, and how they run there."""
