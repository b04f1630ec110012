"""Workers as actors of a Ray cluster: its nodes, who lives on which, and a cluster of our own."""
