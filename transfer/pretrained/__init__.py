"""Models that learned elsewhere: data sets, training, evaluation, the shipped ones."""
