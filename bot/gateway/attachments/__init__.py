"""Files that came with messages: fetched, decoded, kept as artifacts, and named in the answer where they cannot be read."""
