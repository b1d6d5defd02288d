"""Messages that change while a turn runs: the preview of an answer, and the progress of long work."""
