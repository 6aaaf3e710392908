"""What the wrappers for Flower and NVFLARE share: checks of replies, a folder with a lock, and lines of the log.

A host is a framework that runs a federation, such as Flower or NVFLARE. The modules here import no host.
"""
