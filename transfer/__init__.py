"""Transfer of earlier tuning: the record store, global and local models, and pretrained ones."""
