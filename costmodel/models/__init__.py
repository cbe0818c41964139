"""Cost models, each of them an implementation of `costmodel/model.py`."""
