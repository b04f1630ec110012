"""The live page of a run: a small server for this machine only, which reads the journal."""
