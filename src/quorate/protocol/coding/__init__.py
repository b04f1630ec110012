"""Gradient codes: encoding, decoding, and what replicas say of each other."""
