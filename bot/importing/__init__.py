"""Import of a `.ship` of Shipmate 0.1: lines and rows become events, the files a backup."""
