"""Usage: sums of what calls used and cost, errors by cause, and the steps of a turn, as the operator's log tells them."""
