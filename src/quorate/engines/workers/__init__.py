"""What runs where the rows are: workers, the service that runs them, and all they can be asked for.

The same code runs in processes, in Ray actors and in virtual time.
"""
