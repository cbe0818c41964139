"""Programs of nests: their canonical form, fusion, groups, and what they touch."""
