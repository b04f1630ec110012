"""Workers in processes of this machine: forked from a template, watched, and ended with the run."""
