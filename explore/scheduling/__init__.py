"""Scheduling as a game (LoopTune): an environment, evaluators, searches, policies that learn."""
