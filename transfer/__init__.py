"""What earlier tuning teaches: the record store, global and local models, and pretrained ones."""
