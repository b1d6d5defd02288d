"""Import of a `.ship` that Shipmate 0.1 has written: its lines and rows become events of the log, and its files a backup."""
