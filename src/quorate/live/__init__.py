"""The live page of a run: a small server for this machine only.

It reads the journal and nothing else: it never loads the model, and changes nothing but to stop the
run on request.
"""
