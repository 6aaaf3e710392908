"""Handwritten digits, learnt by clients of which some lie."""
