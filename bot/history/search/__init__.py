"""Search: the index of the archive and the questions that are put to it. Blocking, but for `searching`."""
