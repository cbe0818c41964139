"""From a network and its configs to one library: kernels, memory plan, plan code."""
