"""What all hosts share. A host is a framework that runs a federation, such as Flower or NVFLARE.

A host hands over replies of clients. This room knows which replies can be used, where their numbers belong, and how
a round is described in one line. It needs no host.
"""
