"""Sequence model of good configs: a grammar of decisions, a network, decoders, training."""
