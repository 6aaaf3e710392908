"""The targets of the fuzzer: the parts of the package that take input from others.

Each target builds hostile input from bytes, tries it, and raises an error if the input does harm.
"""
