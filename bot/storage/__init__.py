"""Files under `.ship` that tools and the core share: artifacts, and memory files with the sources of each line."""
