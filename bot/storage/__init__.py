"""Files under `.ship` that tools and core both use: artifacts, and memory files with the origin of each line."""
