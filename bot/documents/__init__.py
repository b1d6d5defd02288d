"""Documents, pictures and recordings: what their bytes are, and the text in them. Names are never looked at."""
