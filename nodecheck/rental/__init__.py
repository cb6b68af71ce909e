"""The rental after acceptance: what changes on the node, and what is told of it to whom."""
