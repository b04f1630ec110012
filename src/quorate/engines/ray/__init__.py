"""Workers as actors of a Ray cluster: its nodes, who lives on which, and a cluster of our own.

Ray is imported only when it is used. Nothing here may unpickle what a worker sends, or decide about
draws and restarts: that is left to the supervisor.
"""
