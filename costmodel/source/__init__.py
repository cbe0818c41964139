"""Models that read the text of programs, after Cummins et al. 2017."""
