"""Workers, the service that runs them beside the rows, and every kind of task they answer.

The same code runs in processes, in Ray actors and in virtual time. So nothing here may import an
engine, know other workers, or choose what to compute next: that is left to the coordinator.
"""
